"""log p(X | O) and its slopes, O = H W by chunks: bernoulli, gaussian, mse_relu, and mse where that is cheaper.

A product of the library makes a chunk of O of at most 2,048 x 2,048, 16 MB in float32, so that it stays in the cache of
a GPU (gaussian: half of it for the log variances). Three kernels turn it into slopes in place: the first adds up
the terms of the entries of X, keeps their slopes and clears their outputs; the second treats the whole chunk as zeros
of X; the third writes the slopes of the entries. Products turn the slopes into gradients.
Floor: 6 n l h operations (2 n l h without gradients; twice that for gaussian) and n l exponentials per sample.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from seegera_fast.reference.feature_likelihood import KERNELS

from .common import OPTIONS, compiled_as
from .common.chunks import chunk_block, padded, pieces
from .common.math import bounded_log_var, inverse_deviation, softplus_sigmoid, weighted
from .common.products import at_once, multiply, multiply_add
from .common.rows import ends_of_rows

BERNOULLI, GAUSSIAN, MSE_RELU = (tl.constexpr(KERNELS[name]) for name in ("bernoulli", "gaussian", "mse_relu"))

# Rows and columns of a chunk, at most.
CHUNK = 2048


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
    begin, end = ends_of_rows(rowptr + first_row, row, rows)
    if not WHOLE_ROWS:
        begin = first_entry(col, begin, end, first_column, search_steps)
        end = first_entry(col, begin, end, first_column + columns, search_steps)
    return begin, end


@triton.jit
def gaussian(residual, log_var):
    """Terms, and their slopes in the output and in the log variance."""
    bounded, in_range = bounded_log_var(log_var)
    deviation = inverse_deviation(bounded)
    difference = residual * deviation
    square = difference * difference
    return -0.5 * (square + bounded), difference * deviation, tl.where(in_range, 0.5 * (square - 1.0), 0.0)


@triton.jit(do_not_specialize=["first_row", "first_column"])
def take_kernel(
    outputs,  # [rows, line]: a chunk
    log_vars,  # gaussian: the same
    rowptr,
    col,
    values,  # [nnz]
    slopes,  # [nnz]
    log_var_slopes,  # gaussian: [nnz]
    pos_weight,  # [1] float64
    partial,  # float64: an element for each program
    rows,
    columns,
    line,  # stride of the rows, at least columns
    first_row,
    first_column,
    search_steps,  # 2 ** search_steps > the entries of any row
    LIKELIHOOD: tl.constexpr,
    WHOLE_ROWS: tl.constexpr,  # one chunk has all columns
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
):
    """Adds up the terms of the entries of X in a chunk and keeps their slopes.

    Overwrites their outputs, and those past the last column, with numbers whose term is zero.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    begin, end = entries_of(rowptr, col, row, rows, first_row, first_column, columns, search_steps, WHOLE_ROWS)
    dtype: tl.constexpr = outputs.dtype.element_ty
    weight = tl.load(pos_weight).to(dtype)
    for start in range(columns, line, BLOCK_NNZ):
        column = start + tl.arange(0, BLOCK_NNZ)[None, :]
        padding = (row < rows)[:, None] & (column < line)
        cell = row[:, None] * line + column
        nothing = tl.full(cell.shape, float("-inf") if LIKELIHOOD == BERNOULLI else 0.0, dtype)
        tl.store(outputs + cell, nothing, mask=padding)
        if LIKELIHOOD == GAUSSIAN:
            tl.store(log_vars + cell, nothing, mask=padding)
    total = tl.zeros((BLOCK_ROWS,), dtype=tl.float64)
    for step in range(0, tl.max(end - begin, axis=0), BLOCK_NNZ):
        entry = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = entry < end[:, None]
        cell = row[:, None] * line + tl.load(col + entry, mask=inside, other=0) - first_column
        x = tl.load(values + entry, mask=inside, other=0.0).to(dtype)
        output = tl.load(outputs + cell, mask=inside, other=0.0)
        if LIKELIHOOD == BERNOULLI:
            off, off_slope = softplus_sigmoid(output)
            on, on_slope = softplus_sigmoid(-output)
            terms = -(weighted(weight * x, on) + weighted(1.0 - x, off))
            tl.store(slopes + entry, weight * x * on_slope - (1.0 - x) * off_slope, mask=inside)
            tl.store(outputs + cell, tl.full(output.shape, float("-inf"), dtype), mask=inside)
        elif LIKELIHOOD == GAUSSIAN:
            log_var = tl.load(log_vars + cell, mask=inside, other=0.0)
            terms, slope, log_var_slope = gaussian(x - output, log_var)
            tl.store(slopes + entry, slope, mask=inside)
            tl.store(log_var_slopes + entry, log_var_slope, mask=inside)
            tl.store(outputs + cell, tl.zeros_like(output), mask=inside)
            tl.store(log_vars + cell, tl.zeros_like(output), mask=inside)
        else:
            if LIKELIHOOD == MSE_RELU:
                # A NaN passes too.
                passes = ~(output <= 0.0)
                residual = x - tl.where(passes, output, 0.0)
                slope = tl.where(passes, 2.0 * residual, 0.0)
            else:
                residual = x - output
                slope = 2.0 * residual
            terms = -residual * residual
            tl.store(slopes + entry, slope, mask=inside)
            tl.store(outputs + cell, tl.zeros_like(output), mask=inside)
        total += tl.sum(tl.where(inside, terms, 0.0).to(tl.float64), axis=1)
    tl.store(partial + program, tl.sum(total, axis=0))


