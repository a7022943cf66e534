"""How a matrix that is too large is cut into chunks, which a library product makes and a kernel goes over in place."""

from __future__ import annotations

import torch
import triton

from . import INTERPRETED

# A row of a chunk has a multiple of so many places, and so begins where the fast products want it.
UNIT = 64


def padded(columns: int) -> int:
    """Places of a row of a chunk."""
    return triton.cdiv(columns, UNIT) * UNIT


def pieces(size: int, most: int) -> list[slice]:
    """Slices of nearly equal size: at most ``most``, and all but the last multiples of UNIT, as ``most`` has to be."""
    step = padded(triton.cdiv(size, triton.cdiv(size, most)))
    return [slice(begin, min(size, begin + step)) for begin in range(0, size, step)]


def chunk_block(count: int, dtype: torch.dtype, device: str) -> int:
    """Places of a program. On a GPU 16 of a thread in float32, 8 in float64."""
    return min(INTERPRETED, triton.next_power_of_2(count)) if device == "cpu" else 2**13 // dtype.itemsize
