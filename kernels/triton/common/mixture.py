"""Normal log densities of samples under their components: what mixture_density and component_log_density share.

Sample j of a row has K + 1 components: the K extra draws of the means, then draw K + j. A pair is a sample with one
of its components; a row has J (K + 1) of them.

Floor: memory. A row is (J + (K + J) + V) d numbers, V the draws of log_var (1 or K + J). Forward reads it once;
backward reads it once more and writes as much. A program goes through all pairs of its rows, so that what it reads more
than once comes from the nearest cache. Nothing of the size of pairs times d is kept.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from . import INTERPRETED, OPTIONS, compiled_as
from .math import bounded_log_var, inverse_deviation, weighted
from .sums import sum_blocks, sum_kernel


@triton.jit
def density_kernel(
    z,  # [n, J, d]
    means,  # [n, K + J, d]
    log_var,  # [n, V, d]
    densities,  # [n, J, K + 1] float64
    rows,
    samples,  # J
    extra,  # K
    variances,  # V
    width,  # d
    BLOCK_ROWS: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """log N(z_j; mu_k, exp(log_var_k)) of each pair. Programs: blocks of rows."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    components = extra + 1
    pairs = samples * components
    for start in range(0, pairs, BLOCK_PAIRS):
        pair = start + tl.arange(0, BLOCK_PAIRS)
        sample, component = pair // components, pair % components
        draw = tl.where(component < extra, component, extra + sample)
        variance = tl.where(variances > 1, draw, 0)
        inside = (row < rows)[:, None] & (pair < pairs)[None, :]
        z_line = (row[:, None] * samples + sample[None, :])[:, :, None] * width
        mean_line = (row[:, None] * (extra + samples) + draw[None, :])[:, :, None] * width
        log_var_line = (row[:, None] * variances + variance[None, :])[:, :, None] * width
        total = tl.zeros((BLOCK_ROWS, BLOCK_PAIRS, BLOCK_COLS), dtype=z.dtype.element_ty)
        for first in range(0, width, BLOCK_COLS):
            column = first + tl.arange(0, BLOCK_COLS)[None, None, :]
            mask = inside[:, :, None] & (column < width)
            log_variance, _ = bounded_log_var(tl.load(log_var + log_var_line + column, mask=mask, other=0.0))
            difference = tl.load(z + z_line + column, mask=mask, other=0.0)
            difference -= tl.load(means + mean_line + column, mask=mask, other=0.0)
            difference *= inverse_deviation(log_variance)
            total += difference * difference + log_variance
        constant = tl.cast(width, tl.float64) * 1.8378770664093454836
        density = -0.5 * (tl.sum(total, axis=2).to(tl.float64) + constant)
        tl.store(densities + row[:, None] * pairs + pair[None, :], density, mask=inside)


@triton.jit
def coefficient(weights, upstream, row, inside, sample, component, samples, components, WEIGHTED: tl.constexpr):
    """The gradient of a pair's density: weights[row, j, k] upstream[j], or upstream[j, k] for every row."""
    if WEIGHTED:
        weight = tl.load(weights + (row * samples + sample) * components + component, mask=inside, other=0.0)
        result = weighted(tl.load(upstream + sample), weight)
    else:
        result = tl.broadcast_to(tl.load(upstream + sample * components + component), inside.shape)
    return result[:, None]


@triton.jit
def standardized(difference, deviation, factor):
    """``difference * deviation``, or 0 where its coefficient is 0: it may be infinite or NaN there."""
    return tl.where(factor != 0.0, difference * deviation, 0.0)


