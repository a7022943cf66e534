"""The entries of a matrix in the rows and columns of some nodes, which get new numbers in their order."""

import torch

from ..sparse_matrix import SparseMatrix
from ..sparse_rows import entries_of_rows


def induced_subgraph(adjacency, nodes) -> tuple[SparseMatrix, torch.Tensor]:
    count = nodes.shape[0]
    place = torch.full((adjacency.shape[1],), -1, device=nodes.device)
    place[nodes] = torch.arange(count, device=nodes.device)
    row, entry = entries_of_rows(adjacency.rowptr, nodes)
    col = place[adjacency.col[entry]]
    inside = col >= 0
    row, col, entry = row[inside], col[inside], entry[inside]
    order = torch.argsort(row * count + col)
    rowptr = torch.zeros(count + 1, dtype=torch.int64, device=nodes.device)
    rowptr[1:] = torch.bincount(row, minlength=count).cumsum(0)
    entry = entry[order]
    kinds = {"symmetric": adjacency.symmetric, "hollow": adjacency.hollow}
    return SparseMatrix(rowptr, col[order], adjacency.values[entry], (count, count), **kinds), entry
