"""Uniform draws of cells that a sparse matrix does not store: non-edges of a graph, zero entries of the features.

The cells that are not stored are numbered in ascending order. The one with number ``r`` is cell ``r + m`` of the
matrix, where ``m`` is the number of stored cells before it, found by a binary search. So draws are exactly uniform and
need neither rejection nor a dense matrix.
"""

from __future__ import annotations

from typing import Any

import torch

# What makes a matrix that is known to be symmetric without a diagonal.
UNDIRECTED = "Graph(matrix).adjacency or SparseMatrix.from_edge_index(edge_index)"


def share(rate: float, count: int) -> int:
    """``floor(rate * count)`` for the decimal number ``rate``: 29 for 0.29 of 100, though the float product is less."""
    whole = int(rate * count)
    return whole + (count > 0 and (whole + 1) / count == rate)


def require_undirected(name: str, matrix: Any) -> None:
    """Refuses a SparseMatrix that is not known to be the adjacency of an undirected graph."""
    if not (matrix.symmetric and matrix.hollow):
        raise ValueError(f"{name}: is not known to be symmetric without a diagonal, want {UNDIRECTED}")


class NonEdges:
    """The pairs ``i < k`` of an undirected graph that are not edges.

    Attributes:
        count: number of non-edges.
        gaps: int64 ``[edges]``: the number of non-edges before each edge, ascending.
    """

    def __init__(self, edges: torch.Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.count = num_nodes * (num_nodes - 1) // 2 - edges.shape[0]
        # The number of pairs before (i, k) is that before row i, and k - i - 1.
        nodes = torch.arange(num_nodes, device=edges.device)
        before = (self._row_start(nodes) - nodes - 1).index_select(0, edges[:, 0])
        self.gaps = before + edges[:, 1] - torch.arange(edges.shape[0], device=edges.device)

    def _row_start(self, low: torch.Tensor) -> torch.Tensor:
        """The number of pairs ``i < k`` with ``i`` below ``low``."""
        return low * (2 * self.num_nodes - low - 1) // 2

    def pairs(self, rank: torch.Tensor) -> torch.Tensor:
        """int64 ``[m, 2]``: the non-edges with the numbers ``rank``, int64 ``[m]`` in ``[0, count)``."""
        # In ascending order, they are looked for in memory that the caches still hold.
        number, order = rank.sort()
        number += torch.searchsorted(self.gaps, number, right=True)
        starts = self._row_start(torch.arange(self.num_nodes, device=rank.device))
        low = torch.searchsorted(starts, number, right=True) - 1
        pairs = torch.stack([low, number - starts[low] + low + 1], dim=1)
        return torch.empty_like(pairs).index_put_((order,), pairs)


class ZeroEntries:
    """The cells of a sparse matrix that are not stored.

    Attributes:
        count: number of these cells.
    """

    def __init__(self, row: torch.Tensor, col: torch.Tensor, shape: tuple[int, int]) -> None:
        self.num_columns = shape[1]
        self.count = shape[0] * shape[1] - row.shape[0]
        self._gaps = row * shape[1] + col - torch.arange(row.shape[0], device=row.device)

    def cells(self, rank: torch.Tensor) -> torch.Tensor:
        """int64 ``[m, 2]``: row and column of the cells with the numbers ``rank``, int64 ``[m]`` in ``[0, count)``."""
        number = rank + torch.searchsorted(self._gaps, rank, right=True)
        return torch.stack([number // self.num_columns, number % self.num_columns], dim=1)
