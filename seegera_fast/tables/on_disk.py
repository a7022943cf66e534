"""The adjacency of the edges of a table that need not fit into memory.

The edges are read once into files. From these both directions of each edge go to files by the range of their row, each
of which fits into memory. One after the other is sorted and written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

from ..convert import warn_of_ignored_weights, warn_of_vanished_edges
from ..support.array_folder import FolderWriter
from ..support.hints import counted
from ..support.naming import named
from ..support.pieces import spans
from ..support.progress import Steps
from ..support.warning import warn_outside
from .adjacency import EdgeTimes
from .column_store import FileColumn
from .edges import EDGES, Edges

# What an entry takes in memory while it is sorted, in bytes: without and with numbers beside it.
BARE, WITH_NUMBERS = 40, 120
MOST_FILES = 2**12


class OnDisk:
    """Makes columns in files, and of the edges in them the arrays of an adjacency in a folder.

    Args:
        writer: the folder.
        scratch: a folder for files that are removed.
        memory: what sorting may take, in bytes.
        weighted: whether the graph keeps the weights.
        dtype: of the graph.
        show: whether the progress is shown.

    Attributes:
        entries: of the adjacency, once it is made.
    """

    def __init__(
        self, writer: FolderWriter, scratch: Path, memory: int, *, weighted: bool, dtype: torch.dtype, show: bool
    ) -> None:
        self.entries = 0
        self._writer, self._scratch, self._memory = writer, scratch, memory
        self._weighted, self._dtype, self._show = weighted, dtype, show
        self._made = 0

    def keep(self, dtype: Any) -> FileColumn:
        """A column in a file."""
        self._made += 1
        return FileColumn(dtype, self._scratch / str(self._made), self._writer.shown)

    def build(
        self, edges: Edges, number: np.ndarray, nodes: int
    ) -> tuple[scipy.sparse.csr_matrix, EdgeTimes | None, np.ndarray | None]:
        """Writes ``rowptr``, ``col``, ``values``, ``weights`` and ``edge_times``; see ``adjacency.py``.

        Returns:
            A matrix without entries, no times, and the sides.
        """
        sides = _sides(edges, number, nodes)
        with Steps(2 * edges.ends[0].size, "edge", show=self._show, name="sorting") as steps:
            buckets = self._spread(edges, number, nodes, steps)
            self._write(buckets, nodes, edges, steps)
        return scipy.sparse.csr_matrix((nodes, nodes)), None, sides

    def _spread(self, edges: Edges, number: np.ndarray, nodes: int, steps: Steps) -> list[tuple[int, list[FileColumn]]]:
        """Writes both directions of each edge to files by the range of their row: the first row, and the files."""
        beside = [part for part in (edges.weights, edges.times) if part is not None]
        bucket, starts = self._ranges(edges, number, nodes, WITH_NUMBERS if beside else BARE)
        files = [[self.keep(np.int64), *(self.keep(np.float64) for _ in beside)] for _ in starts]
        loops = 0
        for low, high in spans(edges.ends[0].size, EDGES):
            ends = [number[np.asarray(end[low:high])] for end in edges.ends]
            apart = ends[0] != ends[1]
            loops += int(apart.size - np.count_nonzero(apart))
            source, target = (end[apart] for end in ends)
            numbers = [np.tile(np.asarray(part[low:high])[apart], 2) for part in beside]
            row = np.concatenate([source, target])
            parts = [row * nodes + np.concatenate([target, source]), *numbers]
            for place, chosen in _parted(bucket[row], len(starts)):
                for file, part in zip(files[place], parts, strict=True):
                    file.append(part[chosen])
            steps.advance(high - low)
        if loops:
            warn_outside(f"{edges.table.path}: {counted(loops, 'edge')} from a node to itself, and left out")
        return list(zip(starts, files, strict=True))

    def _ranges(self, edges: Edges, number: np.ndarray, nodes: int, size: int) -> tuple[np.ndarray, list[int]]:
        """The number of the range that each row is in, and the first row of each range."""
        before = np.zeros(nodes, np.int64)
        # Two names may be one number, as 1 and 01 are. There may be more names than those of edges.
        np.add.at(before, number[: len(edges.names)], edges.degrees())
        before = np.cumsum(before) - before
        most = max(1, self._memory // size, 2 * edges.ends[0].size // MOST_FILES)
        new = np.diff(before // most, prepend=-1) != 0
        return (np.cumsum(new) - 1).astype(np.int16), np.flatnonzero(new).tolist()

    def _write(self, buckets: list[tuple[int, list[FileColumn]]], nodes: int, edges: Edges, steps: Steps) -> None:
        kind = np.dtype(str(self._dtype).removeprefix("torch."))
        weights, times = edges.weights is not None, edges.times is not None
        lengths = np.zeros(nodes + 1, np.int64)
        lost = zeros = others = 0
        with ExitStack() as stack:
            col = stack.enter_context(self._writer.open("col", np.int64))
            values = stack.enter_context(self._writer.open("values", kind))
            kept = stack.enter_context(self._writer.open("weights", kind)) if self._weighted else None
            moments = stack.enter_context(self._writer.open("edge_times", np.float64)) if times else None
            for first, files in buckets:
                entries = _Entries(*(file.read() for file in files), weights=weights, times=times)
                if weights and self._weighted:
                    lost += entries.drop_below(np.finfo(kind).tiny, nodes)
                elif weights:
                    zeros += int(np.count_nonzero(entries.weights == 0))
                    others += int(np.count_nonzero((entries.weights != 0) & (entries.weights != 1)))
                row = entries.keys // nodes
                column = entries.keys - row * nodes
                if row.size:
                    lengths[1 + first :][: row[-1] - first + 1] += np.bincount(row - first)
                col.write(column)
                values.write(np.ones(row.size, kind))
                if kept is not None:
                    weight = np.ones(row.size) if entries.weights is None else entries.weights
                    _check_fits(edges, row, weight, self._dtype)
                    kept.write(weight)
                if moments is not None:
                    moments.write(entries.times[row < column])
                self.entries += row.size
                steps.advance(min(steps.total - steps.done, edges.ends[0].size // len(buckets)))
        self._writer.array("rowptr", np.cumsum(lengths))
        with named({"adjacency": str(edges.table.path)}):
            warn_of_ignored_weights(zeros, others)
            warn_of_vanished_edges(lost // 2, self._dtype)


class _Entries:
    """The entries in a range of rows, ascending by their keys, each once, with its largest weight and first time."""

    def __init__(self, keys: np.ndarray, *numbers: np.ndarray, weights: bool, times: bool) -> None:
        self.weights: np.ndarray | None = None
        self.times: np.ndarray | None = None
        if not numbers:
            keys.sort()
            self.keys = keys[np.diff(keys, prepend=-1) != 0]
            return
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        self.keys = keys[starts]
        numbers = [part[order] for part in numbers]
        if self.keys.size:
            self.weights = np.maximum.reduceat(numbers[0], starts) if weights else None
            self.times = np.minimum.reduceat(numbers[-1], starts) if times else None
        else:
            self.weights, self.times = (np.empty(0) if there else None for there in (weights, times))

    def drop_below(self, least: float, nodes: int) -> int:
        """Drops entries of smaller weights; returns how many."""
        stays = self.weights >= least
        self.keys, self.weights = self.keys[stays], self.weights[stays]
        if self.times is not None:
            self.times = self.times[stays]
        return int(stays.size - np.count_nonzero(stays))


def _parted(bucket: np.ndarray, count: int) -> Iterator[tuple[int, Any]]:
    """The numbers of ranges, and which entries are in each."""
    if count == 1:
        yield 0, slice(None)
        return
    order = np.argsort(bucket, kind="stable")
    ends = np.searchsorted(bucket[order], np.arange(count + 1))
    for place in range(count):
        if ends[place] < ends[place + 1]:
            yield place, order[ends[place] : ends[place + 1]]


def _check_fits(edges: Edges, row: np.ndarray, weight: np.ndarray, dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    with np.errstate(over="ignore"):
        if not row.size or weight.sum() <= most:
            return
        sums = np.add.reduceat(weight, np.flatnonzero(np.diff(row, prepend=-1)))
    if (sums > most).any():
        at, total = np.unique(row)[sums > most][0], sums[sums > most][0]
        raise ValueError(
            f"{edges.table.path}: got absolute values that add up to {total} in row {at}, which {dtype} cannot hold, "
            "want smaller numbers"
        )


def _sides(edges: Edges, number: np.ndarray, nodes: int) -> np.ndarray | None:
    sides = np.full(nodes, -1, np.int64)
    for side, end in enumerate(edges.ends):
        for low, high in spans(end.size, EDGES):
            found = number[np.asarray(end[low:high])]
            if side and (sides[found] == 0).any():
                return None
            sides[found] = side
    return sides
