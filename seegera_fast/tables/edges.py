"""The edges of a table: two columns of names, and one of weights or of times."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..support.hints import counted, cut, nearest, short
from ..support.pieces import spans
from ..support.warning import warn_outside
from .column_store import Column, InTurn
from .columns import ColumnTable
from .headers import ends_places, is_header_of_edges, kind_of, may_be_others
from .names import Names, is_integer
from .text import TextFile
from .values import column_of_numbers, is_number, names_of, times_of

EDGE = "two node numbers (integers from 0, in the digits 0 to 9) and optionally a weight of 0 or more"
NAMED_EDGE = "the names of two nodes (words or integers) and optionally a weight of 0 or more"
WEIGHT = "weight"
WEIGHTS = "a weight of 0 or more, in the digits 0 to 9"
OF_WORDS = "; source=0 and target=2 if these are a node, a kind of edge, and a node"
# So many edges are taken from a file at once.
EDGES = 2**21


@dataclass
class Edges:
    """What a table of edges holds.

    Attributes:
        table: the table.
        names: the different names of the ends.
        ends: int32 ``[E]`` and ``[E]``: places in ``names``.
        weights: float64 ``[E]``, or None: the table has none.
        times: float64 ``[E]``, or None.
        lines: the line of each edge, in pieces.
    """

    table: Any
    names: list[str]
    ends: tuple[np.ndarray, np.ndarray]
    weights: np.ndarray | None
    times: np.ndarray | None
    lines: list[range | np.ndarray]

    def place(self, edge: int) -> str:
        return self.table.place(self._line(edge))

    def wrong(self, edge: int, want: str) -> ValueError:
        return self.table.wrong(self._line(edge), [self.names[end[edge]] for end in self.ends], want)

    def first_with(self, names: np.ndarray) -> int:
        """The first edge one of whose ends is among names, given as a mask."""
        for low, high in spans(self.ends[0].size, EDGES):
            found = names[self.ends[0][low:high]] | names[self.ends[1][low:high]]
            if found.any():
                return low + int(found.argmax())
        raise ValueError("names: got a mask of no name that an edge has")

    def degrees(self) -> np.ndarray:
        """int64 ``[len(names)]``: how many ends have each name."""
        found = np.zeros(len(self.names), np.int64)
        for end in self.ends:
            for low, high in spans(end.size, EDGES):
                found += np.bincount(end[low:high], minlength=found.size)
        return found

    def in_both_columns(self) -> np.ndarray:
        """bool ``[len(names)]``: which names are at the first end of an edge and at the second end of one."""
        found = np.zeros((2, len(self.names)), bool)
        for mask, end in zip(found, self.ends, strict=True):
            for low, high in spans(end.size, EDGES):
                mask[end[low:high]] = True
        return found.all(axis=0)

    def _line(self, edge: int) -> int:
        starts = np.cumsum([0, *map(len, self.lines)]).tolist()
        piece = bisect_right(starts, edge) - 1
        return self.lines[piece][edge - starts[piece]]


class _Places:
    """The places of the columns, and which of the first records is no edge."""

    def __init__(self, table: Any, columns: dict[str, Any], header: bool | None) -> None:
        text = isinstance(table, TextFile)
        self.first = first = table.first if text else table.header
        given = [column for column in columns.values() if isinstance(column, str)]
        self.header = not text and not table.unnamed
        # Whether the first record is read as an edge and may be names of columns, or the other way round. The names of
        # all edges tell.
        self.undecided = self.supposed = False
        if text and header is None and not given:
            self.header, reason = is_header_of_edges(table)
            self.undecided = not (self.header or reason or any(map(is_number, first)))
            self.supposed = self.header and not reason
            if reason:
                _warn_of_first(table, self.header, reason)
        elif text:
            self.header = bool(given) if header is None else header
        if given and not self.header:
            raise ValueError(f"{table.path}: got the column {short(given[0])} of a table without a header")
        usual, doubtful = ends_places(first) if self.header and len(first) > 1 else ((0, 1), False)
        if usual != (0, 1):
            # The end that is not stated is another column than the one that is.
            stated = [place_of(table, first, name, columns[name], -1) for name in ("source", "target")]
            usual = tuple(next((k for k in (at, *usual) if k not in stated), at) for at in usual)
        self.ends = [
            place_of(table, first, name, columns[name], usual[k]) for k, name in enumerate(("source", "target"))
        ]
        doubtful = doubtful or (self.header and may_be_others(first, self.ends, (columns[WEIGHT], columns["time"])))
        if doubtful and columns["source"] is None and columns["target"] is None:
            ends = " and ".join(short(first[place]) for place in self.ends)
            warn_outside(
                f"{table.path}: got the columns {short(', '.join(first))}, of which {ends} are read as the ends of the "
                "edges; source= and target= state others"
            )
        self.weight, self.time = (
            None if columns[name] is None else place_of(table, first, name, columns[name], None)
            for name in (WEIGHT, "time")
        )
        # A third column is the weight where no header says otherwise.
        self.implied = self.weight is None and self.time is None and not self.header and 2 not in self.ends
        if self.weight is None and self.header:
            known = [name.lower() for name in first]
            found = known.index(WEIGHT) if WEIGHT in known else None
            self.weight = None if found in (*self.ends, self.time) else found
        if self.ends[0] == self.ends[1]:
            raise ValueError(f"{table.path}: got the same column as source and target, want two")


def place_of(table: Any, first: list[str], argument: str, column: Any, default: int | None) -> int:
    """The place of a column that is given by its name, its number, or not at all."""
    if isinstance(column, str):
        if column not in first:
            raise ValueError(f"{argument}: got {short(column)}, {nearest(column, map(cut, first))} ({table.path})")
        if first.count(column) > 1:
            raise ValueError(f"{argument}: got {short(column)}, which {table.path} has twice, want its number from 0")
        return first.index(column)
    if column is None and default < len(first):
        return default
    if column is not None and column < len(first):
        return column
    got = f"{len(first)} column" + "s" * (len(first) != 1)
    if column is not None:
        raise ValueError(f"{argument}: got column {short(column)}, but {table.path} has {got}, counted from 0")
    if isinstance(table, TextFile):
        raise table.wrong(table.first_line, first, f"{table.want} ({got})")
    raise ValueError(f"{table.path}: got {got}, want {table.want}")


def read_edges(
    table: TextFile | ColumnTable,
    columns: dict[str, Any],
    reading: Any,
    keep: Callable[[Any], Column] = Column,
    watch: Callable[[Any, Iterator[Any]], Iterator[Any]] = lambda table, blocks: blocks,
) -> Edges:
    """Reads the edges.

    Args:
        columns: ``source``, ``target``, ``weight`` and ``time``: the name or the number of a column, or None.
        reading: whether there is a header, and whether weights are wanted.
        keep, watch: see :func:`seegera_fast.tables.join.parts_of_graph`.

    Raises:
        ValueError: a line is wrong, or there are no edges; the message names the file and the line.
    """
    if isinstance(table, TextFile) and table.first is None:
        raise ValueError(f"{table.path}: holds no edges, want {table.want} per line")
    places = _Places(table, columns, reading.header)
    if reading.weighted and places.weight is None and not places.implied and len(places.first) > 2:
        raise ValueError(
            f"{table.path}: got the columns {short(', '.join(places.first))}, want weight= to say which is the weight"
        )
    ends, lines, weights = [keep(np.int32), keep(np.int32)], [], None
    names, times = Names(InTurn(*ends)), None if places.time is None else keep(np.float64)
    for block in watch(table, _blocks(table, places)):
        for place in places.ends:
            names.add(names_of(table, block, place))
        weight = _weights_of(table, block, places)
        if weight is not None and weights is None:
            weights = keep(np.float64)
            for piece in lines:
                weights.append(np.ones(len(piece)))
        if weights is not None:
            weights.append(np.ones(len(block)) if weight is None else weight)
        if times is not None:
            times.append(times_of(table, block, places.time))
        lines.append(block.lines)
    found = names.finish()
    weight, time = (None if part is None else part.whole() for part in (weights, times))
    edges = Edges(table, found, (ends[0].whole(), ends[1].whole()), weight, time, lines)
    if places.undecided:
        edges = _decide(edges, keep)
    if places.supposed and any(places.first[place] in found for place in places.ends):
        _warn_of_first(table, True, "though other lines have these names")
    if places.header:
        _warn_of_shared_names(edges, [places.first[place] for place in places.ends])
    if not edges.ends[0].size:
        raise ValueError(f"{table.path}: holds no edges, want {table.want} per line")
    return edges


def _blocks(table: Any, places: _Places) -> Iterator[Any]:
    if isinstance(table, ColumnTable):
        wanted = {*places.ends, places.weight, places.time} - {None}
        if places.implied and len(table.header) > 2:
            places.weight = 2
        if places.implied and len(table.header) > 3:
            raise ValueError(f"{table.path}: got {len(table.header)} columns, want {table.want}, or weight= or time=")
        places.implied = False
        yield from table.blocks(sorted({*wanted, places.weight} - {None}))
        return
    table.titles = table.first if places.header else None
    for block in table.blocks(int(places.header)):
        if places.header and (block.width != len(table.first) or None in block.fields):
            wrong = next(k for k in range(len(block)) if len(block.record(k)) != len(table.first))
            names = short(", ".join(table.first))
            raise table.wrong(block.lines[wrong], block.record(wrong), f"the {len(table.first)} columns {names}")
        if places.implied and block.width > 3:
            raise table.wrong(
                block.lines[0],
                block.record(0),
                f"{table.want}; of a table with more columns, weight= or time= says which are used",
            )
        yield block


def _weights_of(table: Any, block: Any, places: _Places) -> np.ndarray | None:
    if places.implied and block.width > 2:
        return _implied_weights(table, block)
    if places.weight is None:
        return None
    return column_of_numbers(table, block, places.weight, WEIGHTS, 0)


def _implied_weights(table: Any, block: Any) -> np.ndarray:
    if None in block.fields:
        fields = ["1" if field is None else field for field in block.fields]
        block = type(block)(fields, block.width, block.lines)
    return column_of_numbers(table, block, 2, table.want, 0, OF_WORDS)


def _warn_of_first(table: TextFile, header: bool, reason: str) -> None:
    read = "names of columns" if header else "an edge"
    other = "header=False if it is an edge" if header else "header=True if they are names of columns"
    got = short(" ".join(table.first).strip())
    warn_outside(f"{table.place(table.first_line)}: got {got}, which is read as {read}, {reason}; {other}")


def _warn_of_shared_names(edges: Edges, columns: list[str]) -> None:
    """Says that nodes of two kinds, such as users and movies, have the same names, and so are the same nodes."""
    kinds = list(map(kind_of, columns))
    if None in kinds or kinds[0] == kinds[1]:
        return
    shared = np.flatnonzero(edges.in_both_columns())
    if shared.size:
        one, two = (f"{kind[0]}1" for kind in kinds)
        other = f"names such as {one!r} and {two!r}" if one != two else "different names"
        warn_outside(
            f"{edges.table.path}: {counted(shared.size, 'name')} in both of the columns {short(columns[0])} and "
            f"{short(columns[1])}, such as {short(edges.names[shared[0]])}, and one node each; if they are different "
            f"nodes, give them {other}"
        )


def _decide(edges: Edges, keep: Callable[[Any], Column]) -> Edges:
    """Leaves out the first record, of two words, if all others are integers: then it holds names of columns."""
    first = [int(end[0]) for end in edges.ends]
    degrees = edges.degrees()
    if len(edges.ends[0]) < 2 or first[0] == first[1] or (degrees[first] > 1).any():
        return edges
    others = [name for number, name in enumerate(edges.names) if number not in first]
    if not all(map(is_integer, others)):
        usual = all(kind_of(edges.names[number]) for number in first)
        if usual or degrees.sum() - 2 >= 2 * len(others):
            _warn_of_first(edges.table, False, "though no other line has these names")
        return edges
    number = np.cumsum(~np.isin(np.arange(len(edges.names)), first)).astype(np.int32) - 1
    ends = keep(np.int32), keep(np.int32)
    for low, high in spans(edges.ends[0].size - 1, EDGES):
        for kept, end in zip(ends, edges.ends, strict=True):
            kept.append(number[end[1 + low : 1 + high]])
    weights, times = (None if part is None else part[1:] for part in (edges.weights, edges.times))
    lines = [edges.lines[0][1:], *edges.lines[1:]]
    return Edges(edges.table, others, (ends[0].whole(), ends[1].whole()), weights, times, lines)
