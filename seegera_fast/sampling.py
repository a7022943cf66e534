"""Uniform draws from what a sparse matrix leaves out: non-edges of a graph, zero entries of the features.

Absent cells are numbered in ascending order, and number ``r`` is found by one binary search: cell ``r + m``, where
``m`` counts the present cells that come before it. So a draw is exact, needs no rejection and no dense matrix.
"""

from __future__ import annotations

import torch


def share(rate: float, count: int) -> int:
    """``floor(rate * count)`` of the rate as it is written: 0.29 of 100 is 29, though the float product is below it."""
    whole = int(rate * count)
    return whole + (count > 0 and (whole + 1) / count == rate)


class NonEdges:
    """The pairs ``i < k`` of an undirected graph that are not edges.

    Attributes:
        count: how many there are.
        gaps: int64 ``[edges]``: the number of non-edges before each edge, ascending.
    """

    def __init__(self, edges: torch.Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.count = num_nodes * (num_nodes - 1) // 2 - edges.shape[0]
        low, high = edges[:, 0], edges[:, 1]
        place = self._row_start(low) + (high - low - 1)
        self.gaps = place - torch.arange(place.shape[0], device=place.device)

    def _row_start(self, low: torch.Tensor) -> torch.Tensor:
        """The number of pairs ``i < k`` with ``i`` below ``low``."""
        return low * (2 * self.num_nodes - low - 1) // 2

    def pairs(self, rank: torch.Tensor) -> torch.Tensor:
        """int64 ``[m, 2]``: the non-edges with these numbers, int64 ``[m]`` in ``[0, count)``."""
        place = rank + torch.searchsorted(self.gaps, rank, right=True)
        starts = self._row_start(torch.arange(self.num_nodes, device=rank.device))
        low = torch.searchsorted(starts, place, right=True) - 1
        return torch.stack([low, place - starts[low] + low + 1], dim=1)


class ZeroEntries:
    """The cells of a sparse matrix that are not stored.

    Attributes:
        count: how many there are.
    """

    def __init__(self, row: torch.Tensor, col: torch.Tensor, shape: tuple[int, int]) -> None:
        self.num_columns = shape[1]
        self.count = shape[0] * shape[1] - row.shape[0]
        self._gaps = row * shape[1] + col - torch.arange(row.shape[0], device=row.device)

    def cells(self, rank: torch.Tensor) -> torch.Tensor:
        """int64 ``[m, 2]``: row and column of the zero entries with these numbers, int64 ``[m]``."""
        place = rank + torch.searchsorted(self._gaps, rank, right=True)
        return torch.stack([place // self.num_columns, place % self.num_columns], dim=1)
