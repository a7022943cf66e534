"""The header of NumPy's array files (``.npy``)."""

from __future__ import annotations

import io

import numpy as np

# NumPy's own limit for files that are not trusted.
LONGEST_HEADER = 10_000
# The length of the headers that are written here: room for any shape of two dimensions.
WRITTEN_HEADER = 128


def read_header(head: bytes) -> tuple[tuple[int, ...], str, np.dtype, int]:
    """Shape, memory order and type that the first bytes of a file declare, and where the values begin."""
    stream = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        # Version 3 differs only for the names of fields.
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = reader(stream)
    except Exception as error:  # A damaged header is a Python literal that can raise almost any; no list is documented.
        raise ValueError(f"a damaged header: {type(error).__name__}: {str(error)[:200]}") from error
    return shape, "F" if fortran else "C", dtype, stream.tell()


def header_of(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The header of an array in C order. Its length is that of any other, so that it can be written last."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    magic = np.lib.format.magic(1, 0)
    room = WRITTEN_HEADER - len(magic) - 2
    return magic + room.to_bytes(2, "little") + f"{described!r}".ljust(room - 1).encode("latin-1") + b"\n"
