"""The matrix of graph convolutions."""

from __future__ import annotations

import torch

from .compressed import row_sums
from .sparse_matrix import SparseMatrix


def propagation_matrix(looped: SparseMatrix, edge: torch.Tensor, kept: torch.Tensor | None = None) -> SparseMatrix:
    """``D^-1/2 (A + I) D^-1/2`` of the edges ``kept`` (None: all), from what :meth:`Graph.with_self_loops` returns."""
    rowptr, row, col, weight = looped.rowptr, looped.row, looped.col, looped.values
    if kept is not None:
        # The edge number of a self-loop is -1, which is the index of the last element, True.
        stays = torch.cat([kept, kept.new_ones(1)])[edge]
        row, col, weight = row[stays], col[stays], weight[stays]
        rowptr = torch.zeros_like(rowptr)
        rowptr[1:] = torch.bincount(row, minlength=looped.shape[0]).cumsum(0)
    scale = row_sums(rowptr, weight).rsqrt()
    # Symmetric bit for bit, because the product of the two scales does not depend on their order.
    scales = scale.index_select(0, row) * scale.index_select(0, col)
    return SparseMatrix(rowptr, col, weight * scales, looped.shape, symmetric=True)
