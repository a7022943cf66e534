"""``mean + exp(log_var / 2) * N(0, I)`` over ``[n, J, d]``; the normal numbers are drawn where they are used.

Floor: forward reads mean and log_var and writes the sample, backward reads the upstream gradient and log_var and writes
one gradient: 4 or 8 bytes each, log_var perhaps once for all samples. An element takes a quarter of a Philox counter,
half of a logarithm and a square root, and about 30 operations of the sine or cosine.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.lines import block_of_lines, block_sizes, grid_of_lines, with_contiguous_lines
from .common.math import bounded_log_var, exponential, weighted
from .common.random import block_normals


@triton.jit
def reparameterize_kernel(
    mean,  # [n, J, d], unit stride along a line, as log_var
    log_var,  # [n, 1 or J, d]
    seed,  # [1] int64
    out,  # [n, J, d]
    lines,  # n * J
    draws,  # J
    width,  # d
    row_stride,
    draw_stride,
    log_var_row_stride,
    log_var_draw_stride,  # 0 where all samples share one variance
    BLOCK_LINES: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
):
    line, row, draw, group, column = block_of_lines(lines, draws, BLOCK_LINES, BLOCK_GROUPS)
    inside = (line < lines)[:, None] & (column < width)[None, :]
    source = (row * row_stride + draw * draw_stride)[:, None] + column[None, :]
    log_var_source = (row * log_var_row_stride + draw * log_var_draw_stride)[:, None] + column[None, :]
    center = tl.load(mean + source, mask=inside, other=0.0)
    log_variance, _ = bounded_log_var(tl.load(log_var + log_var_source, mask=inside, other=0.0))
    deviation = exponential(0.5 * log_variance)
    normals = block_normals(tl.load(seed), row, draw, group, deviation.dtype)
    tl.store(out + line[:, None] * width + column[None, :], center + deviation * normals, mask=inside)


@triton.jit
def reparameterize_backward_kernel(
    gradient,  # [n, J, d], unit stride along a line, as log_var
    log_var,  # [n, V, d]
    seed,  # [1] int64
    out,  # [n, V, d]: the gradient of log_var
    lines,  # n * V
    variances,  # V: 1 or J
    shared,  # samples of each variance, J / V
    width,  # d
    row_stride,
    draw_stride,
    log_var_row_stride,
    log_var_draw_stride,
    BLOCK_LINES: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
):
    line, row, variance, group, column = block_of_lines(lines, variances, BLOCK_LINES, BLOCK_GROUPS)
    inside = (line < lines)[:, None] & (column < width)[None, :]
    number = tl.load(seed)
    total = tl.zeros((BLOCK_LINES, 4 * BLOCK_GROUPS), dtype=out.dtype.element_ty)
    for i in range(shared):
        draw = variance + i
        source = (row * row_stride + draw * draw_stride)[:, None] + column[None, :]
        upstream = tl.load(gradient + source, mask=inside, other=0.0)
        total += upstream * block_normals(number, row, draw, group, total.dtype)
    # Read after the loop, so that it takes no registers in it.
    log_var_source = (row * log_var_row_stride + variance * log_var_draw_stride)[:, None] + column[None, :]
    log_variance, in_range = bounded_log_var(tl.load(log_var + log_var_source, mask=inside, other=0.0))
    # Where log_var is out of its range, the sum may be infinite.
    slope = tl.where(in_range, weighted(total, 0.5 * exponential(0.5 * log_variance)), 0.0)
    tl.store(out + line[:, None] * width + column[None, :], slope, mask=inside)


def reparameterize(mean: torch.Tensor, log_var: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """``[n, J, d]``, contiguous; see ``ops.reparameterize``."""
    mean, log_var = with_contiguous_lines(mean), with_contiguous_lines(log_var)
    rows, draws, width = mean.shape
    out = mean.new_empty((rows, draws, width))
    if out.numel() == 0:
        return out
    lines = rows * draws
    blocks = block_sizes(lines, width, mean.device.type)
    grid = grid_of_lines(lines, width, blocks)
    strides = mean.stride(0), mean.stride(1), log_var.stride(0), log_var.stride(1) if log_var.shape[1] > 1 else 0
    with torch.cuda.device_of(mean):
        reparameterize_kernel[grid](mean, log_var, seed, out, lines, draws, width, *strides, **blocks, **OPTIONS)
    return out


def reparameterize_backward(gradient: torch.Tensor, log_var: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """The gradient of ``log_var``, contiguous, from that of the sample ``[n, J, d]``."""
    gradient, log_var = with_contiguous_lines(gradient), with_contiguous_lines(log_var)
    rows, variances, width = log_var.shape
    out = log_var.new_empty((rows, variances, width))
    if out.numel() == 0:
        return out
    lines = rows * variances
    blocks = block_sizes(lines, width, log_var.device.type)
    grid = grid_of_lines(lines, width, blocks)
    shared = gradient.shape[1] // variances
    strides = gradient.stride(0), gradient.stride(1), log_var.stride(0), log_var.stride(1)
    with torch.cuda.device_of(log_var):
        reparameterize_backward_kernel[grid](
            gradient, log_var, seed, out, lines, variances, shared, width, *strides, **blocks, **OPTIONS
        )
    return out


def ahead_of_time() -> list[tuple]:
    """What the launchers launch on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    entries = []
    for dtype in ("fp32", "fp64"):
        blocks = block_sizes(20000, 512, "cuda")
        types = dict.fromkeys(("mean", "gradient", "log_var", "out"), f"*{dtype}") | {"seed": "*i64"}
        types |= dict.fromkeys(
            ("width", "row_stride", "draw_stride", "log_var_row_stride", "log_var_draw_stride"), "i32:16"
        )
        for kernel in (reparameterize_kernel, reparameterize_backward_kernel):
            entries.append(compiled_as(f"{dtype} width 512", kernel, blocks, types))
    return entries
