"""Matrices in compressed rows: their transposes, in time proportional to the entries, rows and sums."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch

from .entries import checked_structure


def transposed(
    rowptr: torch.Tensor, col: torch.Tensor, shape: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Row pointers and columns of the transpose, and for each of its entries the number of the entry in the matrix."""
    if col.device.type == "cpu" and type(col) is torch.Tensor and not torch.compiler.is_compiling():
        # SciPy counts the entries of the columns and puts each in its place, in a quarter of the time of sorting.
        indices, indptr = checked_structure(col.numpy(), rowptr.numpy(), shape, "matrix")
        number = np.arange(indices.size, dtype=np.int32 if indices.size < 2**31 else np.int64)
        flipped = scipy.sparse.csr_matrix((number, indices, indptr), shape=shape).tocsc()
        return tuple(
            torch.from_numpy(part.astype(np.int64)) for part in (flipped.indptr, flipped.indices, flipped.data)
        )
    counts = torch.zeros(shape[1] + 1, dtype=torch.int64, device=col.device)
    counts.scatter_add_(0, col + 1, torch.ones_like(col))
    order = torch.argsort(col, stable=True)
    return counts.cumsum(0), rows_of(rowptr, col.shape[0])[order], order


def inverse(order: torch.Tensor) -> torch.Tensor:
    """The inverse of a permutation, int64 ``[m]``."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(order.shape[0], device=order.device))


def rows_of(rowptr: torch.Tensor, entries: int) -> torch.Tensor:
    """int64 ``[nnz]``: the row of each entry."""
    rows = torch.arange(rowptr.shape[0] - 1, device=rowptr.device)
    return torch.repeat_interleave(rows, rowptr.diff(), output_size=entries)


def holds(dtype: torch.dtype, values: torch.Tensor) -> torch.Tensor:
    """Which values are 0 or have a magnitude that is neither 0 nor subnormal in a dtype."""
    return (values.abs() >= torch.finfo(dtype).tiny) | (values == 0)


def chosen(
    parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor], kept: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Row pointers, columns and values of the entries of a mask ``[nnz]``."""
    rowptr, col, values = parts
    before = torch.cat([rowptr.new_zeros(1), kept.cumsum(0)])
    return before.index_select(0, rowptr), col[kept], values[kept]


def row_sums(rowptr: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """``[rows]``: the sums of the rows, on a CPU added in the order of the entries."""
    return torch.segment_reduce(values, "sum", offsets=rowptr, unsafe=True, initial=0)


def unit_rows(rowptr: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """``[nnz]``: the values divided by the sums of the absolute values of their rows; zero rows stay zero."""
    norms = row_sums(rowptr, values.abs())
    scale = torch.where(norms > 0, norms.reciprocal(), torch.zeros_like(norms))
    return values * scale.repeat_interleave(rowptr.diff(), output_size=values.shape[0])
