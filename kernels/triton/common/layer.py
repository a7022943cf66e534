"""What the layers share: bias and activation on lines, and their gradients.

A line is what one draw of one row holds: ``[n, S, d]`` has n S lines. Floors, in numbers of n S d: ``finish`` reads
and writes one each; ``gradient_of_sums`` reads two (one for a linear layer) and writes one, or 1 / S of it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from seegera_fast.reference.activation import ACTIVATIONS

from . import INTERPRETED, OPTIONS, compiled_as
from .math import tanh, weighted
from .products import multiply, multiply_add, operands
from .sums import sum_rows

# As operators take them.
INDEX = {name: index for index, name in enumerate(ACTIVATIONS)}
LINEAR = INDEX["none"]
RELU = tl.constexpr(INDEX["relu"])
TANH = tl.constexpr(INDEX["tanh"])


@triton.jit
def activate(sums, ACTIVATION: tl.constexpr):
    if ACTIVATION == RELU:
        sums = tl.where(sums < 0, 0.0, sums)
    elif ACTIVATION == TANH:
        sums = tanh(sums)
    return sums


@triton.jit
def finish_kernel(
    sums,  # [n, h] or [n, S, h]; may be out
    noise,  # [n, S, c]
    noise_weight,  # [c, h]
    bias,  # [h]; not read unless BIAS
    out,  # [n, S, h]
    lines,  # n * S
    sharing,  # how many lines share one of sums: S or 1
    noise_dim,  # c
    width,  # h
    ACTIVATION: tl.constexpr,
    BIAS: tl.constexpr,
    BLOCK_LINES: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """activation(sums + noise @ noise_weight + bias). Programs: for each tile of columns all blocks of lines."""
    program = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(lines, BLOCK_LINES)
    line = program % blocks * BLOCK_LINES + tl.arange(0, BLOCK_LINES)
    column = program // blocks * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    inside = (line < lines)[:, None] & (column < width)[None, :]
    total = tl.load(sums + (line // sharing)[:, None] * width + column[None, :], mask=inside, other=0.0)
    if BIAS:
        total += tl.load(bias + column, mask=column < width, other=0.0)[None, :]
    for k in range(noise_dim):
        factor = tl.load(noise + line * noise_dim + k, mask=line < lines, other=0.0)
        term = tl.load(noise_weight + k * width + column, mask=column < width, other=0.0)
        total += factor[:, None] * term[None, :]
    tl.store(out + line[:, None] * width + column[None, :], activate(total, ACTIVATION), mask=inside)


@triton.jit
def gradient_kernel(
    gradient,  # [n, S, h]
    output,  # [n, S, h]; not read where the layer is linear
    noise,  # [n, S, c]
    of_sums,  # [n, S, h], or [n, h] where ADDED
    partial,  # [chunks of rows, c + 1, h] float64: the chunk's noise^T @ gradient of the sums, and its bias's
    rows,
    draws,  # S
    noise_dim,  # c
    width,  # h
    chunk_rows,  # a multiple of BLOCK_ROWS
    ACTIVATION: tl.constexpr,
    STORED: tl.constexpr,  # whether to write of_sums
    ADDED: tl.constexpr,  # whether to add up its draws
    SUMMED: tl.constexpr,  # whether to write partial
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NOISE: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Programs: for each block of noise columns and tile of columns all chunks of rows."""
    program = tl.program_id(0)
    chunks = tl.cdiv(rows, chunk_rows)
    tiles = tl.cdiv(width, BLOCK_COLS)
    block = program // chunks // tiles
    start = (program % chunks).to(tl.int64) * chunk_rows
    column = (program // chunks % tiles).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    k = block.to(tl.int64) * BLOCK_NOISE + tl.arange(0, BLOCK_NOISE)
    products = tl.zeros((BLOCK_ROWS, BLOCK_NOISE, BLOCK_COLS), dtype=gradient.dtype.element_ty)
    for first in range(0, chunk_rows, BLOCK_ROWS):
        row = start + first + tl.arange(0, BLOCK_ROWS)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        total = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=gradient.dtype.element_ty)
        for draw in range(draws):
            line = row * draws + draw
            at = line[:, None] * width + column[None, :]
            slope = tl.load(gradient + at, mask=inside, other=0.0)
            if ACTIVATION == RELU:
                # As torch.relu: a NaN lets it through.
                slope = tl.where(tl.load(output + at, mask=inside, other=0.0) <= 0, 0.0, slope)
            elif ACTIVATION == TANH:
                value = tl.load(output + at, mask=inside, other=0.0)
                slope = weighted(slope, 1.0 - value * value)
            if ADDED:
                total += slope
            elif STORED and block == 0:
                tl.store(of_sums + at, slope, mask=inside)
            if SUMMED:
                # One column past the noise is 1, which gives the gradient of the bias; past the rows the gradient is 0.
                given = (row < rows)[:, None] & (k < noise_dim)[None, :]
                factor = tl.load(noise + line[:, None] * noise_dim + k[None, :], mask=given, other=1.0)
                products += factor[:, :, None] * slope[:, None, :]
        if ADDED and block == 0:
            tl.store(of_sums + row[:, None] * width + column[None, :], total, mask=inside)
    if SUMMED:
        chunk = (program % chunks).to(tl.int64)
        target = (chunk * (noise_dim + 1) + k)[:, None] * width + column[None, :]
        in_tile = (k <= noise_dim)[:, None] & (column < width)[None, :]
        tl.store(partial + target, tl.sum(products, axis=0).to(tl.float64), mask=in_tile)


