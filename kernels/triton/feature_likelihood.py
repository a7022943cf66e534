"""log p(X | H W) for J samples, with its gradients for an upstream of one. The outputs O = H W are never there whole.

Chunks (bernoulli, gaussian, and mse where that is cheaper): a product of the library makes a chunk of O of at most
2,048 x 2,048, 16 MB in float32, so that it stays in the cache of a GPU (gaussian: half of it for the log variances).
Kernels turn it into slopes in place: one takes the entries of X out, adds up their terms and keeps their slopes, one
does the rest of the chunk as zeros of X, one puts the slopes of the entries in. Products use the slopes up.
Floor: 6 n l h operations (2 n l h without gradients; twice that for gaussian) and n l exponentials per sample.

Squares (mse): the sum of (O - X)^2 is tr((H^T H)(W W^T)) - 2 <H, X W^T> + <X, X>, its gradients are
2 (H (W W^T) - X W^T) and 2 (W^T (H^T H) - X^T H). A close fit, where they cancel, would leave the rounding errors
of float32 alone, and to go back to chunks then would take a look at the value on the host. So the products are in
float64, which the GPUs of data centres multiply as fast as plain float32.
Floor: 4 (n + l) h^2 operations in float64, and 4 nnz h.

Every sum has a fixed order: equal inputs give equal bits.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from .common import OPTIONS
from .common.math import softplus_sigmoid
from .common.products import multiply, multiply_add
from .sparse_matmul import sparse_matmul

# As numbered by LIKELIHOODS in seegera_fast/ops/feature_likelihood.py.
BERNOULLI, MSE, GAUSSIAN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
CONSTANTS = (0.0, -0.5 * math.log(math.pi), -0.5 * math.log(2 * math.pi))

# Rows and columns of a chunk, at most; multiples of UNIT.
CHUNK = 2048
UNIT = 64

# Rows of a part of a Gram matrix: they are there in float64, too.
GRAM_ROWS = 4096

# --- Chunks ----------------------------------------------------------------------------------------------------------


@triton.jit
def first_entry(col, begin, end, column, search_steps):
    """For each row the first of its entries [begin, end) at or after a column; the end where there is none."""
    for _ in range(search_steps):
        middle = (begin + end) // 2
        before = tl.load(col + middle, mask=begin < end, other=0) < column
        begin, end = tl.where((begin < end) & before, middle + 1, begin), tl.where(before, end, middle)
    return begin


@triton.jit
def entries_of(rowptr, col, row, rows, first_row, first_column, columns, search_steps, WHOLE_ROWS: tl.constexpr):
    """The entries of the rows of a chunk in its columns: begin and end."""
    begin = tl.load(rowptr + first_row + row, mask=row < rows, other=0)
    end = tl.load(rowptr + first_row + row + 1, mask=row < rows, other=0)
    if not WHOLE_ROWS:
        begin = first_entry(col, begin, end, first_column, search_steps)
        end = first_entry(col, begin, end, first_column + columns, search_steps)
    return begin, end


@triton.jit(do_not_specialize=["first_row", "first_column"])
def take_kernel(
    outputs,  # [rows, columns]: a chunk
    log_vars,  # gaussian: the same
    rowptr,
    col,
    values,  # [nnz]
    slopes,  # [nnz]
    log_var_slopes,  # gaussian: [nnz]
    pos_weight,  # [1] float64
    partial,  # float64: a place for each program
    rows,
    columns,
    first_row,
    first_column,
    search_steps,  # 2 ** search_steps > the entries of any row
    LIKELIHOOD: tl.constexpr,
    WHOLE_ROWS: tl.constexpr,  # one chunk has all columns
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
):
    """Adds up the terms of the entries of X in a chunk and keeps their slopes. What it leaves there counts nothing."""
    program = tl.program_id(0).to(tl.int64)
    row = program * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    begin, end = entries_of(rowptr, col, row, rows, first_row, first_column, columns, search_steps, WHOLE_ROWS)
    dtype: tl.constexpr = outputs.dtype.element_ty
    weight = tl.load(pos_weight).to(dtype)
    total = tl.zeros((BLOCK_ROWS,), dtype=tl.float64)
    for step in range(0, tl.max(end - begin, axis=0), BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = entry < end[:, None]
        cell = row[:, None] * columns + tl.load(col + entry, mask=inside, other=0) - first_column
        x = tl.load(values + entry, mask=inside, other=0.0).to(dtype)
        output = tl.load(outputs + cell, mask=inside, other=0.0)
        if LIKELIHOOD == BERNOULLI:
            off, off_slope = softplus_sigmoid(output)
            on, on_slope = softplus_sigmoid(-output)
            terms = -(weight * x * on + (1.0 - x) * off)
            tl.store(slopes + entry, weight * x * on_slope - (1.0 - x) * off_slope, mask=inside)
            tl.store(outputs + cell, tl.full(output.shape, float("-inf"), dtype), mask=inside)
        elif LIKELIHOOD == MSE:
            terms = -(x - output) * (x - output)
            tl.store(slopes + entry, 2.0 * (x - output), mask=inside)
            tl.store(outputs + cell, tl.zeros_like(output), mask=inside)
        else:
            log_var = tl.load(log_vars + cell, mask=inside, other=0.0)
            slope = (x - output) * tl.exp(-log_var)
            square = (x - output) * slope
            terms = -0.5 * (square + log_var)
            tl.store(slopes + entry, slope, mask=inside)
            tl.store(log_var_slopes + entry, 0.5 * (square - 1.0), mask=inside)
            tl.store(outputs + cell, tl.zeros_like(output), mask=inside)
            tl.store(log_vars + cell, tl.zeros_like(output), mask=inside)
        total += tl.sum(tl.where(inside, terms, 0.0).to(tl.float64), axis=1)
    tl.store(partial + program, tl.sum(total, axis=0))


@triton.jit
def chunk_kernel(
    outputs,  # [count], row after row
    log_vars,  # gaussian: the same
    slopes,  # [count]: may be the outputs
    log_var_slopes,  # gaussian: the same
    partial,  # float64: a place for each program
    count,
    LIKELIHOOD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Adds up the terms of a chunk as zeros of X, and turns its outputs into slopes."""
    program = tl.program_id(0).to(tl.int64)
    place = program * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    if LIKELIHOOD == BERNOULLI:
        # The softplus and the sigmoid of minus infinity are zero.
        terms, slope = softplus_sigmoid(tl.load(outputs + place, mask=inside, other=float("-inf")))
        terms = -terms
        slope = -slope
    elif LIKELIHOOD == MSE:
        output = tl.load(outputs + place, mask=inside, other=0.0)
        terms = -output * output
        slope = -2.0 * output
    else:
        output = tl.load(outputs + place, mask=inside, other=0.0)
        log_var = tl.load(log_vars + place, mask=inside, other=0.0)
        slope = -output * tl.exp(-log_var)
        square = -output * slope
        terms = -0.5 * (square + log_var)
        log_var_slope = 0.5 * (square - 1.0)
        tl.store(log_var_slopes + place, log_var_slope.to(log_var_slopes.dtype.element_ty), mask=inside)
    tl.store(slopes + place, slope.to(slopes.dtype.element_ty), mask=inside)
    tl.store(partial + program, tl.sum(terms, axis=0).to(tl.float64))