@triton.jit
def chunk_kernel(
    outputs,  # [count], row after row
    log_vars,  # gaussian: the same
    slopes,  # [count]: may be the outputs
    log_var_slopes,  # gaussian: the same
    partial,  # float64: an element for each program
    count,
    LIKELIHOOD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Adds up the terms of a chunk as zeros of X, and turns its outputs into slopes."""
    program = tl.program_id(0).to(tl.int64)
    cell = program * BLOCK + tl.arange(0, BLOCK)
    inside = cell < count
    if LIKELIHOOD == BERNOULLI:
        # The softplus and the sigmoid of minus infinity are zero.
        terms, slope = softplus_sigmoid(tl.load(outputs + cell, mask=inside, other=float("-inf")))
        terms = -terms
        slope = -slope
    elif LIKELIHOOD == GAUSSIAN:
        output = tl.load(outputs + cell, mask=inside, other=0.0)
        log_var = tl.load(log_vars + cell, mask=inside, other=0.0)
        terms, slope, log_var_slope = gaussian(-output, log_var)
        tl.store(log_var_slopes + cell, log_var_slope.to(log_var_slopes.dtype.element_ty), mask=inside)
    else:
        output = tl.load(outputs + cell, mask=inside, other=0.0)
        if LIKELIHOOD == MSE_RELU:
            output = tl.where(output <= 0.0, 0.0, output)
        terms = -output * output
        slope = -2.0 * output
    tl.store(slopes + cell, slope.to(slopes.dtype.element_ty), mask=inside)
    tl.store(partial + program, tl.sum(terms, axis=0).to(tl.float64))


@triton.jit(do_not_specialize=["first_row", "first_column"])
def put_kernel(
    slopes,  # [rows, line]: a chunk
    log_var_slopes,  # gaussian: the same
    rowptr,
    col,
    kept,  # [nnz]
    log_var_kept,  # gaussian: [nnz]
    rows,
    columns,
    line,
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
        cell = row[:, None] * line + tl.load(col + entry, mask=inside, other=0) - first_column
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


class Chunk:
    """Memory for a chunk of outputs or of log variances, and for their slopes."""

    def __init__(self, size: int, nnz: int, operands: torch.Tensor, dtype: torch.dtype) -> None:
        self.outputs = operands.new_empty(size, dtype=dtype)
        # In the dtype of the matrices with which they are multiplied.
        self.slopes = self.outputs if operands.dtype == dtype else operands.new_empty(size)
        self.kept = self.outputs.new_empty(nnz)

    def outputs_of(self, rows: int, columns: int) -> torch.Tensor:
        return self._view(self.outputs, rows, columns)

    def slopes_of(self, rows: int, columns: int) -> torch.Tensor:
        return self._view(self.slopes, rows, columns)

    @staticmethod
    def _view(memory: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        line = padded(columns)
        return memory[: rows * line].view(rows, line)[:, :columns]


def add_products(out: torch.Tensor, factors: list[tuple[torch.Tensor, torch.Tensor]], *, first: bool) -> None:
    """Adds products to ``out`` one after the other. ``first``: the first one overwrites what is there."""
    for number, (left, right) in enumerate(factors):
        multiply_add(out, left, right, factor=1.0, first=first and number == 0)


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
    """Float64 ``[samples]``: the value without its constant. Writes the gradients that are not None."""
    samples, num_columns = hidden.shape[1], weight.shape[-1]
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    # Outputs and log variances together take as much memory as the outputs of other likelihoods.
    row_pieces = pieces(hidden.shape[0], CHUNK if log_var_weight is None else CHUNK // 2)
    column_pieces = pieces(num_columns, CHUNK)
    # By features, contiguous: their rows are aligned as the fast products require, however many there are.
    weight = weight.mT.contiguous()
    log_var_weight = None if log_var_weight is None else log_var_weight.mT.contiguous()
    size = row_pieces[0].stop * padded(column_pieces[0].stop)
    chunk = Chunk(size, col.numel(), hidden, dtype)
    log_var = chunk if log_var_weight is None else Chunk(size, col.numel(), hidden, dtype)
    block = chunk_block(size, dtype, hidden.device.type)
    entry_block = entry_blocks(row_pieces[0].stop, hidden.device.type)
    # Even numbers of partial sums, so that those of every chunk are aligned to 16 bytes.
    num_entry_partial = triton.cdiv(triton.cdiv(row_pieces[0].stop, entry_block["BLOCK_ROWS"]), 2) * 2
    num_partial = num_entry_partial + triton.cdiv(triton.cdiv(size, block), 2) * 2
    partial = hidden.new_zeros((samples, len(row_pieces) * len(column_pieces), num_partial), dtype=torch.float64)
    with_slopes = any(gradient is not None for gradient in (hidden_gradient, weight_gradient, log_var_gradient))
    for sample in range(samples):
        sample_weight = weight if weight.ndim == 2 else weight[sample]
        for row, rows in enumerate(row_pieces):
            left = hidden[rows, sample]
            for column, columns in enumerate(column_pieces):
                right = sample_weight[columns]
                shape = (left.shape[0], right.shape[0])
                line = padded(right.shape[0])
                count = shape[0] * line
                sums = partial[sample, row * len(column_pieces) + column]
                multiply(left, right.T, chunk.outputs_of(*shape))
                if log_var_weight is not None:
                    multiply(left, log_var_weight[columns].T, log_var.outputs_of(*shape))
                entry_grid = (triton.cdiv(shape[0], entry_block["BLOCK_ROWS"]),)
                position = (*shape, line, rows.start, columns.start, num_columns.bit_length())
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
                    *position,
                    **constants,
                    **OPTIONS,
                )
                chunk_kernel[triton.cdiv(count, block),](
                    chunk.outputs,
                    log_var.outputs,
                    chunk.slopes,
                    log_var.slopes,
                    sums[num_entry_partial:],
                    count,
                    LIKELIHOOD=likelihood,
                    BLOCK=block,
                    **OPTIONS,
                )
                if not with_slopes:
                    continue
                put_kernel[entry_grid](
                    chunk.slopes,
                    log_var.slopes,
                    rowptr,
                    col,
                    chunk.kept,
                    log_var.kept,
                    *position,
                    **constants,
                    **OPTIONS,
                )
                slopes, log_var_slopes = chunk.slopes_of(*shape), log_var.slopes_of(*shape)
                products = []
                if hidden_gradient is not None:
                    out, factors = hidden_gradient[rows, sample], [(slopes, right)]
                    if log_var_weight is not None:
                        factors.append((log_var_slopes, log_var_weight[columns]))
                    products.append(functools.partial(add_products, out, factors, first=column == 0))
                for gradient, factor in ((weight_gradient, slopes), (log_var_gradient, log_var_slopes)):
                    if gradient is not None:
                        out, factors = gradient[columns, sample], [(factor.T, left)]
                        products.append(functools.partial(add_products, out, factors, first=row == 0))
                at_once(hidden.device, *products)
    return partial.sum(dim=(1, 2))


def ahead_of_time() -> list[tuple]:
    """What ``by_chunks`` launches on a GPU: see tests/ahead_of_time.py.

    Slopes have the dtype of the operands with which they are multiplied; sums are at least float32.
    """
    entries = []
    for element, wide, dtype in (
        ("fp32", "fp32", torch.float32),
        ("fp64", "fp64", torch.float64),
        ("bf16", "fp32", torch.float32),
    ):
        types = {"rowptr": "*i64", "col": "*i64", "pos_weight": "*fp64", "partial": "*fp64", "line": "i32:16"}
        types |= dict.fromkeys(("outputs", "log_vars", "kept", "log_var_kept", "values"), f"*{wide}")
        types |= dict.fromkeys(("slopes", "log_var_slopes"), f"*{element}")
        for name, likelihood in KERNELS.items():
            constants = {"LIKELIHOOD": likelihood, "WHOLE_ROWS": False, **entry_blocks(1, "cuda")}
            constants["BLOCK"] = chunk_block(1, dtype, "cuda")
            kernels = (chunk_kernel, put_kernel) if element == "bf16" else (take_kernel, chunk_kernel, put_kernel)
            entries += [compiled_as(f"{element} {name}", kernel, constants, types) for kernel in kernels]
    return entries
