"""Rows of matrices that follow each other: what is read is these rows, and nothing is kept of the others."""

from __future__ import annotations

import torch

from .sparse_matrix import SparseMatrix, row_sums
from .support.pieces import even_ranges


def slice_rows(matrix: SparseMatrix, rows: range) -> SparseMatrix:
    """Rows of a matrix, which share its columns and values."""
    begin, end = int(matrix.rowptr[rows.start]), int(matrix.rowptr[rows.stop])
    rowptr = matrix.rowptr[rows.start : rows.stop + 1] - begin
    return SparseMatrix(rowptr, matrix.col[begin:end], matrix.values[begin:end], (len(rows), matrix.shape[1]))


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

    def __getitem__(self, rows: range) -> SparseMatrix:
        """Rows of ``D^-1/2 (A + I) D^-1/2``. On a CPU they have the bits of those of ``graph.propagation``; a GPU may
        add the weights of a row in another order."""
        looped = self._looped(rows)
        scale = self._scale[looped.row + rows.start] * self._scale[looped.col]
        return SparseMatrix(looped.rowptr, looped.col, looped.values * scale, looped.shape)

    def _looped(self, rows: range) -> SparseMatrix:
        """Rows of ``A + I``, with their weights."""
        part = slice_rows(self._adjacency, rows)
        # The self-loop of a row comes behind the entries below the diagonal.
        place = torch.arange(part.nnz, device=part.device) + part.row + (part.col > part.row + rows.start)
        loops = torch.ones(part.nnz + len(rows), dtype=torch.bool, device=part.device)
        loops[place] = False
        col = place.new_empty(loops.shape[0])
        col[place] = part.col
        col[loops] = torch.arange(rows.start, rows.stop, device=part.device)
        weight = part.values.new_ones(loops.shape[0])
        if self._weights is not None:
            begin, end = int(self._adjacency.rowptr[rows.start]), int(self._adjacency.rowptr[rows.stop])
            weight[place] = self._weights[begin:end]
        rowptr = part.rowptr + torch.arange(len(rows) + 1, device=part.device)
        return SparseMatrix(rowptr, col, weight, part.shape)
