"""Cuts the nodes of a graph into parts with few links between them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from .sparse_matrix import SparseMatrix
from .support import arguments
from .support.kept import kept
from .support.warning import warn_outside

METHODS = ("auto", "metis", "streaming")
# METIS starts from random numbers; with one seed the same graph has the same parts.
METIS_SEED = 0
# METIS counts the entries of the adjacency in 32 bits.
METIS_MOST = 2**31
# How much larger than the average a part of a streaming partition may be, and how often the nodes are gone over.
SLACK, PASSES = 1.05, 8
# The numbers that are in memory at once: entries of the adjacency, and counts of nodes by parts.
AT_ONCE = 1 << 22


class Partitioned:
    """The part of :class:`Graph` that knows about parts of its nodes."""

    # int64 [n] on the CPU; a class attribute for graphs of earlier versions.
    parts: torch.Tensor | None = None
    adjacency: SparseMatrix
    num_nodes: int

    def with_parts(self, parts: Any, method: str = "auto") -> Any:
        """The same graph, whose nodes are cut into parts for :class:`seegera_fast.Batches`. ``graph.parts`` has them.

        Graphs that are made from this one by holding links or features out have the same parts. So parts that are made
        here know all links; without ``graph.parts`` a task makes them from the links that it trains on.

        Args:
            parts: so many parts are made; or integers ``[n]``, the part of each node, from 0; or None: no parts.
            method: "metis", "streaming" (one pass over the nodes, gone over a few times), or "auto": METIS where the
                package ``pymetis`` is installed, else streaming, with a warning.

        Raises:
            TypeError: ``parts`` are neither an int nor integers, or ``method`` is not a string.
            ValueError: more parts than nodes, a number of parts or a length that does not fit, a part without nodes or
                without a link, or an unknown method.

        Example:
            >>> import seegera_fast as sf
            >>> graph = sf.datasets.load("digits").with_parts(8, "streaming")
            >>> graph.parts.shape, int(graph.parts.max())
            (torch.Size([1797]), 7)
        """
        graph = self._copy()
        graph.parts = None if parts is None else self._partition(parts, method)
        return graph

    def _partition(self, parts: Any, method: str) -> torch.Tensor:
        """Int64 ``[n]`` on the CPU: the part of each node, checked. Parts that were made are kept."""
        arguments.choice("method", method, METHODS)
        if not is_number(parts):
            found = arguments.integers("parts", parts, torch.device("cpu"), own=True)
            check_partition(found, self.adjacency)
            return found
        parts = arguments.whole("parts", parts, least=1, most=self.num_nodes)
        if (parts, method) not in self._partitions:
            found = partition(self.adjacency, parts, method)
            check_partition(found, self.adjacency)
            self._partitions[parts, method] = found
        # A copy, which the caller may change.
        return self._partitions[parts, method].clone()

    @kept
    def _partitions(self) -> dict[tuple[int, str], torch.Tensor]:
        """The partitions that were made of these links, by number of parts and method."""
        return {}


def is_number(parts: Any) -> bool:
    """Whether an argument is a number of parts, not the part of each node."""
    return getattr(parts, "ndim", int(isinstance(parts, (list, tuple)))) == 0


def partition(adjacency: SparseMatrix, parts: int, method: str = "auto") -> torch.Tensor:
    """Int64 ``[n]`` on the CPU: the part of each node, from 0 to ``parts - 1``.

    Nodes without links are dealt out at the end, to the smallest parts.
    """
    rowptr, col = (tensor.cpu().numpy() for tensor in (adjacency.rowptr, adjacency.col))
    if parts == 1:
        return torch.zeros(adjacency.shape[0], dtype=torch.int64, device="cpu")
    metis = importlib.util.find_spec("pymetis") is not None
    if method == "metis" and not metis:
        raise ValueError('method: got "metis", want the package pymetis for it: pip install "seegera-fast[scale]"')
    if method == "metis" and len(col) >= METIS_MOST:
        raise ValueError(f'method: got "metis" with {len(col)} entries, want fewer than 2**31, or "streaming"')
    if method == "auto" and not metis:
        warn_outside(
            "parts: made by streaming; METIS cuts fewer links, and with it batches are better: "
            'pip install "seegera-fast[scale]"'
        )
    chosen = _metis if method != "streaming" and metis and len(col) < METIS_MOST else _streaming
    part = chosen(rowptr, col, parts)
    lonely = np.flatnonzero(part < 0)
    part[lonely] = _dealt(_sizes(part, parts), len(lonely))
    return torch.from_numpy(part)


def _metis(rowptr: np.ndarray, col: np.ndarray, parts: int) -> np.ndarray:
    """The part of each node with links, by METIS; -1 for those without."""
    import pymetis

    part = np.full(len(rowptr) - 1, -1, dtype=np.int64)
    linked = np.flatnonzero(np.diff(rowptr))
    if len(linked) <= parts:
        part[linked] = np.arange(len(linked))
        return part
    number = np.zeros(len(part), dtype=np.int32)
    number[linked] = np.arange(len(linked), dtype=np.int32)
    starts = np.append(rowptr[linked], rowptr[-1]).astype(np.int32)
    graph = pymetis.CSRAdjacency(starts, number[col])
    part[linked] = pymetis.part_graph(parts, graph, options=pymetis.Options(seed=METIS_SEED)).vertex_part
    return part


def _streaming(rowptr: np.ndarray, col: np.ndarray, parts: int) -> np.ndarray:
    """The part of each node with links, by linear deterministic greedy; -1 for those without.

    Each node goes where most of its neighbours are, times the share of that part that is free. Nodes are placed in
    blocks that see the blocks before them. The first blocks are small, since they find few neighbours placed.
    """
    linked = np.diff(rowptr) > 0
    part = np.full(len(linked), -1, dtype=np.int64)
    # Without room for one more, no node could move to another part.
    capacity = max(-(-int(linked.sum()) // parts) + 1, int(SLACK * linked.sum() / parts))
    free = np.full(parts, capacity)
    most = max(AT_ONCE // (parts + 1), 1)
    for turn in range(PASSES):
        begin = 0
        while begin < len(part):
            size = max(parts, begin // 8) if turn == 0 else max(len(part) // 64, 1)
            end = _end(rowptr, begin, begin + min(size, most))
            _place(rowptr, col, part, free, capacity, begin, end)
            begin = end
    return part


def _end(rowptr: np.ndarray, begin: int, end: int) -> int:
    """The end of a block of rows that starts at ``begin``: at most ``end``, and so many entries as fit into memory."""
    most = int(np.searchsorted(rowptr, rowptr[begin] + AT_ONCE, side="right")) - 1
    return min(max(most, begin + 1), end, len(rowptr) - 1)


def _place(
    rowptr: np.ndarray, col: np.ndarray, part: np.ndarray, free: np.ndarray, capacity: int, begin: int, end: int
) -> None:
    """Places the nodes ``begin`` to ``end - 1``, in parts that have room for them: ``free`` nodes each."""
    parts, degrees = len(free), np.diff(rowptr[begin : end + 1])
    nodes = begin + np.flatnonzero(degrees)
    free += _sizes(part[nodes], parts)
    part[nodes] = -1
    rows = np.repeat(np.arange(end - begin), degrees)
    # Neighbours that are not placed yet count for column 0.
    cells = rows * (parts + 1) + part[col[rowptr[begin] : rowptr[end]]] + 1
    counts = np.bincount(cells, minlength=(end - begin) * (parts + 1)).reshape(-1, parts + 1)[nodes - begin, 1:]
    score = counts * (free / capacity)
    choice, best = score.argmax(axis=1), score.max(axis=1)
    # The best ones first, then as many of them to each part as it has room for.
    order = np.lexsort((-best, choice))
    wanted = np.bincount(choice, minlength=parts)
    place = np.arange(len(order)) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    fits = (place < free[choice[order]]) & (best[order] > 0)
    part[nodes[order[fits]]] = choice[order[fits]]
    free -= _sizes(part[nodes], parts)
    left = nodes[part[nodes] < 0]
    part[left] = _dealt(capacity - free, len(left))
    free -= _sizes(part[left], parts)


def _sizes(part: np.ndarray, parts: int) -> np.ndarray:
    """The number of nodes of each part; -1 is none."""
    return np.bincount(part[part >= 0], minlength=parts)


def _dealt(sizes: np.ndarray, count: int) -> np.ndarray:
    """Parts for ``count`` further nodes, so that the smallest parts grow first; neighbouring nodes stay together."""
    low, high = int(sizes.min()), int(sizes.max()) + count
    while low < high:
        level = (low + high) // 2
        low, high = (low, level) if np.maximum(level - sizes, 0).sum() >= count else (level + 1, high)
    return np.repeat(np.arange(len(sizes)), np.maximum(low - sizes, 0))[:count]


class PartSizes(NamedTuple):
    """What the parts hold: nodes and links of each, and the links between them."""

    nodes: np.ndarray
    links: np.ndarray
    cut: int


def part_sizes(part: torch.Tensor, adjacency: SparseMatrix) -> PartSizes:
    """Counts nodes and links, in blocks of rows, so that no vector of the adjacency is made."""
    of, parts = part.numpy(), int(part.max()) + 1
    rowptr, col = (tensor.cpu().numpy() for tensor in (adjacency.rowptr, adjacency.col))
    links = np.zeros(parts, dtype=np.int64)
    for begin, end in _blocks(rowptr):
        row_part = np.repeat(of[begin:end], np.diff(rowptr[begin : end + 1]))
        inside = row_part == of[col[rowptr[begin] : rowptr[end]]]
        links += np.bincount(row_part[inside], minlength=parts)
    return PartSizes(np.bincount(of, minlength=parts), links // 2, (len(col) - int(links.sum())) // 2)


def _blocks(rowptr: np.ndarray) -> Iterator[tuple[int, int]]:
    begin, rows = 0, len(rowptr) - 1
    while begin < rows:
        end = _end(rowptr, begin, rows)
        yield begin, end
        begin = end


def check_partition(part: torch.Tensor, adjacency: SparseMatrix) -> PartSizes:
    """Checks the part of each node, int64 on the CPU.

    Raises:
        ValueError: another length than the number of nodes, a negative number, or a part without nodes or links.
    """
    n = adjacency.shape[0]
    if part.shape != (n,):
        raise ValueError(f"parts: got shape {tuple(part.shape)}, want ({n},), the part of each node of this graph")
    if int(part.min()) < 0 or int(part.max()) >= n:
        raise ValueError(
            f"parts: got numbers from {int(part.min())} to {int(part.max())}, want 0 to {n - 1}: parts with nodes"
        )
    sizes = part_sizes(part, adjacency)
    for name, counts in (("nodes", sizes.nodes), ("links", sizes.links)):
        empty = np.flatnonzero(counts == 0)
        if len(empty):
            first = ", ".join(map(str, empty[:5].tolist())) + (", ..." if len(empty) > 5 else "")
            raise ValueError(
                f"parts: {len(empty)} of {len(counts)} have no {name} inside (part {first}), want fewer parts, "
                "or others"
            )
    return sizes
