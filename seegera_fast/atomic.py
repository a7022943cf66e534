"""Files that are complete or not there."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:
    # Windows: nothing is held, and what killed processes left stays.
    fcntl = None

SUFFIX = ".part"


def hold(descriptor: int) -> bool:
    """Marks an open file or folder as in use, until it is closed or the process ends; False where another one does."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def left_behind(paths: Iterable[Path]) -> Iterator[Path]:
    """Those of the files and folders that no process holds: what killed ones left."""
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            if hold(descriptor):
                yield path
        finally:
            os.close(descriptor)


def remove_unfinished(path: Path) -> None:
    """Removes what a killed process left aside of ``path``."""
    for aside in left_behind(path.parent.glob(f".{glob.escape(path.name)}.*{SUFFIX}")):
        aside.unlink(missing_ok=True)


@contextmanager
def written_aside(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when the block ends, and vanishes where it fails.

    What a killed process left aside is removed.

    Raises:
        OSError: on entering, where the folder can't be written.
    """
    if path.is_dir():
        raise OSError(f"{path} can't be written: it is a folder")
    remove_unfinished(path)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        aside.touch(exist_ok=False)
    except OSError as error:
        raise OSError(f"{path} can't be written: {error.strerror}") from error
    try:
        with open(aside, "wb") as file:
            hold(file.fileno())
            yield file
            file.flush()
            os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
