"""The output of a run: the names of its files, and a folder whose files are always complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from ..support.atomic import held, left_behind

RESULTS, MODEL, EMBEDDING, PICTURE = "results.json", "model.safetensors", "embedding.npy", "picture.png"
CHECKPOINT = "checkpoint.safetensors"
FILES = (RESULTS, MODEL, EMBEDDING, PICTURE, CHECKPOINT)
UNFINISHED = ".unfinished-"


class OutputFolder:
    """A folder into which files are moved once they are complete. Used in a ``with`` block.

    Entering the block makes the folder and removes what killed processes left in it. A file is first written to a
    hidden folder inside, which is made for the first file. Leaving the block removes the hidden folder, and also the
    folder itself if the block made it and it is empty.

    Args:
        path: the folder; missing parent folders are made too.

    Raises:
        OSError: on entering, the folder can't be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._made: list[Path] = []
        self._aside: tuple[Path, int] | None = None

    def __enter__(self) -> OutputFolder:
        absent = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            for folder in reversed(absent):
                folder.mkdir(exist_ok=True)
                self._made.append(folder)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            self._remove_made()
            raise OSError(f"the folder {self.path} can't be written: {error.strerror}") from error
        blocked = [name for name in FILES if (self.path / name).is_dir()]
        if blocked:
            raise OSError(f"the folder {self.path} can't be written: {blocked[0]} in it is a folder")
        for aside in left_behind(self.path.glob(f"{UNFINISHED}*")):
            shutil.rmtree(aside, ignore_errors=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._aside is not None:
            aside, descriptor = self._aside
            shutil.rmtree(aside, ignore_errors=True)
            os.close(descriptor)
        self._remove_made()

    def aside(self, name: str) -> Path:
        """The path to which a file is written before it is published."""
        while self._aside is None:
            aside = Path(tempfile.mkdtemp(dir=self.path, prefix=UNFINISHED))
            descriptor = held(aside)
            self._aside = None if descriptor is None else (aside, descriptor)
        return self._aside[0] / name

    def publish(self, *names: str) -> None:
        """Moves complete files into the folder, each in one step; they replace files of an earlier run."""
        for name in names:
            os.replace(self.aside(name), self.path / name)

    def discard(self, name: str) -> None:
        """Removes a file of an earlier run."""
        (self.path / name).unlink(missing_ok=True)

    def _remove_made(self) -> None:
        for folder in reversed(self._made):
            try:
                folder.rmdir()
            except OSError:
                return
