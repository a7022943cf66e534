"""Some rows of a sparse matrix."""

from __future__ import annotations

import torch

from .sparse_matrix import SparseMatrix


def entries_of_rows(rowptr: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The entries of some rows, one row after the other: the place of each one's row in ``rows``, and its number."""
    begin = rowptr[rows]
    counts = rowptr[rows + 1] - begin
    row = torch.repeat_interleave(torch.arange(rows.shape[0], device=rows.device), counts)
    # What to add to a place among the entries that are taken.
    shift = begin - (counts.cumsum(0) - counts)
    return row, shift[row] + torch.arange(row.shape[0], device=rows.device)


def select_rows(matrix: SparseMatrix, rows: torch.Tensor) -> SparseMatrix:
    """The rows with some numbers, int64 ``[m]``, in their order. Only these rows are read."""
    row, entry = entries_of_rows(matrix.rowptr, rows)
    rowptr = torch.zeros(rows.shape[0] + 1, dtype=torch.int64, device=matrix.device)
    rowptr[1:] = (matrix.rowptr[rows + 1] - matrix.rowptr[rows]).cumsum(0)
    selected = SparseMatrix(rowptr, matrix.col[entry], matrix.values[entry], (rows.shape[0], matrix.shape[1]))
    selected.row = row
    selected._layout = matrix._layout
    return selected


def slice_rows(matrix: SparseMatrix, rows: range) -> SparseMatrix:
    """Rows that follow each other. Columns and values are shared, and nothing else is read."""
    begin, end = int(matrix.rowptr[rows.start]), int(matrix.rowptr[rows.stop])
    rowptr = matrix.rowptr[rows.start : rows.stop + 1] - begin
    cut = SparseMatrix(rowptr, matrix.col[begin:end], matrix.values[begin:end], (len(rows), matrix.shape[1]))
    cut._layout = matrix._layout
    return cut
