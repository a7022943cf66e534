"""The two sides of a bipartite graph, and the pairs across them that are not edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch

from .graph import Graph
from .sampling import ZeroEntries
from .support import arguments
from .support.hints import quoted
from .support.warning import warn_outside

AUTO = "auto"
NO_SIDE = -1


class NonEdgesAcross:
    """The pairs ``i < k`` of nodes on different sides that are not edges; see :class:`seegera_fast.sampling.NonEdges`.

    Args:
        graph: a bipartite graph.
        sides: see :func:`seegera_fast.tasks.split_links`.

    Attributes:
        count: number of these pairs.
    """

    def __init__(self, graph: Graph, sides: Any) -> None:
        side = two_sides(graph) if isinstance(sides, str) else _given_sides(graph, sides)
        side = torch.from_numpy(side).to(graph.device)
        self._nodes = [torch.nonzero(side == number).flatten() for number in (0, 1)]
        place = torch.zeros_like(side)
        for nodes in self._nodes:
            place[nodes] = torch.arange(nodes.shape[0], device=side.device)
        edges = graph.edges()
        edges = torch.where(side[edges[:, :1]] == 0, edges, edges.flip(1))
        row, col = place[edges[:, 0]], place[edges[:, 1]]
        order = torch.argsort(row * self._nodes[1].shape[0] + col)
        self._absent = ZeroEntries(row[order], col[order], tuple(nodes.shape[0] for nodes in self._nodes))
        self.count = self._absent.count

    def pairs(self, rank: torch.Tensor) -> torch.Tensor:
        """int64 ``[m, 2]``: the pairs with the numbers ``rank``, int64 ``[m]`` in ``[0, count)``."""
        cells = self._absent.cells(rank)
        return torch.stack([nodes[cells[:, side]] for side, nodes in enumerate(self._nodes)], dim=1).sort(dim=1).values


def two_sides(graph: Graph) -> np.ndarray:
    """int64 ``[n]``: the sides of the table that the graph was read from. Else 0 for the smallest number of each
    connected part and all on its side, and -1 for a node without edges.

    Every node has two copies here, and an edge joins each copy of one end with the other copy of the other end. A part
    that has two sides falls into two parts, of which one holds the first copies of one side.
    """
    if graph.sides is not None:
        return graph.sides
    nodes = graph.num_nodes
    edges = graph.edges().cpu().numpy()
    start, end = np.concatenate([edges, edges[:, ::-1]]).T
    joined = scipy.sparse.coo_matrix((np.ones(start.size), (start, end + nodes)), shape=(2 * nodes, 2 * nodes))
    part = scipy.sparse.csgraph.connected_components(joined, directed=False)[1]
    first = np.unique(part, return_index=True)[1][part].reshape(2, nodes)
    has_edges = np.zeros(nodes, bool)
    has_edges[edges.ravel()] = True
    odd = np.flatnonzero((first[0] == first[1]) & has_edges)
    if odd.size:
        raise ValueError(
            f"sides: got 'auto', but the graph is not bipartite: node {_shown(graph, odd[0])} is in a part with an odd "
            "cycle; want a bipartite graph, or None. If both sides were numbered alike, their nodes need different "
            "names, such as 'u1' and 'm1'"
        )
    parts = np.unique(first.min(axis=0)[has_edges]).size
    if parts > 1:
        warn_outside(
            f"sides: the graph falls into {parts} parts, and nothing says which of their sides belong together: in "
            "each, that of the smallest node is taken for the first; a table whose columns are the sides, or sides= of "
            "split_links, says it"
        )
    return np.where(has_edges, (first[0] > first[1]).astype(np.int64), NO_SIDE)


def _shown(graph: Graph, node: int) -> str:
    """A node by its name, or where it has none by its number."""
    return str(node) if graph.nodes is None else quoted(graph.nodes.tolist()[node])


def _given_sides(graph: Graph, sides: Any) -> np.ndarray:
    found = arguments.array("sides", sides)
    if found.shape != (graph.num_nodes,):
        raise ValueError(f"sides: got shape {found.shape}, want one per node: [{graph.num_nodes}]")
    if found.dtype.kind not in "biu":
        raise TypeError(f"sides: got values of type {found.dtype}, want integers or booleans")
    strange = found[(found != 0) & (found != 1) & ((found != NO_SIDE) if found.dtype.kind == "i" else True)]
    if strange.size:
        raise ValueError(f"sides: got {strange[0]}, want 0, 1, or -1 for a node on no side")
    found = found.astype(np.int64)
    edges = graph.edges().cpu().numpy()
    within = edges[found[edges].sum(axis=1) != 1]
    if within.size:
        low, high = within[0]
        raise ValueError(
            f"sides: got {found[low]} and {found[high]} for the nodes {low} and {high}, which are joined, want "
            "each edge to join 0 and 1"
        )
    return found
