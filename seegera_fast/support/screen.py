"""Standard output and standard error of a command: with a terminal or without, full or closed, in any encoding."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from .atomic import Unwritable

# What the package prints beyond ASCII, for streams whose encoding lacks it.
PLAIN = {"±": "+/-", "×": "x", "–": "-", "²": "^2"}
# Python keeps the bytes of a file name that it can't decode as these letters.
KEPT_BYTES = range(0xDC80, 0xDD00)


class OutputLost(Unwritable):
    """Standard output can't be written, such as on a full disk."""


class Screen:
    """A stream that takes any text, and that goes on without a reader once its terminal is gone.

    So the work is not lost, and neither is it if messages can't be written. What a command prints on standard output is
    its result; if that can't be written, it is an error.

    Args:
        stream: the stream.
        name: for messages.
        optional: whether the work goes on if the stream can't be written.
    """

    def __init__(self, stream: TextIO, name: str, *, optional: bool) -> None:
        self._stream, self._name, self._optional = stream, name, optional
        self._error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(expressible(text, self._stream))
        except OSError as error:
            self._leave(error)
        return len(text)

    def flush(self) -> None:
        """Raises the error of writing also if it was raised before, because argparse ignores it."""
        if self._error is not None:
            raise self._error
        try:
            self._stream.flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        # What Python still buffers, and what comes after, is thrown away.
        with contextlib.suppress(OSError), open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), self._stream.fileno())
        if error.errno != errno.EIO and not self._optional:
            self._error = error if isinstance(error, BrokenPipeError) else OutputLost(self._name, error)
            raise self._error


def expressible(text: str, stream: TextIO) -> str:
    """The text in letters that a stream can write: "+/-" for "±", and an escape such as "\\u4e2d" for other letters."""
    encoding = getattr(stream, "encoding", None)
    if encoding is None:
        return text
    # Such a stream gives the bytes of file names back as they are; other ways of handling errors would lose letters.
    errors = "surrogateescape" if getattr(stream, "errors", None) == "surrogateescape" else "strict"
    if _fits(text, encoding, errors):
        return text
    return "".join(letter if _fits(letter, encoding, errors) else _instead_of(letter) for letter in text)


def _fits(text: str, encoding: str, errors: str) -> bool:
    try:
        text.encode(encoding, errors)
    except UnicodeEncodeError:
        return False
    return True


def _instead_of(letter: str) -> str:
    if ord(letter) in KEPT_BYTES:
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return PLAIN.get(letter) or letter.encode("ascii", "backslashreplace").decode()


@contextlib.contextmanager
def screens() -> Iterator[None]:
    """In the block, standard output and standard error are a :class:`Screen` each."""
    _open_standard_files()
    with contextlib.ExitStack() as stack:
        streams = []
        for stream in (sys.stdout, sys.stderr):
            # None: the file was closed when Python started.
            streams.append(stream or stack.enter_context(open(os.devnull, "w", encoding="utf-8")))
        stack.enter_context(contextlib.redirect_stdout(Screen(streams[0], "standard output", optional=False)))
        stack.enter_context(contextlib.redirect_stderr(Screen(streams[1], "standard error", optional=True)))
        yield


def _open_standard_files() -> None:
    """Opens those of the files 0, 1 and 2 that are closed, so that no other file gets their numbers.

    Libraries write messages to these numbers, whatever they stand for.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken.
            os.open(os.devnull, os.O_RDWR)
