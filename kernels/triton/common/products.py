"""Products of torch (cuBLAS on a GPU) into existing tensors. Sums of float16 and bfloat16 are taken in float32."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from seegera_fast.precision import MEDIUM


def operands(precision: int, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The operands of float32 products: in bfloat16 where the precision is "medium".

    TF32, which is "high", needs nothing here: torch's products and the kernels read torch's setting.
    """
    return tuple(
        tensor.bfloat16() if precision == MEDIUM and tensor.dtype == torch.float32 else tensor for tensor in given
    )


def multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """``out = left @ right``. ``out``: the type of the operands, or float32 where they are half as wide."""
    left, right = _as_multiplied(left, right, out)
    if out.dtype == left.dtype:
        torch.mm(left, right, out=out)
    else:
        torch.mm(left, right, out_dtype=out.dtype, out=out)


def multiply_add(out: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, factor: float, first: bool) -> None:
    """``out += factor * left @ right``. ``first``: overwrites what ``out`` holds."""
    beta = 0 if first else 1
    left, right = _as_multiplied(left, right, out)
    if out.dtype == left.dtype:
        torch.addmm(out, left, right, beta=beta, alpha=factor, out=out)
    else:
        torch.addmm(out, left, right, out_dtype=out.dtype, beta=beta, alpha=factor, out=out)


def _as_multiplied(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # On the CPU, in the interpreter, torch has no products of bfloat16 with sums in float32.
    return (left.to(out.dtype), right.to(out.dtype)) if out.device.type == "cpu" else (left, right)


def at_once(device: torch.device, *calls: Callable[[], None]) -> None:
    """Runs independent products. A GPU runs the first beside the others, since one alone may not fill it."""
    if device.type == "cpu" or len(calls) < 2:
        for call in calls:
            call()
        return
    stream = torch.cuda.current_stream(device)
    beside = stream_beside(stream)
    beside.wait_stream(stream)
    try:
        with torch.cuda.stream(beside):
            for call in calls[1:]:
                call()
        calls[0]()
    finally:
        stream.wait_stream(beside)


@functools.lru_cache
def stream_beside(stream: torch.cuda.Stream) -> torch.cuda.Stream:
    """The second stream of a stream. It stays the same, since the library keeps memory for each stream.

    One second stream for all would record what others launch during a graph capture. torch has a pool of 32 streams:
    where the second one is another's as well, the two wait for each other.
    """
    return torch.cuda.Stream(stream.device)
