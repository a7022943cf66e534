"""Opens text files: compression, encoding, line ends, and what is no text."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from ..support.hints import quoted

# So many bytes are read at once.
BLOCK = 2**22
GZIP = b"\x1f\x8b"
# The first bytes of files that are no text.
OTHERS = {
    b"BZh": "is compressed by bzip2",
    b"\xfd7zXZ": "is compressed by xz",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd",
    b"PK\x03\x04": "is a zip archive, as spreadsheets are",
    b"\x93NUMPY": "is an array of NumPy",
    b"\x89HDF": "is in HDF5",
    b"%PDF-": "is a PDF",
    **{bytes([128, version]): "is a pickle, which is not read" for version in range(2, 6)},
}
# The first line of a matrix as text, whose second line holds its size and would be taken for an edge.
MATRIX_MARKET = "%%matrixmarket"
AS_NPZ = ".npz of SciPy: scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(scipy.io.mmread(...)))"
# Byte order marks; that of UTF-32 begins as that of UTF-16 does.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
CONTROL = bytes(byte for byte in range(32) if byte not in b"\t\n")
MARK = "\ufeff"
NUMERIC = b"0123456789.eE+-, \t\n"
# The letters that start a line of comment, where nothing else is stated.
COMMENTS = "#%"


def texts(
    path: Path, encoding: str | None, comments: str, want: str, note: Callable[[int], None]
) -> Iterator[tuple[int, str]]:
    """Yields blocks of lines, each block with the number of its first line. Each line ends with a line feed.

    Args:
        path: the file, plain or compressed by gzip.
        encoding: None: UTF-8. A byte order mark at the start is skipped.
        comments: the letters that start a comment, in which any bytes may stand.
        want: what a line should hold, for messages.
        note: is told how many bytes of the file were read.

    Raises:
        OSError: the file can't be read.
        ValueError: it is no text in this encoding, or compressed and damaged; the message names the file and the line.
    """
    line = 1
    with open(path, "rb") as raw:
        head = raw.peek(16)[:16]
        for start, kind in OTHERS.items():
            if head.startswith(start):
                raise ValueError(f"{path}: {kind}, want text, plain or compressed by gzip (.gz)")
        file: IO[bytes] = gzip.GzipFile(fileobj=raw) if head.startswith(GZIP) else raw
        for content in _whole_lines(path, file, encoding):
            note(raw.tell() if raw.seekable() else 0)
            text = _decoded(path, line, content, comments, want)
            if line == 1:
                text = text.removeprefix(MARK)
                if text[: len(MATRIX_MARKET)].lower() == MATRIX_MARKET:
                    raise ValueError(f"{path}: is a matrix in the format Matrix Market, want {want}, or {AS_NPZ}")
            _refuse_control(path, line, content, text, want)
            yield line, text
            line += text.count("\n")


def _decoded(path: Path, line: int, content: bytes, comments: str, want: str) -> str:
    """Decodes whole lines from UTF-8. In a comment, also one after numbers and a blank, other bytes are replaced."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        start = content.rfind(b"\n", 0, error.start) + 1
        end = content.index(b"\n", error.start) + 1
        bare, letter, _ = content[start : error.start].partition(b"#")
        inside = letter and "#" in comments and bare[-1:] in b" \t" and not bare.translate(None, NUMERIC)
        if not (inside or content[start : start + 1].decode("latin-1") in comments):
            at = line + content.count(b"\n", 0, start)
            raise ValueError(
                f"{path}, line {at}: is not a text file in UTF-8 (byte "
                f"0x{content[error.start]:02x}), want {want}; another encoding is stated, as in encoding='latin-1'"
            ) from None
        replaced = content[start:end].decode("utf-8", "replace")
        rest = _decoded(path, line + content.count(b"\n", 0, end), content[end:], comments, want)
        return content[:start].decode("utf-8") + replaced + rest


def _whole_lines(path: Path, file: IO[bytes], encoding: str | None) -> Iterator[bytes]:
    """Yields blocks of whole lines in UTF-8, which end with a line feed."""
    decoder, rest, start = None, [], True
    while True:
        try:
            chunk = file.read(BLOCK)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: is a damaged or incomplete gzip file ({error})") from None
        if start:
            decoder = _decoder(path, chunk, encoding)
            start = False
        last = not chunk
        if decoder is not None:
            try:
                chunk = decoder.decode(chunk, last).encode("utf-8")
            except (UnicodeError, ValueError) as error:
                raise ValueError(f"{path}: is not text in {encoding} ({error})") from None
        rest.append(chunk)
        # A carriage return at the end of a block may be the first half of a line end.
        at = max(chunk.rfind(b"\n"), chunk.rfind(b"\r", 0, -1)) + 1
        if not last and not at:
            continue
        whole = b"".join([*rest[:-1], chunk if last else chunk[:at]])
        rest = [] if last else [chunk[at:]]
        if b"\r" in whole:
            whole = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if whole:
            yield whole if whole.endswith(b"\n") else whole + b"\n"
        if last:
            return


def _decoder(path: Path, head: bytes, encoding: str | None) -> codecs.IncrementalDecoder | None:
    """What decodes a file in another encoding than UTF-8."""
    if encoding is None:
        for mark, name in MARKS.items():
            if head.startswith(mark):
                raise ValueError(f"{path}, line 1: is not a text file in UTF-8 but in {name}, want encoding={name!r}")
        return None
    name = codecs.lookup(encoding).name
    return None if name in ("utf-8", "utf-8-sig", "ascii") else codecs.getincrementaldecoder(name)()


def known_encoding(name: str, encoding: str) -> str:
    """Checks that Python knows an encoding of text."""
    try:
        if not codecs.lookup(encoding)._is_text_encoding:
            raise LookupError
    except (LookupError, ValueError):
        raise ValueError(f"{name}: got {quoted(encoding)}, want an encoding such as 'utf-8' or 'latin-1'") from None
    return encoding


def _refuse_control(path: Path, line: int, content: bytes, text: str, want: str) -> None:
    """Refuses control characters, which no text has, and marks amid the text, which joined files have."""
    if len(content.translate(None, CONTROL)) != len(content):
        at = next(place for place, byte in enumerate(content) if byte in CONTROL)
        what = f"control character 0x{content[at]:02x}"
        before = content[:at].count(b"\n")
    elif MARK in text:
        what, before = "a byte order mark amid the file", text[: text.index(MARK)].count("\n")
    else:
        return
    raise ValueError(f"{path}, line {line + before}: is not a text file in UTF-8: got {what}, want {want}")
