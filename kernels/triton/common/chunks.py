"""Cuts a matrix that is never stored whole into chunks: a library product fills one, a kernel updates it in place."""

from __future__ import annotations

import torch
import triton

from . import INTERPRETED

# The stride of a chunk's rows is a multiple of this, so that each row is aligned as the fast products require.
UNIT = 64


def padded(columns: int) -> int:
    """The stride of a chunk's rows: ``columns`` rounded up to a multiple of UNIT."""
    return triton.cdiv(columns, UNIT) * UNIT


def pieces(size: int, most: int) -> list[slice]:
    """Slices of nearly equal size: at most ``most``, and all but the last multiples of UNIT, as ``most`` has to be."""
    step = padded(triton.cdiv(size, triton.cdiv(size, most)))
    return [slice(begin, min(size, begin + step)) for begin in range(0, size, step)]


def chunk_block(count: int, dtype: torch.dtype, device: str) -> int:
    """Elements of a chunk for each program. On a GPU, 16 for each thread in float32 and 8 in float64."""
    return min(INTERPRETED, triton.next_power_of_2(count)) if device == "cpu" else 2**13 // dtype.itemsize
