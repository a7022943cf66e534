"""Tables that are made of columns: Parquet and Arrow files, data frames, and NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..support.arguments import array, shown
from ..support.hints import short
from ..support.json_fields import parse

# So many rows of a file are read at once.
ROWS = 2**20
# The first bytes of files of columns, and their kinds.
PARQUET, ARROW, FEATHER_1 = b"PAR1", b"ARROW1", b"FEA1"
# The index that Dask gives a data frame whose user gave it none.
DASK = "__null_dask_index__"
# What the columns that pandas writes for an index without a name begin with.
LEVEL = "__index_level_"
# What messages call an index without a name.
UNNAMED_INDEX = "index"
SUFFIXES = {".parquet": "Parquet", ".feather": "Feather", ".arrow": "Arrow", ".ipc": "Arrow"}


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """Rows of a table: some of its columns as arrays, by their places, and the number of each row."""

    columns: dict[int, np.ndarray]
    lines: range

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, place: int) -> np.ndarray:
        return self.columns[place]

    def record(self, number: int) -> list[str]:
        return [str(column[number]) for column in self.columns.values()]


class ColumnTable:
    """A table of columns.

    Args:
        path: the name of the file or of the argument, for messages.
        header: the names of the columns.
        read: what yields arrays of the columns at some places, of some rows after the other.
        unnamed: the columns of an array, which have numbers only.
        indexed: the first column is the index of a data frame.
        index: returns the index of a data frame that has no name, and is no column; None: there is none.
        size: the number of rows; None: unknown.

    Attributes:
        done: the number of rows that were read.
        titles: the names of the columns; None: they have numbers only.
        has_index: whether there is an index without a name that does more than count the rows.
    """

    unit = "row"

    def __init__(
        self,
        path: str | Path,
        header: Sequence[str],
        read: Callable[[list[int]], Iterator[list[np.ndarray]]],
        want: str,
        *,
        unnamed: bool = False,
        indexed: bool = False,
        index: Callable[[], np.ndarray] | None = None,
        size: int | None = None,
    ) -> None:
        self.path, self.header, self.want = path, list(header), want
        self.unnamed, self.indexed = unnamed, indexed
        self.titles = None if unnamed else self.header
        self.size, self.done = size, 0
        self._read, self._index = read, index
        twice = {name for name in self.header if self.header.count(name) > 1} if len(self.header) < 10**4 else ()
        if twice:
            raise ValueError(f"{path}: got the column {short(min(twice))} twice, want different names")

    def place(self, line: int) -> str:
        return f"{self.path}, row {line}"

    def wrong(self, line: int, fields: list[str], want: str | None = None) -> ValueError:
        return ValueError(f"{self.place(line)}: got {short(' '.join(fields))}, want {want or self.want}")

    def blocks(self, places: list[int]) -> Iterator[ColumnBlock]:
        row = 0
        for columns in self._read(places):
            count = len(columns[0])
            self.done = row + count
            yield ColumnBlock(dict(zip(places, columns, strict=True)), range(row, row + count))
            row += count

    @cached_property
    def has_index(self) -> bool:
        return self._index is not None and not _counts(self._index())

    def has_index_of_words(self) -> bool:
        return self.has_index and all(isinstance(name, str) for name in self._index().tolist())

    def with_index(self) -> ColumnTable:
        """The same rows with their index as the last column, so that the numbers of the others stay."""
        index, last = self._index(), len(self.header)

        def read(places: list[int]) -> Iterator[list[np.ndarray]]:
            row = 0
            for columns in self._read([place for place in places if place != last]):
                found, count = iter(columns), len(columns[0])
                yield [index[row : row + count] if place == last else next(found) for place in places]
                row += count

        return ColumnTable(self.path, [*self.header, UNNAMED_INDEX], read, self.want, indexed=True, size=self.size)


def is_file_of_columns(path: Path) -> bool:
    """Whether a file is Parquet, Arrow or Feather, by its first bytes or its name."""
    if path.suffix.lower() in SUFFIXES:
        return True
    if not path.is_file():  # a pipe, whose bytes can be read once
        return False
    with open(path, "rb") as file:
        return file.read(6).startswith((PARQUET, ARROW, FEATHER_1))


def open_columns(path: Path, want: str) -> ColumnTable:
    """Opens a Parquet, Arrow or Feather file.

    Raises:
        OSError: the file can't be read.
        ImportError: pyarrow is not installed.
        ValueError: the file is damaged; the message names it.
    """
    with open(path, "rb") as file:
        head = file.read(6)
    kind = "Parquet" if head.startswith(PARQUET) else "Arrow" if head == ARROW else None
    if kind is None:
        wanted = SUFFIXES.get(path.suffix.lower(), "Arrow")
        reason = "is in Feather's first format" if head.startswith(FEATHER_1) else f"is no {wanted} file, or damaged"
        raise ValueError(f"{path}: {reason}, want {want} as text, Parquet or Arrow (Feather 2)")
    require_pyarrow(path, kind)
    import pyarrow

    rows = None
    with _named(path, kind):
        if kind == "Parquet":
            import pyarrow.parquet

            file = pyarrow.parquet.ParquetFile(path)
            rows = file.metadata.num_rows
            header, ranges, indexed, levels = _header(file.schema_arrow, lambda: rows)
        else:
            with pyarrow.ipc.open_file(pyarrow.memory_map(str(path))) as reader:
                batches = range(reader.num_record_batches)
                header, ranges, indexed, levels = _header(
                    reader.schema, lambda: sum(reader.get_batch(number).num_rows for number in batches)
                )

    def read(wanted: list[str]) -> Iterator[list[np.ndarray]]:
        row = 0
        with _named(path, kind):
            stored = [name for name in wanted if name not in ranges]
            for batch in (_parquet if kind == "Parquet" else _arrow)(path, stored):
                last = row + batch.num_rows
                yield [
                    np.array(ranges[name][row:last]) if name in ranges else _numpy(batch.column(stored.index(name)))
                    for name in wanted
                ]
                row = last

    def index() -> np.ndarray:
        return _index([np.concatenate(pieces) for pieces in zip(*read(levels), strict=True)])

    return ColumnTable(
        path,
        header,
        lambda places: read([header[place] for place in places]),
        want,
        indexed=indexed,
        index=index if levels else None,
        size=rows,
    )


def _header(schema: Any, rows: Callable[[], int]) -> tuple[list[str], dict[str, range], bool, list[str]]:
    """The names of the columns, in the order of the data frame that pandas wrote: its index is first, if it has a name.

    pandas writes the index as the last columns, and notes which these are. An index of numbers at equal distances is
    only in the note, which outlives the rows that a filter takes away.

    Args:
        rows: returns the number of rows.

    Returns:
        All names, the numbers of those that are no column of the file, whether the first is an index, and what holds
        an index without a name.
    """
    names = [str(name) for name in schema.names if str(name) != DASK and not str(name).startswith(LEVEL)]
    levels = [str(name) for name in schema.names if str(name).startswith(LEVEL)]
    try:
        noted = parse((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
        ranges = {
            LEVEL if level["name"] is None else level["name"]: range(level["start"], level["stop"], level["step"])
            for level in noted
            if isinstance(level, dict) and isinstance(level["name"], (str, type(None))) and level["name"] not in names
        }
        ranges = {name: numbers for name, numbers in ranges.items() if len(numbers) == rows()}
        levels += [LEVEL] * (LEVEL in ranges)
        index = [name for name in ranges if name != LEVEL]
        index += [level for level in noted if isinstance(level, str) and level in names]
    except (
        KeyError,
        OverflowError,
        TypeError,
        ValueError,
    ):  # written by something else, or with another note of this name
        index, ranges = [], {}
    return [*index, *(name for name in names if name not in index)], ranges, bool(index), [] if index else levels


def _index(levels: list[Any]) -> np.ndarray:
    """An index as an array; of several levels, with tuples in it."""
    if len(levels) == 1:
        return np.asarray(levels[0])
    index = np.empty(len(levels[0]), object)
    index[:] = [*zip(*(np.asarray(level).tolist() for level in levels), strict=True)]
    return index


def _counts(index: np.ndarray) -> bool:
    """Whether an index is 0, 1, 2 and so on, as pandas makes it by itself."""
    return index.dtype.kind in "iu" and np.array_equal(index, np.arange(index.size))


def require_pyarrow(path: str | Path, kind: str) -> None:
    """Raises an ImportError that says what a file of some kind needs, if it is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ImportError(
            f"{path}: {kind} files need pyarrow, which is not installed: pip install 'seegera-fast[tables]'"
        ) from None


