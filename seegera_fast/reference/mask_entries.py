"""Feature masking (v3): an exact number of entries set to zero."""

import torch

from ..sparse_matrix import SparseMatrix
from .draw_subset import draw_subset


def mask_entries(matrix, num_removed, seed) -> SparseMatrix:
    removed = draw_subset(seed, matrix.nnz, num_removed, stream="entries", device=matrix.device)
    return matrix.with_values(torch.where(removed, matrix.values.new_zeros(()), matrix.values))