def finish_blocks(lines: int, width: int, device: str) -> dict[str, int]:
    """Lines and columns of a program.

    On a GPU 1,024 numbers, eight a thread.
    """
    numbers, most_columns = (INTERPRETED, 512) if device == "cpu" else (1024, 128)
    columns = min(triton.next_power_of_2(width), most_columns)
    return {"BLOCK_LINES": min(numbers // columns, triton.next_power_of_2(lines)), "BLOCK_COLS": columns}


def gradient_blocks(rows: int, noise_dim: int, width: int, device: str) -> dict[str, int]:
    """Rows, columns of the noise with the bias's, and columns of a program.

    On a GPU 512 gradients, or 256 where a thread keeps the sums of their products with up to 8 numbers.
    """
    block_noise = min(triton.next_power_of_2(noise_dim + 1), 16 if device == "cpu" else 8)
    numbers = INTERPRETED // block_noise if device == "cpu" else (256 if block_noise > 1 else 512)
    columns = min(triton.next_power_of_2(width), 512 if device == "cpu" else 256)
    block_rows = min(numbers // columns, triton.next_power_of_2(rows))
    return {"BLOCK_ROWS": block_rows, "BLOCK_NOISE": block_noise, "BLOCK_COLS": columns}


def product(left: torch.Tensor, right: torch.Tensor, precision: int) -> torch.Tensor:
    """``left @ right`` for lines ``[n, S, h]`` and a matrix ``[h, d]``: contiguous ``[n, S, d]``.

    Args:
        precision: its index in PRECISIONS.
    """
    rows, draws, inner = left.shape
    out = left.new_empty((rows, draws, right.shape[1]))
    lines = rows * draws
    multiply(*operands(precision, left.reshape(lines, inner), right), out.view(lines, right.shape[1]))
    return out


def product_over_lines(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, precision: int) -> None:
    """``out [h, d] = left^T @ right``, summed over the lines of ``[n, S, h]`` and ``[n, S, d]``."""
    lines = left.shape[0] * left.shape[1]
    left, right = operands(precision, left, right)
    multiply(left.reshape(lines, left.shape[2]).t(), right.reshape(lines, right.shape[2]), out)


def add_product(out: torch.Tensor, left: torch.Tensor, right: torch.Tensor, precision: int) -> None:
    """``out += left @ right`` on lines, ``out`` contiguous."""
    lines = left.shape[0] * left.shape[1]
    left, right = operands(precision, left.reshape(lines, left.shape[2]), right)
    multiply_add(out.view(lines, out.shape[2]), left, right, factor=1.0, first=False)


def finish(
    sums: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    activation: int,
    noise: torch.Tensor | None = None,
    noise_weight: torch.Tensor | None = None,
) -> None:
    """``out = activation(sums + noise @ noise_weight + bias)``.

    Args:
        sums: contiguous ``[n, S, h]``, which may be ``out``, or ``[n, h]``, which the draws share.
        out: contiguous ``[n, S, h]``.
        bias: ``[h]``.
        noise: contiguous ``[n, S, c]``, None for c = 0.
        noise_weight: ``[c, h]``.
    """
    rows, draws, width = out.shape
    noise_dim = 0 if noise is None else noise.shape[2]
    if out.numel() == 0 or (sums is out and bias is None and activation == LINEAR and noise_dim == 0):
        return
    lines = rows * draws
    blocks = finish_blocks(lines, width, out.device.type)
    grid = (triton.cdiv(lines, blocks["BLOCK_LINES"]) * triton.cdiv(width, blocks["BLOCK_COLS"]),)
    with torch.cuda.device_of(out):
        finish_kernel[grid](
            sums,
            out if noise is None else noise,
            out if noise_weight is None else noise_weight.contiguous(),
            out if bias is None else bias.contiguous(),
            out,
            lines,
            draws if sums.ndim == 2 else 1,
            noise_dim,
            width,
            ACTIVATION=activation,
            BIAS=bias is not None,
            **blocks,
            **OPTIONS,
        )


def gradient_of_sums(
    gradient: torch.Tensor,
    output: torch.Tensor | None,
    activation: int,
    *,
    noise: torch.Tensor | None = None,
    added: bool = False,
    summed: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of ``finish``.

    Args:
        gradient: of the output, ``[n, S, h]``, any strides.
        output: ``[n, S, h]``; None where the layer is linear.
        noise: contiguous ``[n, S, c]``, None for c = 0.
        added: the draws share their sums.
        summed: whether to compute the second result.

    Returns:
        The gradient of the sums, ``[n, S, h]`` or, added up, ``[n, h]``; and ``[c + 1, h]``: the gradient of the
        noise's weight and, in the last row, that of the bias. Empty where it is not computed.
    """
    gradient = gradient.contiguous()
    rows, draws, width = gradient.shape
    noise_dim = 0 if noise is None else noise.shape[2]
    stored = added or activation != LINEAR
    shape = (rows, width) if added else gradient.shape
    of_sums = gradient.new_empty(shape) if stored else gradient
    if not (stored or summed):
        return of_sums, gradient.new_empty((0, width))
    if noise is None and not added:
        # Each line separately.
        rows, draws = rows * draws, 1
    if gradient.numel() == 0:
        return of_sums, gradient.new_zeros((noise_dim + 1 if summed else 0, width))
    blocks = gradient_blocks(rows, noise_dim, width, gradient.device.type)
    row_blocks = triton.cdiv(rows, blocks["BLOCK_ROWS"])
    # Enough chunks to keep a GPU busy, and few enough for their sums to take little memory.
    least, most = triton.cdiv(16, blocks["BLOCK_ROWS"]), 1024
    chunk_blocks = max(least, triton.cdiv(row_blocks, most)) if summed else 1
    chunks = triton.cdiv(row_blocks, chunk_blocks)
    cells = (noise_dim + 1) * width
    partial = gradient.new_empty((chunks if summed else 0, cells), dtype=torch.float64)
    noise_blocks = triton.cdiv(noise_dim + 1, blocks["BLOCK_NOISE"]) if summed else 1
    grid = (chunks * triton.cdiv(width, blocks["BLOCK_COLS"]) * noise_blocks,)
    with torch.cuda.device_of(gradient):
        gradient_kernel[grid](
            gradient,
            gradient if output is None else output,
            gradient if noise is None else noise,
            of_sums,
            partial,
            rows,
            draws,
            noise_dim,
            width,
            chunk_blocks * blocks["BLOCK_ROWS"],
            ACTIVATION=activation,
            STORED=stored,
            ADDED=added,
            SUMMED=summed,
            **blocks,
            **OPTIONS,
        )
    if not summed:
        return of_sums, gradient.new_empty((0, width))
    return of_sums, sum_rows(partial, gradient.dtype).reshape(noise_dim + 1, width)


def ahead_of_time(*, noise_dim: int) -> list[tuple]:
    """What ``finish`` and ``gradient_of_sums`` launch on a GPU for a width of 512: see tests/ahead_of_time.py.

    Both activations, without a bias and with one; the draws added up where there is noise.
    """
    entries = []
    for dtype in ("fp32", "fp64"):
        types = {"partial": "*fp64", "width": "i32:16", "noise_dim": "i32:16" if noise_dim == 0 else "i32"}
        operands = ("sums", "noise", "noise_weight", "bias", "out", "gradient", "output", "of_sums")
        types |= dict.fromkeys(operands, f"*{dtype}")
        finishing = finish_blocks(20000, 512, "cuda")
        gradients = gradient_blocks(20000, noise_dim, 512, "cuda")
        for name, activation, biased in (("relu", RELU.value, False), ("tanh", TANH.value, True)):
            flags = {"STORED": True, "ADDED": noise_dim > 0, "SUMMED": noise_dim > 0 or biased}
            # Triton compiles a number that is 1 into the kernel.
            ones = {} if noise_dim > 0 else {"draws": 1}
            for kernel, constants in (
                (finish_kernel, {"BIAS": biased, **finishing}),
                (gradient_kernel, {**flags, **ones, **gradients}),
            ):
                constants = {"ACTIVATION": activation, **constants}
                entries.append(compiled_as(f"{dtype} {name}", kernel, constants, types))
    return entries