def write_parquet(file: IO[bytes], columns: Mapping[str, np.ndarray]) -> None:
    """Writes columns of names, integers or floats to an open file."""
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({name: pyarrow.array(column) for name, column in columns.items()}), file)


def _parquet(path: Path, names: list[str]) -> Iterator[Any]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS, columns=names):
            yield batch.select(names)


def _arrow(path: Path, names: list[str]) -> Iterator[Any]:
    import pyarrow

    with pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            batch.validate(full=True)
            yield batch.select(names)


def _numpy(column: Any) -> np.ndarray:
    """A column of Arrow as an array; words become objects."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.to_numpy(zero_copy_only=False)


@contextmanager
def _named(path: Path, kind: str) -> Iterator[None]:
    """Gives pyarrow's errors the name of the file."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise ValueError(f"{path}: is a damaged {kind} file ({reason})") from None


def is_frame(value: Any) -> bool:
    """Whether a value has columns with names, or words as entries: a data frame, a mapping, or an array of objects."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.names) or (value.ndim == 2 and value.dtype.kind in "OUT")
    if isinstance(value, dict) or hasattr(value, "collect_schema") or hasattr(value, "column_names"):
        return True
    return hasattr(value, "iloc") or (hasattr(value, "columns") and hasattr(value, "dtypes"))


def _has_named_index(value: Any) -> bool:
    """Whether the index of a data frame or a series of pandas has a name, and then is a column."""
    return any(level is not None for level in value.index.names)


def _with_index(name: str, value: Any) -> Any:
    """A data frame or a series of pandas as a data frame, in which an index with a name is the first column."""
    frame = value if hasattr(value, "columns") else value.to_frame("0" if value.name is None else value.name)
    if not _has_named_index(value):
        return frame
    twice = [level for level in value.index.names if level in frame.columns]
    if twice:
        raise ValueError(f"{name}: got an index and a column of the name {shown(twice[0])}, want different names")
    return frame.reset_index()


def table_of(name: str, value: Any, want: str) -> ColumnTable:
    """A table in memory: of pandas, polars or pyarrow, a mapping of columns, or a NumPy array.

    Raises:
        TypeError: it is none of these.
    """
    if hasattr(value, "collect_schema") and not hasattr(value, "to_numpy"):  # a lazy frame of polars
        raise TypeError(f"{name}: got {shown(value)}, want a data frame: call its collect()")
    if hasattr(value, "column_names") and hasattr(value, "to_batches"):  # pyarrow
        header, ranges, indexed, levels = _header(value.schema, lambda: value.num_rows)

        def column(name: str) -> np.ndarray:
            return np.array(ranges[name]) if name in ranges else value.column(name).to_numpy()

        index = (lambda: _index(list(map(column, levels)))) if levels else None
        return _of_columns(name, header, lambda k: column(header[k]), want, indexed=indexed, index=index)
    if hasattr(value, "iloc"):  # pandas
        frame, indexed = _with_index(name, value), _has_named_index(value)
        header, index = list(map(str, frame.columns)), None if indexed else value.index.to_numpy
        return _of_columns(name, header, lambda k: frame.iloc[:, k].to_numpy(), want, indexed=indexed, index=index)
    if hasattr(value, "columns") and hasattr(value, "dtypes"):
        return _of_columns(name, list(value.columns), lambda k: value[value.columns[k]].to_numpy(), want)
    if isinstance(value, np.ndarray) and value.dtype.names:
        return _of_columns(name, list(value.dtype.names), lambda k: value[value.dtype.names[k]], want)
    if isinstance(value, dict):
        columns = [array(name, column) for column in value.values()]
        if len({column.shape for column in columns}) != 1 or columns[0].ndim != 1:
            raise ValueError(f"{name}: got columns of different lengths, want {want}")
        return _of_columns(name, list(map(str, value)), columns.__getitem__, want)
    found = array(name, value)
    if found.ndim != 2:
        raise (TypeError if not found.ndim else ValueError)(
            f"{name}: got {shown(value)} of shape {found.shape}, want a path, a data frame or an array of two "
            f"dimensions: {want}"
        )
    header = list(map(str, range(found.shape[1])))
    return _of_columns(name, header, lambda place: found[:, place], want, unnamed=True)


def _of_columns(
    name: str,
    header: list[str],
    column: Callable[[int], Any],
    want: str,
    *,
    unnamed: bool = False,
    indexed: bool = False,
    index: Callable[[], np.ndarray] | None = None,
) -> ColumnTable:
    def read(places: list[int]) -> Iterator[list[np.ndarray]]:
        yield [np.asarray(column(place)) for place in places]

    return ColumnTable(name, header, read, want, unnamed=unnamed, indexed=indexed, index=index)
