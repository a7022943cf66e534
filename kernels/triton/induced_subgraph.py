"""The entries of a matrix in the rows and columns of some nodes, which get new numbers in their order.

Two passes over the rows of the nodes, a block of them at a time: the first counts the neighbours that are among the
nodes, the second writes them. A neighbour is looked up in the sorted nodes by bisection, so that no memory depends on
the size of the graph. Where the nodes don't ascend, the entries are sorted afterwards by row and new column.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.rows import block_sizes


@triton.jit
def chosen_rows(rowptr, nodes, count, BLOCK_ROWS: tl.constexpr):
    """The places of this program's nodes, int64, and the ends of their rows; places past the end have empty rows."""
    place = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    inside = place < count
    node = tl.load(nodes + place, mask=inside, other=0)
    begin = tl.load(rowptr + node, mask=inside, other=0)
    end = tl.load(rowptr + node + 1, mask=inside, other=0)
    return place, begin, end


@triton.jit
def find(ordered, count, steps, column, inside):
    """The rank of each column among the ordered nodes, and whether it is one of them."""
    low = tl.zeros_like(column).to(tl.int32)
    high = low + count
    for _ in range(steps):
        middle = (low + high) // 2
        open_ = inside & (low < high)
        below = open_ & (tl.load(ordered + middle, mask=open_, other=0) < column)
        low = tl.where(below, middle + 1, low)
        high = tl.where(open_ & ~below, middle, high)
    candidate = inside & (low < count)
    return low, candidate & (tl.load(ordered + low, mask=candidate, other=-1) == column)


@triton.jit
def count_kernel(
    rowptr,  # [n + 1] int64
    col,  # [nnz] int64
    nodes,  # [count] int64
    ordered,  # [count] int64: the nodes in ascending order
    counts,  # [count + 1] int64: 0, then the entries of each row that stay
    count,
    steps,  # of a bisection
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
):
    place, begin, end = chosen_rows(rowptr, nodes, count, BLOCK_ROWS)
    found = tl.zeros((BLOCK_ROWS, BLOCK_NNZ), dtype=tl.int32)
    for step in range(0, tl.max(end - begin, axis=0), BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = entry < end[:, None]
        column = tl.load(col + entry, mask=inside, other=0)
        found += find(ordered, count, steps, column, inside)[1].to(tl.int32)
    tl.store(counts + place + 1, tl.sum(found, axis=1).to(tl.int64), mask=place < count)
    if tl.program_id(0) == 0:
        tl.store(counts, 0)


@triton.jit
def write_kernel(
    rowptr,
    col,
    nodes,
    ordered,
    numbers,  # [count] int64: the number of each of the ordered nodes
    new_rowptr,  # [count + 1] int64
    new_col,  # [what stays] int64
    entry_numbers,  # [what stays] int64
    count,
    steps,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
):
    place, begin, end = chosen_rows(rowptr, nodes, count, BLOCK_ROWS)
    at = tl.load(new_rowptr + place, mask=place < count, other=0)
    for step in range(0, tl.max(end - begin, axis=0), BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = entry < end[:, None]
        column = tl.load(col + entry, mask=inside, other=0)
        rank, here = find(ordered, count, steps, column, inside)
        one = here.to(tl.int32)
        target = at[:, None] + tl.cumsum(one, axis=1) - one
        tl.store(new_col + target, tl.load(numbers + rank, mask=here, other=0), mask=here)
        tl.store(entry_numbers + target, entry, mask=here)
        at += tl.sum(one, axis=1)


def induced_subgraph(
    rowptr: torch.Tensor, col: torch.Tensor, nodes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Row pointers, columns and entry numbers of the subgraph; see ``ops.induced_subgraph``."""
    count = nodes.numel()
    if count == 0:
        return rowptr.new_zeros(1), col.new_empty(0), col.new_empty(0)
    ordered, numbers = torch.sort(nodes)
    counts = rowptr.new_empty(count + 1)
    # A row has as many entries as those of the whole graph on average; it is not read how many these rows have.
    blocks = block_sizes(rowptr.numel() - 1, col.numel(), col.device.type)
    grid, steps = (triton.cdiv(count, blocks["BLOCK_ROWS"]),), count.bit_length()
    with torch.cuda.device_of(col):
        count_kernel[grid](rowptr, col, nodes, ordered, counts, count, steps, **blocks, **OPTIONS)
        new_rowptr = counts.cumsum(0)
        entries, ascending = torch.stack([new_rowptr[-1], (ordered == nodes).all().to(torch.int64)]).tolist()
        new_col, entry = col.new_empty(entries), col.new_empty(entries)
        write_kernel[grid](
            rowptr, col, nodes, ordered, numbers, new_rowptr, new_col, entry, count, steps, **blocks, **OPTIONS
        )
    if ascending:
        return new_rowptr, new_col, entry
    rows = torch.arange(count, device=col.device)
    row = torch.repeat_interleave(rows, new_rowptr.diff(), output_size=entries)
    order = torch.argsort(row * count + new_col)
    return new_rowptr, new_col[order], entry[order]


def ahead_of_time() -> list[tuple]:
    """What ``induced_subgraph`` launches on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    blocks = block_sizes(300000, 6000000, "cuda")
    types = {"count": "i32", "steps": "i32"}
    return [compiled_as("20 a row", kernel, blocks, types, default="*i64") for kernel in (count_kernel, write_kernel)]
