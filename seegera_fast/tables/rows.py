"""Tables with a row per node: features, and labels."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import scipy.sparse

from ..support.frames import is_missing
from ..support.hints import short
from ..support.warning import warn_outside
from .columns import ColumnTable
from .edges import place_of
from .headers import CLASSES, INDEX, NODES, has_index, is_header_of_nameless_rows, is_header_of_rows, node_place
from .text import TextFile
from .values import column_of_numbers, is_number, names_of, numbers_of, whole_decimal

FEATURES, LABELS = "finite numbers, in the digits 0 to 9", "one integer, or one word"
OF_WORDS = "; words are features where categories names their column"
# Usual names of a column of nodes that is found by its place.
NUMBERED = {"index", "idx", "nodes", "vertex"}
WHOLE = re.compile(r"[+-]?[0-9]+")
# An integer as a table writes it where others are missing.
DECIMAL = re.compile(r"([+-]?[0-9]+)\.0*")
OTHERWISE = "node= says which one that is, names=False that there is none"
OF_INDEX = "; rename_axis('id') if it has the names of the nodes"


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
        guess: see :class:`RowTable`.
    """

    path: Any
    values: Any
    names: list[str] | None = None
    columns: list[str] | None = None
    lines: list[int] | None = None
    table: Any = None
    guess: str = ""

    def settled(self, named: bool) -> Rows:
        """The rows of a table whose first column was read both as names and as a feature."""
        return replace(self, values=self.values[:, 1:]) if named else replace(self, names=None)


