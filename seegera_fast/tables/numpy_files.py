"""Reads NumPy's files, ``.npy`` and ``.npz``: what a file declares is held against what it contains, before memory.

NumPy itself takes the memory that a header asks for, and reports a damaged header with errors of many kinds.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from ..entries import INTEGER_KINDS, REAL_KINDS
from ..support.hints import quoted
from ..support.numpy_header import LONGEST_HEADER, read_header

# Zeros are compressed to 1/1000. A graph rarely is to 1/20, and one without weights and with all edges to 1/260.
MOST_INFLATION = 500
SMALL_ARCHIVE = 2**26
CHUNK = 2**20

TEXT_KINDS = "SU"
WANTED = {INTEGER_KINDS: "integers", REAL_KINDS: "numbers", TEXT_KINDS: "text"}


def read_npy(path: Path, kinds: str) -> np.ndarray:
    """Reads one array.

    Args:
        path: a ``.npy`` file.
        kinds: the kinds of type that are admitted, a key of WANTED. Objects are not, so nothing is unpickled.

    Raises:
        OSError: the file can't be read.
        ValueError: it holds no array of these kinds, or more or less than it declares; the message names the file.
    """
    with open(path, "rb") as file:
        try:
            return _array(file, os.fstat(file.fileno()).st_size, kinds)
        except ValueError as error:
            raise ValueError(f"{path}: is not a NumPy array file ({error})") from error


def read_npz(path: Path, members: Mapping[str, str], want: str) -> dict[str, np.ndarray]:
    """Reads those of the named members of an archive that it has.

    Args:
        path: a ``.npz`` file.
        members: the admitted kinds of type of each member.
        want: what the file should be, for error messages.

    Raises:
        OSError: the file can't be read.
        ValueError: it is not an archive, or a member is wrong as in :func:`read_npy`; the message names the file.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                return _members(archive, size, members)
        except Exception as error:  # A damaged archive can raise almost any; the zipfile module documents no list.
            raise ValueError(f"{path}: corrupt or truncated archive ({error}), want {want}") from error


def _members(archive: zipfile.ZipFile, size: int, members: Mapping[str, str]) -> dict[str, np.ndarray]:
    found = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    chosen = {name: found[name] for name in members if name in found}
    inflated = sum(info.file_size for info in chosen.values())
    if inflated > max(SMALL_ARCHIVE, MOST_INFLATION * size):
        raise ValueError(f"it declares {inflated} bytes in a file of {size}")
    arrays = {}
    for name, info in chosen.items():
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name}: got compression {info.compress_type}, want that of NumPy")
        with archive.open(info) as stream:
            try:
                arrays[name] = _array(stream, info.file_size, members[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    return arrays


def _array(stream: IO[bytes], size: int, kinds: str) -> np.ndarray:
    """Reads an array from a stream that holds ``size`` bytes."""
    head = stream.read(LONGEST_HEADER)
    shape, order, dtype, start = read_header(head)
    if dtype.kind not in kinds or not dtype.itemsize:
        raise ValueError(f"got values of type {dtype}, want {WANTED[kinds]}")
    declared = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or declared != size - start:
        raise ValueError(f"it declares {dtype} of shape {quoted(shape)}, but holds {size - start} bytes of values")
    content = np.empty(declared, np.uint8)
    view, at = memoryview(content), len(head) - start
    view[:at] = head[start:]
    while at < declared:
        got = stream.readinto(view[at : at + CHUNK])
        if not got:
            raise ValueError(f"it ends {declared - at} bytes early")
        at += got
    array = content.view(dtype).reshape(shape, order=order)
    return array.astype(dtype.newbyteorder("="), copy=False)
