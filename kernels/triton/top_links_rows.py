"""The best pairs of rows, from chunks of approximate scores: a part of ``top_links``.

Each row has a list of candidates. Those at its front are scored, the others were added since: pairs whose approximate
score is not below the row's threshold, the score of its k-th best, by more than it may be off. When a list is full the
new ones are scored in float64, the k best stay, in the order of their columns, and the threshold rises.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .common import INTERPRETED, OPTIONS, compiled_as
from .common.math import bits_of, number_of

# Which pairs count in a row: any; those whose other node is larger; those that are not met in an earlier row.
ANY, UPPER, FIRST = 0, 1, 2

# Left to itself ptxas aims at more programs on a multiprocessor, and spills a few registers for that.
COLLECT_OPTIONS = {**OPTIONS, "maxnreg": 168}


class Pairs(NamedTuple):
    """What is known of the nodes.

    Attributes:
        z: ``[n, d]``, contiguous.
        rowptr, col: the links.
        norms: float64 ``[n]``, upper bounds of the norms.
        sides: int64 ``[n]`` or None.
        first: int64 ``[n]``, the first row of each node, or the number of rows where it has none; None: all have one.
        error: how far an approximate score may be from the score, over the product of the norms.
    """

    z: torch.Tensor
    rowptr: torch.Tensor
    col: torch.Tensor
    norms: torch.Tensor
    sides: torch.Tensor | None
    first: torch.Tensor | None
    error: float


class RowsBest:
    """The candidates of some rows."""

    def __init__(self, z: torch.Tensor, rows: int, k: int) -> None:
        self.k, self.room = k, self.room_for(k, z.device.type)
        self.values = z.new_empty((rows, self.room))
        self.others = torch.empty((rows, self.room), dtype=torch.int64, device=z.device)
        self.counts = torch.zeros(rows, dtype=torch.int32, device=z.device)
        self.thresholds = z.new_full((rows,), -torch.inf)

    @staticmethod
    def room_for(k: int, device: str) -> int:
        """Candidates of a row: at least k, and a block of columns more."""
        return 2 * k + 2 * block_columns(device)

    def sorted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The best pairs of each row, in order: scores and other nodes, minus infinity and -1 where there are no more.

        The candidates are in the order of their columns, which a stable sort keeps where scores are equal.
        """
        there = torch.arange(self.k, device=self.counts.device) < self.counts[:, None]
        values = torch.where(there, self.values[:, : self.k], -torch.inf)
        others = torch.where(there, self.others[:, : self.k], -1)
        values, order = values.sort(dim=1, descending=True, stable=True)
        return values, others.gather(1, order)


@triton.jit
def marker(dtype: tl.constexpr):
    """The bits of a NaN that no product gives, as an integer: the score of a pair that does not count."""
    if dtype == tl.float32:
        bits = tl.full((), 0x7FC0DEAD, dtype=tl.int32)
    else:
        bits = tl.full((), 0x7FF8DEAD0000DEAD, dtype=tl.int64)
    return bits


@triton.jit
def integer_bits(values):
    return values.to(tl.int32 if values.dtype == tl.float32 else tl.int64, bitcast=True)


