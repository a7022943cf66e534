"""Products of torch (cuBLAS on a GPU) into memory that is there. Sums of float16 and bfloat16 are taken in float32."""

from __future__ import annotations

import torch


def multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """``out = left @ right``. ``out``: the type of the operands, or float32 where they are half as wide."""
    if out.dtype == left.dtype:
        torch.mm(left, right, out=out)
    else:
        torch.mm(left, right, out_dtype=out.dtype, out=out)


def multiply_add(out: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, factor: float, first: bool) -> None:
    """``out += factor * left @ right``; the first time without what ``out`` holds."""
    beta = 0 if first else 1
    if out.dtype == left.dtype:
        torch.addmm(out, left, right, beta=beta, alpha=factor, out=out)
    else:
        torch.addmm(out, left, right, out_dtype=out.dtype, beta=beta, alpha=factor, out=out)
