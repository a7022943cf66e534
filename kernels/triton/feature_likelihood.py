"""log p(X | H W) for J samples, with its gradients for an upstream of one. The outputs O = H W are never stored whole.

Two forms: feature_likelihood_chunks.py makes them a chunk at a time, feature_likelihood_squares.py (mse,
where it costs less) does without them. Every sum has a fixed order: equal inputs give equal bits.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from seegera_fast.schema import Rows, Transposed

from . import feature_likelihood_chunks, feature_likelihood_squares
from .common import OPTIONS, compiled_as, scale
from .common.math import weighted
from .common.products import operands
from .common.scale import scaled_samples
from .feature_likelihood_chunks import by_chunks
from .feature_likelihood_squares import by_squares, multiplies_fast

# Of one output, by the number of its likelihood.
CONSTANTS = (0.0, -0.5 * math.log(math.pi), -0.5 * math.log(2 * math.pi), -0.5 * math.log(math.pi))


def feature_likelihood(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    log_var_weight: torch.Tensor | None,
    features: Rows,
    flipped: Transposed | None,
    pos_weight: torch.Tensor,
    likelihood: int,
    precision: int,
    hidden_wanted: bool,
    weight_wanted: bool,
    log_var_wanted: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The value ``[samples]`` and its gradients for an upstream of one.

    Those of hidden ``[rows, samples, width]``, and of the weights, sample by sample, ``[columns, samples, width]``; one
    that is not computed has no rows. All in the type of hidden, or in float32 where that is float16 or bfloat16.

    Args:
        hidden: ``[rows, samples, width]``, any strides, as the weights.
        weight: ``[width, columns]``, or one for each sample, ``[samples, width, columns]``.
        log_var_weight: gaussian: ``[width, columns]``.
        features: X, ``rows x columns``.
        flipped: the transpose of X, or None. With it, mse is computed by squares where the device is fast at them.
        pos_weight: ``[1]`` float64.
        likelihood: its number in KERNELS of reference/feature_likelihood.py.
        precision: its index in PRECISIONS; not read by squares, which cancel.
    """
    (rows, samples, width), columns = hidden.shape, weight.shape[-1]
    dtype = torch.promote_types(hidden.dtype, torch.float32)

    def gradient(computed: bool, lines: int) -> torch.Tensor:
        size = (lines if computed else 0, samples, width)
        # Without rows or columns no chunk writes to it, so it is set to zero.
        make = hidden.new_zeros if rows * columns == 0 else hidden.new_empty
        return make(size, dtype=dtype)

    gradients = (
        gradient(hidden_wanted, rows),
        gradient(weight_wanted, columns),
        gradient(log_var_wanted, columns),
    )
    if rows * columns == 0:
        return hidden.new_zeros(samples, dtype=dtype), *gradients
    by_hidden, by_weight, by_log_var = (
        tensor if computed else None
        for tensor, computed in zip(gradients, (hidden_wanted, weight_wanted, log_var_wanted), strict=True)
    )
    squares = flipped is not None and multiplies_fast(hidden)
    if not squares:
        hidden, weight = operands(precision, hidden, weight)
        log_var_weight = None if log_var_weight is None else operands(precision, log_var_weight)[0]
    if hidden.device.type == "cpu" or squares:
        # On the CPU torch has no products of bfloat16 with sums in float32; squares would lose too many digits.
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        log_var_weight = None if log_var_weight is None else log_var_weight.to(dtype)
    if hidden.stride(2) != 1:
        hidden = hidden.contiguous()
    with torch.cuda.device_of(hidden):
        if squares:
            total = by_squares(hidden, weight, *features, *flipped, by_hidden, by_weight)
        else:
            total = by_chunks(
                hidden,
                weight,
                log_var_weight,
                *features,
                pos_weight,
                likelihood,
                by_hidden,
                by_weight,
                by_log_var,
            )
    return (total + CONSTANTS[likelihood] * rows * columns).to(dtype), *gradients


@triton.jit
def transpose_kernel(
    gradient,  # [columns, samples, width]
    upstream,  # [samples]
    out,  # [samples, width, columns], or summed over the samples [width, columns]
    columns,
    samples,
    width,
    summed,  # how many samples a program adds up: all of them, or 1
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """Scales and transposes. Programs: tiles of columns, tiles of the width, matrices of ``out``."""
    column = tl.program_id(0).to(tl.int64) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    line = tl.program_id(1).to(tl.int64) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    matrix = tl.program_id(2).to(tl.int64)
    total = tl.zeros((BLOCK_COLUMNS, BLOCK_WIDTH), dtype=out.dtype.element_ty)
    inside = (column < columns)[:, None] & (line < width)[None, :]
    for sample in range(matrix, matrix + summed):
        offset = (column[:, None] * samples + sample) * width + line[None, :]
        total += weighted(tl.load(upstream + sample), tl.load(gradient + offset, mask=inside, other=0.0))
    inside = (line < width)[:, None] & (column < columns)[None, :]
    tl.store(out + (matrix * width + line[:, None]) * columns + column[None, :], tl.trans(total), mask=inside)


def transpose_blocks(columns: int, width: int, device: str) -> dict[str, int]:
    """Columns and width of a tile that is transposed."""
    if device == "cpu":
        sizes = (min(512, triton.next_power_of_2(size)) for size in (columns, width))
        return dict(zip(("BLOCK_COLUMNS", "BLOCK_WIDTH"), sizes, strict=True))
    return {"BLOCK_COLUMNS": 32, "BLOCK_WIDTH": 32}


def scaled_weight(gradient: torch.Tensor, upstream: torch.Tensor, shared: bool) -> torch.Tensor:
    """``[columns, samples, width]`` scaled as ``[samples, width, columns]``; summed over the samples where shared."""
    columns, samples, width = gradient.shape
    out = gradient.new_empty((width, columns) if shared else (samples, width, columns))
    if out.numel() > 0:
        blocks = transpose_blocks(columns, width, gradient.device.type)
        matrices, summed = (1, samples) if shared else (samples, 1)
        grid = (triton.cdiv(columns, blocks["BLOCK_COLUMNS"]), triton.cdiv(width, blocks["BLOCK_WIDTH"]), matrices)
        transpose_kernel[grid](
            gradient.contiguous(), upstream, out, columns, samples, width, summed, **blocks, **OPTIONS
        )
    return out


def feature_likelihood_backward(
    gradient: torch.Tensor,
    hidden_unit: torch.Tensor,
    weight_unit: torch.Tensor,
    log_var_unit: torch.Tensor,
    shared_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients for an upstream of one, times the upstream ``[samples]``, in the shapes of their arguments."""
    upstream = gradient.contiguous()
    with torch.cuda.device_of(upstream):
        return (
            scaled_samples(hidden_unit, upstream, by_sample=False),
            scaled_weight(weight_unit, upstream, shared_weight),
            scaled_weight(log_var_unit, upstream, True),
        )


def ahead_of_time() -> list[tuple]:
    """What ``feature_likelihood`` and its gradient launch on a GPU: see tests/ahead_of_time.py."""
    parts = (feature_likelihood_chunks, feature_likelihood_squares, scale)
    entries = [entry for part in parts for entry in part.ahead_of_time()]
    for dtype in ("fp32", "fp64"):
        types = {"width": "i32:16", **dict.fromkeys(("gradient", "upstream", "out"), f"*{dtype}")}
        # Of one sample. Triton compiles a number that is 1 into the kernel.
        constants = {"samples": 1, "summed": 1, **transpose_blocks(1, 1, "cuda")}
        entries.append(compiled_as(dtype, transpose_kernel, constants, types))
    return entries
