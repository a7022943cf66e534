"""The rows of a CSR matrix. A program takes a block of rows, a few non-zeros of each at a time."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def ends_of_rows(rowptr, row, rows):
    """The first non-zero of each row and one past its last, int64; rows past the end are empty."""
    begin = tl.load(rowptr + row, mask=row < rows, other=0)
    end = tl.load(rowptr + row + 1, mask=row < rows, other=0)
    return begin, end


@triton.jit
def block_of_rows(rowptr, rows, BLOCK_ROWS: tl.constexpr):
    """The rows of this program, int64, and their ends."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    begin, end = ends_of_rows(rowptr, row, rows)
    return row, begin, end


def block_sizes(rows: int, nnz: int, device: str) -> dict[str, int]:
    """Rows, and non-zeros of each row at a time: about as many as a row has.

    On a GPU 512 in all, four a thread: their addresses take registers. In the interpreter, where a program costs
    milliseconds whatever it does, 2 ** 16.
    """
    numbers, least = (2**16, 256) if device == "cpu" else (512, 32)
    nonzeros = min(max(triton.next_power_of_2(triton.cdiv(nnz, rows)), least), numbers)
    return {"BLOCK_ROWS": min(numbers // nonzeros, triton.next_power_of_2(rows)), "BLOCK_NNZ": nonzeros}
