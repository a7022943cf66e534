"""The pairs without a link that have the largest scores, for each node or for the whole graph.

The library's products make approximate scores, a chunk of two groups of nodes at a time, each pair once: a chunk serves
its rows and its columns. A score that is below the k-th best of a row by more than it may be off is ruled out; the
other pairs are scored in float64 (top_links_rows.py). So TF32 products change the time, not the result. Floor: n^2 d
operations. Memory: a chunk, and 2 k and some hundred candidates for each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from . import top_links_rows
from .common.chunks import UNIT, padded, pieces
from .common.products import multiply
from .top_links_rows import ANY, FIRST, UPPER, Pairs, RowsBest, collect, mark

# Rows of a group, at most: a chunk of 64 MiB in float32. It was not measured for this operation.
CHUNK = 4096
# Candidates of all rows together, at most, where the best pairs of the whole graph are searched.
MOST_CANDIDATES = 2**25
# A pair behind all others.
NO_PAIR = 2**62


class Side(NamedTuple):
    """Rows or columns of a chunk.

    Attributes:
        z: their embeddings.
        nodes: int64, their nodes.
        start: the number of the first one, among the rows that were asked for or among all nodes.
        best: the best pairs of each; None: they are not searched.
    """

    z: torch.Tensor
    nodes: torch.Tensor
    start: int
    best: RowsBest | None


def relative_error(dtype: torch.dtype, width: int, device: torch.device) -> float:
    """How far a product may be from the score of a pair, over the product of the norms; see kernels/cpu."""
    steps = (width + 8) * (2**-24 if dtype == torch.float32 else 2**-52)
    if steps >= 0.5:
        return float("inf")
    library = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    settings = (torch.backends.fp32_precision, library.matmul.fp32_precision)
    rounded = dtype == torch.float32 and not {*settings} <= {"none", "ieee"}
    # With bfloat16, the coarsest of the settings, both operands are off by 2^-8 at most.
    return steps / (1 - steps) + (2**-7 + 2**-16 if rounded else 0.0)


def upper_norms(z: torch.Tensor) -> torch.Tensor:
    """Float64 ``[n]``: upper bounds of the rows' norms, 0 for a row of zeros."""
    single = z.dtype == torch.float32
    norms = torch.linalg.vector_norm(z, dim=1, dtype=torch.float64) * (1 + (z.shape[1] + 8) * 2.0**-52)
    norms += 2.0**-50 if single else 2.0**-400
    return torch.where((z == 0).all(dim=1), 0.0, norms)


