"""Pairs of numbers as single ones, found among others; and the symmetric matrix that pairs make.

A matrix is sorted by counting: SciPy's conversion from rows to columns takes one pass over the entries, and leaves
those of each column in the order of the rows. It trusts its numbers, which callers have checked.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch

from .compressed import transposed


def keys_of(pairs: torch.Tensor, width: int) -> torch.Tensor:
    """int64 ``[m]``: a number for each pair of ``[m, 2]``; the second numbers are below ``width``."""
    return pairs[:, 0] * width + pairs[:, 1]


def distinct(keys: torch.Tensor) -> torch.Tensor:
    """The different keys, in ascending order."""
    keys = keys.sort().values
    new = torch.ones_like(keys, dtype=torch.bool)
    torch.ne(keys[1:], keys[:-1], out=new[1:])
    return keys[new]


def among(keys: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """bool ``[m]``: which keys are among ascending ones."""
    if not known.shape[0]:
        return torch.zeros_like(keys, dtype=torch.bool)
    # In ascending order, they are looked for in memory that the caches still hold.
    wanted, order = keys.sort()
    found = known[torch.searchsorted(known, wanted).clamp_(max=known.shape[0] - 1)] == wanted
    return torch.empty_like(found).index_put_((order,), found)


def symmetric_structure(
    low: torch.Tensor, high: torch.Tensor, nodes: int, values: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The symmetric matrix with the entries ``low < high``, which ascend by ``low`` and then by ``high``.

    Args:
        values: ``[m]``, or None.

    Returns:
        The row pointers int64 ``[nodes + 1]``, the columns int64 ``[2 m]``, and the values ``[2 m]``.
    """
    # The numbers of entries above and below the diagonal in the rows before each.
    above = low.new_zeros(nodes + 1)
    torch.cumsum(torch.bincount(low, minlength=nodes), 0, out=above[1:])
    below, mirrored, order = transposed(above, high, (nodes, nodes))
    number = torch.arange(low.shape[0], device=low.device)
    # A row has its entries below the diagonal first.
    places = number + below[low + 1], number.add_(above[high[order]])

    def joined(upper: torch.Tensor, lower: torch.Tensor) -> torch.Tensor:
        every = upper.new_empty(2 * upper.shape[0])
        every[places[0]], every[places[1]] = upper, lower
        return every

    return above + below, joined(high, mirrored), None if values is None else joined(values, values[order])


def symmetric_pattern(row: np.ndarray, col: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The symmetric matrix whose entries are pairs of numbers, in either direction; not those of a number with itself.

    Returns:
        The row pointers int64 ``[nodes + 1]``, the columns int64 ``[nnz]``, and how many of these entries were among
        the pairs: all, or half of them if each was there in one direction.
    """
    apart = row != col
    if not apart.all():
        row, col = row[apart], col[apart]
    flipped = _by_column(_by_row(row, col, nodes))
    entries = _by_column(flipped)
    stored = entries.indices.size
    if not (np.array_equal(flipped.indptr, entries.indptr) and np.array_equal(flipped.indices, entries.indices)):
        del flipped, entries
        entries = _by_column(_by_row(np.concatenate([row, col]), np.concatenate([col, row]), nodes))
    return entries.indptr.astype(np.int64), entries.indices.astype(np.int64), stored


def _by_row(row: np.ndarray, col: np.ndarray, nodes: int) -> scipy.sparse.csr_matrix:
    """The pairs in the order of their rows, those of one row in any order, and some of them twice."""
    kind = np.int32 if row.size < 2**31 else np.int64
    # They are counted as the entries of one row by their columns.
    ends = np.array([0, row.size], kind)
    parts = col.astype(kind, copy=False), row.astype(kind, copy=False), ends
    grouped = scipy.sparse.csr_matrix(parts, shape=(1, nodes)).tocsc()
    return _pattern(grouped.data, grouped.indptr, (nodes, nodes))


def _by_column(entries: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """The transpose, whose columns ascend in each row, without entries that are there twice."""
    found = entries.tocsc()
    indices, indptr = found.indices, found.indptr
    new = np.ones(indices.size, bool)
    np.not_equal(indices[1:], indices[:-1], out=new[1:])
    new[indptr[:-1][indptr[:-1] < indptr[1:]]] = True
    if not new.all():
        before = np.zeros(indices.size + 1, indptr.dtype)
        np.cumsum(new, out=before[1:])
        indices, indptr = indices[new], before[indptr]
    return _pattern(indices, indptr, entries.shape)


def _pattern(indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> scipy.sparse.csr_matrix:
    """A matrix that stands for the places of its entries."""
    return scipy.sparse.csr_matrix((np.ones(indices.size, np.int8), indices, indptr), shape=shape)
