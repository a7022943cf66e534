"""Reads pickled arrays without running anything that the file names.

A pickle is a small program that may call any function it can name. Here the few names that an array, a CSR matrix or
the graph's dictionary needs stand for records that do nothing. The arrays are built from these records afterwards, by
constructors that check sizes and types. A file that names anything else is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..entries import checked_sizes
from ..tables.matrices import checked_csr

# The same class has had several modules in NumPy and SciPy; Python 2 wrote "__builtin__".
ADMITTED = {
    ("numpy", "dtype"): "dtype",
    ("numpy", "ndarray"): "ndarray",
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy.core.numeric", "_frombuffer"): "buffer",
    ("numpy._core.numeric", "_frombuffer"): "buffer",
    ("scipy.sparse.csr", "csr_matrix"): "csr",
    ("scipy.sparse._csr", "csr_matrix"): "csr",
    ("scipy.sparse.csr", "csr_array"): "csr",
    ("scipy.sparse._csr", "csr_array"): "csr",
    ("collections", "defaultdict"): "dictionary",
    ("__builtin__", "list"): "list",
    ("builtins", "list"): "list",
    ("_codecs", "encode"): "bytes",
    ("__builtin__", "bytes"): "bytes",
}

_NUMBER = re.compile(r"[biuf][1248]")


class _Record(dict):
    """An object that the file describes: a dictionary with its arguments and its state."""

    kind = ""
    arguments: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        # In Python 2 pickles the bytes of an array are a string; latin-1 maps each byte to one character.
        super().__init__(file, encoding="latin1")
        # Each file gets new classes, because a pickle can set attributes of the classes that it names.
        self.records = {kind: type("_Record", (_Record,), {"kind": kind}) for kind in set(ADMITTED.values())}
        self.refused: str | None = None

    def find_class(self, module: str, name: str) -> Any:
        kind = ADMITTED.get((module, name))
        if kind is None:
            self.refused = f"{module}.{name}"
            raise pickle.UnpicklingError(self.refused)
        return self.records[kind]


def read_pickle(path: Path) -> np.ndarray | scipy.sparse.csr_matrix | dict:
    """Reads one pickled NumPy array, SciPy CSR matrix or dictionary of lists (protocols 2 to 5).

    Raises:
        OSError: the file cannot be opened.
        ValueError: the file is corrupt, or names a class or function that arrays do not need; the message names the
            file.
    """
    content = path.read_bytes()
    unpickler = _Unpickler(io.BytesIO(content))
    try:
        _scan(content)
        loaded = unpickler.load()
    except Exception as error:  # A corrupt file can raise almost any exception; the pickle module documents no list.
        if unpickler.refused is not None:
            raise ValueError(
                f"{path}: refused, the pickle asks for {unpickler.refused}; only NumPy arrays, SciPy CSR matrices, "
                "lists and dictionaries are read"
            ) from error
        raise ValueError(f"{path}: corrupt or truncated pickle ({type(error).__name__}: {error})") from error
    kind = loaded.kind if isinstance(loaded, _Record) else None
    if kind in ("array", "buffer"):
        return _array(loaded, str(path))
    if kind == "csr":
        return _csr(loaded, str(path))
    if kind == "dictionary" or type(loaded) is dict:
        return dict(loaded)
    raise ValueError(f"{path}: holds {_describe(loaded)}, want a NumPy array, a SciPy CSR matrix or a dictionary")


def _scan(content: bytes) -> None:
    """Reads the instructions without running them, and refuses what CPython's unpickler handles badly.

    The unpickler allocates as many slots as the largest memo number says, and leaks a buffer at a truncated bytearray.
    """
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and argument > len(content):
            raise pickle.UnpicklingError(f"memo number {argument} in a file of {len(content)} bytes")


def _describe(value: Any) -> str:
    return f"a {value.kind} record" if isinstance(value, _Record) else type(value).__name__


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _Record) and value.kind == kind


def _array(record: Any, what: str) -> np.ndarray:
    """Makes a new array from the record that describes it."""
    if _is(record, "array"):
        if not isinstance(record.state, tuple) or len(record.state) != 5:
            raise ValueError(f"{what}: an array without its contents")
        _, shape, dtype, fortran, raw = record.state
        order = "F" if fortran else "C"
    elif _is(record, "buffer"):
        if len(record.arguments) not in (4, 5) or record.arguments[3] not in ("C", "F"):
            raise ValueError(f"{what}: an array in an unknown memory order")
        raw, dtype, shape, order = record.arguments[:4]
    else:
        raise ValueError(f"{what}: got {_describe(record)}, want an array")
    dtype = _dtype(dtype, what)
    shape = checked_sizes(shape, len(shape) if isinstance(shape, tuple) else 1, what)
    raw = _bytes(raw, what)
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{what}: an array of shape {shape} and type {dtype} with {len(raw)} bytes")
    array = np.frombuffer(raw, dtype=dtype).reshape(shape, order=order)
    return array.astype(dtype.newbyteorder("="))


def _dtype(record: Any, what: str) -> np.dtype:
    if _is(record, "dtype") and record.arguments and isinstance(record.arguments[0], str):
        code = record.arguments[0]
        state = record.state
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else "|"
        if _NUMBER.fullmatch(code) and order in ("<", ">", "=", "|"):
            try:
                return np.dtype(order + code)
            except TypeError as error:
                raise ValueError(f"{what}: got an array of type {code!r}, want numbers") from error
        raise ValueError(f"{what}: got an array of type {code!r}, want numbers")
    raise ValueError(f"{what}: an array without a type")


def _bytes(raw: Any, what: str) -> bytes:
    # Python 3 writes bytes in protocol 2 as a call of encode, and empty bytes as a call of bytes without arguments.
    if _is(raw, "bytes"):
        if not raw.arguments:
            return b""
        if len(raw.arguments) == 2 and raw.arguments[1] == "latin1":
            raw = raw.arguments[0]
    if isinstance(raw, str):
        try:
            return raw.encode("latin1")
        except UnicodeEncodeError as error:
            raise ValueError(f"{what}: the contents of an array are not bytes") from error
    if isinstance(raw, (bytes, bytearray)):
        return bytes(raw)
    raise ValueError(f"{what}: the contents of an array are {_describe(raw)}, want bytes")


def _csr(record: _Record, what: str) -> scipy.sparse.csr_matrix:
    state = record.state
    if not isinstance(state, dict):
        raise ValueError(f"{what}: a CSR matrix without its contents")
    parts = []
    for part in ("data", "indices", "indptr"):
        if part not in state:
            raise ValueError(f"{what}: a CSR matrix without {part}")
        parts.append(_array(state[part], f"{what}: {part}"))
    return checked_csr(*parts, state.get("_shape", state.get("shape")), what)
