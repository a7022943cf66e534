"""Terms of links, self-loops and drawn pairs: a part of ``link_likelihood``.

A program takes rows, gathers their links and drawn pairs and writes their gradient; the drawn pairs are sorted by rows,
in both directions. Floor: 2 (links + negatives) rows of z read. Rows with many of them are cut into pieces (hubs.py).
"""

from __future__ import annotations

import itertools

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.hubs import add_up_hubs, ends_but_of_hubs, hub_kernel, hub_segments, number_of_slots, slots_of
from .common.math import bits_of, finite, number_of, softplus_sigmoid
from .common.random import NEGATIVES, integers
from .common.rows import ends_of_rows

# A row with more links and drawn pairs than this is a hub: a guess, not yet measured. The bound is higher where rows
# have more on average, so that the slots for partial sums of hubs are no more than twice the rows.
HUB = 512


@triton.jit
def sum_pairs(
    row,  # [BLOCK_ROWS] int64
    first,  # [BLOCK_ROWS] int64: the first pair of the range. 0 is the row itself, then links, then drawn
    last,  # [BLOCK_ROWS] int64: one past the last pair of the range
    tile,
    z,
    rowptr,
    col,
    drawn_rowptr,
    drawn_col,
    pos_weight,
    nodes,
    width,
    row_stride,
    tiles,
    self_loops,
    drawn_weight,
    dtype: tl.constexpr,
    DRAWN: tl.constexpr,
    HUBS: tl.constexpr,  # otherwise `first` is 0
    BLOCK_ROWS: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """Terms ``[BLOCK_ROWS]`` of a range of each row's pairs, in float64, and half of their gradient in a tile."""
    column = tile * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    linked = tl.load(pos_weight).to(dtype)
    begin, end = ends_of_rows(rowptr, row, nodes)
    links = end - begin
    if DRAWN:
        drawn_begin, _ = ends_of_rows(drawn_rowptr, row, nodes)
    used = (first < last)[:, None] & (column < width)[None, :]
    ours = tl.load(z + row[:, None] * row_stride + column[None, :], mask=used, other=0.0).to(dtype)
    value = tl.zeros((BLOCK_ROWS,), dtype=tl.float64)
    total = tl.zeros((BLOCK_ROWS, BLOCK_WIDTH), dtype=dtype)
    for start in range(0, tl.max(last - first if HUBS else last, axis=0), BLOCK_PAIRS):
        pair = start + tl.arange(0, BLOCK_PAIRS)[None, :]
        if HUBS:
            pair += first[:, None]
        # A row with itself is left out where self-loops don't count: its numbers may be infinite.
        inside = (pair < last[:, None]) & (pair >= 1 - self_loops)
        link = (pair > 0) & (pair <= links[:, None])
        other = tl.load(col + begin[:, None] + pair - 1, mask=link, other=0)
        other = tl.where(pair == 0, row[:, None], other)
        # The term of a pair is -on softplus(-s) - off softplus(s).
        on = tl.where(link, linked, tl.where(pair == 0, linked * self_loops, 0.0))
        if DRAWN:
            drawn = inside & (pair > links[:, None])
            pair = pair - 1 - links[:, None]
            other = tl.where(drawn, tl.load(drawn_col + drawn_begin[:, None] + pair, mask=drawn, other=0), other)
            off = tl.where(drawn, number_of(drawn_weight, dtype), 0.0)
        else:
            off = tl.where(link, -1.0, 0.0).to(dtype)
        theirs = tl.load(
            z + other[:, :, None] * row_stride + column[None, None, :],
            mask=inside[:, :, None] & (column < width)[None, None, :],
            other=0.0,
        ).to(dtype)
        scores = tl.sum(ours[:, None, :] * theirs, axis=2)
        for step in range(1, tiles):
            further = (tile + step) % tiles * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
            mask = inside[:, :, None] & (further < width)[None, None, :]
            here = tl.load(z + row[:, None, None] * row_stride + further[None, None, :], mask=mask, other=0.0)
            there = tl.load(z + other[:, :, None] * row_stride + further[None, None, :], mask=mask, other=0.0)
            scores += tl.sum(here.to(dtype) * there.to(dtype), axis=2)
        # Times a weight of 0 infinity would be NaN, and so it would be minus that in the sum over all pairs.
        scores = finite(scores)
        term_off, slope_off = softplus_sigmoid(scores)
        term_on, slope_on = softplus_sigmoid(-scores)
        value -= tl.sum(tl.where(inside, on * term_on + off * term_off, 0.0).to(tl.float64), axis=1)
        slopes = tl.where(inside, on * slope_on - off * slope_off, 0.0)
        total += tl.sum(slopes[:, :, None] * theirs, axis=1)
    return value, total


@triton.jit(do_not_specialize=["pairs", "all_blocks", "search_steps"])
def pair_kernel(
    z,  # [nodes, samples, width], unit stride along a row
    rowptr,  # links: [nodes + 1] int64
    col,
    drawn_rowptr,  # drawn pairs in both directions: [nodes + 1] int64
    drawn_col,
    pairs_rowptr,  # both together: [nodes + 1] int64
    pos_weight,  # [1] float64
    gradient,  # [samples, nodes, width]; of hubs [samples, slots, width], their partial sums
    partial,  # [samples, all blocks] float64, from this launch's first one on
    starts,  # of hubs: [slots] int64, the row whose first pair is summed in this slot, or -1
    nodes,
    pairs,
    samples,
    width,
    row_stride,
    sample_stride,
    tiles,
    all_blocks,
    search_steps,
    self_loops,  # 0 or 1
    drawn_weight,  # bits of a float64
    DRAWN: tl.constexpr,
    HUBS: tl.constexpr,
    WITH_GRADIENT: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """Rows with themselves, their links and drawn pairs, in this order. Without drawn pairs: what links change in the
    sum over all pairs. Hubs (common/hubs.py) are left out, or with HUBS are the only rows.

    Programs: for each block of rows, or of slots of hubs, all samples, for each sample all tiles of columns.
    """
    program = tl.program_id(0).to(tl.int64)
    tile = program % tiles
    sample = program // tiles % samples
    block = program // tiles // samples
    line = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    if HUBS:
        lines = slots_of(pairs, CHUNK)
        row, begin, end, inside, starting = hub_segments(line, lines, pairs_rowptr, nodes, pairs, search_steps, CHUNK)
        before = begin - tl.load(pairs_rowptr + row)
        # The piece that begins a hub also has the pair of the row with itself.
        first = tl.where(starting >= 0, 0, before + 1)
        last = tl.where(inside, before + 1 + end - begin, first)
        if (tile == 0) & (sample == 0):
            tl.store(starts + line, starting, mask=line < lines)
    else:
        row, lines = line, nodes
        begin, end, inside = ends_but_of_hubs(pairs_rowptr, row, nodes, CHUNK)
        first = tl.zeros_like(row)
        last = tl.where(inside, end - begin + 1, 0)
    dtype: tl.constexpr = gradient.dtype.element_ty
    value, total = sum_pairs(
        row,
        first,
        last,
        tile,
        z + sample * sample_stride,
        rowptr,
        col,
        drawn_rowptr,
        drawn_col,
        pos_weight,
        nodes,
        width,
        row_stride,
        tiles,
        self_loops,
        drawn_weight,
        dtype,
        DRAWN,
        HUBS,
        BLOCK_ROWS,
        BLOCK_PAIRS,
        BLOCK_WIDTH,
    )
    if tile == 0:
        tl.store(partial + sample * all_blocks + block, tl.sum(value, axis=0))
    if WITH_GRADIENT:
        column = tile * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
        # Empty ranges write nothing: rows past the end, hubs in the first launch, slots without a hub in the second.
        used = (first < last)[:, None] & (column < width)[None, :]
        # A pair is in the sum in both directions, hence the 2.
        total *= 2.0
        target = gradient + (sample * lines + line[:, None]) * width + column[None, :]
        if not DRAWN and not HUBS:
            total += tl.load(target, mask=used, other=0.0)
        tl.store(target, total, mask=used)


@triton.jit
def draw_kernel(
    seed,  # [1] int64
    gaps,  # [edges] int64: non-edges before each edge
    rows,  # [2 * draws] int64
    others,  # [2 * draws] int64
    draws,
    nodes,
    edges,
    search_steps,  # 2 ** search_steps > edges
    BLOCK: tl.constexpr,
):
    """Both directions of each drawn non-edge, numbered as in seegera_fast/sampling.py.

    The pairs i < k are numbered in ascending order, and non-edge number ``rank`` is pair rank + m, where m counts the
    edges before it.
    """
    draw = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    nodes = tl.cast(nodes, tl.int64)
    pairs = nodes * (nodes - 1) // 2
    rank = integers(tl.load(seed), NEGATIVES, draw, pairs - edges)
    low = tl.zeros((BLOCK,), dtype=tl.int64)
    high = low + edges
    for _ in range(search_steps):
        middle = (low + high) // 2
        before = tl.load(gaps + middle, mask=low < high, other=0) <= rank
        low, high = tl.where((low < high) & before, middle + 1, low), tl.where(before, high, middle)
    # Counted from the last pair, the row t above the last one starts at t (t + 1) / 2. The root may be off by a
    # rounding.
    from_last = pairs - 1 - (rank + low)
    t = ((tl.sqrt(from_last.to(tl.float64) * 8.0 + 1.0) - 1.0) * 0.5).to(tl.int64)
    t = tl.where(t * (t + 1) // 2 > from_last, t - 1, t)
    t = tl.where((t + 1) * (t + 2) // 2 <= from_last, t + 1, t)
    lower = nodes - 2 - t
    upper = nodes - 1 - (from_last - t * (t + 1) // 2)
    tl.store(rows + draw, lower, mask=draw < draws)
    tl.store(others + draw, upper, mask=draw < draws)
    tl.store(rows + draws + draw, upper, mask=draw < draws)
    tl.store(others + draws + draw, lower, mask=draw < draws)


def draw_block(draws: int, device: str) -> int:
    """Pairs of a program that draws."""
    return min(2**14, triton.next_power_of_2(draws)) if device == "cpu" else 256


def pair_blocks(nodes: int, width: int, hubs: bool, dtype: torch.dtype, device: str) -> dict[str, int]:
    """Rows of a program, pairs of each row and columns that it takes at a time. ``dtype``: of the sums.

    On a GPU 8 kB, 16 numbers for each thread in float32; 2 kB for narrow rows, whose addresses take more registers.
    Hubs take half as many, for the same reason, except for wide rows of float64, where that would make ptxas spill.
    """
    columns = max(1, min(triton.next_power_of_2(width), 512))
    if device == "cpu":
        rows = min(2**17 // (16 * columns), triton.next_power_of_2(nodes))
        return {"BLOCK_ROWS": rows, "BLOCK_PAIRS": 16, "BLOCK_WIDTH": columns}
    numbers = (2**13 if columns >= 256 else 2**11) // dtype.itemsize
    pairs = min(8, numbers // columns)
    rows = min(32, numbers // (pairs * columns))
    if hubs and (dtype != torch.float64 or columns < 256):
        pairs = max(1, pairs // 2)
    return {"BLOCK_ROWS": rows, "BLOCK_PAIRS": pairs, "BLOCK_WIDTH": columns}


def drawn_pairs(
    seed: torch.Tensor, gaps: torch.Tensor, negatives: int, nodes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The drawn non-edges in both directions, as the row pointers and columns of a CSR matrix."""
    rows, others = gaps.new_empty(2 * negatives), gaps.new_empty(2 * negatives)
    block = draw_block(negatives, gaps.device.type)
    edges = gaps.numel()
    draw_kernel[triton.cdiv(negatives, block),](
        seed, gaps, rows, others, negatives, nodes, edges, edges.bit_length(), BLOCK=block, **OPTIONS
    )
    rows, order = torch.sort(rows, stable=True)
    rowptr = torch.searchsorted(rows, torch.arange(nodes + 1, device=rows.device))
    return rowptr, others[order]


def add_links(
    z: torch.Tensor,
    rowptr: torch.Tensor,
    col: torch.Tensor,
    drawn: tuple[torch.Tensor, torch.Tensor] | None,
    pos_weight: torch.Tensor,
    gradient: torch.Tensor,
    self_loops: bool,
    drawn_weight: float,
    with_gradient: bool,
) -> torch.Tensor:
    """Float64 ``[samples]``: the terms of links, self-loops and drawn pairs. Writes their gradient.

    Without drawn pairs it adds to the gradient, and the links lose the term that the sum over all pairs gives them.
    """
    nodes, samples, width = z.shape
    pairs, pairs_rowptr = col.numel(), rowptr
    if drawn is not None:
        pairs, pairs_rowptr = pairs + drawn[1].numel(), rowptr + drawn[0]
    chunk = max(HUB, triton.next_power_of_2(triton.cdiv(pairs, nodes)))
    # A row has fewer links than there are nodes.
    slots = 0 if pairs <= chunk or (drawn is None and nodes <= chunk) else number_of_slots(pairs, chunk)
    of_rows, of_hubs = (pair_blocks(nodes, width, hubs, gradient.dtype, z.device.type) for hubs in (False, True))
    tiles = max(1, triton.cdiv(width, of_rows["BLOCK_WIDTH"]))
    row_blocks, slot_blocks = triton.cdiv(nodes, of_rows["BLOCK_ROWS"]), triton.cdiv(slots, of_hubs["BLOCK_ROWS"])
    # The sums of hubs begin at an even index, so that they are aligned to 16 bytes.
    begin = row_blocks + row_blocks % 2 if slots else row_blocks
    partial = z.new_empty((samples, begin + slot_blocks), dtype=torch.float64)
    partial[:, row_blocks:begin] = 0
    sums, starts = gradient.new_empty((samples, slots if with_gradient else 0, width)), rowptr.new_empty(slots)

    def launch(hubs: bool, number_of_blocks: int, out: torch.Tensor, values: torch.Tensor) -> None:
        pair_kernel[number_of_blocks * samples * tiles,](
            z,
            rowptr,
            col,
            *(drawn or (rowptr, col)),
            pairs_rowptr,
            pos_weight,
            out,
            values,
            starts,
            nodes,
            pairs,
            samples,
            width,
            z.stride(0),
            z.stride(1),
            tiles,
            values.stride(0),
            nodes.bit_length(),
            int(self_loops),
            bits_of(drawn_weight),
            DRAWN=drawn is not None,
            HUBS=hubs,
            WITH_GRADIENT=with_gradient,
            CHUNK=chunk,
            **(of_hubs if hubs else of_rows),
            **OPTIONS,
        )

    launch(False, row_blocks, gradient, partial)
    if slots:
        launch(True, slot_blocks, sums, partial[:, begin:])
        if with_gradient:
            block = (of_hubs["BLOCK_ROWS"], of_hubs["BLOCK_WIDTH"])
            add_up_hubs(pairs_rowptr, sums, starts, gradient, pairs, chunk, *block, add=drawn is None)
    return partial.sum(dim=1)


def ahead_of_time() -> list[tuple]:
    """What ``drawn_pairs`` and ``add_links`` launch on a GPU: see tests/ahead_of_time.py."""
    pointers = (
        "rowptr",
        "col",
        "drawn_rowptr",
        "drawn_col",
        "pairs_rowptr",
        "starts",
        "seed",
        "gaps",
        "rows",
        "others",
    )
    types = dict.fromkeys(pointers, "*i64")
    types |= {"pos_weight": "*fp64", "partial": "*fp64", "drawn_weight": "i64"}
    types |= dict.fromkeys(("width", "row_stride", "sample_stride"), "i32:16")
    entries = [compiled_as("", draw_kernel, {"BLOCK": draw_block(1, "cuda")}, types)]
    for element, wide, sums in (
        ("fp32", "fp32", torch.float32),
        ("fp64", "fp64", torch.float64),
        ("bf16", "fp32", torch.float32),
    ):
        for width in (64, 256, 512, 1024):
            for drawn, hubs in itertools.product((False, True), repeat=2):
                blocks = pair_blocks(1, width, hubs, sums, "cuda")
                # For one sample with self-loops. Triton compiles an integer of 1 into the kernel, so one tile is a
                # constant.
                constants = dict.fromkeys(("samples", "self_loops"), 1)
                constants |= {"tiles": 1} if width <= blocks["BLOCK_WIDTH"] else {}
                constants |= {"DRAWN": drawn, "HUBS": hubs, "WITH_GRADIENT": True, "CHUNK": HUB, **blocks}
                tensors = {"z": f"*{element}", "gradient": f"*{wide}"}
                label = f"{element} width {width}{', drawn' if drawn else ''}{', hubs' if hubs else ''}"
                entries.append(compiled_as(label, pair_kernel, constants, types | tensors))
            if element == wide:
                tensors = dict.fromkeys(("partial", "out"), f"*{element}") | {"rows": "i32"}
                for drawn in (False, True):
                    constants = {"ADD": not drawn, "CHUNK": HUB}
                    constants |= {"BLOCK_ROWS": blocks["BLOCK_ROWS"], "BLOCK_COLS": blocks["BLOCK_WIDTH"]}
                    label = f"{element} width {width}{', drawn' if drawn else ''}"
                    entries.append(compiled_as(label, hub_kernel, constants, types | tensors))
    return entries
