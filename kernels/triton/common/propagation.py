"""The sparse product as a step of other operations."""

from __future__ import annotations

import torch

from seegera_fast import backends
from seegera_fast.registry import OPERATORS

from ..sparse_matmul import sparse_matmul

# A CSR matrix: row pointers, columns, values; or three times None.
Matrix = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


def propagated(matrix: Matrix, dense: torch.Tensor) -> torch.Tensor:
    """``matrix @ dense`` for ``[cols, ...]``; ``dense`` itself where there is no matrix.

    Where Triton is not forced, the product of the CUDA library is taken, as by ``ops.sparse_matmul``: on an H200 a half
    to a third of the time of Triton's.
    """
    rowptr, col, values = matrix
    if rowptr is None:
        return dense
    operands = (rowptr, col, values, rowptr, col, values, dense.reshape(dense.shape[0], dense.shape[1:].numel()))
    if backends.beside_triton("sparse_matmul", dense.device) == "cuda":
        product = OPERATORS["sparse_matmul"]("cuda", *operands)
    else:
        product = sparse_matmul(*operands)
    return product.reshape(rowptr.numel() - 1, *dense.shape[1:])
