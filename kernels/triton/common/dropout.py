"""Dropout of lines: ``out = values * scale`` where word (row, draw, column) has reached a threshold, else 0.

In backward a layer drops its input again and drops the gradient as well, both in one pass, which draws the mask once.
Floor: one number read and one written per element, and a quarter of a Philox counter (about 20 multiplications of 32
bits).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from . import OPTIONS, compiled_as
from .lines import block_of_lines, block_sizes, grid_of_lines
from .math import bits_of, number_of
from .random import DROPOUT, block_words
from .random import dropout as drop


@triton.jit
def dropout_kernel(
    values,  # [n, S, d], unit stride along a line
    seed,  # [1] int64
    out,  # [n, S, d], unit stride along a line
    gradient,  # [n, S, d], contiguous: dropped in place; not read unless GRADIENT
    lines,  # n * S
    draws,  # S
    width,  # d
    row_stride,
    draw_stride,
    out_row_stride,
    out_draw_stride,
    first_column,  # the column of the mask for the first number of a line
    threshold,
    scale,  # bits_of(1 / (1 - rate))
    GRADIENT: tl.constexpr,
    BLOCK_LINES: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
):
    line, row, draw, group, column = block_of_lines(lines, draws, BLOCK_LINES, BLOCK_GROUPS)
    # Whole groups of four columns are drawn. A line may begin inside the first one.
    group += first_column // 4
    column -= first_column % 4
    inside = (line < lines)[:, None] & ((column >= 0) & (column < width))[None, :]
    source = (row * row_stride + draw * draw_stride)[:, None] + column[None, :]
    value = tl.load(values + source, mask=inside, other=0.0)
    words = block_words(tl.load(seed), DROPOUT, row, draw, group)
    factor = number_of(scale, value.dtype)
    target = (row * out_row_stride + draw * out_draw_stride)[:, None] + column[None, :]
    tl.store(out + target, drop(value, words, threshold, factor), mask=inside)
    if GRADIENT:
        target = gradient + line[:, None] * width + column[None, :]
        tl.store(target, drop(tl.load(target, mask=inside, other=0.0), words, threshold, factor), mask=inside)


def drop_lines(
    values: torch.Tensor,
    out: torch.Tensor,
    threshold: int,
    scale: float,
    seed: torch.Tensor,
    first_column: int = 0,
    gradient: torch.Tensor | None = None,
) -> None:
    """Dropout of ``[n, S, d]`` into ``out``, which may be ``values``; both with unit stride along a line.

    Args:
        first_column: where the lines begin in those that the mask is drawn for.
        gradient: contiguous ``[n, S, d]``, to be dropped in place by the same mask.
    """
    if out.numel() == 0:
        return
    rows, draws, width = values.shape
    lines, drawn = rows * draws, first_column % 4 + width
    blocks = block_sizes(lines, drawn, values.device.type)
    grid = grid_of_lines(lines, drawn, blocks)
    with torch.cuda.device_of(values):
        dropout_kernel[grid](
            values,
            seed,
            out,
            out if gradient is None else gradient,
            lines,
            draws,
            width,
            values.stride(0),
            values.stride(1),
            out.stride(0),
            out.stride(1),
            first_column,
            threshold,
            bits_of(scale),
            GRADIENT=gradient is not None,
            **blocks,
            **OPTIONS,
        )


def ahead_of_time() -> list[tuple]:
    """What ``drop_lines`` launches on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    divisible = ("width", "row_stride", "draw_stride", "out_row_stride", "out_draw_stride", "first_column")
    types = dict.fromkeys(divisible, "i32:16")
    types |= {"seed": "*i64", "lines": "i32", "draws": "i32", "threshold": "i64:16", "scale": "i64:16"}
    entries = []
    for dtype in ("fp32", "fp64"):
        types |= dict.fromkeys(("values", "out", "gradient"), f"*{dtype}")
        for label, with_gradient in ((f"{dtype} width 512", False), (f"{dtype} width 512, with a gradient", True)):
            constants = {"GRADIENT": with_gradient, **block_sizes(20000, 512, "cuda")}
            entries.append(compiled_as(label, dropout_kernel, constants, types))
    return entries
