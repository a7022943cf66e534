"""The rows of A + I without the removed edges, and the entries of D^-1/2 (A + I) D^-1/2 of what stays.

Two passes over the entries: the first counts and weighs what stays of each row, the second writes it. Floor: both read
the edge number of each entry (8 bytes) and its mark (1 byte, at an address that is random for half of the entries), the
second also column and weight, and it writes column and value of what stays.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.rows import block_of_rows, block_sizes


@triton.jit
def stays(edge, removed, edges, entry, inside):
    """Whether entries are there and their edges are not removed; a self-loop, of edge -1, always stays.

    So does an entry of an edge that is not there, which a GPU can't refuse without being waited for.
    """
    number = tl.load(edge + entry, mask=inside, other=-1)
    gone = tl.load(removed + number, mask=(number >= 0) & (number < edges), other=0)
    return inside & (gone == 0)


@triton.jit
def count_kernel(
    rowptr,  # [rows + 1] int64
    weight,  # [nnz]
    edge,  # [nnz] int64
    removed,  # [edges] bytes
    counts,  # [rows + 1] int64: 0, then the entries of each row that stay
    scale,  # [rows]: degree ** -1/2
    rows,
    edges,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
):
    row, begin, end = block_of_rows(rowptr, rows, BLOCK_ROWS)
    count = tl.zeros((BLOCK_ROWS, BLOCK_NNZ), dtype=tl.int32)
    degree = tl.zeros((BLOCK_ROWS, BLOCK_NNZ), dtype=weight.dtype.element_ty)
    for step in range(0, tl.max(end - begin, axis=0), BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        here = stays(edge, removed, edges, entry, entry < end[:, None])
        count += here.to(tl.int32)
        degree += tl.load(weight + entry, mask=here, other=0.0)
    inside = row < rows
    tl.store(counts + row + 1, tl.sum(count, axis=1).to(tl.int64), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(counts, 0)
    # A row has at least its self-loop.
    total = tl.where(inside, tl.sum(degree, axis=1), 1.0)
    tl.store(scale + row, 1.0 / tl.sqrt(total), mask=inside)


@triton.jit
def write_kernel(
    rowptr,
    col,  # [nnz] int64
    weight,
    edge,
    removed,
    scale,
    new_rowptr,  # [rows + 1] int64
    new_col,  # [what stays] int64
    values,  # [what stays]
    rows,
    edges,
    left,  # the size of what stays
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
):
    row, begin, end = block_of_rows(rowptr, rows, BLOCK_ROWS)
    at = tl.load(new_rowptr + row, mask=row < rows, other=0)
    row_scale = tl.load(scale + row, mask=row < rows, other=0.0)
    for step in range(0, tl.max(end - begin, axis=0), BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        here = stays(edge, removed, edges, entry, entry < end[:, None])
        one = here.to(tl.int32)
        target = at[:, None] + tl.cumsum(one, axis=1) - one
        column = tl.load(col + entry, mask=here, other=0)
        other = tl.load(scale + column, mask=here, other=0.0)
        # Symmetric bit for bit: the product of the two scales does not depend on their order.
        value = tl.load(weight + entry, mask=here, other=0.0) * (row_scale[:, None] * other)
        # Nothing is written past the end, if wrong numbers of edges make more stay.
        here &= target < left
        tl.store(new_col + target, column, mask=here)
        tl.store(values + target, value, mask=here)
        at += tl.sum(one, axis=1)


def mask_edges(
    rowptr: torch.Tensor,
    col: torch.Tensor,
    weight: torch.Tensor,
    edge: torch.Tensor,
    removed: torch.Tensor,
    num_removed: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Row pointers, columns and values of the propagation matrix that stays; see ``ops.mask_edges``."""
    rows, nnz = rowptr.numel() - 1, col.numel()
    left = nnz - 2 * num_removed
    new_col, values = col.new_empty(left), weight.new_empty(left)
    if rows == 0:
        return torch.zeros_like(rowptr), new_col, values
    edge, removed, edges = edge.contiguous(), removed.view(torch.uint8), removed.numel()
    counts, scale = torch.empty_like(rowptr), weight.new_empty(rows)
    blocks = block_sizes(rows, nnz, col.device.type)
    grid = (triton.cdiv(rows, blocks["BLOCK_ROWS"]),)
    with torch.cuda.device_of(col):
        count_kernel[grid](rowptr, weight, edge, removed, counts, scale, rows, edges, **blocks, **OPTIONS)
        new_rowptr = counts.cumsum(0)
        write_kernel[grid](
            rowptr,
            col,
            weight,
            edge,
            removed,
            scale,
            new_rowptr,
            new_col,
            values,
            rows,
            edges,
            left,
            **blocks,
            **OPTIONS,
        )
    return new_rowptr, new_col, values


def ahead_of_time() -> list[tuple]:
    """What ``mask_edges`` launches on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    entries = []
    for dtype in ("fp32", "fp64"):
        blocks = block_sizes(20000, 200000, "cuda")
        types = {"weight": f"*{dtype}", "scale": f"*{dtype}", "values": f"*{dtype}", "removed": "*u8"}
        types |= dict.fromkeys(("rows", "edges", "left"), "i32")
        for kernel in (count_kernel, write_kernel):
            entries.append(compiled_as(f"{dtype} 10 a row", kernel, blocks, types, default="*i64"))
    return entries