@triton.jit(do_not_specialize=["first_row", "first_column"])
def put_kernel(
    slopes,  # [rows, columns]: a chunk
    log_var_slopes,  # gaussian: the same
    rowptr,
    col,
    kept,  # [nnz]
    log_var_kept,  # gaussian: [nnz]
    rows,
    columns,
    first_row,
    first_column,
    search_steps,
    LIKELIHOOD: tl.constexpr,
    WHOLE_ROWS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
):
    """Puts the slopes of the entries of X into a chunk."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    begin, end = entries_of(rowptr, col, row, rows, first_row, first_column, columns, search_steps, WHOLE_ROWS)
    for step in range(0, tl.max(end - begin, axis=0), BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = entry < end[:, None]
        cell = row[:, None] * columns + tl.load(col + entry, mask=inside, other=0) - first_column
        slope = tl.load(kept + entry, mask=inside, other=0.0)
        tl.store(slopes + cell, slope.to(slopes.dtype.element_ty), mask=inside)
        if LIKELIHOOD == GAUSSIAN:
            slope = tl.load(log_var_kept + entry, mask=inside, other=0.0)
            tl.store(log_var_slopes + cell, slope.to(log_var_slopes.dtype.element_ty), mask=inside)


def entry_blocks(rows: int, device: str) -> dict[str, int]:
    """Rows of a program and entries of each row that it takes at a time."""
    if device == "cpu":
        return {"BLOCK_ROWS": triton.next_power_of_2(rows), "BLOCK_NNZ": 64}
    return {"BLOCK_ROWS": 4, "BLOCK_NNZ": 64}


def chunk_block(count: int, dtype: torch.dtype, device: str) -> int:
    """Outputs of a program. On a GPU 16 of a thread in float32, 8 in float64."""
    return min(2**18, triton.next_power_of_2(count)) if device == "cpu" else 2**13 // dtype.itemsize


def pieces(size: int, most: int) -> list[slice]:
    """Slices of nearly equal size, of ``most`` elements at most and, but for the last, a multiple of UNIT."""
    step = triton.cdiv(triton.cdiv(size, triton.cdiv(size, most)), UNIT) * UNIT
    return [slice(begin, min(size, begin + step)) for begin in range(0, size, step)]


class Chunk:
    """Memory for a chunk of outputs or of log variances, and for their slopes."""

    def __init__(self, size: int, nnz: int, operands: torch.Tensor, dtype: torch.dtype) -> None:
        self.outputs = operands.new_empty(size, dtype=dtype)
        # In the type of what they are multiplied with.
        self.slopes = self.outputs if operands.dtype == dtype else operands.new_empty(size)
        self.kept = self.outputs.new_empty(nnz)


def by_chunks(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    log_var_weight: torch.Tensor | None,
    rowptr: torch.Tensor,
    col: torch.Tensor,
    values: torch.Tensor,
    pos_weight: torch.Tensor,
    likelihood: int,
    hidden_gradient: torch.Tensor | None,
    weight_gradient: torch.Tensor | None,
    log_var_gradient: torch.Tensor | None,
) -> torch.Tensor:
    """Float64 ``[samples]``: the value without its constant. Writes the gradients that are there."""
    samples, (num_columns, dtype) = (
        hidden.shape[1],
        (weight.shape[-1], torch.promote_types(hidden.dtype, torch.float32)),
    )
    # Outputs and log variances together are as large as the outputs alone elsewhere.
    row_pieces = pieces(hidden.shape[0], CHUNK if log_var_weight is None else CHUNK // 2)
    column_pieces = pieces(num_columns, CHUNK)
    size = row_pieces[0].stop * column_pieces[0].stop
    chunk = Chunk(size, col.numel(), hidden, dtype)
    log_var = chunk if log_var_weight is None else Chunk(size, col.numel(), hidden, dtype)
    block = chunk_block(size, dtype, hidden.device.type)
    entry_block = entry_blocks(row_pieces[0].stop, hidden.device.type)
    # Even numbers of places, so that those of every chunk are as well aligned.
    entry_places = triton.cdiv(triton.cdiv(row_pieces[0].stop, entry_block["BLOCK_ROWS"]), 2) * 2
    places = entry_places + triton.cdiv(triton.cdiv(size, block), 2) * 2
    partial = hidden.new_zeros((samples, len(row_pieces) * len(column_pieces), places), dtype=torch.float64)
    with_slopes = any(gradient is not None for gradient in (hidden_gradient, weight_gradient, log_var_gradient))
    for sample in range(samples):
        own = weight if weight.ndim == 2 else weight[sample]
        for row, rows in enumerate(row_pieces):
            left = hidden[rows, sample]
            for column, columns in enumerate(column_pieces):
                right = own[:, columns]
                shape = (left.shape[0], right.shape[1])
                count = shape[0] * shape[1]
                sums = partial[sample, row * len(column_pieces) + column]
                multiply(left, right, chunk.outputs[:count].view(shape))
                if log_var_weight is not None:
                    multiply(left, log_var_weight[:, columns], log_var.outputs[:count].view(shape))
                entry_grid = (triton.cdiv(shape[0], entry_block["BLOCK_ROWS"]),)
                place = (*shape, rows.start, columns.start, num_columns.bit_length())
                constants = {"LIKELIHOOD": likelihood, "WHOLE_ROWS": len(column_pieces) == 1, **entry_block}
                take_kernel[entry_grid](
                    chunk.outputs,
                    log_var.outputs,
                    rowptr,
                    col,
                    values,
                    chunk.kept,
                    log_var.kept,
                    pos_weight,
                    sums,
                    *place,
                    **constants,
                    **OPTIONS,
                )
                chunk_kernel[triton.cdiv(count, block),](
                    chunk.outputs,
                    log_var.outputs,
                    chunk.slopes,
                    log_var.slopes,
                    sums[entry_places:],
                    count,
                    LIKELIHOOD=likelihood,
                    BLOCK=block,
                    **OPTIONS,
                )
                if not with_slopes:
                    continue
                put_kernel[entry_grid](
                    chunk.slopes, log_var.slopes, rowptr, col, chunk.kept, log_var.kept, *place, **constants, **OPTIONS
                )
                slopes, log_var_slopes = (part.slopes[:count].view(shape) for part in (chunk, log_var))
                if hidden_gradient is not None:
                    out = hidden_gradient[rows, sample]
                    multiply_add(out, slopes, right.T, factor=1.0, first=column == 0)
                    if log_var_weight is not None:
                        multiply_add(out, log_var_slopes, log_var_weight[:, columns].T, factor=1.0, first=False)
                if weight_gradient is not None:
                    multiply_add(weight_gradient[columns, sample], slopes.T, left, factor=1.0, first=row == 0)
                if log_var_gradient is not None:
                    multiply_add(log_var_gradient[columns, sample], log_var_slopes.T, left, factor=1.0, first=row == 0)
    return partial.sum(dim=(1, 2))


# --- Squares ---------------------------------------------------------------------------------------------------------


@triton.jit
def cross_kernel(
    hidden,  # [rows, samples, width], unit stride along a row
    rowptr,  # [rows + 1]
    col,
    values,
    by_feature,  # W^T [columns, 1 or samples, width]
    product,  # X W^T [rows, samples, width]
    partial,  # [samples, tiles, blocks] float64
    rows,
    samples,
    width,
    row_stride,
    sample_stride,
    feature_stride,
    feature_sample_stride,
    tiles,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """X W^T, and the parts of ``<X, X> - 2 <H, X W^T>``, summed in float64.

    Programs: for each block of rows all samples, for each sample all tiles of columns.
    """
    program = tl.program_id(0).to(tl.int64)
    tile = program % tiles
    sample = program // tiles % samples
    block = program // tiles // samples
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    row = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tile * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    wanted = (row < rows)[:, None] & (column < width)[None, :]
    begin = tl.load(rowptr + row, mask=row < rows, other=0)
    end = tl.load(rowptr + row + 1, mask=row < rows, other=0)
    by_feature += sample * feature_sample_stride
    total = tl.zeros((BLOCK_ROWS, BLOCK_WIDTH), dtype=tl.float64)
    value = tl.zeros((BLOCK_ROWS,), dtype=tl.float64)
    for step in range(0, tl.max(end - begin, axis=0), BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = entry < end[:, None]
        feature = tl.load(col + entry, mask=inside, other=0)
        x = tl.load(values + entry, mask=inside, other=0.0).to(tl.float64)
        term = tl.load(
            by_feature + feature[:, :, None] * feature_stride + column[None, None, :],
            mask=inside[:, :, None] & (column < width)[None, None, :],
            other=0.0,
        )
        total += tl.sum(x[:, :, None] * term.to(tl.float64), axis=1)
        value += tl.sum(x * x, axis=1)
    own = tl.load(hidden + row[:, None] * row_stride + sample * sample_stride + column[None, :], mask=wanted, other=0.0)
    # The squares of X are in one tile.
    value = tl.where(tile == 0, value, 0.0) - 2.0 * tl.sum(own.to(tl.float64) * total, axis=1)
    tl.store(partial + (sample * tiles + tile) * blocks + block, tl.sum(value, axis=0))
    tl.store(
        product + (row[:, None] * samples + sample) * width + column[None, :],
        total.to(product.dtype.element_ty),
        mask=wanted,
    )


def cross_blocks(rows: int, width: int, device: str) -> dict[str, int]:
    """Rows of a program, entries of each row and columns that it takes at a time."""
    columns = max(1, min(triton.next_power_of_2(width), 256))
    if device == "cpu":
        return {
            "BLOCK_ROWS": min(2**18 // (16 * columns), triton.next_power_of_2(rows)),
            "BLOCK_NNZ": 16,
            "BLOCK_WIDTH": columns,
        }
    return {"BLOCK_ROWS": min(32, 256 // columns), "BLOCK_NNZ": 4, "BLOCK_WIDTH": columns}


def gram_matrix(matrix: torch.Tensor) -> torch.Tensor:
    """``matrix^T matrix`` in float64."""
    total = matrix.new_zeros((matrix.shape[1], matrix.shape[1]), dtype=torch.float64)
    for part in matrix.split(GRAM_ROWS):
        part = part.double()
        total.addmm_(part.T, part)
    return total


def subtract(out: torch.Tensor, product: torch.Tensor, matrix: torch.Tensor, gram: torch.Tensor) -> None:
    """``out = 2 (product - matrix @ gram)``, in float64 as gram."""
    for target, *parts in zip(*(tensor.split(GRAM_ROWS) for tensor in (out, product, matrix)), strict=True):
        first, second = (part.double() for part in parts)
        target.copy_(torch.addmm(first, second, gram, beta=2, alpha=-2))


def by_squares(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    rowptr: torch.Tensor,
    col: torch.Tensor,
    values: torch.Tensor,
    rowptr_t: torch.Tensor,
    col_t: torch.Tensor,
    values_t: torch.Tensor,
    hidden_gradient: torch.Tensor | None,
    weight_gradient: torch.Tensor | None,
) -> torch.Tensor:
    """Float64 ``[samples]``: the value of mse without its constant. Writes the gradients that are there."""
    rows, samples, width = hidden.shape
    by_feature = weight.T[:, None] if weight.ndim == 2 else weight.permute(2, 0, 1)
    by_feature = by_feature.contiguous()
    blocks = cross_blocks(rows, width, hidden.device.type)
    tiles = max(1, triton.cdiv(width, blocks["BLOCK_WIDTH"]))
    count = triton.cdiv(rows, blocks["BLOCK_ROWS"])
    product = hidden.new_empty((rows, samples, width))
    partial = hidden.new_empty((samples, tiles, count), dtype=torch.float64)
    shared = weight.ndim == 2
    cross_kernel[count * samples * tiles,](
        hidden,
        rowptr,
        col,
        values,
        by_feature,
        product,
        partial,
        rows,
        samples,
        width,
        hidden.stride(0),
        hidden.stride(1),
        by_feature.stride(0),
        0 if shared else by_feature.stride(1),
        tiles,
        **blocks,
        **OPTIONS,
    )
    crossed = partial.sum(dim=(1, 2))
    weight_grams = [gram_matrix(by_feature[:, j]) for j in range(by_feature.shape[1])]
    if weight_gradient is not None:
        flat = hidden.reshape(rows, samples * width)
        product_t = sparse_matmul(rowptr_t, col_t, values_t, rowptr, col, values, flat)
        product_t = product_t.view(weight.shape[-1], samples, width)
    totals = []
    for sample in range(samples):
        own = 0 if shared else sample
        gram = gram_matrix(hidden[:, sample])
        totals.append((gram * weight_grams[own]).sum() + crossed[sample])
        if hidden_gradient is not None:
            subtract(hidden_gradient[:, sample], product[:, sample], hidden[:, sample], weight_grams[own])
        if weight_gradient is not None:
            subtract(weight_gradient[:, sample], product_t[:, sample], by_feature[:, own], gram)
    return -torch.stack(totals)


# --- Operators -------------------------------------------------------------------------------------------------------


def feature_likelihood(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    log_var_weight: torch.Tensor | None,
    rowptr: torch.Tensor,
    col: torch.Tensor,
    values: torch.Tensor,
    rowptr_t: torch.Tensor | None,
    col_t: torch.Tensor | None,
    values_t: torch.Tensor | None,
    pos_weight: torch.Tensor,
    likelihood: int,
    hidden_gradient: bool,
    weight_gradient: bool,
    log_var_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The value ``[samples]`` and its gradients for an upstream of one.

    Those of hidden ``[rows, samples, width]``, and of the weights, sample by sample, ``[columns, samples, width]``; one
    that is not wanted has no rows. All in the type of hidden, or in float32 where that is float16 or bfloat16.

    Args:
        hidden: ``[rows, samples, width]``, any strides, as the weights.
        weight: ``[width, columns]``, or one for each sample, ``[samples, width, columns]``.
        log_var_weight: gaussian: ``[width, columns]``.
        rowptr, col, values: X, ``rows x columns``.
        rowptr_t, col_t, values_t: its transpose: mse by squares; without: by chunks.
        pos_weight: ``[1]`` float64.
        likelihood: a place in LIKELIHOODS.
    """
    (rows, samples, width), columns = hidden.shape, weight.shape[-1]
    dtype = torch.promote_types(hidden.dtype, torch.float32)

    def gradient(wanted: bool, lines: int) -> torch.Tensor:
        size = (lines if wanted else 0, samples, width)
        # Without rows or columns there is no chunk that would write to it.
        make = hidden.new_zeros if rows * columns == 0 else hidden.new_empty
        return make(size, dtype=dtype)

    gradients = (
        gradient(hidden_gradient, rows),
        gradient(weight_gradient, columns),
        gradient(log_var_gradient, columns),
    )
    if rows * columns == 0:
        return hidden.new_zeros(samples, dtype=dtype), *gradients
    by_hidden, by_weight, by_log_var = (
        tensor if wanted else None
        for tensor, wanted in zip(gradients, (hidden_gradient, weight_gradient, log_var_gradient), strict=True)
    )
    if hidden.device.type == "cpu" or rowptr_t is not None:
        # The interpreter's processor has no products of bfloat16 with sums in float32; squares would lose too much.
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        log_var_weight = None if log_var_weight is None else log_var_weight.to(dtype)
    if hidden.stride(2) != 1:
        hidden = hidden.contiguous()
    with torch.cuda.device_of(hidden):
        if rowptr_t is not None:
            total = by_squares(hidden, weight, rowptr, col, values, rowptr_t, col_t, values_t, by_hidden, by_weight)
        else:
            total = by_chunks(
                hidden,
                weight,
                log_var_weight,
                rowptr,
                col,
                values,
                pos_weight,
                likelihood,
                by_hidden,
                by_weight,
                by_log_var,
            )
    return (total + CONSTANTS[likelihood] * rows * columns).to(dtype), *gradients


