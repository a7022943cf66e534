"""log p(X | O) of mse and its gradients by squares, without O = H W.

The sum of (O - X)^2 is tr((H^T H)(W W^T)) - 2 <H, X W^T> + <X, X>, its gradients are 2 (H (W W^T) - X W^T) and
2 (W^T (H^T H) - X^T H). In a close fit the terms cancel, and only the rounding errors of float32 would be left. To use
chunks in that case, the host would have to read the value. So the products are in float64, which the GPUs of data
centres multiply as fast as plain float32; other GPUs, which have few units for it, use chunks instead.
Floor: 4 (n + l) h^2 operations in float64, and 4 nnz h.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from seegera_fast.schema import Rows

from .common import INTERPRETED, OPTIONS, compiled_as
from .common.propagation import propagated
from .common.rows import ends_of_rows

# Compute capabilities of those GPUs of data centres: A100, H100 and H200, B200.
FULL_FLOAT64 = ((8, 0), (9, 0), (10, 0))

# Rows that are added to a Gram matrix at a time: they are copied to float64.
GRAM_ROWS = 4096


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
    in_tile = (row < rows)[:, None] & (column < width)[None, :]
    begin, end = ends_of_rows(rowptr, row, rows)
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
    left = hidden + row[:, None] * row_stride + sample * sample_stride + column[None, :]
    mine = tl.load(left, mask=in_tile, other=0.0)
    # The squares of X are in one tile.
    value = tl.where(tile == 0, value, 0.0) - 2.0 * tl.sum(mine.to(tl.float64) * total, axis=1)
    tl.store(partial + (sample * tiles + tile) * blocks + block, tl.sum(value, axis=0))
    tl.store(
        product + (row[:, None] * samples + sample) * width + column[None, :],
        total.to(product.dtype.element_ty),
        mask=in_tile,
    )


def cross_blocks(rows: int, width: int, device: str) -> dict[str, int]:
    """Rows of a program, entries of each row and columns that it takes at a time."""
    columns = max(1, min(triton.next_power_of_2(width), 256))
    if device == "cpu":
        return {
            "BLOCK_ROWS": min(INTERPRETED // (16 * columns), triton.next_power_of_2(rows)),
            "BLOCK_NNZ": 16,
            "BLOCK_WIDTH": columns,
        }
    return {"BLOCK_ROWS": min(32, 256 // columns), "BLOCK_NNZ": 4, "BLOCK_WIDTH": columns}


def multiplies_fast(operand: torch.Tensor) -> bool:
    """Whether to take squares of such an operand: its device multiplies float64 fast, or it is in float64 anyway."""
    if operand.device.type != "cuda" or operand.dtype == torch.float64:
        return True
    return torch.cuda.get_device_capability(operand.device) in FULL_FLOAT64


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
    """Float64 ``[samples]``: the value of mse without its constant. Writes the gradients that are not None."""
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
        product_t = propagated(Rows(rowptr_t, col_t, values_t), hidden)
    totals = []
    for sample in range(samples):
        number = 0 if shared else sample
        gram = gram_matrix(hidden[:, sample])
        total = (gram * weight_grams[number]).sum() + crossed[sample]
        # Where the squares on the diagonals overflow, the rest may be NaN.
        largest = (gram.diagonal() * weight_grams[number].diagonal()).sum()
        totals.append(torch.where(largest == math.inf, math.inf, total))
        if hidden_gradient is not None:
            subtract(hidden_gradient[:, sample], product[:, sample], hidden[:, sample], weight_grams[number])
        if weight_gradient is not None:
            subtract(weight_gradient[:, sample], product_t[:, sample], by_feature[:, number], gram)
    return -torch.stack(totals)


def ahead_of_time() -> list[tuple]:
    """What ``by_squares`` launches on a GPU besides sparse_matmul, for one sample: see tests/ahead_of_time.py."""
    entries = []
    for dtype in ("fp32", "fp64"):
        types = {"rowptr": "*i64", "col": "*i64", "partial": "*fp64"}
        types |= dict.fromkeys(("hidden", "values", "by_feature", "product"), f"*{dtype}")
        strides = ("row_stride", "sample_stride", "feature_stride", "feature_sample_stride")
        types |= dict.fromkeys(("width", *strides), "i32:16")
        for width in (64, 512):
            # Triton compiles a number that is 1 into the kernel.
            constants = {"samples": 1, **cross_blocks(1, width, "cuda")}
            entries.append(compiled_as(f"{dtype} width {width}", cross_kernel, constants, types))
    return entries
