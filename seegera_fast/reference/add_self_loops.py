"""A + I, the edge that each of its entries belongs to, and the edges."""

import torch

from ..sparse_matrix import SparseMatrix


def add_self_loops(adjacency) -> tuple[SparseMatrix, torch.Tensor, torch.Tensor]:
    row, col, nodes = adjacency.row, adjacency.col, torch.arange(adjacency.shape[0], device=adjacency.device)
    above = row < col
    number = above.cumsum(0) - 1
    # Of a symmetric matrix, entry k of the transpose is entry k too, so its mirror image is entry order[k].
    edge = torch.where(above, number, number[adjacency.order])
    order = torch.argsort(torch.cat([row, nodes]) * adjacency.shape[0] + torch.cat([col, nodes]))
    looped = SparseMatrix(
        adjacency.rowptr + torch.arange(adjacency.shape[0] + 1, device=adjacency.device),
        torch.cat([col, nodes])[order],
        torch.cat([adjacency.values, adjacency.values.new_ones(nodes.shape[0])])[order],
        adjacency.shape,
        symmetric=True,
    )
    edges = torch.stack([row[above], col[above]], dim=1)
    return looped, torch.cat([edge, torch.full_like(nodes, -1)])[order], edges
