"""Launches over the lines of tensors ``[n, S, d]``, one line of d numbers for each (row, draw).

A program takes a block of lines and a tile of columns. Columns come in groups of four: a counter of the generator makes
four numbers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def block_of_lines(lines, draws, BLOCK_LINES: tl.constexpr, BLOCK_GROUPS: tl.constexpr):
    """The lines of this program, their rows and draws, and its groups and columns, all int64."""
    program = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(lines, BLOCK_LINES)
    line = program % blocks * BLOCK_LINES + tl.arange(0, BLOCK_LINES)
    group = program // blocks * BLOCK_GROUPS + tl.arange(0, BLOCK_GROUPS)
    column = program // blocks * (4 * BLOCK_GROUPS) + tl.arange(0, 4 * BLOCK_GROUPS)
    return line, line // draws, line % draws, group, column


def block_sizes(lines: int, width: int, device: str) -> dict[str, int]:
    """Lines and groups of four columns of a program.

    On a GPU 1,024 numbers, eight a thread. In the interpreter, where a program costs milliseconds whatever it does,
    2 ** 16.
    """
    numbers, most_groups = (2**16, 512) if device == "cpu" else (1024, 64)
    groups = min(triton.next_power_of_2(triton.cdiv(width, 4)), most_groups)
    return {
        "BLOCK_LINES": min(numbers // (4 * groups), triton.next_power_of_2(lines)),
        "BLOCK_GROUPS": groups,
    }


def grid_of_lines(lines: int, width: int, blocks: dict[str, int]) -> tuple[int]:
    """One program for each block of lines and tile of columns."""
    return (triton.cdiv(lines, blocks["BLOCK_LINES"]) * triton.cdiv(width, 4 * blocks["BLOCK_GROUPS"]),)


def with_contiguous_lines(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied only where its lines are not contiguous."""
    return tensor if tensor.shape[2] <= 1 or tensor.stride(2) == 1 else tensor.contiguous()
