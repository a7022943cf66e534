"""Gradients that a forward pass made for an upstream of one, times the upstream of each sample."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from . import INTERPRETED, OPTIONS, compiled_as
from .math import weighted


@triton.jit
def scale_kernel(
    gradient,  # contiguous
    upstream,  # [samples]
    out,  # [rows, samples, width]
    count,
    samples,
    width,
    row_stride,  # of gradient
    sample_stride,
    BLOCK: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < count
    line, column = number // width, number % width
    row, sample = line // samples, line % samples
    unit = tl.load(gradient + row * row_stride + sample * sample_stride + column, mask=inside, other=0.0)
    tl.store(out + number, weighted(tl.load(upstream + sample, mask=inside, other=0.0), unit), mask=inside)


def scale_block(count: int, device: str) -> int:
    """Numbers of a program. On a GPU 1,024, eight a thread."""
    return min(INTERPRETED, triton.next_power_of_2(count)) if device == "cpu" else 1024


def scaled_samples(gradient: torch.Tensor, upstream: torch.Tensor, *, by_sample: bool) -> torch.Tensor:
    """``[rows, samples, width]``, each sample times its upstream ``[samples]``.

    Args:
        gradient: ``[rows, samples, width]``, or ``[samples, rows, width]`` where it is ``by_sample``.
    """
    gradient, upstream = gradient.contiguous(), upstream.contiguous()
    rows_first = gradient.transpose(0, 1) if by_sample else gradient
    rows, samples, width = rows_first.shape
    out = gradient.new_empty((rows, samples, width))
    if out.numel() == 0:
        return out
    block = scale_block(out.numel(), gradient.device.type)
    with torch.cuda.device_of(gradient):
        scale_kernel[triton.cdiv(out.numel(), block),](
            gradient,
            upstream,
            out,
            out.numel(),
            samples,
            width,
            rows_first.stride(0),
            rows_first.stride(1),
            BLOCK=block,
            **OPTIONS,
        )
    return out


def ahead_of_time() -> list[tuple]:
    """What ``scaled_samples`` launches on a GPU for one sample: see tests/ahead_of_time.py."""
    entries = []
    for dtype in ("fp32", "fp64"):
        types = dict.fromkeys(("width", "row_stride", "sample_stride"), "i32:16")
        types |= dict.fromkeys(("gradient", "upstream", "out"), f"*{dtype}")
        # Triton compiles a number that is 1 into the kernel.
        constants = {"samples": 1, "BLOCK": scale_block(1, "cuda")}
        entries.append(compiled_as(dtype, scale_kernel, constants, types))
    return entries
