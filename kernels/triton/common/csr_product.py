"""The product of a CSR matrix with a dense one: ``out[r] = sum over row r's non-zeros e of values[e] dense[col[e]]``.

A program adds up a block of rows over a tile of columns, a few non-zeros of each row at a time; hubs are cut into
chunks (hubs.py).

Every sum has a fixed order: equal inputs give equal bits.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from seegera_fast.schema import Parts, Rows, Transposed

from . import INTERPRETED, OPTIONS, compiled_as
from .hubs import add_up_hubs, ends_but_of_hubs, hub_kernel, hub_segments, number_of_slots, slots_of

# The first three elements of each are row pointers, columns and values.
Matrix = Parts | Rows | Transposed

# Non-zeros of a chunk.
CHUNK = 256


@triton.jit
def sum_products(
    begin,  # [BLOCK_ROWS] int64: the first non-zero of each range
    end,  # [BLOCK_ROWS] int64: one past its last
    column,  # [BLOCK_COLS] int64
    col,
    values,
    dense,
    width,
    dense_stride,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Sums ``[BLOCK_ROWS, BLOCK_COLS]`` of the products of the non-zeros in each range."""
    total = tl.zeros((BLOCK_ROWS, BLOCK_NNZ, BLOCK_COLS), dtype=values.dtype.element_ty)
    in_width = (column < width)[None, None, :]
    for step in range(0, tl.max(end - begin, axis=0), BLOCK_NNZ):
        nonzero = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = nonzero < end[:, None]
        row = tl.load(col + nonzero, mask=inside, other=0)
        factor = tl.load(values + nonzero, mask=inside, other=0.0)
        # Nothing is read for a non-zero past the end: what lies there may be infinite.
        term = tl.load(
            dense + row[:, :, None] * dense_stride + column[None, None, :],
            mask=inside[:, :, None] & in_width,
            other=0.0,
        )
        total += factor[:, :, None] * term
    return tl.sum(total, axis=1)