@triton.jit
def gradient_kernel(
    z,
    means,
    log_var,
    weights,  # [n, J, K + 1]; not read unless WEIGHTED
    upstream,  # [J], or [J, K + 1] unless WEIGHTED
    z_out,  # gradients like their operands
    means_out,
    log_var_out,
    rows,
    samples,
    extra,
    variances,
    width,
    WEIGHTED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Programs: for each tile of columns all blocks of rows. Goes over the pairs twice, by samples and by draws."""
    program = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    row = program % blocks * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = program // blocks * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]
    inside = row < rows
    mask = inside[:, None] & (column < width)
    draws, components = extra + samples, extra + 1

    for sample in range(samples):
        z_at = (row * samples + sample)[:, None] * width + column
        sample_value = tl.load(z + z_at, mask=mask, other=0.0)
        total = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=z.dtype.element_ty)
        for component in range(components):
            draw = tl.where(component < extra, component, extra + sample)
            variance = tl.where(variances > 1, draw, 0)
            mean = tl.load(means + (row * draws + draw)[:, None] * width + column, mask=mask, other=0.0)
            at = (row * variances + variance)[:, None] * width + column
            log_variance, _ = bounded_log_var(tl.load(log_var + at, mask=mask, other=0.0))
            deviation = inverse_deviation(log_variance)
            factor = coefficient(weights, upstream, row, inside, sample, component, samples, components, WEIGHTED)
            total -= weighted(factor * standardized(sample_value - mean, deviation, factor), deviation)
        tl.store(z_out + z_at, total, mask=mask)

    for variance in range(variances):
        log_var_at = (row * variances + variance)[:, None] * width + column
        log_variance, in_range = bounded_log_var(tl.load(log_var + log_var_at, mask=mask, other=0.0))
        deviation = inverse_deviation(log_variance)
        slope = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=z.dtype.element_ty)
        # One variance for all draws, or one for each.
        for draw in range(variance, tl.where(variances > 1, variance + 1, draws)):
            mean_at = (row * draws + draw)[:, None] * width + column
            mean = tl.load(means + mean_at, mask=mask, other=0.0)
            total = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=z.dtype.element_ty)
            # An extra draw is a component of every sample, draw K + j of sample j alone.
            begin = tl.maximum(draw - extra, 0)
            end = tl.where(draw < extra, samples, begin + 1)
            for sample in range(begin, end):
                sample_value = tl.load(z + (row * samples + sample)[:, None] * width + column, mask=mask, other=0.0)
                component = tl.minimum(draw, extra)
                factor = coefficient(weights, upstream, row, inside, sample, component, samples, components, WEIGHTED)
                difference = standardized(sample_value - mean, deviation, factor)
                pull = factor * difference
                total += pull
                slope += pull * difference - factor
            tl.store(means_out + mean_at, weighted(total, deviation), mask=mask)
        tl.store(log_var_out + log_var_at, 0.5 * tl.where(in_range, slope, 0.0), mask=mask)


def density_blocks(rows: int, pairs: int, width: int, device: str) -> dict[str, int]:
    """Rows, pairs and columns that a program takes at a time.

    On a GPU 1,024 differences, eight a thread.
    """
    numbers, most_pairs, most_columns = (INTERPRETED, 32, 512) if device == "cpu" else (1024, 4, 256)
    columns = min(triton.next_power_of_2(max(1, width)), most_columns)
    block_pairs = min(triton.next_power_of_2(pairs), most_pairs)
    block_rows = min(numbers // (block_pairs * columns), triton.next_power_of_2(rows))
    return {"BLOCK_ROWS": block_rows, "BLOCK_PAIRS": block_pairs, "BLOCK_COLS": columns}


def gradient_blocks(rows: int, width: int, device: str) -> dict[str, int]:
    """Rows and columns of a program, as in ``density_blocks``."""
    numbers, most_columns = (INTERPRETED, 512) if device == "cpu" else (1024, 256)
    columns = min(triton.next_power_of_2(width), most_columns)
    return {"BLOCK_ROWS": min(numbers // columns, triton.next_power_of_2(rows)), "BLOCK_COLS": columns}


def row_densities(z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
    """``[n, J, K + 1]`` float64: the log density of each sample under its components, per row."""
    z, means, log_var = z.contiguous(), means.contiguous(), log_var.contiguous()
    rows, samples, width = z.shape
    extra = means.shape[1] - samples
    densities = z.new_empty((rows, samples, extra + 1), dtype=torch.float64)
    if rows == 0:
        return densities
    blocks = density_blocks(rows, samples * (extra + 1), width, z.device.type)
    with torch.cuda.device_of(z):
        density_kernel[(triton.cdiv(rows, blocks["BLOCK_ROWS"]),)](
            z, means, log_var, densities, rows, samples, extra, log_var.shape[1], width, **blocks, **OPTIONS
        )
    return densities


def row_gradients(
    z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor, weights: torch.Tensor | None, upstream: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients like the operands of the densities weighted by ``weights[i, j, k] upstream[j]``.

    Args:
        weights: ``[n, J, K + 1]``, or None: then the densities of all rows are weighted by ``upstream`` ``[J, K + 1]``.
    """
    z, means, log_var, upstream = z.contiguous(), means.contiguous(), log_var.contiguous(), upstream.contiguous()
    rows, samples, width = z.shape
    out = torch.empty_like(z), torch.empty_like(means), torch.empty_like(log_var)
    if z.numel() == 0:
        return out
    blocks = gradient_blocks(rows, width, z.device.type)
    grid = (triton.cdiv(rows, blocks["BLOCK_ROWS"]) * triton.cdiv(width, blocks["BLOCK_COLS"]),)
    sizes = rows, samples, means.shape[1] - samples, log_var.shape[1], width
    with torch.cuda.device_of(z):
        gradient_kernel[grid](
            z,
            means,
            log_var,
            upstream if weights is None else weights.contiguous(),
            upstream,
            *out,
            *sizes,
            WEIGHTED=weights is not None,
            **blocks,
            **OPTIONS,
        )
    return out


def ahead_of_time(*, weighted: bool) -> list[tuple]:
    """What these launchers and ``sum_rows`` launch on a GPU for a width of 512: see tests/ahead_of_time.py."""
    entries = []
    for dtype, samples, extra in (("fp32", 1, 1), ("fp32", 5, 5), ("fp64", 1, 1), ("fp64", 5, 5)):
        types = {"densities": "*fp64", "values": "*fp64", "width": "i32:16"}
        operands = ("z", "means", "log_var", "weights", "upstream", "z_out", "means_out", "log_var_out", "sums")
        types |= dict.fromkeys(operands, f"*{dtype}")
        # Triton compiles a number that is 1 into the kernel.
        ones = {name: 1 for name, size in (("samples", samples), ("extra", extra), ("variances", samples)) if size == 1}
        gradient = {"WEIGHTED": weighted, **gradient_blocks(20000, 512, "cuda")}
        densities = density_blocks(20000, samples * (extra + 1), 512, "cuda")
        for kernel, blocks in (
            (density_kernel, densities),
            (gradient_kernel, gradient),
            (sum_kernel, sum_blocks(samples)),
        ):
            entries.append(compiled_as(f"{dtype} J {samples}, K {extra}", kernel, blocks | ones, types))
    return entries
