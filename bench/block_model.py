"""A random graph with communities, power-law degrees and features, whose true link probabilities are known.

It is a degree-corrected stochastic block model. Each node has a community and a weight from a Pareto law. The first end
of an edge is drawn by weight; the other end too, with probability ``1 - mixing`` inside the first one's community and
else among all nodes. A feature is 1 with a probability that depends on the community of the node. Node numbers are in
random order, so that they tell nothing about communities.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse
import torch

import seegera_fast as sf

# Edges that are drawn, and written, at once.
CHUNK = 4_000_000


class BlockModel:
    """The model, before edges and features are drawn.

    Args:
        nodes: number of nodes.
        edges: number of edges that are drawn. A few of them are the same, and then count once.
        communities: number of communities, of nearly equal sizes.
        exponent: exponent of the density of the weights, above 2.
        mixing: share of the edges whose ends are drawn without regard to communities.
        features: number of features.
        seed: seed of everything.
    """

    def __init__(
        self,
        nodes: int,
        edges: int,
        *,
        communities: int | None = None,
        exponent: float = 2.7,
        mixing: float = 0.2,
        features: int = 256,
        seed: int = 0,
    ) -> None:
        self.nodes, self.num_edges, self.mixing, self.num_features = nodes, edges, mixing, features
        self.communities = communities or max(nodes // 1000, 2)
        self._seed = seed
        random = self._random(0)
        weights = 1 + random.pareto(exponent - 1, nodes)
        # No node has so many links that the graph can't have them all.
        self._weights = np.minimum(weights, np.sqrt(nodes)).astype(np.float64)
        # The numbers of the nodes, community after community.
        self._order = random.permutation(nodes)
        self._starts = np.linspace(0, nodes, self.communities + 1).astype(np.int64)
        self._sums = np.concatenate([[0.0], np.cumsum(self._weights)])
        self.community = np.empty(nodes, np.int32)
        self.community[self._order] = np.repeat(np.arange(self.communities), np.diff(self._starts))
        self._place = np.empty(nodes, np.int64)
        self._place[self._order] = np.arange(nodes)

    def _random(self, part: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, part])

    def edges(self, count: int | None = None, draw: int = 0) -> Iterator[np.ndarray]:
        """int64 ``[m, 2]`` arrays of edges, without self-loops. An edge may come again, in either direction.

        Args:
            count: number of edges; None: that of the model.
            draw: another number gives other edges.
        """
        random, left = self._random(2 + draw), self.num_edges if count is None else count
        while left:
            count = min(CHUNK, left)
            first = self._drawn(random.random(count), 0.0, self._sums[-1])
            block = np.searchsorted(self._starts, first, side="right") - 1
            anywhere = random.random(count) < self.mixing
            low = np.where(anywhere, 0.0, self._sums[self._starts[block]])
            high = np.where(anywhere, self._sums[-1], self._sums[self._starts[block + 1]])
            second = self._drawn(random.random(count), low, high)
            proper = first != second
            yield np.stack([self._order[first[proper]], self._order[second[proper]]], axis=1)
            left -= count

    def _drawn(self, uniform: np.ndarray, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
        """Places of nodes that are drawn by weight, between two sums of weights."""
        place = np.searchsorted(self._sums, low + uniform * (high - low), side="right") - 1
        return np.minimum(place, self.nodes - 1)

    def features(self) -> scipy.sparse.csr_matrix:
        """float32 ``[nodes, features]`` of zeros and ones: some features of the node's community, and some others.

        A community has 16 features of its own, of which a node has each with probability 0.5, and each node has two
        features that are drawn among all. The features of two communities may be the same in part.
        """
        random = self._random(1)
        own = random.integers(0, self.num_features, (self.communities, 16))
        columns = np.where(random.random((self.nodes, 16)) < 0.5, own[self.community], -1)
        columns = np.concatenate([columns, random.integers(0, self.num_features, (self.nodes, 2))], axis=1)
        row, place = np.nonzero(columns >= 0)
        matrix = scipy.sparse.csr_matrix(
            (np.ones(len(row), np.float32), (row, columns[row, place])), (self.nodes, self.num_features)
        )
        matrix.sum_duplicates()
        matrix.data[:] = 1
        return matrix

    def graph(self) -> sf.Graph:
        """The graph of :meth:`edges` and :meth:`features`."""
        ends = np.concatenate(list(self.edges()))
        both = torch.from_numpy(np.concatenate([ends, ends[:, ::-1]]).T.copy())
        return sf.Graph.from_edge_index(both, self.features())

    def log_rate(self, pairs: np.ndarray) -> np.ndarray:
        """``[m]``: the logarithm of the expected number of edges of each of the pairs ``[m, 2]``, up to a constant.

        A pair is a link if it has at least one edge, so the order of the pairs is that of their link probabilities.
        """
        place, weight = self._place[pairs], self._weights[self._place[pairs]]
        block = self.community[pairs]
        inside = self._sums[self._starts[block[:, 0] + 1]] - self._sums[self._starts[block[:, 0]]]
        together = np.where(block[:, 0] == block[:, 1], (1 - self.mixing) / inside, 0.0)
        return np.where(
            place[:, 0] == place[:, 1], -np.inf, np.log(weight.prod(axis=1) * (together + self.mixing / self._sums[-1]))
        )

    def write(self, path: Path) -> None:
        """Writes a line ``first second`` for each edge that is drawn."""
        with path.open("w", encoding="ascii") as file:
            for edges in self.edges():
                for part in np.array_split(edges, max(len(edges) // 100_000, 1)):
                    file.write("%d %d\n" * len(part) % tuple(part.ravel().tolist()))
