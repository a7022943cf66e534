"""The product of a sparse and a dense matrix, computed with the sparse matrix made dense."""

import torch


def sparse_matmul(matrix, dense: torch.Tensor) -> torch.Tensor:
    return torch.tensordot(matrix.to_dense(), dense, dims=1)
