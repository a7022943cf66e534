"""Hubs: rows with more non-zeros than a chunk, which would take one program too long.

The non-zeros of the whole matrix are cut into chunks; each chunk that a hub touches gives a partial sum, and the hub's
partial sums are added in the order of the chunks. A chunk is too short to hold a hub whole: a hub that touches it has
its first non-zero (side 0) or, beginning inside it, its last one (side 1). So a chunk has two slots for partial sums,
and nothing has to be read on the host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from . import OPTIONS
from .rows import ends_of_rows


@triton.jit
def ends_but_of_hubs(rowptr, row, rows, CHUNK: tl.constexpr):
    """The first non-zero of each row, one past its last, and whether it is a row and not a hub. A hub is empty here."""
    begin, end = ends_of_rows(rowptr, row, rows)
    hub = end - begin > CHUNK
    return begin, tl.where(hub, begin, end), (row < rows) & ~hub


@triton.jit
def row_of(nonzero, rowptr, rows, search_steps):
    """The row of each non-zero, int64: the last one that begins at it or before it. 2 ** search_steps >= rows."""
    low = tl.zeros_like(nonzero)
    high = low + rows
    for _ in range(search_steps):
        middle = (low + high) // 2
        before = tl.load(rowptr + middle) <= nonzero
        low = tl.where(before, middle, low)
        high = tl.where(before, high, middle)
    return low


@triton.jit
def slots_of(nnz, CHUNK: tl.constexpr):
    """The number of slots for partial sums of hubs, int64."""
    return 2 * tl.cdiv(tl.cast(nnz, tl.int64), CHUNK)


@triton.jit
def hub_segments(
    slot,  # [BLOCK_ROWS] int64
    slots,
    rowptr,
    rows,
    nnz,
    search_steps,
    CHUNK: tl.constexpr,
):
    """The hub of each slot: its row, the range of its non-zeros in the chunk, whether the slot has a hub, and the row
    again where the hub begins in the slot, else -1."""
    first = slot // 2 * CHUNK
    last = tl.minimum(first + CHUNK, nnz) - 1
    late = slot % 2 == 1

    row = row_of(tl.where(late, last, first), rowptr, rows, search_steps)
    begin = tl.load(rowptr + row)
    end = tl.load(rowptr + row + 1)

    used = (slot < slots) & (end - begin > CHUNK) & ((begin > first) | ~late)
    starting = tl.where(used & (begin >= first), row, -1)
    begin = tl.maximum(begin, first)
    end = tl.where(used, tl.minimum(end, last + 1), begin)
    return row, begin, end, used, starting


@triton.jit
def hub_kernel(
    rowptr,
    partial,  # [samples, slots, width]
    starts,  # [slots] int64: the row that begins in a slot, or -1
    out,  # [samples, rows, width]
    rows,
    nnz,
    width,
    ADD: tl.constexpr,  # to what ``out`` holds
    CHUNK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Each slot where a hub begins adds up the hub: the sum in the slot, then those on side 0 of the later chunks.

    Programs: for each sample all tiles of columns, for each tile all blocks of slots.
    """
    program = tl.program_id(0).to(tl.int64)
    slots = slots_of(nnz, CHUNK)
    blocks, tiles = tl.cdiv(slots, BLOCK_ROWS), tl.cdiv(width, BLOCK_COLS)
    slot = program % blocks * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = program // blocks % tiles * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    sample = program // blocks // tiles
    partial += sample * slots * width
    out += sample * rows * width
    row = tl.load(starts + slot, mask=slot < slots, other=-1)
    begins = row >= 0
    end = tl.load(rowptr + row + 1, mask=begins, other=0)
    later = tl.where(begins, (end - 1) // CHUNK - slot // 2, 0)

    inside = begins[:, None] & (column < width)[None, :]
    total = tl.load(partial + slot[:, None] * width + column[None, :], mask=inside, other=0.0)
    for step in range(1, tl.max(later, axis=0) + 1):
        source = 2 * (slot // 2 + step)
        total += tl.load(
            partial + source[:, None] * width + column[None, :],
            mask=inside & (step <= later)[:, None],
            other=0.0,
        )
    target = out + row[:, None] * width + column[None, :]
    if ADD:
        total += tl.load(target, mask=inside, other=0.0)
    tl.store(target, total, mask=inside)


def number_of_slots(nnz: int, chunk: int) -> int:
    """``slots_of`` on the host."""
    return 2 * triton.cdiv(nnz, chunk)


def add_up_hubs(
    rowptr: torch.Tensor,
    partial: torch.Tensor,
    starts: torch.Tensor,
    out: torch.Tensor,
    nnz: int,
    chunk: int,
    block_rows: int,
    block_columns: int,
    *,
    add: bool,
) -> None:
    """Writes the sums of the hubs into their rows of ``out``, or adds them to what is there.

    Args:
        partial: ``[samples, slots, width]``.
        starts: ``[slots]`` int64: the row that begins in a slot, or -1.
        out: ``[samples, rows, width]``.
    """
    samples, rows, width = out.shape
    blocks = triton.cdiv(partial.shape[1], block_rows) * triton.cdiv(width, block_columns)
    hub_kernel[(blocks * samples,)](
        rowptr,
        partial,
        starts,
        out,
        rows,
        nnz,
        width,
        ADD=add,
        CHUNK=chunk,
        BLOCK_ROWS=block_rows,
        BLOCK_COLS=block_columns,
        **OPTIONS,
    )
