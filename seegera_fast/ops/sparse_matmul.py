"""The product of a sparse and a dense matrix."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator
from ..sparse_matrix import SparseMatrix


def _fake(matrix, dense):
    return dense.new_empty(matrix.rowptr.shape[0] - 1, dense.shape[1])


def _dense_gradient(call, matrix, gradient):
    # The gradient of A D with respect to D is A^T G: the same product with the transpose.
    return call("sparse_matmul", matrix=matrix.flipped, dense=gradient)


OPERATOR = Operator(
    "sparse_matmul(Matrix matrix, Tensor dense) -> Tensor output",
    columns=("cpu", "cuda", "triton"),
    fake=_fake,
    backward={"dense": _dense_gradient},
    by_rows=True,
)


def sparse_matmul(matrix: SparseMatrix, dense: torch.Tensor) -> torch.Tensor:
    """``matrix @ dense``, for a dense tensor with any number of dimensions.

    Args:
        matrix: ``rows x cols``.
        dense: ``[cols, ...]``, with the dtype of the matrix. ``[cols, S, d]`` multiplies S draws in one call.

    Returns:
        ``[rows, ...]``. Differentiable in ``dense``, not in the matrix.

    Raises:
        TypeError: ``matrix`` is not a SparseMatrix, ``dense`` is not a tensor, or their dtypes differ.
        ValueError: sizes or devices don't match.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> matrix = sf.SparseMatrix.from_any(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
        >>> sf.ops.sparse_matmul(matrix, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[6., 8.],
                [1., 2.]])
    """
    checks.sparse("matrix", matrix)
    checks.tensor("dense", dense)
    checks.same_kind(matrix=matrix, dense=dense)
    if dense.ndim == 0 or dense.shape[0] != matrix.shape[1]:
        raise ValueError(f"dense: got shape {tuple(dense.shape)}, want {matrix.shape[1]} rows, as matrix has columns")
    backend = backends.choose("sparse_matmul", dense.device)
    if backend is backends.REFERENCE:
        return reference.sparse_matmul(matrix, dense)
    if dense.ndim == 2:  # A view costs as much time as a small product.
        return OPERATOR(backend, matrix=matrix, dense=dense)
    # torch can't infer a -1 here if there are no rows.
    flat = dense.reshape(dense.shape[0], dense.shape[1:].numel())
    return OPERATOR(backend, matrix=matrix, dense=flat).reshape(matrix.shape[0], *dense.shape[1:])