@triton.jit
def row_kernel(
    rowptr,  # [rows + 1] int64
    col,  # [nnz] int64
    values,  # [nnz]
    dense,  # [cols, width], unit stride along a row
    out,  # [rows, width]
    rows,
    width,
    dense_stride,
    CHUNK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """The rows that are no hubs. Programs: for each tile of columns all blocks of rows."""
    program = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    row = program % blocks * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = program // blocks * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    begin, end, inside = ends_but_of_hubs(rowptr, row, rows, CHUNK)
    total = sum_products(begin, end, column, col, values, dense, width, dense_stride, BLOCK_ROWS, BLOCK_NNZ, BLOCK_COLS)
    inside = inside[:, None] & (column < width)[None, :]
    tl.store(out + row[:, None] * width + column[None, :], total, mask=inside)


@triton.jit
def segment_kernel(
    rowptr,
    col,
    values,
    dense,
    partial,  # [2 * chunks, width]: only the slots with a piece of a hub are written
    starts,  # [2 * chunks] int64: the row whose first non-zero is summed in this slot, or -1
    rows,
    nnz,
    width,
    dense_stride,
    search_steps,
    CHUNK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """The partial sums of the hubs. Programs: for each tile of columns all blocks of slots."""
    program = tl.program_id(0).to(tl.int64)
    slots = slots_of(nnz, CHUNK)
    blocks = tl.cdiv(slots, BLOCK_ROWS)
    slot = program % blocks * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = program // blocks * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    _, begin, end, used, starting = hub_segments(slot, slots, rowptr, rows, nnz, search_steps, CHUNK)
    if program < blocks:
        tl.store(starts + slot, starting, mask=slot < slots)
    total = sum_products(begin, end, column, col, values, dense, width, dense_stride, BLOCK_ROWS, BLOCK_NNZ, BLOCK_COLS)
    tl.store(partial + slot[:, None] * width + column[None, :], total, mask=used[:, None] & (column < width)[None, :])


def block_sizes(rows: int, width: int, device: str) -> dict[str, int]:
    """Rows, non-zeros of each row and columns that a program takes at a time.

    On a GPU 1,024 products for a wide tile and 512 for a narrow one, whose addresses take more registers.
    """
    if device == "cpu":
        columns = min(triton.next_power_of_2(width), 512)
        block_rows = min(INTERPRETED // (16 * columns), triton.next_power_of_2(rows))
        return {"BLOCK_ROWS": block_rows, "BLOCK_NNZ": 16, "BLOCK_COLS": columns}
    columns = min(triton.next_power_of_2(width), 128)
    return {"BLOCK_ROWS": 128 // columns, "BLOCK_NNZ": 8 if columns == 128 else 4, "BLOCK_COLS": columns}


def launch_product(
    row_kernel: Any,
    segment_kernel: Any,
    rowptr: torch.Tensor,
    col: torch.Tensor,
    out: torch.Tensor,
    tiles: int,
    blocks: dict[str, int],
    **arguments: Any,
) -> None:
    """Fills ``out`` ``[rows, width]``: the rows that are no hubs, then the hubs.

    Args:
        row_kernel, segment_kernel: a pair that computes the same product.
        tiles: of columns, in that pair.
        arguments: further arguments of both kernels.
    """
    rows, nnz, width = rowptr.numel() - 1, col.numel(), out.shape[1]
    if out.numel() == 0:
        return
    slots = number_of_slots(nnz, CHUNK)
    row_blocks, slot_blocks = triton.cdiv(rows, blocks["BLOCK_ROWS"]), triton.cdiv(slots, blocks["BLOCK_ROWS"])
    options = {"CHUNK": CHUNK, **OPTIONS}
    with torch.cuda.device_of(out):
        row_kernel[(row_blocks * tiles,)](rowptr=rowptr, col=col, out=out, rows=rows, **arguments, **blocks, **options)
        if nnz <= CHUNK:
            return
        partial = out.new_empty((slots, width))
        starts = rowptr.new_empty(slots)
        segment_kernel[(slot_blocks * tiles,)](
            rowptr=rowptr,
            col=col,
            partial=partial,
            starts=starts,
            rows=rows,
            nnz=nnz,
            search_steps=rows.bit_length(),
            **arguments,
            **blocks,
            **options,
        )
        block = (blocks["BLOCK_ROWS"], blocks["BLOCK_COLS"])
        add_up_hubs(rowptr, partial[None], starts, out[None], nnz, CHUNK, *block, add=False)


def multiply_csr(matrix: Matrix, dense: torch.Tensor) -> torch.Tensor:
    """``matrix @ dense`` for ``[cols, width]``, any strides: contiguous ``[rows, width]`` of the type of the values."""
    rowptr, col, values = matrix[:3]
    rows, width = rowptr.numel() - 1, dense.shape[1]
    out = dense.new_empty((rows, width))
    if width > 1 and dense.stride(1) != 1:
        dense = dense.contiguous()
    blocks = block_sizes(max(1, rows), max(1, width), dense.device.type)
    tiles = triton.cdiv(width, blocks["BLOCK_COLS"])
    arguments = {"values": values, "dense": dense, "width": width, "dense_stride": dense.stride(0)}
    launch_product(row_kernel, segment_kernel, rowptr, col, out, tiles, blocks, **arguments)
    return out


def ahead_of_time() -> list[tuple]:
    """What ``multiply_csr`` launches on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    entries = []
    for dtype, width in (("fp32", 512), ("fp32", 10), ("fp64", 512)):
        blocks = {"ADD": False, "CHUNK": CHUNK, **block_sizes(1, width, "cuda")}
        integer = "i32:16" if width % 16 == 0 else "i32"
        types = {"rowptr": "*i64", "col": "*i64", "starts": "*i64", "width": integer, "dense_stride": integer}
        types |= dict.fromkeys(("values", "dense", "partial", "out"), f"*{dtype}")
        for kernel in (row_kernel, segment_kernel, hub_kernel):
            entries.append(compiled_as(f"{dtype} width {width}", kernel, blocks, types))
    return entries
