"""Some rows of a sparse matrix."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator
from ..sparse_matrix import SparseMatrix


def _fake(rowptr, col, values, rows):
    entries = torch.library.get_ctx().new_dynamic_size()
    return rowptr.new_empty(rows.shape[0] + 1), col.new_empty(entries), values.new_empty(entries)


OPERATOR = Operator(
    "select_rows(Tensor rowptr, Tensor col, Tensor values, Tensor rows) -> (Tensor rowptr, Tensor col, Tensor values)",
    columns=("cpu",),
    fake=_fake,
)


def select_rows(matrix: SparseMatrix, rows: torch.Tensor) -> SparseMatrix:
    """``X[rows]``: some rows of a sparse matrix, in their order.

    The time depends on the entries of these rows, not on the size of the matrix, and nothing else is read.

    Args:
        matrix: ``n x l``, such as ``graph.features``.
        rows: int64 ``[m]``, numbers from 0 to ``n - 1``. A row may be there several times.

    Returns:
        The matrix ``m x l``. Its number of entries depends on the values of the arguments, so the device is waited for.
        Not differentiable.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range. On a GPU the numbers of the
            rows are not read.

    Example:
        >>> import numpy, torch
        >>> import seegera_fast as sf
        >>> matrix = sf.SparseMatrix.from_any(numpy.diag([1.0, 2.0, 3.0]))
        >>> sf.ops.select_rows(matrix, torch.tensor([2, 0])).to_dense()
        tensor([[0., 0., 3.],
                [1., 0., 0.]])
    """
    checks.sparse("matrix", matrix)
    checks.on_device("matrix", matrix)
    checks.numbers("rows", rows, matrix.device, below=matrix.shape[0])
    backend = backends.choose("select_rows", matrix.device)
    if backend is backends.REFERENCE:
        return reference.select_rows(matrix, rows).with_layout(matrix.layout)
    parts = OPERATOR(backend, rowptr=matrix.rowptr, col=matrix.col, values=matrix.values, rows=rows.contiguous())
    return SparseMatrix(*parts, (rows.shape[0], matrix.shape[1])).with_layout(matrix.layout)