class Search:
    """One call: what all chunks need, and the two ways to go through them."""

    def __init__(
        self,
        z: torch.Tensor,
        rowptr: torch.Tensor,
        col: torch.Tensor,
        nodes: torch.Tensor | None,
        sides: torch.Tensor | None,
        k: int,
    ) -> None:
        self.z, self.nodes, self.k = z, nodes, k
        first, rows = None, z.shape[0]
        if nodes is not None:
            rows = nodes.shape[0]
            first = torch.full((z.shape[0],), rows, device=z.device)
            first = first.scatter_reduce_(0, nodes, torch.arange(rows, device=z.device), "amin")
        error = relative_error(z.dtype, z.shape[1], z.device)
        self.pairs = Pairs(z, rowptr, col, upper_norms(z), sides, first, error)
        self.groups = pieces(z.shape[0], CHUNK)
        self.line = padded(self.groups[0].stop)
        self.memory = z.new_empty((min(self.line, rows), self.line))

    def chunk(self, left: Side, right: Side) -> torch.Tensor:
        """The scores of two groups; those of links and of a node with itself are marked."""
        scores = self.memory[: left.z.shape[0], : right.z.shape[0]]
        multiply(left.z, right.z.T, scores)
        mark(self.pairs, scores, left.nodes, right.start)
        return scores

    def group(self, part: slice, best: RowsBest | None = None) -> Side:
        return Side(self.z[part], torch.arange(part.start, part.stop, device=self.z.device), part.start, best)

    def asked(self, most: int) -> Iterator[Side]:
        """The rows that were asked for, at most ``most`` at a time, with memory for their best pairs."""
        for part in pieces(self.z.shape[0] if self.nodes is None else self.nodes.shape[0], most):
            best = RowsBest(self.z, part.stop - part.start, self.k)
            if self.nodes is None:
                yield self.group(part, best)
            else:
                nodes = self.nodes[part]
                yield Side(self.z[nodes], nodes, part.start, best)

    def of_nodes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The best pairs of each row."""
        sides = []
        for left in self.asked(self.line):
            sides.append(left)
            if self.nodes is not None:
                for part in self.groups:
                    right = self.group(part)
                    collect(self.pairs, self.chunk(left, right), left, right, ANY)
        for number, left in enumerate(sides if self.nodes is None else ()):
            for right in sides[number:]:
                scores = self.chunk(left, right)
                collect(self.pairs, scores, left, right, ANY)
                if left is not right:
                    collect(self.pairs, scores.T, right, left, ANY)
        found = [side.best.sorted() for side in sides]
        return torch.cat([values for values, _ in found]), torch.cat([others for _, others in found])

    def of_graph(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The best pairs of all rows together, a group of rows after the other."""
        count, k = self.z.shape[0], self.k
        values = self.z.new_full((k,), -torch.inf)
        pairs = torch.full((k,), NO_PAIR, device=self.z.device)
        rule = UPPER if self.nodes is None else FIRST
        room = RowsBest.room_for(k, self.z.device.type)
        for left in self.asked(max(UNIT, min(self.line, MOST_CANDIDATES // room // UNIT * UNIT))):
            # What is below the best pairs so far is ruled out.
            left.best.thresholds.copy_(values[-1].expand_as(left.best.thresholds))
            begin = left.start if self.nodes is None else 0
            for part in pieces(count - begin, self.line):
                right = self.group(slice(begin + part.start, begin + part.stop))
                collect(self.pairs, self.chunk(left, right), left, right, rule)
            found, others = left.best.sorted()
            low, high = torch.minimum(left.nodes[:, None], others), torch.maximum(left.nodes[:, None], others)
            new = torch.where(others < 0, NO_PAIR, low * count + high)
            values, pairs = torch.cat([values, found.flatten()]), torch.cat([pairs, new.flatten()])
            # By score, then by pair; places without a pair come last, behind scores of minus infinity.
            order = pairs.argsort()
            order = order[values[order].argsort(descending=True, stable=True)][:k]
            values, pairs = values[order], pairs[order]
        ends = torch.stack([pairs // max(count, 1), pairs % max(count, 1)], dim=1)
        return values, torch.where((pairs == NO_PAIR)[:, None], -1, ends)


def top_links(
    z: torch.Tensor,
    rowptr: torch.Tensor,
    col: torch.Tensor,
    nodes: torch.Tensor | None,
    sides: torch.Tensor | None,
    k: int,
    per_node: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and nodes ``[rows, k]``, or scores ``[k]`` and pairs ``[k, 2]``; see ``ops.top_links``."""
    z = z.contiguous()
    nodes, sides = (None if numbers is None else numbers.contiguous() for numbers in (nodes, sides))
    rows = z.shape[0] if nodes is None else nodes.shape[0]
    if rows == 0 or z.shape[0] == 0:
        shape = (rows, k) if per_node else (k,)
        return z.new_full(shape, -torch.inf), col.new_full(shape if per_node else (k, 2), -1)
    with torch.cuda.device_of(z):
        search = Search(z, rowptr, col, nodes, sides, k)
        return search.of_nodes() if per_node else search.of_graph()


def ahead_of_time() -> list[tuple]:
    """What ``top_links`` launches on a GPU: see tests/ahead_of_time.py."""
    return top_links_rows.ahead_of_time()
