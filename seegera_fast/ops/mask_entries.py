"""Feature masking (v3)."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator
from ..seeds import seed_tensor
from ..sparse_matrix import SparseMatrix
from .draw_subset import draw


def _fake(values):
    return tuple(values.new_empty(values.shape) for _ in range(6))


OPERATOR = Operator(
    "mask_entries(Tensor rowptr, Tensor col, Tensor values, Tensor rowptr_t, Tensor col_t, Tensor order,"
    " Tensor removed) -> (Tensor values, Tensor values_t, Tensor by_row, Tensor by_row_t, Tensor by_column,"
    " Tensor by_column_t)",
    columns=("cpu", "cuda", "triton"),
    fake=_fake,
)


def mask_entries(matrix: SparseMatrix, num_removed: int, seed: int | torch.Tensor) -> SparseMatrix:
    """The matrix with exactly ``num_removed`` of its stored entries set to zero. The structure is shared.

    Args:
        matrix: any sparse matrix.
        num_removed: number of stored entries to set to zero.
        seed: an int, or an int64 tensor of one element. The entries are those of
            ``draw_subset(seed, nnz, num_removed, stream="entries")``.

    Returns:
        The masked matrix. Its transpose, and ``row_normalized`` of both, are computed as well.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, or ``num_removed`` is above the number of stored entries.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> matrix = sf.SparseMatrix.from_any(torch.ones(3, 4))
        >>> int(sf.ops.mask_entries(matrix, num_removed=5, seed=0).values.sum())
        7
    """
    checks.sparse("matrix", matrix)
    num_removed = checks.whole("num_removed", num_removed, most=matrix.nnz)
    seed = checks.seed(seed, matrix.device)
    seed = seed_tensor(seed, matrix.device)
    backend = backends.choose("mask_entries", matrix.device)
    if backend is backends.REFERENCE:
        return reference.mask_entries(matrix, num_removed, seed)
    removed = draw(seed, matrix.nnz, num_removed, "entries")
    flipped = matrix.transposed
    parts = OPERATOR(
        backend,
        rowptr=matrix.rowptr,
        col=matrix.col,
        values=matrix.values,
        rowptr_t=flipped.rowptr,
        col_t=flipped.col,
        order=matrix.order,
        removed=removed,
    )
    return matrix.with_all_values(parts[0:2], parts[2:4], parts[4:6])
