"""Folders of arrays: plain ``.npy`` files, and a JSON that says what belongs there, with sizes and checksums.

The arrays are mapped into memory: what is not looked at is not read. A file that is the very one that was written here,
by its inode and the time of its last change, is taken as it is. Any other, such as a copy, is read once and held
against its checksum.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from .atomic import Unwritable, folder_aside
from .hints import quoted
from .json_fields import Fields, parse
from .mapped_array import mapped
from .numpy_header import LONGEST_HEADER, header_of, read_header

# So many bytes are written or read at once.
PIECE = 2**23
# No index of a folder is larger, in bytes.
LONGEST_INDEX = 2**26
# Parts of the words of an array: their letters, and where each ends.
LETTERS, ENDS = "letters", "ends"


class Kind(NamedTuple):
    """What a folder holds.

    Attributes:
        index: the name of its JSON.
        form: what the JSON gives as its format.
        version: of the format.
        maker: what writes such folders, for messages.
    """

    index: str
    form: str
    version: int
    maker: str


class Stamp(NamedTuple):
    """What tells a file from another one, and from what it was before a change."""

    inode: int
    changed: int
    size: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_ino, found.st_ctime_ns, found.st_size)


# Writing.


class ArrayFile:
    """A ``.npy`` file that is written piece by piece."""

    def __init__(self, file: IO[bytes], dtype: Any, tail: tuple[int, ...]) -> None:
        self.dtype, self.rows, self.checksum = np.dtype(dtype), 0, 0
        self._file, self._tail = file, tail
        file.write(header_of(self.dtype, (0, *tail)))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, *self._tail)

    def write(self, values: np.ndarray) -> None:
        """Adds rows."""
        step = max(1, PIECE // max(1, self.dtype.itemsize * math.prod(self._tail)))
        for low in range(0, len(values), step):
            content = np.ascontiguousarray(values[low : low + step], self.dtype).reshape(-1).view(np.uint8).data
            self._file.write(content)
            self.checksum = zlib.crc32(content, self.checksum)
        self.rows += len(values)

    def finish(self) -> None:
        self._file.seek(0)
        self._file.write(header_of(self.dtype, self.shape))


class FolderWriter:
    """Writes the files of a folder.

    Args:
        folder: where they are written.
        shown: what the folder will be called, for messages.
    """

    def __init__(self, folder: Path, shown: Path) -> None:
        self._folder, self.shown = folder, shown
        self._files: dict[str, dict[str, Any]] = {}

    @contextmanager
    def open(self, name: str, dtype: Any, tail: tuple[int, ...] = ()) -> Iterator[ArrayFile]:
        """An array of so far unknown length, whose rows have the shape ``tail``."""
        path = self._folder / f"{name}.npy"
        try:
            with open(path, "wb", buffering=0) as raw:
                file = ArrayFile(_Whole(raw), dtype, tail)
                yield file
                file.finish()
        except Unwritable:
            raise
        except OSError as error:
            raise Unwritable(self.shown / path.name, error) from error
        self._files[name] = {
            "dtype": file.dtype.name,
            "shape": list(file.shape),
            "crc32": f"{file.checksum:08x}",
            **Stamp.of(os.stat(path))._asdict(),
        }

    def array(self, name: str, values: np.ndarray) -> None:
        with self.open(name, values.dtype, values.shape[1:]) as file:
            file.write(values)

    def words(self, name: str, words: Sequence[str]) -> None:
        """Strings, as the letters of all of them in UTF-8, and the place where each ends."""
        with self.open(f"{name}.{LETTERS}", np.uint8) as letters, self.open(f"{name}.{ENDS}", np.int64) as ends:
            at = 0
            for low in range(0, len(words), PIECE // 16):
                encoded = [word.encode("utf-8", "surrogatepass") for word in words[low : low + PIECE // 16]]
                letters.write(np.frombuffer(b"".join(encoded), np.uint8))
                place = at + np.cumsum([len(word) for word in encoded], dtype=np.int64)
                ends.write(place)
                at = int(place[-1])

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for files that are not to stay, on the same disk. It is removed at the end of the block."""
        folder = self._folder / "scratch"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def finish(self, kind: Kind, facts: Mapping[str, Any]) -> None:
        content = {"format": kind.form, "version": kind.version, **facts, "files": self._files}
        content["crc32"] = _checksum(content)
        path = self._folder / kind.index
        try:
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")
        except OSError as error:
            raise Unwritable(self.shown / path.name, error) from error


