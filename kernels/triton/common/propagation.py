"""The sparse product as a step of other operations."""

from __future__ import annotations

import torch

from seegera_fast.registry import OPERATORS, Parts, Rows, Transposed, running

from ..sparse_matmul import sparse_matmul

# A matrix by rows is the first three of each.
Matrix = Parts | Rows | Transposed


def propagated(matrix: Matrix | None, dense: torch.Tensor) -> torch.Tensor:
    """``matrix @ dense`` for ``[cols, ...]``; ``dense`` itself where there is no matrix.

    Where Triton is not forced, the product of the CUDA library is taken, as by ``ops.sparse_matmul``: on an H200 a half
    to a third of the time of Triton's.
    """
    if matrix is None:
        return dense
    rows = Rows(*matrix[:3])
    operands = {
        # The transpose would serve backward alone.
        "matrix": Parts(*rows, *rows),
        "dense": dense.reshape(dense.shape[0], dense.shape[1:].numel()),
    }
    backend = running.get()
    if backend is not None and backend.steps is not None:
        product = OPERATORS["sparse_matmul"](backend.steps, **operands)
    else:
        product = sparse_matmul(**operands)
    return product.reshape(rows.rowptr.numel() - 1, *dense.shape[1:])


def flipped(matrix: Parts | None) -> Parts | None:
    """The transpose."""
    return None if matrix is None else matrix.flipped
