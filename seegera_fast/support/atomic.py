"""Writes files so that they are either complete or not there."""

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
    """Locks an open file or folder until it is closed or the process ends. False: another process has locked it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def left_behind(paths: Iterable[Path]) -> Iterator[Path]:
    """Yields the paths that no process has locked, which killed processes left; none on a file system without locks."""
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
    """Opens and locks what was just made at ``path``; None: another process has removed it as left behind."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        taken = not hold(descriptor)
    except OSError:
        # Without locks no process takes it for left behind.
        return descriptor
    if not taken:
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
    os.close(descriptor)
    return None


def remove_unfinished(path: Path) -> None:
    """Removes the temporary files of ``path`` that killed processes left."""
    for aside in left_behind(path.parent.glob(f".{glob.escape(path.name)}.*{SUFFIX}")):
        aside.unlink(missing_ok=True)


@contextmanager
def written_aside(path: Path) -> Iterator[IO[bytes]]:
    """Opens a temporary binary file that is renamed to ``path`` when the block ends, or removed if the block raises.

    Temporary files that killed processes left are removed.

    Raises:
        OSError: on entering, the folder can't be written.
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
