"""Arrays in files that are mapped into memory: what is not looked at is not read."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import IO

import numpy as np

# Pages of a mapping are private, so that no change of an array changes a file. No memory is set aside for all of them,
# which a map larger than the memory would not get.
PRIVATE = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)


def write_header(file: IO[bytes], dtype: np.dtype, shape: Sequence[int]) -> None:
    """Writes the header of a ``.npy`` file; the values follow it, row by row."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, described)


def write_values(file: IO[bytes], array: np.ndarray) -> None:
    """Writes the values of an array."""
    file.write(memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))


def mapped(file: IO[bytes], start: int, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """Maps an array whose values begin at a byte of an open file."""
    count = math.prod(shape)
    if not count:
        return np.empty(shape, dtype)
    size = start + count * dtype.itemsize
    pages = mmap.mmap(file.fileno(), size, flags=PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return np.frombuffer(pages, dtype, count, start).reshape(shape)