class _Whole:
    """A file without a buffer that writes all that it is given."""

    def __init__(self, raw: Any) -> None:
        self.seek, self._raw = raw.seek, raw

    def write(self, content: Any) -> None:
        left = memoryview(content)
        while left:
            left = left[self._raw.write(left) :]


def _checksum(content: Mapping[str, Any]) -> str:
    """The checksum of a JSON's fields, whatever their order and the blanks between them."""
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


@contextmanager
def written_folder(path: Path, kind: Kind) -> Iterator[FolderWriter]:
    """Writes a folder aside, and renames it to ``path`` when the block ends; if the block raises, nothing is left.

    A folder of this kind that is there is replaced. The block ends with :meth:`FolderWriter.finish`.

    Raises:
        ValueError: at the path is something else than such a folder, or it holds other files too.
        Unwritable: the folder can't be written, such as on a full disk.
    """

    def require_ours(target: Path) -> None:
        if not target.is_dir():
            raise ValueError(f"{path}: is there and is no folder, want a new folder")
        names = {entry.name for entry in target.iterdir()}
        try:
            index = _read_index(target, kind)
        except ValueError as error:
            raise ValueError(f"{path}: is not replaced, because {kind.maker} did not write it ({error})") from None
        others = names - {kind.index, *(f"{name}.npy" for name in index.fields("files"))}
        if others:
            raise ValueError(f"{path}: is not replaced, because it also holds {quoted(min(others))}, want a new folder")

    with folder_aside(path, require_ours) as aside:
        yield FolderWriter(aside, path)


# Reading.


def _read_index(path: Path, kind: Kind) -> Fields:
    """Reads the JSON of a folder."""
    index = path / kind.index
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such folder, want one that {kind.maker} has written")
        raise ValueError(f"{path}: is a file, want a folder that {kind.maker} has written")
    if not index.is_file():
        raise ValueError(f"{path}: has no {kind.index}, want a folder that {kind.maker} has written")
    if index.stat().st_size > LONGEST_INDEX:
        raise ValueError(f"{index}: is too large, want a file that {kind.maker} has written")
    try:
        content = parse(index.read_bytes())
    except ValueError as error:
        raise ValueError(f"{index}: is damaged, or {kind.maker} did not write it ({error})") from None
    fields = Fields(str(index), content)
    if fields.take("format") != kind.form:
        raise fields.wrong("format", repr(kind.form))
    version = fields.whole("version", 1)
    if version > kind.version:
        raise ValueError(f"{index}: got format version {version}, want {kind.version}: a newer version wrote it")
    stated = fields.text("crc32")
    if stated != _checksum({name: value for name, value in content.items() if name != "crc32"}):
        raise ValueError(f"{index}: is damaged: its content does not have the checksum {quoted(stated)}")
    return fields


class _Entry(NamedTuple):
    """A file of a folder."""

    path: Path
    content: np.ndarray
    found: os.stat_result
    as_written: bool
    checksum: str


