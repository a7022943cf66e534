"""Graphs, features, shapes and memory layouts that the tests share. They are in float64, and small."""

from __future__ import annotations

import functools

import numpy as np
import scipy.sparse
import torch

from seegera_fast import Graph, SparseMatrix

DTYPES = (torch.float32, torch.float64)

# Widths of the last dimension: 1, an odd one, one more than a vector register holds, and the paper's.
WIDTHS = (1, 7, 33, 512)

# (J, K): importance samples and extra draws of the mixture.
SAMPLES = ((1, 0), (1, 1), (3, 0), (2, 3))


def _edges(name: str) -> tuple[int, np.ndarray]:
    rng = np.random.default_rng(7)
    if name == "one_node":
        return 1, np.empty((0, 2), dtype=np.int64)
    if name == "no_edges":
        return 5, np.empty((0, 2), dtype=np.int64)
    if name == "path":
        return 6, np.stack([np.arange(5), np.arange(1, 6)], axis=1)
    if name == "hub":
        # A star around node 4 of 12, the last two nodes isolated.
        others = np.array([0, 1, 2, 3, 5, 6, 7, 8, 9])
        return 12, np.stack([others, np.full_like(others, 4)], axis=1)
    if name == "complete":
        return 7, np.argwhere(np.triu(np.ones((7, 7)), 1))
    if name == "random":
        chosen = np.triu(rng.random((17, 17)) < 0.15, 1)
        chosen[:, 11] = chosen[11, :] = False
        return 17, np.argwhere(chosen)
    raise KeyError(name)


GRAPHS = ("one_node", "no_edges", "path", "hub", "complete", "random")


@functools.cache
def features(kind: str, num_rows: int, num_columns: int = 9) -> SparseMatrix:
    """A feature matrix ``[num_rows, num_columns]`` in float64.

    Kinds: "sparse" (with a zero row and zero columns), "dense" (most entries), "counts", "negative" (values of both
    signs; two rows and a column that cancel to a sum of zero), "binary", "empty" (no entry), "unit" (in [0, 1]).
    """
    rng = np.random.default_rng([num_rows, num_columns, len(kind)])
    density = {"dense": 0.9, "empty": 0.0}.get(kind, 0.3)
    present = rng.random((num_rows, num_columns)) < density
    if kind == "sparse":
        present[num_rows // 2] = False
        present[:, num_columns // 3] = False
    values = {
        "counts": rng.integers(1, 30, present.shape).astype(float),
        "negative": rng.normal(size=present.shape),
        "binary": np.ones(present.shape),
    }.get(kind, rng.random(present.shape) + (0 if kind == "unit" else 0.1))
    dense = np.where(present, values, 0.0)
    if kind == "negative" and num_rows > 1 and num_columns > 1:
        dense[:2] = 0
        dense[0, :2], dense[1, :2] = (1.5, -1.5), (-1.5, 1.5)
        dense[2:, 0] = 0
    return SparseMatrix.from_any(dense, dtype=torch.float64)


FEATURES = ("sparse", "dense", "counts", "negative", "binary", "empty", "unit")


@functools.cache
def graph(name: str, kind: str = "sparse") -> Graph:
    """One of GRAPHS in float64, with features of one of FEATURES."""
    num_nodes, edges = _edges(name)
    return Graph.from_edge_index(
        np.concatenate([edges, edges[:, ::-1]]).T,
        features(kind, num_nodes),
        num_nodes,
        name=name,
        dtype=torch.float64,
    )


@functools.cache
def large_graph(num_nodes: int = 700, num_columns: int = 90) -> Graph:
    """A graph with a hub, and enough work in it for several threads."""
    rng = np.random.default_rng(11)
    edges = rng.integers(0, num_nodes, (2, 6 * num_nodes))
    edges[0, :150] = 3
    edges = np.concatenate([edges, edges[::-1]], axis=1)
    x = scipy.sparse.random(num_nodes, num_columns, 0.1, random_state=rng)
    return Graph.from_edge_index(edges, x, num_nodes, name="large", dtype=torch.float64)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers in float64, the same in every call."""
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LAYOUTS = ("transposed", "gaps", "shifted", "broadcast")


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """A tensor with the same values and another layout in memory.

    "transposed": the first and last dimensions swapped; "gaps": every second element of a larger tensor; "shifted":
    one element past an aligned address; "broadcast": stride 0 in the dimensions of size 1, if there are any.
    """
    if layout == "transposed":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "gaps":
        wide = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1]), float("nan"))
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if layout == "shifted":
        flat = tensor.new_full((tensor.numel() + 1,), float("nan"))
        flat[1:] = tensor.reshape(-1)
        return flat[1:].view(tensor.shape)
    strides = [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return tensor.as_strided(tensor.shape, strides)
