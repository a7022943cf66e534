"""A part of a graph: the method that :class:`seegera_fast.Graph` has for it."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch

from . import backends, ops
from .sparse_matrix import SparseMatrix
from .support import arguments
from .support.kept import kept, lasting

# Rows that are counted at once.
PIECE = 1 << 16
Made = TypeVar("Made", bound="Subgraph")


class Subgraph:
    """Makes the graph of some of the nodes."""

    adjacency: SparseMatrix
    features: SparseMatrix
    labels: torch.Tensor | None
    masks: dict[str, torch.Tensor]
    nodes: np.ndarray | None
    sides: np.ndarray | None
    edge_times: torch.Tensor | None
    # Also of graphs that earlier versions have pickled.
    node_numbers: torch.Tensor | None = None

    @lasting
    def subgraph(self: Made, nodes: Any) -> Made:
        """The graph of some nodes and the links among them, with their features, labels, masks, names and times.

        Node ``k`` of the result is node ``nodes[k]`` of this graph; ``node_numbers`` keeps the numbers. Of a part of a
        part they are those in the whole. The result is the same as that of :class:`Graph` with the rows and columns of
        these nodes: the propagation matrix, too, has the degrees within the part. Only the rows of these nodes are
        read, so that a large graph can be cut into many parts.

        Args:
            nodes: integers ``[m]``, different numbers of nodes in any order; or a boolean mask ``[n]``, which takes its
                nodes in ascending order.

        Raises:
            TypeError: not integers or a mask.
            ValueError: no node, a node number outside ``0 .. n - 1``, a node that is there twice, or a wrong shape.

        Example:
            >>> import seegera_fast as sf
            >>> graph = sf.datasets.load("digits")
            >>> part = graph.subgraph([5, 0, 20, 30])
            >>> part
            Graph('digits': 4 nodes, 1 edges, 64 features, torch.float32, cpu)
            >>> part.node_numbers
            tensor([ 5,  0, 20, 30])
        """
        numbers = _numbers_of(nodes, self.num_nodes, self.device)
        graph = self._copy()
        graph._forget()
        with backends.unforced():
            weighted, entry = ops.induced_subgraph(self._weighted, numbers, weighted=self._weights is not None)
            graph.features = ops.select_rows(self.features, numbers)
        graph.adjacency = weighted if self._weights is None else weighted.with_ones()
        graph._weights = None if self._weights is None else weighted.values
        graph.parts = None
        graph.node_numbers = numbers if self.node_numbers is None else self.node_numbers[numbers]
        graph.labels = None if self.labels is None else self.labels[numbers.to(self.labels.device)]
        graph.masks = {key: mask[numbers.to(mask.device)] for key, mask in self.masks.items()}
        rows = numbers.cpu().numpy()
        graph.nodes = None if self.nodes is None else self.nodes[rows]
        graph.sides = None if self.sides is None else self.sides[rows]
        if self.edge_times is not None:
            graph.edge_times = self._times_of(graph, numbers, entry)
        return graph

    def _times_of(self, part: Subgraph, numbers: torch.Tensor, entry: torch.Tensor) -> torch.Tensor:
        """The times of the edges of a part, whose entries have the numbers ``entry`` in this graph."""
        row = numbers[part.adjacency.row]
        # Each edge of the part is met once, at the entry that is above the diagonal here.
        above = row < numbers[part.adjacency.col]
        row, entry, edge = row[above], entry[above], part._edge_of_entry()[above]
        times = self.edge_times.new_empty(part.num_edges)
        # An entry above the diagonal is as far from the end of its row as its edge is from the end of the row's edges.
        times[edge] = self.edge_times[self._edge_ends[row] + entry - self.adjacency.rowptr[row + 1]]
        return times

    @kept
    def _edge_ends(self) -> torch.Tensor:
        """int64 ``[n]``: the number of edges ``i < j`` up to the row of each node.

        It is counted in pieces, so that nothing else stays in memory of a graph whose links are in a file.
        """
        rowptr, count = self.adjacency.rowptr, self.adjacency.shape[0]
        counts = torch.empty(count, dtype=torch.int64, device=rowptr.device)
        for begin in range(0, count, PIECE):
            rows = torch.arange(begin, min(count, begin + PIECE), device=rowptr.device)
            first, last = int(rowptr[begin]), int(rowptr[begin + rows.shape[0]])
            row = torch.repeat_interleave(rows, rowptr[rows + 1] - rowptr[rows])
            above = row[self.adjacency.col[first:last] > row]
            counts[rows] = torch.bincount(above - begin, minlength=rows.shape[0])
        return counts.cumsum(0)


def _numbers_of(nodes: Any, num_nodes: int, device: torch.device) -> torch.Tensor:
    """Checks for different numbers of nodes, or a mask: int64 ``[m]`` on the device, a copy."""
    if isinstance(nodes, torch.Tensor):
        arguments.dense("nodes", nodes)
    given = nodes if isinstance(nodes, torch.Tensor) else arguments.array("nodes", nodes).copy()
    if given.ndim == 0:
        raise TypeError(f"nodes: got {arguments.shown(nodes)}, want integers [m] or a boolean mask [{num_nodes}]")
    if given.dtype in (torch.bool, np.dtype(bool)):
        mask = torch.as_tensor(given, device=device)
        if tuple(mask.shape) != (num_nodes,):
            raise ValueError(f"nodes: got a mask of shape {tuple(mask.shape)}, want [{num_nodes}]")
        numbers = mask.nonzero().flatten()
    else:
        numbers = arguments.integers("nodes", given, device, below=num_nodes, of_nodes=True)
        if numbers.ndim != 1:
            raise ValueError(f"nodes: got shape {tuple(numbers.shape)}, want [m]")
        arguments.all_different("nodes", numbers)
    if numbers.numel() == 0:
        raise ValueError("nodes: got none, want at least one node")
    return numbers.clone() if numbers is nodes else numbers
