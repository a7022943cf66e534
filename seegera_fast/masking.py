"""Masking (v3): each step draws a new graph with fewer edges and fewer features, from a seed."""

from __future__ import annotations

import torch

from . import ops
from .graph import Graph
from .sampling import share
from .sparse_matrix import SparseMatrix


def mask_structure(graph: Graph, rate: float, seed: int | torch.Tensor) -> tuple[SparseMatrix, int]:
    """Removes exactly ``floor(rate * num_edges)`` undirected edges and renormalises.

    Returns:
        The propagation matrix of the edges that stay, and their number.
    """
    removed = share(rate, graph.num_edges)
    if removed == 0:
        return graph.propagation, graph.num_edges
    return ops.mask_edges(*graph.with_self_loops(), removed, seed), graph.num_edges - removed


def mask_features(features: SparseMatrix, rate: float, seed: int | torch.Tensor) -> SparseMatrix:
    """Sets exactly ``floor(rate * nnz)`` of the non-zero entries to zero; the structure is shared."""
    removed = share(rate, features.nnz)
    return ops.mask_entries(features, removed, seed) if removed else features
