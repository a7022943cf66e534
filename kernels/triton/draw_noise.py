"""Zeros and ones ``[n, S, c]``: word (row, draw, column) of the noise stream is below a threshold.

Floor: one number written per element, and a quarter of a Philox counter (about 20 multiplications of 32 bits).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS
from .common.lines import block_of_lines, block_sizes, grid_of_lines
from .common.random import NOISE, block_words, happens


@triton.jit
def draw_noise_kernel(
    seed,  # [1] int64
    out,  # [n, S, c]
    lines,  # n * S
    draws,  # S
    width,  # c
    threshold,
    BLOCK_LINES: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
):
    line, row, draw, group, column = block_of_lines(lines, draws, BLOCK_LINES, BLOCK_GROUPS)
    words = block_words(tl.load(seed), NOISE, row, draw, group)
    noise = happens(words, threshold).to(out.dtype.element_ty)
    inside = (line < lines)[:, None] & (column < width)[None, :]
    tl.store(out + line[:, None] * width + column[None, :], noise, mask=inside)


def draw_noise(
    seed: torch.Tensor, num_rows: int, num_draws: int, noise_dim: int, threshold: int, dtype: torch.dtype
) -> torch.Tensor:
    """``[num_rows, num_draws, noise_dim]`` of ``dtype``; see ``ops.draw_noise``."""
    out = seed.new_empty((num_rows, num_draws, noise_dim), dtype=dtype)
    if out.numel() == 0:
        return out
    lines = num_rows * num_draws
    blocks = block_sizes(lines, noise_dim, seed.device.type)
    grid = grid_of_lines(lines, noise_dim, blocks)
    with torch.cuda.device_of(seed):
        draw_noise_kernel[grid](seed, out, lines, num_draws, noise_dim, threshold, **blocks, **OPTIONS)
    return out


def ahead_of_time() -> list[tuple]:
    """What ``draw_noise`` launches on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    types = {"seed": "*i64", "lines": "i32", "draws": "i32", "width": "i32", "threshold": "i64:16"}
    return [
        (f"{dtype} width 5", draw_noise_kernel, types | {"out": f"*{dtype}"}, block_sizes(20000, 5, "cuda"), OPTIONS)
        for dtype in ("fp32", "fp64")
    ]
