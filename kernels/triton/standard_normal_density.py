"""``log N(Z_j; 0, I) = -1/2 (sum_i ||z_ij||^2 + n d log(2 pi))``, and its gradient, -z times upstream_j.

Floor: memory. Forward reads z once, n J d numbers; backward reads z and writes as much.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.lines import block_of_lines, block_sizes, grid_of_lines, with_contiguous_lines
from .common.math import weighted
from .common.sums import sum_blocks, sum_kernel, sum_rows


@triton.jit
def density_kernel(
    z,  # [n, J, d], unit stride along a line
    partial,  # [blocks of rows, J] float64: sums of the rows' log densities
    rows,
    samples,  # J
    width,  # d
    row_stride,
    sample_stride,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Programs: for each sample all blocks of rows."""
    program = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    block, sample = program % blocks, program // blocks
    row = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    inside = row < rows
    line = (row * row_stride + sample * sample_stride)[:, None]
    total = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=z.dtype.element_ty)
    for first in range(0, width, BLOCK_COLS):
        column = first + tl.arange(0, BLOCK_COLS)[None, :]
        value = tl.load(z + line + column, mask=inside[:, None] & (column < width), other=0.0)
        total += value * value
    constant = tl.cast(width, tl.float64) * 1.8378770664093454836
    density = -0.5 * (tl.sum(total, axis=1).to(tl.float64) + constant)
    tl.store(partial + block * samples + sample, tl.sum(tl.where(inside, density, 0.0), axis=0))


@triton.jit
def gradient_kernel(
    z,  # [n, J, d], unit stride along a line
    upstream,  # [J]
    out,  # [n, J, d], contiguous
    lines,  # n * J
    samples,  # J
    width,  # d
    row_stride,
    sample_stride,
    BLOCK_LINES: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
):
    line, row, sample, _, column = block_of_lines(lines, samples, BLOCK_LINES, BLOCK_GROUPS)
    inside = (line < lines)[:, None] & (column < width)[None, :]
    source = (row * row_stride + sample * sample_stride)[:, None] + column[None, :]
    value = tl.load(z + source, mask=inside, other=0.0)
    factor = -tl.load(upstream + sample)
    tl.store(out + line[:, None] * width + column[None, :], weighted(factor[:, None], value), mask=inside)


def density_blocks(rows: int, width: int, device: str) -> dict[str, int]:
    """Rows of a program, and columns that it takes at a time.

    On a GPU 4,096 numbers, 32 a thread. In the interpreter, where a program costs milliseconds whatever it does,
    2 ** 18.
    """
    numbers = 2**18 if device == "cpu" else 4096
    columns = min(triton.next_power_of_2(max(1, width)), 512)
    return {"BLOCK_ROWS": min(numbers // columns, triton.next_power_of_2(rows)), "BLOCK_COLS": columns}


def standard_normal_density(z: torch.Tensor) -> torch.Tensor:
    """``[J]``; see ``ops.standard_normal_density``."""
    z = with_contiguous_lines(z)
    rows, samples, width = z.shape
    if rows == 0:
        return z.new_zeros(samples)
    blocks = density_blocks(rows, width, z.device.type)
    number = triton.cdiv(rows, blocks["BLOCK_ROWS"])
    partial = z.new_empty((number, samples), dtype=torch.float64)
    with torch.cuda.device_of(z):
        density_kernel[(number * samples,)](
            z, partial, rows, samples, width, z.stride(0), z.stride(1), **blocks, **OPTIONS
        )
    return sum_rows(partial, z.dtype)


def standard_normal_density_backward(z: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of ``z``, contiguous; ``gradient`` ``[J]``."""
    z, gradient = with_contiguous_lines(z), gradient.contiguous()
    rows, samples, width = z.shape
    out = z.new_empty((rows, samples, width))
    if out.numel() == 0:
        return out
    lines = rows * samples
    blocks = block_sizes(lines, width, z.device.type)
    grid = grid_of_lines(lines, width, blocks)
    with torch.cuda.device_of(z):
        gradient_kernel[grid](z, gradient, out, lines, samples, width, z.stride(0), z.stride(1), **blocks, **OPTIONS)
    return out


def ahead_of_time() -> list[tuple]:
    """What the launchers launch on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    entries = []
    for dtype in ("fp32", "fp64"):
        types = dict.fromkeys(("width", "row_stride", "sample_stride"), "i32:16")
        types |= dict.fromkeys(("partial", "values"), "*fp64")
        types |= dict.fromkeys(("z", "upstream", "out", "sums"), f"*{dtype}")
        for kernel, blocks in (
            (density_kernel, density_blocks(20000, 512, "cuda")),
            (gradient_kernel, block_sizes(20000, 512, "cuda")),
            (sum_kernel, sum_blocks(5)),
        ):
            entries.append(compiled_as(f"{dtype} width 512", kernel, blocks, types))
    return entries