class ArrayFolder:
    """A folder of arrays that are mapped into memory.

    Args:
        path: the folder.
        kind: what it should hold.

    Attributes:
        facts: the fields of its JSON.

    Raises:
        FileNotFoundError: there is no such folder.
        OSError: it can't be read.
        ValueError: it is no such folder, or a file is missing, damaged, or of another size or type than the JSON says.
    """

    def __init__(self, path: Path, kind: Kind) -> None:
        self.path, self.kind = path, kind
        self.facts = _read_index(path, kind)
        files = self.facts.fields("files")
        self._entries = {name: self._entry(name, files.fields(name)) for name in files}

    def _entry(self, name: str, fields: Fields) -> _Entry:
        path = self.path / f"{name}.npy"
        if os.path.basename(path) != f"{name}.npy":
            raise ValueError(f"{self.path / self.kind.index}: got the file {quoted(name)}, want the name of a file")
        dtype, shape = fields.text("dtype"), tuple(fields.items("shape"))
        if not path.is_file():
            what = "is no regular file" if path.exists() else "is missing"
            raise ValueError(f"{path}: {what}, want the file that {self.kind.maker} has written")
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            content = _mapped(path, file, found.st_size, dtype, shape)
        written = Stamp(*(fields.whole(part, 0, 2**64) for part in Stamp._fields))
        return _Entry(path, content, found, Stamp.of(found) == written, fields.text("crc32"))

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def place(self, name: str) -> Path:
        """The file of an array, for messages."""
        return self._entries[name].path

    def array(self, name: str, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        """An array, which can be written to without changing the file.

        Raises:
            ValueError: there is none of this name, type and shape.
        """
        if name not in self._entries:
            raise ValueError(f"{self.path}: has no {name}.npy, want a folder that {self.kind.maker} has written")
        found = self._entries[name].content
        if found.dtype != dtype or found.shape != shape:
            raise ValueError(
                f"{self.place(name)}: got {found.dtype} of shape {found.shape}, want {np.dtype(dtype)} of shape {shape}"
            )
        return found

    def words(self, name: str, count: int) -> list[str]:
        """The strings of :meth:`FolderWriter.words`, all of which are read."""
        ends = self.array(f"{name}.{ENDS}", np.int64, (count,))
        letters = self.array(f"{name}.{LETTERS}", np.uint8, (int(ends[-1]) if count else 0,))
        whole = letters.tobytes()
        starts = np.concatenate([[0], ends[:-1]])
        if count and (starts > ends).any():
            raise ValueError(f"{self.place(f'{name}.{ENDS}')}: got numbers that fall, want ascending ones")
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        if whole.isascii():
            text = whole.decode("ascii")
            return [text[start:end] for start, end in places]
        try:
            return [whole[start:end].decode("utf-8", "surrogatepass") for start, end in places]
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.place(f'{name}.{LETTERS}')}: is damaged ({error})") from None

    def as_written(self) -> bool:
        """Whether all files are the very ones that were written, by what the system says of them."""
        return all(entry.as_written for entry in self._entries.values())

    def verify(self) -> None:
        """Reads all files.

        Raises:
            ValueError: one does not have its checksum; the message names it.
        """
        for entry in self._entries.values():
            content = entry.content.reshape(-1).view(np.uint8)
            checksum = 0
            with open(entry.path, "rb") as file:
                file.seek(-content.size, os.SEEK_END)
                # Not by the map, whose pages would count as this process's memory.
                while piece := file.read(PIECE):
                    checksum = zlib.crc32(piece, checksum)
            if f"{checksum:08x}" != entry.checksum:
                raise ValueError(
                    f"{entry.path}: is damaged: its checksum is {checksum:08x}, want {quoted(entry.checksum)}"
                )

    def require_unchanged(self) -> None:
        """Checks that nothing has been written into the files since they were mapped.

        A folder that was replaced by another as a whole is no change: the files that are mapped are still there. Nor is
        another name or mode of a file, which changes the time that a :class:`Stamp` has.

        Raises:
            ValueError: a file was changed; the message names it.
        """
        for entry in self._entries.values():
            try:
                now = os.stat(entry.path)
            except OSError:
                continue
            then = entry.found
            written = (now.st_mtime_ns, now.st_size) != (then.st_mtime_ns, then.st_size)
            if os.path.samestat(now, then) and written:
                raise ValueError(f"{entry.path}: was changed while it was open, want it as it was: open it again")


def _mapped(path: Path, file: IO[bytes], size: int, dtype: str, shape: tuple[Any, ...]) -> np.ndarray:
    """Maps the array of an open file, after its header was held against what is stated and what the file contains."""
    try:
        found, order, kind, start = read_header(file.read(LONGEST_HEADER))
    except ValueError as error:
        raise ValueError(f"{path}: is not a NumPy array file ({error})") from None
    if order != "C" and len(found) > 1:
        raise ValueError(f"{path}: got an array in the order of columns, want that of rows")
    if found != shape or kind.name != dtype or kind.hasobject or not kind.isnative:
        raise ValueError(f"{path}: got {kind} of shape {quoted(found)}, want {quoted(dtype)} of shape {quoted(shape)}")
    wanted = math.prod(shape) * kind.itemsize
    if min(shape, default=0) < 0 or wanted != size - start:
        raise ValueError(f"{path}: holds {size - start} bytes of values, want {wanted}: it is cut short, or damaged")
    try:
        return mapped(file, start, kind, shape)
    except OSError as error:
        raise OSError(error.errno, f"{path} can't be mapped into memory: {error.strerror}") from error
