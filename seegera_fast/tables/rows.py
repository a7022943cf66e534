"""Tables with a row per node: features, and labels."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from ..convert import warn_outside
from ..support.frames import is_missing
from ..support.hints import short
from .columns import ColumnTable
from .edges import place_of
from .text import TextFile
from .values import column_of_numbers, is_number, names_of, numbers_of

FEATURES, LABELS = "finite numbers, in the digits 0 to 9", "one integer, or one word"
# First fields of a line, in any case, by which it is taken for names of columns.
NODES = {"node", "id", "name", "node_id", "nodeid", "user", "item", "key", "source", "page", "paper", "title", ""}
CLASSES = {"label", "class", "labels", "y", "category", "group", "target", "type"}
# Of a single column: the names that are hardly labels themselves.
CLEAR_CLASSES = {"label", "class", "labels", "category"}
WHOLE = re.compile(r"[+-]?[0-9]+")
# An integer as a table writes it where others are missing.
DECIMAL = re.compile(r"([+-]?[0-9]+)\.0*")


@dataclass
class Rows:
    """What a table with a row per node holds.

    Attributes:
        table: what it was read from, or None: it was a matrix.
        path: its name.
        names: the name of each row; None: row i is node i.
        values: the features, any matrix ``[rows, columns]``, or the labels ``[rows]``.
        columns: the names of the features; None: they have none.
        lines: the line of each row.
    """

    path: Any
    values: Any
    names: list[str] | None = None
    columns: list[str] | None = None
    lines: list[int] | None = None
    table: Any = None

    def settled(self, named: bool) -> Rows:
        """The rows of a table whose first column was read both as names and as a feature."""
        return replace(self, values=self.values[:, 1:]) if named else replace(self, names=None)


class RowTable:
    """A table with a row per node, whose first records have been looked at.

    Args:
        table: the table.
        node: the column of the names, by its name or its number; None: the first, if it holds names.
        stated: every name of a column that the caller gave, which says that there is a header.
        header, names: whether there are names of columns, and of nodes; None: as it looks.

    Attributes:
        named: whether the rows have names; None: that depends on the nodes of the edges, because all are numbers.
    """

    def __init__(
        self, table: TextFile | ColumnTable, node: Any, stated: Collection[Any], header: bool | None, names: bool | None
    ) -> None:
        self.table = table
        text = isinstance(table, TextFile)
        self.first = table.first if text else table.header
        if not self.first:
            raise ValueError(f"{table.path}: holds no rows, want {table.want} per line, a line per node")
        self.header, self._unsure = not text and not table.unnamed, False
        if text:
            said = any(isinstance(column, str) for column in stated)
            self.header = (said or _is_header(self.first, table.second)) if header is None else header
            # Whether the first record may be names of columns or data, which the nodes of the edges tell.
            plain = not any(map(is_number, self.first[1:])) and not _has_usual_names(self.first)
            self._unsure = header is None and not said and plain and table.second is not None
        self.place = place_of(table, self.first, "node", node, 0)
        if names is not None or node is not None:
            self.named = names is not False
        elif len(self.first) == 1:
            self.named = False
        elif not text:
            self.named = self.header
        else:
            self.named = True if self.header or not all(map(is_number, self.first)) else None

    def settle(self, named: bool, known: Collection[str]) -> None:
        """Decides whether the rows have names, and whether the first one has names of columns.

        Args:
            known: the names of the nodes of the edges.
        """
        self.named = named
        if not (self._unsure and named):
            return
        name, below = self.first[self.place], self.table.second[self.place]
        header = name not in known and (self.header or below in known)
        if header and not self.header:
            warn_outside(
                f"{self.table.place(self.table.first_line)}: got {short(' '.join(self.first))}, which is read as names "
                f"of columns, because {short(name)} is not among the edges; header=False if it is a row"
            )
        self.header = header

    def features(self, without: Collection[str], categories: Collection[Any]) -> Rows:
        """Reads all columns but that of the names and those of the names ``without``, as features.

        Args:
            categories: columns of words; each word becomes a feature of 0 and 1.

        Raises:
            ValueError: a field is no finite number; the message names the line.
        """
        table, header = self.table, [*self.first] if self.header else None
        # Until it is known whether the first column holds names, it is read both as names and as a feature.
        may_be_named = self.named is not False
        out = {self.place} if self.named else set()
        if header is not None:
            out |= {header.index(name) for name in without if name in header}
        words = [place_of(table, self.first, "categories", column, None) for column in categories]
        places = [place for place in range(len(self.first)) if place not in out]
        plain = [place for place in places if place not in words]
        if not places:
            raise ValueError(f"{table.path}: got no column beside the names, want at least one feature")
        names, lines, parts, kinds = [], [], [], {place: [] for place in words}
        for block in self._blocks(sorted({*places, *out})):
            if may_be_named:
                names += names_of(table, block, self.place)
            lines.extend(block.lines)
            parts.append(self._numbers(block, plain))
            for place in words:
                kinds[place] += names_of(table, block, place)
        if not lines:
            raise ValueError(f"{table.path}: holds no rows, want one row of features per node")
        matrices, columns = [np.concatenate(parts)], [header[place] if header else str(place) for place in plain]
        for place in words:
            known, code = np.unique(np.array(kinds[place], object), return_inverse=True)
            matrices.append(
                scipy.sparse.csr_matrix((np.ones(len(code)), (np.arange(len(code)), code)), (len(code), len(known)))
            )
            columns += [f"{header[place] if header else place}={word}" for word in known]
        values = matrices[0] if not words else scipy.sparse.hstack([matrices[0], *matrices[1:]], format="csr")
        return Rows(table.path, values, names if may_be_named else None, columns if header else None, lines, table)

    def labels(self, label: Any) -> Rows:
        """Reads the column ``label`` as labels: all integers, or all words (an empty one: unknown).

        Raises:
            ValueError: there are integers and words, or no labels.
        """
        table = self.table
        place = self._label_place(label)
        names, lines, values = [], [], []
        for block in self._blocks(sorted({place, self.place} if self.named else {place})):
            if self.named:
                names += names_of(table, block, self.place)
            lines.extend(block.lines)
            column = block.column(place)
            values += column.tolist() if isinstance(column, np.ndarray) else column
        if not lines:
            raise ValueError(f"{table.path}: holds no labels, want one integer or word per node")
        found = _labels(table, values, lines, empty=self.named)
        return Rows(table.path, found, names if self.named else None, None, lines, table)

    def _label_place(self, label: Any) -> int:
        if label is not None:
            return place_of(self.table, self.first, "label", label, None)
        known = [place for place, name in enumerate(self.first) if name.lower() in CLASSES and place != self.place]
        if self.header and len(known) == 1:
            return known[0]
        if len(self.first) > 1 + bool(self.named):
            names = short(", ".join(self.first)) if self.header else f"{len(self.first)} columns"
            raise ValueError(f"{self.table.path}: got {names}, want label= to say which is the label")
        return int(bool(self.named) and self.place == 0)

    def _blocks(self, places: list[int]) -> Any:
        if isinstance(self.table, TextFile):
            return self.table.blocks(int(self.header))
        return self.table.blocks(places)

    def _numbers(self, block: Any, places: list[int]) -> np.ndarray:
        if isinstance(self.table, TextFile) and len(places) == block.width:
            found = numbers_of(block.fields)
            if found is not None and np.isfinite(found).all():
                return found.reshape(-1, block.width)
        out = np.empty((len(block), len(places)))
        for column, place in enumerate(places):
            name = f"column {short(self.first[place]) if self.header else place}"
            want = f"{FEATURES} ({name}); words are features where categories names their column"
            out[:, column] = column_of_numbers(self.table, block, place, want)
        return out


def _is_header(first: list[str], second: list[str] | None) -> bool:
    """Whether a first record of words stands above numbers, or begins as names of columns do."""
    rest = first[1:] or first
    if any(map(is_number, rest)) or len({*first}) < len(first):
        return False
    if _has_usual_names(first):
        return True
    return second is not None and any(map(is_number, second[1:] or second))


def _has_usual_names(first: list[str]) -> bool:
    if len(first) == 1:
        return first[0].lower() in CLEAR_CLASSES
    return first[0].lower() in NODES or first[1].lower() in CLASSES


def _labels(table: Any, values: list[Any], lines: list[int], *, empty: bool) -> np.ndarray:
    """Labels of a column: int64, or words as objects, "" where unknown."""
    want = f"{LABELS} per node"
    out, kind, first = [], None, 0
    words = [value for value in values if isinstance(value, str) and value and not is_missing(value)]
    if all(WHOLE.fullmatch(word) or DECIMAL.fullmatch(word) for word in words):
        values = [_without_point(value) for value in values]
    elif all(map(is_number, words)):
        word = next(word for word in words if not WHOLE.fullmatch(word) and not DECIMAL.fullmatch(word))
        raise table.wrong(lines[values.index(word)], [word], f"{want}, and no real numbers")
    for value, line in zip(values, lines, strict=True):
        if is_missing(value) or (value == "" and empty):
            out.append(None)
            continue
        whole = _whole(value)
        if value == "" or (whole is None and not isinstance(value, str)):
            raise table.wrong(line, [str(value)], want)
        found = str if whole is None else int
        if kind is None:
            kind, first = found, line
        if found is not kind:
            wanted = "one integer" if kind is int else "one word"
            raise table.wrong(line, [str(value)], f"{wanted} as in {table.place(first).rpartition(', ')[2]}")
        out.append(value if whole is None else whole)
    if kind is str:
        return np.array(["" if value is None else value for value in out], object)
    try:
        return np.array([-1 if value is None else value for value in out], np.int64)
    except OverflowError:
        line = next(line for value, line in zip(out, lines, strict=True) if abs(value or 0) >= 2**63)
        raise table.wrong(line, [str(out[lines.index(line)])], f"{want}, in 64 bits") from None


def _without_point(value: Any) -> Any:
    found = DECIMAL.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else value


def _whole(value: Any) -> int | None:
    """The integer that a label is; None: it is none."""
    if isinstance(value, str):
        # Python refuses to convert very many digits.
        return int(value) if WHOLE.fullmatch(value) and len(value) < 100 else None
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return int(value)
    return (
        int(value) if isinstance(value, (float, np.floating)) and np.isfinite(value) and value == value // 1 else None
    )
