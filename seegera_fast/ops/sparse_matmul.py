"""Sparse times dense: what the other operations build on."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..registry import Operator
from ..sparse_matrix import SparseMatrix


def _fake(rowptr, col, values, rowptr_t, col_t, values_t, dense):
    return dense.new_empty(rowptr.shape[0] - 1, dense.shape[1])


def _setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:6])


def _backward(call: Any, ctx: Any, gradient: torch.Tensor):
    rowptr, col, values, rowptr_t, col_t, values_t = ctx.saved_tensors
    # The gradient of A D with respect to D is A^T G: the same product with the two halves swapped.
    return (None,) * 6 + (call("sparse_matmul", rowptr_t, col_t, values_t, rowptr, col, values, gradient),)


# In the dense layout, which only the CPU has, values and values_t are the matrix and its transpose in full, and the
# columns are not read.
OPERATOR = Operator(
    "sparse_matmul(Tensor rowptr, Tensor col, Tensor values, Tensor rowptr_t, Tensor col_t, Tensor values_t,"
    " Tensor dense) -> Tensor",
    columns=("cpu", "cuda", "triton"),
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)


def parts(matrix: SparseMatrix | None, backend: str) -> tuple[torch.Tensor | None, ...]:
    """A matrix as operators take it: row pointers, columns and values, its own and its transpose's; six times None."""
    if matrix is None:
        return (None,) * 6
    flipped = matrix.transposed
    values, flipped_values = matrix.values, flipped.values
    if backend == "cpu" and matrix.layout == "dense":
        values, flipped_values = matrix.dense, matrix.dense.t()
    return matrix.rowptr, matrix.col, values, flipped.rowptr, flipped.col, flipped_values


def sparse_matmul(matrix: SparseMatrix, dense: torch.Tensor) -> torch.Tensor:
    """``matrix @ dense`` over all trailing dimensions at once.

    Args:
        matrix: ``rows x cols``.
        dense: ``[cols, ...]``, float32 or float64 as the matrix; node-major ``[cols, S, d]`` serves S draws at once.

    Returns:
        ``[rows, ...]``. Differentiable in ``dense``; the matrix is a constant.

    Raises:
        TypeError: not a SparseMatrix or a tensor, or two dtypes.
        ValueError: sizes or devices that don't match.
    """
    checks.sparse("matrix", matrix)
    checks.tensor("dense", dense)
    checks.same_kind(matrix=matrix, dense=dense)
    if dense.ndim == 0 or dense.shape[0] != matrix.shape[1]:
        raise ValueError(f"dense: got shape {tuple(dense.shape)}, want {matrix.shape[1]} rows, as matrix has columns")
    backend = backends.choose("sparse_matmul", dense.device)
    if backend == "reference":
        return reference.sparse_matmul(matrix, dense)
    # The width is written out: -1 cannot be inferred where there are no rows.
    flat = dense.reshape(dense.shape[0], dense.shape[1:].numel())
    return OPERATOR(backend, *parts(matrix, backend), flat).reshape(matrix.shape[0], *dense.shape[1:])
