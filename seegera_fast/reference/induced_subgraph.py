"""The entries of a matrix in the rows and columns of some nodes, which get new numbers in their order."""

import torch

from ..sparse_matrix import SparseMatrix
from .select_rows import entries_of_rows, row_pointers


def induced_subgraph(adjacency, nodes, *, weighted=True) -> tuple[SparseMatrix, torch.Tensor]:
    count = nodes.shape[0]
    place = torch.full((adjacency.shape[1],), -1, device=nodes.device)
    place[nodes] = torch.arange(count, device=nodes.device)
    row, entry = entries_of_rows(adjacency.rowptr, nodes)
    col = place[adjacency.col[entry]]
    inside = col >= 0
    row, col, entry = row[inside], col[inside], entry[inside]
    order = torch.argsort(row * count + col)
    col, entry = col[order], entry[order]
    values = adjacency.values[entry] if weighted else torch.ones_like(entry, dtype=adjacency.dtype)
    kinds = {"symmetric": adjacency.symmetric, "hollow": adjacency.hollow}
    return SparseMatrix(row_pointers(row, count), col, values, (count, count), **kinds), entry
