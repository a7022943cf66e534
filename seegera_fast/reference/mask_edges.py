"""Structure masking (v3): the propagation matrix of the remaining edges."""

from ..propagation import propagation_matrix
from ..sparse_matrix import SparseMatrix
from .draw_subset import draw_subset


def mask_edges(looped, edge, num_removed, seed) -> SparseMatrix:
    num_edges = (looped.nnz - looped.shape[0]) // 2
    removed = draw_subset(seed, num_edges, num_removed, stream="edges", device=looped.device)
    return propagation_matrix(looped, edge, ~removed)
