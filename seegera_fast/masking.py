"""Masking (v3): each training step removes other edges and other features, drawn from its seed."""

from __future__ import annotations

import torch

from . import ops
from .graph import Graph
from .sampling import share
from .sparse_matrix import SparseMatrix


def mask_structure(graph: Graph, rate: float, seed: int | torch.Tensor) -> tuple[SparseMatrix, int]:
    """Removes exactly ``floor(rate * num_edges)`` undirected edges.

    Returns:
        The propagation matrix of the remaining edges, and the number of these edges.
    """
    removed = share(rate, graph.num_edges)
    if removed == 0:
        return graph.propagation, graph.num_edges
    return ops.mask_edges(*graph.with_self_loops(), removed, seed), graph.num_edges - removed


def mask_features(features: SparseMatrix, rate: float, seed: int | torch.Tensor) -> SparseMatrix:
    """Sets exactly ``floor(rate * nnz)`` of the stored entries to zero. The result shares the structure."""
    removed = share(rate, features.nnz)
    return ops.mask_entries(features, removed, seed) if removed else features
