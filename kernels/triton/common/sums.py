"""Sums over rows of float64, in a fixed order: chunks of rows, then chunks of those sums, until one is left."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from . import OPTIONS

# Rows of a partial sum.
CHUNK = 1024


@triton.jit
def sum_kernel(
    values,  # [rows, cells] float64
    sums,  # [blocks of CHUNK rows, cells]
    rows,
    cells,
    CHUNK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_CELLS: tl.constexpr,
):
    """Sums over CHUNK rows, in a fixed order. Programs: for each block of cells all chunks."""
    program = tl.program_id(0).to(tl.int64)
    chunks = tl.cdiv(rows, CHUNK)
    chunk = program % chunks
    cell = program // chunks * BLOCK_CELLS + tl.arange(0, BLOCK_CELLS)
    total = tl.zeros((BLOCK_ROWS, BLOCK_CELLS), dtype=tl.float64)
    for first in range(0, tl.minimum(CHUNK, rows - chunk * CHUNK), BLOCK_ROWS):
        row = chunk * CHUNK + first + tl.arange(0, BLOCK_ROWS)
        inside = (row < rows)[:, None] & (cell < cells)[None, :]
        total += tl.load(values + row[:, None] * cells + cell[None, :], mask=inside, other=0.0)
    result = tl.sum(total, axis=0).to(sums.dtype.element_ty)
    tl.store(sums + chunk * cells + cell, result, mask=cell < cells)


def sum_blocks(cells: int) -> dict[str, int]:
    columns = min(triton.next_power_of_2(cells), 32)
    return {"CHUNK": CHUNK, "BLOCK_ROWS": 1024 // columns, "BLOCK_CELLS": columns}


def sum_rows(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``[cells]`` of ``dtype``: the sums over the rows of float64 ``[rows, cells]``, contiguous."""
    rows, cells = values.shape
    if rows == 0:
        return values.new_zeros(cells, dtype=dtype)
    blocks = sum_blocks(cells)
    while True:
        chunks = triton.cdiv(rows, CHUNK)
        sums = values.new_empty((chunks, cells), dtype=torch.float64 if chunks > 1 else dtype)
        grid = (chunks * triton.cdiv(cells, blocks["BLOCK_CELLS"]),)
        with torch.cuda.device_of(values):
            sum_kernel[grid](values, sums, rows, cells, **blocks, **OPTIONS)
        if chunks == 1:
            return sums.reshape(cells)
        values, rows = sums, chunks
