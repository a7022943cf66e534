"""Standard output and standard error of a command whose terminal may be closed while it runs."""

from __future__ import annotations

import errno
import os
from typing import Any, TextIO


class Screen:
    """A stream that goes on without a reader once its terminal is gone, so that the work is not lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._leave(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        if error.errno != errno.EIO:
            raise error
        # What Python still buffers, and what comes after, is thrown away.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)
