"""The matrix of graph convolutions."""

from __future__ import annotations

import torch

from .sparse_matrix import SparseMatrix, row_sums
from .sparse_rows import slice_rows
from .support.pieces import even_ranges


def with_loops(
    adjacency: SparseMatrix, weights: torch.Tensor | None, first: int = 0
) -> tuple[SparseMatrix, torch.Tensor]:
    """Rows of ``A + I`` with their weights, and int64 ``[nnz]``: where among its entries each entry of A is.

    Args:
        adjacency: rows of A.
        weights: ``[nnz]``: the weights of their entries; None: all are 1.
        first: the number of the first row.
    """
    rows, count, device = adjacency.shape[0], adjacency.nnz + adjacency.shape[0], adjacency.device
    # The self-loop of a row comes behind the entries below the diagonal.
    above = adjacency.col > adjacency.row + first
    place = torch.arange(adjacency.nnz, device=device) + adjacency.row + above
    loops = torch.ones(count, dtype=torch.bool, device=device)
    loops[place] = False
    col = place.new_empty(count)
    col[place] = adjacency.col
    col[loops] = torch.arange(first, first + rows, device=device)
    weight = adjacency.values.new_ones(count)
    if weights is not None:
        weight[place] = weights
    rowptr = adjacency.rowptr + torch.arange(rows + 1, device=device)
    return SparseMatrix(rowptr, col, weight, adjacency.shape, symmetric=adjacency.symmetric), place


class PropagationRows:
    """The matrix of graph convolutions, made some rows at a time: only a number for each node is kept.

    Args:
        adjacency: A.
        weights: ``[nnz]``: the weights of its entries; None: all are 1.
        rows_at_once: so many rows are read at once for the degrees.
    """

    def __init__(self, adjacency: SparseMatrix, weights: torch.Tensor | None, rows_at_once: int) -> None:
        self._adjacency, self._weights = adjacency, weights
        self._scale = adjacency.values.new_empty(adjacency.shape[0])
        for rows in even_ranges(adjacency.shape[0], rows_at_once):
            looped = self._looped(rows)
            self._scale[rows.start : rows.stop] = row_sums(looped.rowptr, looped.values).rsqrt()

    def _looped(self, rows: range) -> SparseMatrix:
        """Rows of ``A + I``."""
        weights = self._weights
        if weights is not None:
            weights = weights[self._adjacency.rowptr[rows.start] : self._adjacency.rowptr[rows.stop]]
        return with_loops(slice_rows(self._adjacency, rows), weights, rows.start)[0]

    def __getitem__(self, rows: range) -> SparseMatrix:
        """Rows that follow each other, with the bits of those of :func:`propagation_matrix`."""
        looped = self._looped(rows)
        scale = self._scale[looped.row + rows.start] * self._scale[looped.col]
        return SparseMatrix(looped.rowptr, looped.col, looped.values * scale, looped.shape)


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
    return SparseMatrix(rowptr, col, weight * (scale[row] * scale[col]), looped.shape, symmetric=True)