class RowTable:
    """A table with a row per node, whose first records have been looked at.

    Args:
        table: the table.
        node: the column of the names, by its name or its number; None: the first, if it holds names.
        stated: every column of this table that the caller gave. A name says that there is a header.
        header, names: whether there are names of columns, and of nodes; None: as it looks.
        beside: whether a column beside another says that the other one holds names, as in a table of labels alone.

    Attributes:
        path: the name of the table.
        first: its first record, or the names of its columns.
        named: whether the rows have names; None: that depends on the nodes of the edges, because all are numbers.
        header: whether the first record has names of columns; None: that depends on the nodes of the edges.
        guess: what messages say of the column of the names where its place alone tells that it is that; else "".
    """

    def __init__(
        self,
        table: TextFile | ColumnTable,
        node: Any,
        stated: Collection[Any],
        header: bool | None,
        names: bool | None,
        *,
        beside: bool,
    ) -> None:
        text = isinstance(table, TextFile)
        by_index = not text and table.header and node is None and table.has_index and _names_rows(table, names, stated)
        table = table.with_index() if by_index else table
        self.table, self.path = table, table.path
        self.first = first = table.first if text else table.header
        if not first:
            raise ValueError(f"{table.path}: holds no rows, want {table.want} per line, a line per node")
        given = [column for column in stated if isinstance(column, str)]
        if given and (header is False if text else table.unnamed):
            raise ValueError(f"{table.path}: got the column {short(given[0])} of a table without a header")
        numbers = text and all(map(is_number, first)) and (table.second is None or is_number(table.second[0]))
        self.header = not table.unnamed if not text else True if given else header
        if self.header is None and numbers:
            self.header = False
        self.place = len(first) - 1 if by_index else place_of(table, first, "node", node, node_place(first))
        stated_names = names is not None or node is not None
        self._by_place = not stated_names and (text or not table.indexed)
        if stated_names:
            self.named = names is not False
        elif len(first) == 1:
            self.named = False
        elif beside:
            self.named = True
        elif not text:
            self.named = self.header
        else:
            self.named = None if numbers and not self.header else True

    def settle(self, named: bool, known: Collection[str]) -> None:
        """Decides whether the rows have names, and whether the first one has names of columns.

        Args:
            known: the names of the nodes of the edges.
        """
        self.named = named
        if self.header is not None:
            return
        if not named:
            self.header = is_header_of_nameless_rows(self.first, self.table.second)
            return
        self.header, reason = is_header_of_rows(self.table, self.place, known)
        if reason:
            warn_outside(
                f"{self.table.place(self.table.first_line)}: got {short(' '.join(self.first).strip())}, which is read "
                f"as names of columns, {reason}; header=False if it is a row"
            )

    @property
    def guess(self) -> str:
        name = self.first[self.place]
        if not self._by_place or not self.named or not self.header or _is_usual(name):
            return ""
        index = isinstance(self.table, ColumnTable) and self.table.has_index
        return f"the column {short(name)} is read as the names of the nodes; {OTHERWISE}" + OF_INDEX * index

    def _names(self, block: Any) -> Sequence[str]:
        """The names of the nodes of a block."""
        try:
            return names_of(self.table, block, self.place)
        except (TypeError, ValueError) as error:
            if not self.guess:
                raise
            raise type(error)(f"{error}; {self.guess}") from None

    def label_place(self, label: Any) -> int:
        """The place of the labels: ``label``, or the one with a usual name, or the only one that holds no names."""
        if label is not None:
            place = place_of(self.table, self.first, "label", label, None)
            self._refuse_names("label", label, place)
            return place
        others = [place for place in range(len(self.first)) if place not in self._beside()]
        if self.header:
            known = [place for place in others if self.first[place].lower() in CLASSES]
            others = known if len(known) == 1 else others
        if len(others) != 1:
            names = short(", ".join(self.first)) if self.header else f"{len(self.first)} columns"
            raise ValueError(f"{self.table.path}: got {names}, want label= to say which is the label")
        return others[0]

    def features(self, categories: Collection[Any], label: int | None) -> Rows:
        """Reads all columns but that of the names and ``label`` as features.

        Args:
            categories: columns of words; each word becomes a feature of 0 and 1.
            label: the place of the labels in the same table.

        Raises:
            ValueError: a field is no finite number; the message names the line.
        """
        table, header = self.table, [*self.first] if self.header else None
        # Until it is known whether the first column holds names, it is read both as names and as a feature.
        may_be_named = self.named is not False
        words = self._words(categories, label)
        places = [place for place in range(len(self.first)) if place not in self._beside() | {label}]
        plain = [place for place in places if place not in words]
        if not places:
            beside = "the names" if label is None else "the names and the label"
            raise ValueError(f"{table.path}: got no column beside {beside}, want at least one feature")
        if header:
            self._refuse_twice([header[place] for place in places])
        names, lines, parts, kinds = [], [], [], {place: [] for place in words}
        for block in self._blocks(sorted({*places, self.place} if may_be_named else places)):
            if may_be_named:
                names += self._names(block)
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
        known_names = names if may_be_named else None
        return Rows(table.path, values, known_names, columns if header else None, lines, table, self.guess)

    def labels(self, label: Any) -> Rows:
        """Reads the column ``label`` as labels: all integers, or all words (an empty one: unknown).

        Raises:
            ValueError: there are integers and words, or no labels.
        """
        table = self.table
        place = self.label_place(label)
        names, lines, values = [], [], []
        for block in self._blocks(sorted({place, self.place} if self.named else {place})):
            if self.named:
                names += self._names(block)
            lines.extend(block.lines)
            column = block.column(place)
            values += column.tolist() if isinstance(column, np.ndarray) else column
        if not lines:
            raise ValueError(f"{table.path}: holds no labels, want one integer or word per node")
        found = _labels(table, values, lines, empty=self.named)
        return Rows(table.path, found, names if self.named else None, None, lines, table, self.guess)

    def has_feature(self, name: str) -> bool:
        """Whether a column of this name is read as a feature."""
        return bool(self.header) and name in self.first and self.first.index(name) not in self._beside()

    def _beside(self) -> set[int]:
        """The columns that are neither features nor labels: that of the names, and an index beside it."""
        index = {0} if self.header and has_index(self.first) and self.place else set()
        return index | {self.place} if self.named else index

    def _words(self, categories: Collection[Any], label: int | None) -> list[int]:
        """The places of the columns of words."""
        places = []
        for column in categories:
            place = place_of(self.table, self.first, "categories", column, None)
            self._refuse_names("categories", column, place)
            if place in places:
                raise ValueError(f"categories: got {short(column)} twice ({self.table.path}), want different columns")
            if place == label:
                raise ValueError(f"categories: got {short(column)}, which is the label, and so no feature")
            places.append(place)
        return places

    def _refuse_names(self, argument: str, column: Any, place: int) -> None:
        if self.named is not False and place == self.place:
            raise ValueError(
                f"{argument}: got {short(column)}, the column of {self.table.path} that is read as the names of the "
                f"nodes; {OTHERWISE}"
            )

    def _refuse_twice(self, names: list[str]) -> None:
        if len({*names}) < len(names):
            name = next(name for number, name in enumerate(names) if name in names[:number])
            raise ValueError(f"{self.table.path}: got the column {short(name)} twice, want different names")

    def _blocks(self, places: list[int]) -> Any:
        if isinstance(self.table, TextFile):
            self.table.titles = self.first if self.header else None
            return self.table.blocks(int(self.header))
        return self.table.blocks(places)

    def _numbers(self, block: Any, places: list[int]) -> np.ndarray:
        if isinstance(self.table, TextFile) and len(places) == block.width:
            found = numbers_of(block.fields)
            if found is not None and np.isfinite(found).all():
                return found.reshape(-1, block.width)
        out = np.empty((len(block), len(places)))
        for column, place in enumerate(places):
            out[:, column] = column_of_numbers(self.table, block, place, FEATURES, of_words=OF_WORDS)
        return out


def _is_usual(name: str) -> bool:
    """Whether a column has a usual name of that of the nodes."""
    return name.lower() in NODES | INDEX | NUMBERED or name.endswith(("_id", "_ID", "Id", "ID"))


def _names_rows(table: ColumnTable, names: bool | None, stated: Collection[Any]) -> bool:
    """Whether an index without a name holds the names of the rows.

    It does if no column can: there is one column only, or the first is stated to be another, or has no names, or some
    twice. Words do beside any first column that has no usual name. Else numbers may be left from rows that were taken
    out of a larger frame.
    """
    first = table.header[0]
    if names is False:
        warn_outside(
            f"{table.path}: got an index that does not count the rows from 0, and names=False, so that row i is node "
            "i; reset_index(drop=True) if the index says nothing" + OF_INDEX
        )
        return False
    if len(table.header) == 1 or first in stated or 0 in stated:
        return True
    if _is_usual(first):
        return False
    if table.has_index_of_words():
        return True
    try:
        found = [name for block in table.blocks([0]) for name in names_of(table, block, 0)]
    except (TypeError, ValueError):
        return True
    return len({*found}) < len(found)


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
    if isinstance(value, Decimal):
        return whole_decimal(value)
    return (
        int(value) if isinstance(value, (float, np.floating)) and np.isfinite(value) and value == value // 1 else None
    )
