"""Files of named tensors in the safetensors format.

Written here and not by the library of that name: it stores the header's texts in a random order, so that the same
tensors would give other bytes in each process, and it writes to a temporary file of its own, which no lock protects.
A file is read without mapping it, so that a change of the file while it is used can't change or end the program.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch

from .hints import quoted
from .json_fields import Fields, parse

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
TEXTS = "__metadata__"
# The header begins after its length, and its own length is a multiple of 8, so that the tensors are aligned.
LENGTH_BYTES = ALIGNMENT = 8


def write(file: IO[bytes], tensors: Mapping[str, torch.Tensor], texts: Mapping[str, str]) -> None:
    """Writes tensors and texts to an open file. The same content gives the same bytes."""
    # Wide elements come first, so that each tensor is aligned; then they are in the order of their names.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {TEXTS: dict(texts)}
    begin = 0
    for name in names:
        end = begin + tensors[name].numel() * tensors[name].element_size()
        code, shape = CODES[tensors[name].dtype], list(tensors[name].shape)
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    content = json.dumps(header, separators=(",", ":")).encode()
    content += b" " * (-len(content) % ALIGNMENT)
    file.write(len(content).to_bytes(LENGTH_BYTES, "little") + content)
    for name in names:
        file.write(_bytes_of(tensors[name].detach().cpu().contiguous()))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU."""
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())


class Entry(NamedTuple):
    """What a file says about one of its tensors; ``begin`` is counted from the first tensor's first byte."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


@dataclass(frozen=True)
class TensorFile:
    """An open file of tensors.

    Attributes:
        path: the file.
        texts: the texts of its header, by name.
        entries: what it says about its tensors, by name. The file is long enough for them.
    """

    path: Path
    texts: dict[str, str]
    entries: dict[str, Entry]
    _file: IO[bytes]
    _start: int

    def read(self, name: str, *, finite: bool = True) -> torch.Tensor:
        """Reads a tensor.

        Raises:
            ValueError: it should be finite and has NaN or infinite numbers, or the file has become shorter.
        """
        entry = self.entries[name]
        tensor = torch.empty(entry.shape, dtype=entry.dtype, device="cpu")
        self._file.seek(self._start + entry.begin)
        memory = _bytes_of(tensor)
        if self._file.readinto(memory) != len(memory):
            raise ValueError(f"{self.path} ended while its tensor {name} was read")
        if finite and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{self.path} has NaN or infinite numbers in its tensor {name}")
        return tensor


@contextmanager
def opened(path: Path) -> Iterator[TensorFile]:
    """Opens a file of tensors. Its header is checked against its length; no tensor is read.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it can't be read.
        ValueError: it is no such file; the message names it.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is not a regular file")
    with open(path, "rb") as file:
        where = f"{path} is not a safetensors file"
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        start = LENGTH_BYTES + length
        if start > size:
            raise ValueError(f"{where}: its header has {length} bytes, the file has {size}")
        content = file.read(length)
        try:
            header = parse(content)
        except ValueError as error:
            raise ValueError(f"{where}: its header is not JSON ({error})") from error
        texts, entries = _read_header(where, header, size - start)
        yield TensorFile(path, texts, entries, file, start)


def _read_header(where: str, content: Any, size: int) -> tuple[dict[str, str], dict[str, Entry]]:
    """The texts, and the entries of tensors that fill ``size`` bytes without gaps."""
    header = Fields(where, content, "header")
    texts = header.fields(TEXTS) if TEXTS in header else ()
    found = {name: texts.text(name) for name in texts}
    entries, spans = {}, []
    for name in header:
        if name == TEXTS:
            continue
        fields = header.fields(name)
        fields.have(("dtype", "shape", "data_offsets"))
        dtype = DTYPES[fields.text("dtype", DTYPES)]
        shape, offsets = fields.items("shape"), fields.items("data_offsets", 2)
        if not all(type(extent) is int and 0 <= extent < 2**31 for extent in shape):
            raise fields.wrong("shape", "a list of ints from 0 to 2^31 - 1")
        if not all(type(offset) is int for offset in offsets):
            raise fields.wrong("data_offsets", "two ints")
        begin, end = offsets
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{where}: {quoted(name)} has {quoted(end - begin)} bytes, but another shape")
        entries[name] = Entry(dtype, tuple(shape), begin)
        spans.append((begin, end))
    reached = 0
    for begin, end in sorted(spans):
        if begin != reached:
            raise ValueError(f"{where}: its tensors have a gap or overlap at byte {quoted(reached)}")
        reached = end
    if reached != size:
        raise ValueError(f"{where}: its tensors have {quoted(reached)} bytes, the file has {size} for them")
    return found, entries