@triton.jit
def mark_kernel(
    scores,  # [rows, columns]
    nodes,  # int64 [rows]
    rowptr,
    col,
    rows,
    columns,
    line,  # stride of the rows of scores
    first_column,  # the node of the first column; the others follow
    BLOCK_ROWS: tl.constexpr,
    BLOCK_LINKS: tl.constexpr,
):
    """Marks the links of each row among the columns, and the node itself."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    node = tl.load(nodes + row, mask=row < rows, other=0)
    begin = tl.load(rowptr + node, mask=row < rows, other=0)
    end = tl.load(rowptr + node + 1, mask=row < rows, other=0)
    mark = marker(scores.dtype.element_ty).to(scores.dtype.element_ty, bitcast=True)
    own = node - first_column
    tl.store(scores + row * line + own, mark, mask=(row < rows) & (own >= 0) & (own < columns))
    for start in range(0, tl.max(end - begin, axis=0), BLOCK_LINKS):
        link = begin[:, None] + start + tl.arange(0, BLOCK_LINKS)[None, :]
        inside = link < end[:, None]
        column = tl.load(col + link, mask=inside, other=0) - first_column
        inside &= (column >= 0) & (column < columns)
        tl.store(scores + row[:, None] * line + column, mark, mask=inside)


@triton.jit
def score_new(z, node, others, values, row, room, done, count, width, ENTRIES: tl.constexpr, BLOCK_WIDTH: tl.constexpr):
    """Scores the candidates number ``done`` to ``count`` of each row, in float64, rounded once."""
    for start in range(0, tl.max(count - done, axis=0), ENTRIES):
        entry = done[:, None] + start + tl.arange(0, ENTRIES)[None, :]
        inside = entry < count[:, None]
        place = row[:, None] * room + entry
        other = tl.load(others + place, mask=inside, other=0)
        total = tl.zeros(entry.shape, dtype=tl.float64)
        for at in range(0, width, BLOCK_WIDTH):
            column = at + tl.arange(0, BLOCK_WIDTH)
            within = column < width
            ours = tl.load(z + node[:, None] * width + column[None, :], mask=within[None, :], other=0.0)
            theirs = tl.load(
                z + other[:, :, None] * width + column[None, None, :],
                mask=inside[:, :, None] & within[None, None, :],
                other=0.0,
            )
            total += tl.sum(ours[:, None, :].to(tl.float64) * theirs.to(tl.float64), axis=2)
        tl.store(values + place, total.to(values.dtype.element_ty), mask=inside)


@triton.jit
def keys_of(values, place, inside):
    """Integers in the order of the scores, and which of them count: a NaN does not."""
    value = tl.load(values + place, mask=inside, other=float("nan"))
    # Zeros of both signs are equal.
    bits = integer_bits(tl.where(value == 0.0, 0.0, value)).to(tl.int64)
    most: tl.constexpr = 0x7FFFFFFF if values.dtype.element_ty == tl.float32 else 0x7FFFFFFFFFFFFFFF
    return tl.where(bits < 0, bits ^ most, bits), inside & (value == value)


@triton.jit
def kth_key(values, row, room, count, k, BLOCK: tl.constexpr):
    """The k-th largest key of each row, or the smallest integer where there are fewer; how many keys are larger."""
    # Of float32, keys are integers of 32 bits.
    single: tl.constexpr = values.dtype.element_ty == tl.float32
    steps: tl.constexpr = 32 if single else 64
    least: tl.constexpr = -0x80000000 if single else -0x8000000000000000
    largest: tl.constexpr = 0x7FFFFFFF if single else 0x7FFFFFFFFFFFFFFF
    low = tl.full(row.shape, least, dtype=tl.int64)
    high = tl.full(row.shape, largest, dtype=tl.int64)
    most = tl.max(count, axis=0)
    for _ in range(steps):
        # Half of the sum rounded up, without an overflow.
        middle = (low | high) - ((low ^ high) >> 1)
        above = tl.zeros(row.shape, dtype=tl.int32)
        for start in range(0, most, BLOCK):
            entry = start + tl.arange(0, BLOCK)[None, :]
            key, there = keys_of(values, row[:, None] * room + entry, entry < count[:, None])
            above += tl.sum((there & (key >= middle[:, None])).to(tl.int32), axis=1)
        enough = above >= k
        low, high = tl.where(enough, middle, low), tl.where(enough, high, middle - 1)
    larger = tl.zeros(row.shape, dtype=tl.int32)
    for start in range(0, most, BLOCK):
        entry = start + tl.arange(0, BLOCK)[None, :]
        key, there = keys_of(values, row[:, None] * room + entry, entry < count[:, None])
        larger += tl.sum((there & (key > low[:, None])).to(tl.int32), axis=1)
    return low, larger


@triton.jit
def keep_best(values, others, row, room, count, k, kth, larger, BLOCK: tl.constexpr):
    """Moves the k best candidates of each row to its front, in their order; of equal ones the first. Their number."""
    kept, ties = tl.zeros(row.shape, dtype=tl.int32), tl.zeros(row.shape, dtype=tl.int32)
    for start in range(0, tl.max(count, axis=0), BLOCK):
        entry = start + tl.arange(0, BLOCK)[None, :]
        inside = entry < count[:, None]
        place = row[:, None] * room + entry
        key, there = keys_of(values, place, inside)
        tie = there & (key == kth[:, None])
        rank = ties[:, None] + tl.cumsum(tie.to(tl.int32), axis=1)
        stays = there & ((key > kth[:, None]) | (tie & (rank <= k - larger[:, None])))
        value = tl.load(values + place, mask=inside, other=0.0)
        other = tl.load(others + place, mask=inside, other=0)
        target = row[:, None] * room + kept[:, None] + tl.cumsum(stays.to(tl.int32), axis=1) - 1
        # All of a block is read before any of it is overwritten.
        tl.debug_barrier()
        tl.store(values + target, value, mask=stays)
        tl.store(others + target, other, mask=stays)
        tl.debug_barrier()
        kept += tl.sum(stays.to(tl.int32), axis=1)
        ties += tl.sum(tie.to(tl.int32), axis=1)
    return kept


@triton.jit
def new_candidates(
    score,
    node,
    other,
    inside,
    norm,
    other_norm,
    threshold,
    sides,
    first,
    row,
    error,
    SIDES: tl.constexpr,
    RULE: tl.constexpr,
):
    """Which pairs may be among the best of their rows, of a block of them."""
    dtype: tl.constexpr = score.dtype
    limit: tl.constexpr = 8e37 if dtype == tl.float32 else 4e307
    product = norm[:, None] * other_norm[None, :]
    # Where a partial sum may overflow, or where a norm is infinite, nothing is ruled out.
    bound = tl.where(product < limit, score.to(tl.float64) + number_of(error, tl.float64) * product, float("inf"))
    inside &= integer_bits(score) != marker(dtype)
    inside &= (norm == norm)[:, None] & (other_norm == other_norm)[None, :]
    inside &= ~(bound < threshold.to(tl.float64)[:, None])
    if SIDES:
        here, there = tl.load(sides + node), tl.load(sides + other)
        inside &= here[:, None] != there[None, :]
    if RULE == 1:
        inside &= other[None, :] > node[:, None]
    if RULE == 2:
        inside &= (tl.load(first + node) == row)[:, None]
        met = tl.load(first + other)[None, :] < tl.load(first + node)[:, None]
        inside &= ~met
    return inside


@triton.jit(do_not_specialize=["first_column", "first_row", "columns"])
def collect_kernel(
    scores,  # [rows, columns], any strides
    nodes,  # int64 [rows]
    z,  # [n, width], contiguous
    norms,  # float64 [n]
    sides,  # int64 [n]; not read without SIDES
    first,  # int64 [n]: the first row of each node; read where RULE is FIRST
    values,  # [rows, room]
    others,  # int64 [rows, room]
    counts,  # int32 [rows]
    thresholds,  # [rows]
    rows,
    columns,
    row_stride,
    column_stride,
    first_row,  # number of the first row among those that were asked for
    first_column,  # the node of the first column; the others follow
    width,
    room,
    k,
    error,  # bits of a float64
    SIDES: tl.constexpr,
    RULE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    ENTRIES: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """Adds the pairs of a chunk to the candidates of its rows; the k best are left. Programs: blocks of rows."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    here = row < rows
    # Rows past the end repeat the last one, and have no candidates.
    node = tl.load(nodes + tl.minimum(row, rows - 1))
    norm = tl.load(norms + node)
    count = tl.load(counts + row, mask=here, other=0)
    threshold = tl.load(thresholds + row, mask=here, other=float("inf"))
    scored = count
    dtype: tl.constexpr = scores.dtype.element_ty
    for start in range(0, columns + BLOCK_COLUMNS, BLOCK_COLUMNS):
        if (start >= columns) | (tl.max(count, axis=0) + BLOCK_COLUMNS > room):
            # What was added is seen by all threads.
            tl.debug_barrier()
            score_new(z, node, others, values, row, room, scored, count, width, ENTRIES, BLOCK_WIDTH)
            tl.debug_barrier()
            kth, larger = kth_key(values, row, room, count, k, BLOCK_COLUMNS)
            count = keep_best(values, others, row, room, count, k, kth, larger, BLOCK_COLUMNS)
            scored = count
            if dtype == tl.float32:
                back = tl.where(kth < 0, kth ^ 0x7FFFFFFF, kth).to(tl.int32)
                found = back.to(tl.float32, bitcast=True)
            else:
                back = tl.where(kth < 0, kth ^ 0x7FFFFFFFFFFFFFFF, kth)
                found = back.to(tl.float64, bitcast=True)
            # Only k scores make a threshold.
            threshold = tl.where((count >= k) & (found > threshold), found, threshold)
        if start < columns:
            column = start + tl.arange(0, BLOCK_COLUMNS)
            inside = here[:, None] & (column < columns)[None, :]
            place = row[:, None] * row_stride + column[None, :].to(tl.int64) * column_stride
            score = tl.load(scores + place, mask=inside, other=float("-inf"))
            other = first_column + tl.minimum(column, columns - 1).to(tl.int64)
            other_norm = tl.load(norms + other)
            most = tl.max(tl.where(other_norm == other_norm, other_norm, 0.0), axis=0)
            # One comparison for most pairs, in the type of the scores.
            slack: tl.constexpr = 1e-6 if dtype == tl.float32 else 2e-15
            size = threshold.to(tl.float64)
            off = number_of(error, tl.float64) * norm * most
            limit: tl.constexpr = 8e37 if dtype == tl.float32 else 4e307
            bound = tl.where(norm * most < limit, size - off * (1 + slack) - tl.abs(size) * slack, float("-inf"))
            above = inside & ~(score < bound.to(dtype)[:, None])
            if tl.max(tl.max(above.to(tl.int32), axis=1), axis=0) > 0:
                new = new_candidates(
                    score,
                    node,
                    other,
                    above,
                    norm,
                    other_norm,
                    threshold,
                    sides,
                    first,
                    row + first_row,
                    error,
                    SIDES,
                    RULE,
                )
                target = row[:, None] * room + count[:, None] + tl.cumsum(new.to(tl.int32), axis=1) - 1
                tl.store(others + target, tl.broadcast_to(other[None, :], new.shape), mask=new)
                count += tl.sum(new.to(tl.int32), axis=1)
    tl.store(counts + row, count, mask=here)
    tl.store(thresholds + row, threshold, mask=here)


