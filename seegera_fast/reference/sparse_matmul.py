"""Sparse times dense, on the matrix written out in full."""

import torch


def sparse_matmul(matrix, dense: torch.Tensor) -> torch.Tensor:
    return torch.tensordot(matrix.to_dense(), dense, dims=1)
