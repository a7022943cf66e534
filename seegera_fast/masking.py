"""Masking (v3): each step draws a new graph with fewer edges and fewer features, from a seed."""

from __future__ import annotations

import torch

from .graph import Graph, SparseMatrix
from .reference.random import EDGES, ENTRIES, words_at
from .seeds import seed_tensor


def mask_structure(graph: Graph, rate: float, seed: int | torch.Tensor) -> tuple[SparseMatrix, int]:
    """Removes exactly ``floor(rate * num_edges)`` undirected edges and renormalises.

    Returns:
        The propagation matrix of the edges that stay, and their number.
    """
    removed = int(rate * graph.num_edges)
    if removed == 0:
        return graph.propagation, graph.num_edges
    kept = ~_drawn(graph.num_edges, removed, EDGES, seed_tensor(seed, graph.device))
    return graph.propagation_without(kept), graph.num_edges - removed


def mask_features(features: SparseMatrix, rate: float, seed: int | torch.Tensor) -> SparseMatrix:
    """Sets exactly ``floor(rate * nnz)`` of the non-zero entries to zero; the structure is shared."""
    removed = int(rate * features.nnz)
    if removed == 0:
        return features
    drawn = _drawn(features.nnz, removed, ENTRIES, seed_tensor(seed, features.device))
    return features.with_values(torch.where(drawn, features.values.new_zeros(()), features.values))


def _drawn(count: int, chosen: int, stream: int, seed: torch.Tensor) -> torch.Tensor:
    """bool ``[count]`` with exactly ``chosen`` ones: those of the smallest 62-bit keys, the first where keys are equal."""
    pair = words_at(seed, stream, torch.arange(count, device=seed.device), 0, 0)
    keys = (pair[:, 0] << 30) ^ (pair[:, 1] >> 2)
    drawn = torch.zeros(count, dtype=torch.bool, device=seed.device)
    drawn[torch.argsort(keys, stable=True)[:chosen]] = True
    return drawn
