"""Some rows of a sparse matrix, in their order."""

import torch

from ..sparse_matrix import SparseMatrix


def select_rows(matrix, rows) -> SparseMatrix:
    row, entry = entries_of_rows(matrix.rowptr, rows)
    rowptr = row_pointers(row, rows.shape[0])
    return SparseMatrix(rowptr, matrix.col[entry], matrix.values[entry], (rows.shape[0], matrix.shape[1]))


def entries_of_rows(rowptr: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The entries of some rows, one row after the other: the place of each one's row in ``rows``, and its number."""
    begin = rowptr[rows]
    counts = rowptr[rows + 1] - begin
    row = torch.repeat_interleave(torch.arange(rows.shape[0], device=rows.device), counts)
    # What to add to a place among the entries that are taken.
    shift = begin - (counts.cumsum(0) - counts)
    return row, shift[row] + torch.arange(row.shape[0], device=rows.device)


def row_pointers(row: torch.Tensor, count: int) -> torch.Tensor:
    """Row pointers of entries in ascending rows, the row of each given."""
    rowptr = torch.zeros(count + 1, dtype=torch.int64, device=row.device)
    rowptr[1:] = torch.bincount(row, minlength=count).cumsum(0)
    return rowptr
