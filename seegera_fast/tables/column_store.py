"""Columns of numbers that are read block by block, in memory or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..support.atomic import Unwritable


class Column:
    """Numbers of one type, in memory."""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self._pieces = np.dtype(dtype), []

    def append(self, piece: np.ndarray) -> None:
        self._pieces.append(piece)

    def whole(self) -> np.ndarray:
        """All that was appended."""
        return np.concatenate(self._pieces) if self._pieces else np.empty(0, self.dtype)


class FileColumn(Column):
    """Numbers of one type in a file, which is made for them.

    Args:
        path: the file.
        name: what an error says can't be written.
    """

    def __init__(self, dtype: Any, path: Path, name: Any) -> None:
        super().__init__(dtype)
        self._path, self._name, self._count = path, name, 0

    def append(self, piece: np.ndarray) -> None:
        # Opened each time, since there may be more such files than a process may have open.
        try:
            with open(self._path, "ab") as file:
                file.write(np.ascontiguousarray(piece, self.dtype).data)
        except OSError as error:
            raise Unwritable(self._name, error) from error
        self._count += len(piece)

    def whole(self) -> np.ndarray:
        if not self._count:
            return np.empty(0, self.dtype)
        return np.memmap(self._path, self.dtype, "r", shape=(self._count,))

    def read(self) -> np.ndarray:
        """All that was appended, in memory; the file is removed."""
        found = np.fromfile(self._path, self.dtype) if self._count else np.empty(0, self.dtype)
        self.remove()
        return found

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


class InTurn:
    """Appends to columns in turn."""

    def __init__(self, *columns: Column) -> None:
        self._columns, self._turn = columns, 0

    def append(self, piece: np.ndarray) -> None:
        self._columns[self._turn].append(piece)
        self._turn = (self._turn + 1) % len(self._columns)
