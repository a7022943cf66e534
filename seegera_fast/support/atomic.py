"""Files that are complete or not there."""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

SUFFIX = ".part"


def hold(descriptor: int) -> bool:
    """Marks an open file or folder as in use, until it is closed or the process ends; False where another one does.

    Raises:
        OSError: a file system without such marks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def left_behind(paths: Iterable[Path]) -> Iterator[Path]:
    """Those of the files and folders that no process holds: what killed ones left; none where nothing can be held."""
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            with suppress(OSError):
                if hold(descriptor):
                    yield path
        finally:
            os.close(descriptor)


def held(path: Path) -> int | None:
    """A descriptor that holds what was just made at ``path``; None where another process took it for left behind."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        taken = not hold(descriptor)
    except OSError:
        # Nothing can be held, so nothing is taken for left behind.
        return descriptor
    if not taken:
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
    os.close(descriptor)
    return None


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
    descriptor = None
    while descriptor is None:
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{SUFFIX}")
        try:
            aside.touch(exist_ok=False)
        except OSError as error:
            raise OSError(f"{path} can't be written: {error.strerror}") from error
        descriptor = held(aside)
    try:
        with open(aside, "wb") as file:
            yield file
        os.replace(aside, path)
    finally:
        os.close(descriptor)
        aside.unlink(missing_ok=True)