@triton.jit
def scale_kernel(
    gradient,  # [rows, samples, width]
    upstream,  # [samples]
    out,  # [rows, samples, width]
    count,
    samples,
    width,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    factor = tl.load(upstream + place // width % samples, mask=inside, other=0.0)
    tl.store(out + place, factor * tl.load(gradient + place, mask=inside, other=0.0), mask=inside)


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
        place = (column[:, None] * samples + sample) * width + line[None, :]
        total += tl.load(upstream + sample) * tl.load(gradient + place, mask=inside, other=0.0)
    inside = (line < width)[:, None] & (column < columns)[None, :]
    tl.store(out + (matrix * width + line[:, None]) * columns + column[None, :], tl.trans(total), mask=inside)


def scale_block(count: int, device: str) -> int:
    """Numbers of a program that scales."""
    return min(2**18, triton.next_power_of_2(count)) if device == "cpu" else 1024


def transpose_blocks(columns: int, width: int, device: str) -> dict[str, int]:
    """Columns and width of a tile that is transposed."""
    if device == "cpu":
        sizes = (min(512, triton.next_power_of_2(size)) for size in (columns, width))
        return dict(zip(("BLOCK_COLUMNS", "BLOCK_WIDTH"), sizes, strict=True))
    return {"BLOCK_COLUMNS": 32, "BLOCK_WIDTH": 32}


def scaled(gradient: torch.Tensor, upstream: torch.Tensor) -> torch.Tensor:
    """``[rows, samples, width]``, each sample times its upstream."""
    rows, samples, width = gradient.shape
    out = gradient.new_empty((rows, samples, width))
    if out.numel() > 0:
        block = scale_block(out.numel(), gradient.device.type)
        scale_kernel[triton.cdiv(out.numel(), block),](
            gradient.contiguous(), upstream, out, out.numel(), samples, width, BLOCK=block, **OPTIONS
        )
    return out


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
    upstream: torch.Tensor,
    hidden_gradient: torch.Tensor,
    weight_gradient: torch.Tensor,
    log_var_gradient: torch.Tensor,
    shared_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients for an upstream of one, times the upstream ``[samples]``, in the shapes of their arguments."""
    upstream = upstream.contiguous()
    with torch.cuda.device_of(upstream):
        return (
            scaled(hidden_gradient, upstream),
            scaled_weight(weight_gradient, upstream, shared_weight),
            scaled_weight(log_var_gradient, upstream, True),
        )


def ahead_of_time() -> list[tuple]:
    """What ``feature_likelihood`` and its gradient launch on a GPU: see sparse_matmul.py."""
    entries = []

    def add(label: str, kernel, constants: dict, **types: str) -> None:
        types |= {"rowptr": "*i64", "col": "*i64", "pos_weight": "*fp64", "partial": "*fp64"}
        types |= dict.fromkeys(("width", "row_stride", "sample_stride"), "i32:16")
        types |= dict.fromkeys(("feature_stride", "feature_sample_stride"), "i32:16")
        # Of one sample. Triton compiles a number that is 1 into the kernel.
        constants = constants | {"samples": 1, "summed": 1}
        constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
        signature = {name: types.get(name, "i32") for name in kernel.arg_names if name not in constants}
        entries.append((label, kernel, signature, constants, OPTIONS))

    for element, wide, dtype in (
        ("fp32", "fp32", torch.float32),
        ("fp64", "fp64", torch.float64),
        ("bf16", "fp32", torch.float32),
    ):
        # Of a chunk: what is multiplied with is as wide as the operands, what is summed at least float32.
        sums = dict.fromkeys(("outputs", "log_vars", "kept", "log_var_kept", "gradient", "upstream", "out"), f"*{wide}")
        chunk = dict.fromkeys(("slopes", "log_var_slopes"), f"*{element}")
        operands = dict.fromkeys(("hidden", "values", "by_feature", "product"), f"*{wide}")
        for likelihood, name in ((BERNOULLI, "bernoulli"), (MSE, "mse"), (GAUSSIAN, "gaussian")):
            constants = {"LIKELIHOOD": likelihood.value, "WHOLE_ROWS": False, **entry_blocks(1, "cuda")}
            constants["BLOCK"] = chunk_block(1, dtype, "cuda")
            if element != "bf16":
                add(f"{element} {name}", take_kernel, constants, **sums, **chunk, **operands)
            add(f"{element} {name}", chunk_kernel, constants, **sums, **chunk)
            add(f"{element} {name}", put_kernel, constants, **sums, **chunk)
        if element != "bf16":
            for width in (64, 512):
                add(f"{element} width {width}", cross_kernel, cross_blocks(1, width, "cuda"), **operands)
            add(element, scale_kernel, {"BLOCK": scale_block(1, "cuda")}, **sums)
            add(element, transpose_kernel, transpose_blocks(1, 1, "cuda"), **sums)
    return entries