def block_columns(device: str) -> int:
    """Columns that a program takes at a time."""
    return 512 if device == "cpu" else 64


def row_blocks(rows: int, width: int, device: str) -> dict[str, int]:
    """Rows of a program, columns, candidates of each row and numbers of their embeddings that it takes at a time.

    On a GPU four scores and eight numbers for each thread: with twice as many, ptxas spills. Not measured.
    """
    if device == "cpu":
        along = min(triton.next_power_of_2(max(width, 1)), 512)
        height = max(1, min(triton.next_power_of_2(rows), 256, INTERPRETED // (16 * along)))
        return {"BLOCK_ROWS": height, "BLOCK_COLUMNS": block_columns(device), "ENTRIES": 16, "BLOCK_WIDTH": along}
    return {"BLOCK_ROWS": 8, "BLOCK_COLUMNS": block_columns(device), "ENTRIES": 4, "BLOCK_WIDTH": 32}


def mark_blocks(rows: int, device: str) -> dict[str, int]:
    """Rows of a program that marks links, and links of each that it takes at a time."""
    if device == "cpu":
        return {"BLOCK_ROWS": min(triton.next_power_of_2(rows), 4096), "BLOCK_LINKS": 64}
    return {"BLOCK_ROWS": 16, "BLOCK_LINKS": 32}


def mark(pairs: Pairs, scores: torch.Tensor, nodes: torch.Tensor, first_column: int) -> None:
    """Marks the links of the rows' nodes in a chunk, and the nodes themselves."""
    rows, columns = scores.shape
    blocks = mark_blocks(rows, scores.device.type)
    mark_kernel[triton.cdiv(rows, blocks["BLOCK_ROWS"]),](
        scores, nodes, pairs.rowptr, pairs.col, rows, columns, scores.stride(0), first_column, **blocks, **OPTIONS
    )


def collect(pairs: Pairs, scores: torch.Tensor, left: Any, right: Any, rule: int) -> None:
    """Adds the pairs of a chunk, of rows ``left`` and columns ``right``, to the best pairs of its rows."""
    rows, columns = scores.shape
    best, width = left.best, pairs.z.shape[1]
    blocks = row_blocks(rows, width, scores.device.type)
    collect_kernel[triton.cdiv(rows, blocks["BLOCK_ROWS"]),](
        scores,
        left.nodes,
        pairs.z,
        pairs.norms,
        left.nodes if pairs.sides is None else pairs.sides,
        left.nodes if pairs.first is None else pairs.first,
        best.values,
        best.others,
        best.counts,
        best.thresholds,
        rows,
        columns,
        *scores.stride(),
        left.start,
        right.start,
        width,
        best.room,
        best.k,
        bits_of(pairs.error),
        SIDES=pairs.sides is not None,
        RULE=rule,
        **blocks,
        **COLLECT_OPTIONS,
    )


def ahead_of_time() -> list[tuple]:
    """What the launchers launch on a GPU: see tests/ahead_of_time.py."""
    entries = []
    integers = ("nodes", "rowptr", "col", "sides", "first", "others")
    for dtype in ("fp32", "fp64"):
        types = dict.fromkeys(integers, "*i64") | dict.fromkeys(("scores", "z", "values", "thresholds"), f"*{dtype}")
        types |= {"norms": "*fp64", "counts": "*i32", "error": "i64", "line": "i32:16", "width": "i32:16"}
        entries.append(compiled_as(dtype, mark_kernel, mark_blocks(4096, "cuda"), types))
        for label, sides, rule, strides in (
            ("rows", False, ANY, {"row_stride": "i32:16"}),
            ("columns", True, ANY, {"column_stride": "i32:16"}),
            ("upper", False, UPPER, {"row_stride": "i32:16"}),
            ("first", True, FIRST, {"row_stride": "i32:16"}),
        ):
            # Triton compiles a stride of 1 into the kernel.
            one = "row_stride" if label == "columns" else "column_stride"
            constants = {one: 1, "SIDES": sides, "RULE": rule, **row_blocks(4096, 512, "cuda")}
            entries.append(
                compiled_as(f"{dtype} {label}", collect_kernel, constants, types | strides, options=COLLECT_OPTIONS)
            )
    return entries
