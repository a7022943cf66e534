"""The sparse product as a step of other operations."""

from __future__ import annotations

import torch

from seegera_fast.registry import OPERATORS, running
from seegera_fast.schema import Parts, Rows

from .csr_product import Matrix, multiply_csr


def propagated(matrix: Matrix | None, dense: torch.Tensor) -> torch.Tensor:
    """``matrix @ dense`` for ``[cols, ...]``; ``dense`` itself where there is no matrix.

    Unless Triton is forced, the product of the CUDA library is used, as by ``ops.sparse_matmul``: on an H200 a half
    to a third of the time of Triton's.
    """
    if matrix is None:
        return dense
    rows = Rows(*matrix[:3])
    lines = dense.reshape(dense.shape[0], dense.shape[1:].numel())
    backend = running.get()
    if backend is not None and backend.steps is not None:
        # The transpose is used in the backward pass alone.
        product = OPERATORS["sparse_matmul"](backend.steps, matrix=Parts(*rows, *rows), dense=lines)
    else:
        product = multiply_csr(rows, lines)
    return product.reshape(rows.rowptr.numel() - 1, *dense.shape[1:])


def flipped(matrix: Parts | None) -> Parts | None:
    """The transpose."""
    return None if matrix is None else matrix.flipped
