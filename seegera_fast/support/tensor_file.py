"""Files of named tensors in the safetensors format."""

from __future__ import annotations

import errno
import io
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import safetensors
import safetensors.torch
import torch

# The header begins after its length, and its own length is a multiple of 8, so that the tensors are aligned.
LENGTH_BYTES = ALIGNMENT = 8


def write(file: IO[bytes], tensors: Mapping[str, torch.Tensor], texts: Mapping[str, str]) -> None:
    """Writes tensors and texts to an open file. The same content gives the same bytes."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # The library refuses tensors that share memory, as weights of two names do.
    met: set[int] = set()
    for name, tensor in plain.items():
        memory = tensor.untyped_storage().data_ptr()
        plain[name] = tensor.clone() if memory in met else tensor
        met.add(memory)
    content = safetensors.torch.save(plain, dict(texts))
    given = _header(content)
    # The library writes the texts in another order in each process.
    header = json.dumps(json.loads(given), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    _write_all(file, len(header).to_bytes(LENGTH_BYTES, "little") + header)
    _write_all(file, memoryview(content)[LENGTH_BYTES + len(given) :])


def _write_all(file: IO[bytes], content: bytes | memoryview) -> None:
    """Writes until nothing is left, because a file without a buffer may take a part only."""
    left = memoryview(content)
    while left:
        taken = file.write(left)
        if taken is None and isinstance(file, io.RawIOBase):
            raise BlockingIOError(errno.EAGAIN, "the file takes no more bytes now")
        # What is only like a file may not say how much it took.
        left = left[len(left) if taken is None else taken :]


class Entry(NamedTuple):
    """The kind of a tensor in a file."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


@dataclass(frozen=True)
class TensorFile:
    """A file of tensors.

    Attributes:
        path: the file.
        texts: the texts of its header, by name.
        entries: the kinds of its tensors, by name.
    """

    path: Path
    texts: dict[str, str]
    _tensors: dict[str, torch.Tensor]

    @property
    def entries(self) -> dict[str, Entry]:
        return {name: Entry(tensor.dtype, tuple(tensor.shape)) for name, tensor in self._tensors.items()}

    def tensor(self, name: str, *, finite: bool = True) -> torch.Tensor:
        """A tensor of the file.

        Raises:
            ValueError: it should be finite and has NaN or infinite numbers.
        """
        if finite and not bool(torch.isfinite(self._tensors[name]).all()):
            raise ValueError(f"{self.path} has NaN or infinite numbers in its tensor {name}")
        return self._tensors[name]


def read(path: Path) -> TensorFile:
    """Reads a file of tensors. It is not mapped, so that a change of the file can't change or end the program later.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it can't be read.
        ValueError: it is no such file; the message names it.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is not a regular file")
    content = path.read_bytes()
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError) as error:  # KeyError: a dtype that torch has not
        raise ValueError(f"{path} is not a safetensors file of torch's dtypes ({error})") from error
    return TensorFile(path, json.loads(_header(content)).get("__metadata__", {}), tensors)


def _header(content: bytes) -> bytes:
    return content[LENGTH_BYTES : LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")]
