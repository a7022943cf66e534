"""The adjacency of the edges of a table, in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch

from ..support.hints import counted
from ..support.warning import warn_outside
from .edges import Edges


class EdgeTimes(NamedTuple):
    """The time of each edge ``low < high``, in ascending order of its key ``low * nodes + high``."""

    keys: np.ndarray
    times: np.ndarray

    def of(self, pairs: torch.Tensor, nodes: int) -> torch.Tensor:
        """float64 ``[m]``: the times of edges int64 ``[m, 2]``, on their device."""
        keys = (pairs[:, 0] * nodes + pairs[:, 1]).cpu().numpy()
        return torch.from_numpy(self.times[np.searchsorted(self.keys, keys)]).to(pairs.device)


# From edges, the node number of each of their names, and the number of nodes: the adjacency, the times of its edges,
# and the sides; see ``Parts`` in ``join.py``.
Build = Callable[[Edges, np.ndarray, int], tuple[Any, EdgeTimes | None, np.ndarray | None]]


def in_memory(edges: Edges, number: np.ndarray, nodes: int) -> tuple[Any, EdgeTimes | None, np.ndarray | None]:
    """A :data:`Build`."""
    source, target = (number[end] for end in edges.ends)
    return (*_adjacency(source, target, edges, nodes), _sides(source, target, nodes))


def _adjacency(
    source: np.ndarray, target: np.ndarray, edges: Edges, nodes: int
) -> tuple[scipy.sparse.csr_matrix, EdgeTimes | None]:
    """The symmetric adjacency, each edge with the largest of its weights, and the first time of each edge."""
    loops = source == target
    if loops.any():
        warn_outside(
            f"{edges.table.path}: {counted(np.count_nonzero(loops), 'edge')} from a node to itself, and left out"
        )
    weights, times = edges.weights, edges.times
    used = ~loops
    key = np.minimum(source, target).astype(np.int64)
    key *= nodes
    key += np.maximum(source, target)
    key, weights, times = key[used], *(None if part is None else part[used] for part in (weights, times))
    if weights is None and times is None:
        # np.unique keeps a table of hashes, which takes ten times as long.
        key.sort()
        key = key[np.diff(key, prepend=-1) != 0]
    else:
        order = np.argsort(key, kind="stable")
        key = key[order]
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        key = key[starts]
        if key.size:
            weights = None if weights is None else np.maximum.reduceat(weights[order], starts)
            times = None if times is None else np.minimum.reduceat(times[order], starts)
    low, high = (key // nodes).astype(np.int32), (key % nodes).astype(np.int32)
    values = np.ones(key.size) if weights is None else weights
    # A sum of two triangles would drop the edges of weight 0.
    row, col = np.concatenate([low, high]), np.concatenate([high, low])
    adjacency = scipy.sparse.csr_matrix((np.tile(values, 2), (row, col)), (nodes, nodes))
    return adjacency, None if times is None else EdgeTimes(key, times)


def _sides(start: np.ndarray, end: np.ndarray, nodes: int) -> np.ndarray | None:
    sides = np.full(nodes, -1, np.int64)
    sides[start] = 0
    if (sides[end] == 0).any():
        return None
    sides[end] = 1
    return sides
