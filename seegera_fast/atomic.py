"""Files that are complete or not there."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

SUFFIX = ".part"


def remove_unfinished(path: Path) -> None:
    """Removes what a killed process left aside of ``path``."""
    for aside in path.parent.glob(f".{glob.escape(path.name)}.*{SUFFIX}"):
        aside.unlink(missing_ok=True)


@contextmanager
def written_aside(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when the block ends, and vanishes where it fails.

    Raises:
        OSError: on entering, where the folder can't be written.
    """
    if path.is_dir():
        raise OSError(f"{path} can't be written: it is a folder")
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        aside.touch(exist_ok=False)
    except OSError as error:
        raise OSError(f"{path} can't be written: {error.strerror}") from error
    try:
        with open(aside, "wb") as file:
            yield file
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
