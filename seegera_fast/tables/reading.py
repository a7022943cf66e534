"""What is said of tables: their columns, and how they are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support import arguments
from .columns import ColumnTable, is_file_of_columns, open_columns, table_of
from .lines import COMMENTS, known_encoding
from .rows import RowTable
from .text import TextFile

COLUMNS = ("source", "target", "weight", "time", "node", "label")


@dataclass(frozen=True)
class Reading:
    """How tables are read; see :meth:`seegera_fast.Graph.from_table`."""

    source: str | int | None = None
    target: str | int | None = None
    weight: str | int | None = None
    time: str | int | None = None
    node: str | int | None = None
    label: str | int | None = None
    categories: Sequence[str | int] = ()
    names: bool | None = None
    header: bool | None = None
    separator: str | None = None
    encoding: str | None = None
    comments: str = COMMENTS
    weighted: bool = False

    def checked(self) -> Reading:
        """The same, with plain values.

        Raises:
            TypeError, ValueError: a wrong argument, by its name.
        """
        found: dict[str, Any] = {name: _column(name, getattr(self, name)) for name in COLUMNS}
        given = self.categories
        if not isinstance(given, (list, tuple)):
            raise TypeError(f"categories: got {arguments.shown(given)}, want a list or a tuple of columns")
        found["categories"] = tuple(_column("categories", column) for column in given)
        for name in ("names", "header"):
            value = getattr(self, name)
            found[name] = None if value is None else arguments.flag(name, value)
        if self.separator is not None:
            found["separator"] = arguments.choice("separator", self.separator, (",", ";", "\t", " "))
        if self.encoding is not None:
            found["encoding"] = known_encoding("encoding", arguments.text("encoding", self.encoding))
        found["weighted"] = arguments.flag("weighted", self.weighted)
        found["comments"] = arguments.text("comments", self.comments)
        return Reading(**found)

    def open(self, argument: str, value: Any, want: str, widths: tuple[int, ...] = ()) -> TextFile | ColumnTable:
        """Opens a table in a file or in memory."""
        if not isinstance(value, (str, os.PathLike)):
            return table_of(argument, value, want)
        path = Path(arguments.path(argument, value))
        if is_file_of_columns(path):
            return open_columns(path, want)
        return TextFile(
            path, want, widths=widths, separator=self.separator, encoding=self.encoding, comments=self.comments
        )

    def open_rows(self, argument: str, table: TextFile | ColumnTable, both: bool) -> RowTable:
        """Looks at a table with a row per node.

        Args:
            argument: "features" or "labels".
            both: whether it has both.
        """
        columns = {"features": self.categories, "labels": (self.label,)}
        stated = (*columns["features"], *columns["labels"]) if both else columns[argument]
        beside = argument == "labels" and not both
        return RowTable(table, self.node, (self.node, *stated), self.header, self.names, beside=beside)


def _column(name: str, value: Any) -> str | int | None:
    if value is None or isinstance(value, str):
        return value
    return arguments.whole(name, value, wanted="the name of a column, or its number from 0")
