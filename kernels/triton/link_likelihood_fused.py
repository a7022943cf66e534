"""Sum over all pairs with scores, slopes and gradient in registers, for narrow rows: a form of ``link_likelihood``.

A program takes a block of rows and goes over all blocks of other rows. 4 n^2 d operations, since each pair is visited
from both sides.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.math import softplus, softplus_sigmoid

# Rows of a program and other rows that it takes at a time, by precision ("ieee": float16 and bfloat16) and width. Wider
# ones lose to chunks of the library: by 1.3 to 2.1 times at widths of 128 and 256, on an H200.
FUSED_BLOCKS = {
    ("ieee", 64): (128, 64),
    ("tf32", 64): (128, 64),
    ("tf32x3", 64): (128, 16),
}


@triton.jit
def fused_kernel(
    z,  # [nodes, samples, width], unit stride along a row
    gradient,  # [samples, nodes, width]
    partial,  # [samples, blocks] float64
    nodes,
    width,
    row_stride,
    sample_stride,
    WITH_GRADIENT: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OTHERS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """The terms of non-links of all pairs of two nodes. Programs: blocks of rows, samples."""
    block = tl.program_id(0).to(tl.int64)
    sample = tl.program_id(1).to(tl.int64)
    row = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_WIDTH)
    z += sample * sample_stride
    mine = tl.load(
        z + row[:, None] * row_stride + column[None, :],
        mask=(row < nodes)[:, None] & (column < width)[None, :],
        other=0.0,
    )
    total = tl.zeros((BLOCK_ROWS, BLOCK_WIDTH), dtype=tl.float32)
    value = tl.zeros((BLOCK_ROWS,), dtype=tl.float64)
    for start in range(0, nodes, BLOCK_OTHERS):
        other = start + tl.arange(0, BLOCK_OTHERS).to(tl.int64)
        theirs = tl.load(
            z + other[:, None] * row_stride + column[None, :],
            mask=(other < nodes)[:, None] & (column < width)[None, :],
            other=0.0,
        )
        scores = tl.dot(mine, tl.trans(theirs), input_precision=PRECISION)
        # The softplus and the sigmoid of minus infinity are zero.
        scores = tl.where((other < nodes)[None, :] & (row[:, None] != other[None, :]), scores, float("-inf"))
        if WITH_GRADIENT:
            terms, slopes = softplus_sigmoid(scores)
            total = tl.dot(slopes.to(theirs.dtype), theirs, total, input_precision=PRECISION)
        else:
            terms = softplus(scores)
        value += tl.sum(terms, axis=1).to(tl.float64)
    value = tl.where(row < nodes, value, 0.0)
    tl.store(partial + sample * tl.num_programs(0) + block, -tl.sum(value, axis=0))
    if WITH_GRADIENT:
        # A pair is in the sum in both directions, hence the 2.
        tl.store(
            gradient + (sample * nodes + row[:, None]) * width + column[None, :],
            total * -2.0,
            mask=(row < nodes)[:, None] & (column < width)[None, :],
        )


def product_precision(dtype: torch.dtype) -> str:
    """How a kernel multiplies: float32 with one product in TF32 where torch allows that, else with three."""
    if dtype != torch.float32:
        return "ieee"
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32x3"


def fused_blocks(nodes: int, width: int, precision: str, device: str) -> dict[str, int]:
    """Rows of a program, other rows that it takes at a time, and the width up to a power of two."""
    columns = max(16, triton.next_power_of_2(width))
    if device == "cpu":
        rows = others = max(16, min(512, triton.next_power_of_2(nodes)))
    else:
        columns = max(64, columns)
        rows, others = FUSED_BLOCKS[precision, columns]
    return {"BLOCK_ROWS": rows, "BLOCK_OTHERS": others, "BLOCK_WIDTH": columns}


def fused_options(precision: str) -> dict[str, int | bool]:
    return {**OPTIONS, "num_warps": 8, "num_stages": 3 if precision == "ieee" else 2}


def all_pairs_fused(z: torch.Tensor, gradient: torch.Tensor, with_gradient: bool) -> torch.Tensor:
    """Float64 ``[samples]``: the sum of ``-softplus(s)``. Writes its gradient, which is float32."""
    nodes, samples, width = z.shape
    precision = product_precision(z.dtype)
    blocks = fused_blocks(nodes, width, precision, z.device.type)
    count = triton.cdiv(nodes, blocks["BLOCK_ROWS"])
    partial = z.new_empty((samples, count), dtype=torch.float64)
    fused_kernel[count, samples](
        z,
        gradient,
        partial,
        nodes,
        width,
        z.stride(0),
        z.stride(1),
        WITH_GRADIENT=with_gradient,
        PRECISION=precision,
        **blocks,
        **fused_options(precision),
    )
    return partial.sum(dim=1)


def prefers_fused(z: torch.Tensor) -> bool:
    """Whether the sum over all pairs of these rows takes the fused form."""
    columns = max(64, triton.next_power_of_2(z.shape[2]))
    return z.dtype != torch.float64 and (product_precision(z.dtype), columns) in FUSED_BLOCKS


def ahead_of_time() -> list[tuple]:
    """What ``all_pairs_fused`` launches on a GPU: see tests/ahead_of_time.py."""
    entries = []
    for precision, width in FUSED_BLOCKS:
        for element in ("fp16", "bf16") if precision == "ieee" else ("fp32",):
            constants = {"WITH_GRADIENT": True, "PRECISION": precision, **fused_blocks(1, width, precision, "cuda")}
            types = {"z": f"*{element}", "gradient": "*fp32", "partial": "*fp64"}
            types |= dict.fromkeys(("width", "row_stride", "sample_stride"), "i32:16")
            label = f"{element} {precision} width {width}"
            entries.append(compiled_as(label, fused_kernel, constants, types, options=fused_options(precision)))
    return entries
