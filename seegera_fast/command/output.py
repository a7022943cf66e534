"""The output of a run: the names of its files, and a folder whose files are always complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from .. import checkpoint_file
from ..graph import Graph
from ..support.atomic import Lock, Unwritable, alone, remove_unfinished, require_writable, written_aside
from ..support.json_fields import Fields, parse
from ..support.mapped_array import write_header, write_values
from ..tables import write_parquet

RESULTS, MODEL, EMBEDDING, PICTURE = "results.json", "model.safetensors", "embedding.npy", "picture.png"
EMBEDDING_TABLE, LINKS, REPORT = "embedding.csv", "links.csv", "report.html"
CHECKPOINT = "checkpoint.safetensors"
FILES = (RESULTS, MODEL, EMBEDDING, EMBEDDING_TABLE, LINKS, PICTURE, REPORT, CHECKPOINT)
LOCK = ".lock"
# The kinds of tables that are written.
TABLES = (".csv", ".parquet")

Writer = Callable[[IO[bytes]], object]


class OutputFolder:
    """A folder that one run at a time writes complete files to. Used in a ``with`` block.

    Entering the block makes the folder and removes what killed processes left in it. Leaving the block removes the
    folder if the block made it and it is empty.

    Args:
        path: the folder; missing parent folders are made too.

    Attributes:
        written: the names of all files that were written, to this folder or to another.
        refused: why the folder could not take files, their names, and the folder that they are in instead (None: no
            other folder could take them).

    Raises:
        OSError: on entering, the folder can't be written, or another run is using it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.written: list[str] = []
        self.refused: list[tuple[Unwritable, tuple[str, ...], Path | None]] = []
        self._made: list[Path] = []
        self._lock: Lock | None = None
        self._exit = ExitStack()

    def __enter__(self) -> OutputFolder:
        name = f"the folder {self.path}"
        with ExitStack() as stack:
            stack.callback(self._remove_made)
            absent = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            try:
                for folder in reversed(absent):
                    folder.mkdir(exist_ok=True)
                    self._made.append(folder)
            except OSError as error:
                raise Unwritable(name, error) from error
            require_writable(name, self.path)
            blocked = [entry for entry in FILES if (self.path / entry).is_dir()]
            if blocked:
                raise Unwritable(name, f"{blocked[0]} in it is a folder")
            self._lock = stack.enter_context(alone(self.path / LOCK, name))
            for entry in FILES:
                remove_unfinished(self.path / entry)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def require_ours(self, *, resume: bool) -> None:
        """Refuses a folder with files that the run would replace or remove, and that no earlier run has written.

        Args:
            resume: whether the checkpoint is read, and so checked, before it is replaced.
        """
        names = set(FILES)
        if resume or _is_checkpoint(self.path / CHECKPOINT):
            # All that a run leaves that was stopped.
            names.remove(CHECKPOINT)
        if results_of_train(self.path / RESULTS) is None:
            require_absent(self.path, names, "train")

    def write(self, files: Mapping[str, Writer], *, instead_of: Collection[str] = ()) -> None:
        """Writes files, which replace those of an earlier run once all of them are complete.

        If the folder can't take them (it is full, was removed, or belongs to another run now), they are written to a
        new folder somewhere else, see :attr:`refused`. So are those of later calls, because the folder may have the
        files of an earlier run.

        Args:
            files: name -> what writes the content to an open binary file.
            instead_of: files of an earlier run that are removed.
        """
        self.written += files
        if self.refused:
            error, names, folder = self.refused[-1]
            found = _write_elsewhere(self.path.name, files, folder)
            if found == folder:
                self.refused[-1] = error, (*names, *files), folder
            else:
                self.refused.append((error, tuple(files), found))
            return
        try:
            if self._lock is not None:
                self._lock.require_kept()
            _write(self.path, files, instead_of)
        except Unwritable as error:
            self.refused.append((error, tuple(files), _write_elsewhere(self.path.name, files)))

    def _remove_made(self) -> None:
        for folder in reversed(self._made):
            try:
                folder.rmdir()
            except OSError:
                return


def _write(folder: Path, files: Mapping[str, Writer], instead_of: Collection[str] = ()) -> None:
    # The files get their names when the stack is left, after all of them were written.
    with ExitStack() as stack:
        for name, write in files.items():
            write(stack.enter_context(written_aside(folder / name)))
    for name in instead_of:
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)


def _write_elsewhere(name: str, files: Mapping[str, Writer], earlier: Path | None = None) -> Path | None:
    """Writes files to an earlier or a new folder, which it returns; None: there is no place for them."""
    if earlier is not None:
        with suppress(Unwritable):
            _write(earlier, files)
            return earlier
    for find in (tempfile.gettempdir, os.getcwd, Path.home):
        folder = None
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"seegera-fast-{name}-", dir=find()))
            _write(folder, files)
            return folder
        except (OSError, RuntimeError):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
    return None


def results_of_train(path: Path) -> Fields | None:
    """The results in a file; None: it is not there, or is another one of that name."""
    if not path.is_file():
        return None
    try:
        results = Fields(str(path), parse(path.read_bytes()))
        results.fields("data")
        results.fields("configuration").take("normalize_features")
    except ValueError:
        return None
    return results


def _is_checkpoint(path: Path) -> bool:
    try:
        checkpoint_file.position(path)
    except (OSError, ValueError):
        return False
    return True


def require_absent(folder: Path, names: Iterable[str], command: str) -> None:
    """Refuses a folder that no earlier run of a command has written to, if it has files of some names."""
    there = sorted(name for name in names if os.path.lexists(folder / name))
    if there:
        raise ValueError(
            f"--out: {folder / there[0]} would be lost, which no earlier {command} has written; want another folder, "
            "or that file in another place"
        )


def write_array(file: IO[bytes], array: np.ndarray) -> None:
    """Writes an array as ``np.save`` does, but with the system's own error if the disk is full."""
    write_header(file, array.dtype, array.shape)
    write_values(file, array)


def node_names(graph: Graph) -> np.ndarray:
    """``[n]``: the names of the nodes; without names, their numbers."""
    return np.arange(graph.num_nodes) if graph.nodes is None else graph.nodes


def embedding_table(graph: Graph, embedding: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of a table of embeddings ``[n, d]``: ``node``, and ``z0`` and so on."""
    return {"node": node_names(graph), **{f"z{k}": column for k, column in enumerate(embedding.T)}}


def write_table(file: IO[bytes], columns: Mapping[str, np.ndarray], suffix: str) -> None:
    """Writes columns of names, integers or floats as CSV in UTF-8, or as Parquet.

    Args:
        columns: header -> column, all of one length.
        suffix: one of TABLES.

    Raises:
        ImportError: Parquet, and pyarrow is not installed.
    """
    if suffix == ".parquet":
        write_parquet(file, columns)
        return
    file.write(",".join(map(_field, columns)).encode() + b"\n")
    # So many digits give a float32 or a float64 back.
    forms = {"f4": "%.9g", "f8": "%.17g"}
    row = ",".join(forms.get(column.dtype.str[1:], "%s") for column in columns.values()) + "\n"
    values = [
        map(_field, column.tolist()) if column.dtype.kind == "O" else column.tolist() for column in columns.values()
    ]
    for fields in zip(*values, strict=True):
        file.write((row % fields).encode())


def _field(name: str | int) -> str:
    """A field of CSV, in quotes where a reader would take it for something else."""
    field = str(name)
    plain = field == field.strip() and not set(field) & set(',;"\t\r\n') and field[:1] not in ("#", "%")
    return field if plain and field else '"' + field.replace('"', '""') + '"'
