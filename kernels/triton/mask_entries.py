"""The values of X with the removed entries at zero, of its transpose, and of both with their rows divided by the sum of
their absolute values (a zero row stays zero), each in the order of X and in the order of the transpose.

Floor: three passes. Over X: values and marks (1 byte) give two of the six results; over the transpose: its order and
columns (8 bytes each) and one gathered value give three; over X again: values and columns give the last.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.rows import block_of_rows, block_sizes


@triton.jit
def inverse_or_zero(norm):
    return tl.where(norm > 0, 1.0 / tl.where(norm > 0, norm, 1.0), 0.0)


@triton.jit
def masked(source, removed, entry, inside):
    """Entries of X, 0 where they are removed."""
    gone = tl.load(removed + entry, mask=inside, other=1)
    return tl.load(source + entry, mask=inside & (gone == 0), other=0.0)


@triton.jit
def row_kernel(
    rowptr,  # [rows + 1] int64
    source,  # [nnz]
    removed,  # [nnz] bytes
    values,  # [nnz]
    by_row,  # [nnz]: with its rows normalised
    row_scale,  # [rows]: 1 / sum of absolute values
    rows,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
):
    row, begin, end = block_of_rows(rowptr, rows, BLOCK_ROWS)
    longest = tl.max(end - begin, axis=0)
    norm = tl.zeros((BLOCK_ROWS, BLOCK_NNZ), dtype=source.dtype.element_ty)
    for step in range(0, longest, BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = entry < end[:, None]
        value = masked(source, removed, entry, inside)
        tl.store(values + entry, value, mask=inside)
        norm += tl.abs(value)
    scale = inverse_or_zero(tl.sum(norm, axis=1))
    tl.store(row_scale + row, scale, mask=row < rows)
    for step in range(0, longest, BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = entry < end[:, None]
        tl.store(by_row + entry, masked(source, removed, entry, inside) * scale[:, None], mask=inside)


@triton.jit
def transposed_row_kernel(
    rowptr_t,  # [columns + 1] int64
    col_t,  # [nnz] int64
    order,  # [nnz] int64: entry k of the transpose is entry order[k] of X
    values,  # as row_kernel has left them, as row_scale
    row_scale,
    values_t,  # [nnz], in the order of the transpose, as the next two
    by_row_t,
    by_column_t,
    column_scale,  # [columns]: 1 / sum of absolute values
    columns,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
):
    row, begin, end = block_of_rows(rowptr_t, columns, BLOCK_ROWS)
    longest = tl.max(end - begin, axis=0)
    norm = tl.zeros((BLOCK_ROWS, BLOCK_NNZ), dtype=values.dtype.element_ty)
    for step in range(0, longest, BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = entry < end[:, None]
        value = tl.load(values + tl.load(order + entry, mask=inside, other=0), mask=inside, other=0.0)
        scale = tl.load(row_scale + tl.load(col_t + entry, mask=inside, other=0), mask=inside, other=0.0)
        tl.store(values_t + entry, value, mask=inside)
        tl.store(by_row_t + entry, value * scale, mask=inside)
        norm += tl.abs(value)
    scale = inverse_or_zero(tl.sum(norm, axis=1))
    tl.store(column_scale + row, scale, mask=row < columns)
    for step in range(0, longest, BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = entry < end[:, None]
        value = tl.load(values + tl.load(order + entry, mask=inside, other=0), mask=inside, other=0.0)
        tl.store(by_column_t + entry, value * scale[:, None], mask=inside)


@triton.jit
def column_kernel(
    col,  # [nnz] int64
    values,
    column_scale,
    by_column,  # [nnz]: X with its columns normalised
    nnz,
    BLOCK: tl.constexpr,
):
    entry = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < nnz
    scale = tl.load(column_scale + tl.load(col + entry, mask=inside, other=0), mask=inside, other=0.0)
    tl.store(by_column + entry, tl.load(values + entry, mask=inside, other=0.0) * scale, mask=inside)


def block_size(device: str) -> int:
    """Entries of a program of ``column_kernel``."""
    return 2**16 if device == "cpu" else 1024


def mask_entries(
    rowptr: torch.Tensor,
    col: torch.Tensor,
    values: torch.Tensor,
    rowptr_t: torch.Tensor,
    col_t: torch.Tensor,
    order: torch.Tensor,
    removed: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values ``[nnz]`` of X, of X normalised by rows and by columns, each in the order of X, then of the transpose."""
    rows, columns, nnz = rowptr.numel() - 1, rowptr_t.numel() - 1, col.numel()
    out = tuple(values.new_empty(nnz) for _ in range(6))
    if nnz == 0:
        return out
    masked_values, masked_values_t, by_row, by_row_t, by_column, by_column_t = out
    row_scale, column_scale = values.new_empty(rows), values.new_empty(columns)
    device = values.device.type
    with torch.cuda.device_of(values):
        blocks = block_sizes(rows, nnz, device)
        grid = (triton.cdiv(rows, blocks["BLOCK_ROWS"]),)
        removed = removed.view(torch.uint8)
        row_kernel[grid](rowptr, values, removed, masked_values, by_row, row_scale, rows, **blocks, **OPTIONS)
        blocks = block_sizes(columns, nnz, device)
        grid = (triton.cdiv(columns, blocks["BLOCK_ROWS"]),)
        transposed_row_kernel[grid](
            rowptr_t,
            col_t,
            order,
            masked_values,
            row_scale,
            masked_values_t,
            by_row_t,
            by_column_t,
            column_scale,
            columns,
            **blocks,
            **OPTIONS,
        )
        grid = (triton.cdiv(nnz, block_size(device)),)
        column_kernel[grid](col, masked_values, column_scale, by_column, nnz, BLOCK=block_size(device), **OPTIONS)
    return out


def ahead_of_time() -> list[tuple]:
    """What ``mask_entries`` launches on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    entries = []
    integers = {"rowptr", "rowptr_t", "col", "col_t", "order"}
    for dtype in ("fp32", "fp64"):
        types = dict.fromkeys(integers, "*i64") | {"removed": "*u8"} | dict.fromkeys(("rows", "columns", "nnz"), "i32")
        by_rows = block_sizes(20000, 1200000, "cuda")
        for kernel, blocks in (
            (row_kernel, by_rows),
            (transposed_row_kernel, by_rows),
            (column_kernel, {"BLOCK": block_size("cuda")}),
        ):
            entries.append(compiled_as(f"{dtype} 60 a row", kernel, blocks, types, default=f"*{dtype}"))
    return entries
