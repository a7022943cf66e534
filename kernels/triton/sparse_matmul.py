"""``matrix @ dense`` for a CSR matrix: see common/csr_product.py."""

from __future__ import annotations

import torch

from seegera_fast.schema import Parts

from .common import csr_product
from .common.csr_product import multiply_csr


def sparse_matmul(matrix: Parts, dense: torch.Tensor) -> torch.Tensor:
    """``matrix @ dense``, of shape ``[rows, width]``, contiguous, in the dtype of the values (float32 or float64).

    Args:
        matrix: row pointers and columns int64; its transpose is used in the backward pass alone.
        dense: ``[cols, width]``, any strides.
    """
    return multiply_csr(matrix, dense)


def ahead_of_time() -> list[tuple]:
    """What ``sparse_matmul`` launches on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    return csr_product.ahead_of_time()
