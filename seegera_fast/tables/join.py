"""Joins tables of edges, features and labels to the parts of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..convert import is_far_beyond
from ..support.arguments import shown
from ..support.hints import counted, short
from ..support.warning import warn_outside
from .adjacency import Build, EdgeTimes, in_memory
from .column_store import Column
from .edges import EDGE, NAMED_EDGE, Edges, read_edges
from .headers import are_places
from .matrices import read_sparse
from .names import DIGITS, NUMBER, in_order
from .node_tables import NodeTables, is_path
from .reading import Reading
from .rows import Rows
from .text import TextFile

# Up to so many nodes, their names are the names of the features where the features are the nodes.
MOST_NAMES = 10**5


@dataclass
class Parts:
    """The parts of a graph.

    Attributes:
        adjacency, features, labels, nodes, feature_names: arguments of :class:`seegera_fast.Graph`.
        edge_times: None: there are none.
        sides: int64 ``[n]``: 0 for the nodes in the first column of the edges, 1 for those in the second, -1 for those
            without edges; None: a node is in both.
        places: argument of the graph -> what messages name instead.
        label_column: see :class:`NodeTables`.
        name: the name of the graph.
    """

    adjacency: Any
    features: Any
    labels: Any
    places: dict[str, str]
    nodes: np.ndarray | None = None
    edge_times: EdgeTimes | None = None
    feature_names: list[str] | None = None
    sides: np.ndarray | None = None
    label_column: str | int | None = None
    name: str = "graph"


def parts_of_graph(
    edges: Any,
    features: Any,
    labels: Any,
    reading: Reading,
    *,
    build: Build = in_memory,
    keep: Callable[[Any], Column] = Column,
    watch: Callable[[Any, Iterator[Any]], Iterator[Any]] = lambda table, blocks: blocks,
) -> Parts:
    """Reads the tables.

    Args:
        build: makes the adjacency of the edges.
        keep: makes a column for numbers of a type, one for each edge.
        watch: what goes through the table of edges and its blocks.

    Raises:
        OSError: a file can't be read.
        ImportError: a file is read by a package that is not installed.
        TypeError, ValueError: a table is wrong; the message names the file and the line.
    """
    rows = NodeTables(features, labels, reading)
    names = rows.named()
    if is_path(edges) and Path(edges).suffix in (".npz", ".npy"):
        return _titled(_of_adjacency(Path(edges), rows, names, reading), edges)
    ends = {"source": reading.source, "target": reading.target, "weight": reading.weight, "time": reading.time}
    widths = (2, 3) if all(column is None for column in ends.values()) else ()
    table = reading.open("edges", edges, EDGE if names is False else NAMED_EDGE, widths)
    found = read_edges(table, ends, reading, keep, watch)
    names = rows.decide(found) if names is None else names
    if isinstance(found.table, TextFile) and found.table.comments_inside:
        warn_outside(
            f"{found.table.path}: lines that start with {' or '.join(reading.comments)} are comments, also below the "
            f"first edge ({found.table.comments_inside:,} there); a name that does so needs quotes, or comments=''"
        )
    read = rows.read(names, found.names)
    parts = _named(found, *read, build) if names else _numbered(found, *read, build, reading.names is False)
    parts.places["adjacency"], parts.label_column = str(found.table.path), rows.label_column
    if read[0] is not None:
        parts.feature_names = read[0].columns
    elif parts.nodes is not None and parts.nodes.size <= MOST_NAMES:
        # The features are the nodes.
        parts.feature_names = [str(name) for name in parts.nodes.tolist()]
    return _titled(parts, edges)


def _titled(parts: Parts, edges: Any) -> Parts:
    """Names the graph after the file of its edges."""
    if is_path(edges):
        parts.name = name_of_table(Path(edges))
    return parts


def name_of_table(path: Path) -> str:
    """The name of a file without what says of which kind it is: "friends" of friends.csv.gz."""
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def _of_adjacency(path: Path, rows: NodeTables, names: bool | None, reading: Reading) -> Parts:
    """The parts of a graph whose adjacency is an archive of SciPy."""
    if path.suffix == ".npy":
        raise ValueError(f"{path}: want a table of edges, or an adjacency from scipy.sparse.save_npz (.npz)")
    if names or (names is None and rows.labels_have_names):
        raise ValueError(f"{path}: got an adjacency, whose nodes have no names, want a table of edges for names")
    for column in ("source", "target", "weight", "time"):
        if getattr(reading, column) is not None:
            raise ValueError(f"{column}: got {shown(getattr(reading, column))}, but {path} has no columns")
    adjacency = read_sparse(path)
    features, labels = rows.read(False, [])
    parts = Parts(adjacency, _values(features), _values(labels), _places(features, labels))
    parts.places["adjacency"] = str(path)
    return parts


def _values(rows: Rows | None) -> Any:
    return None if rows is None else rows.values


def _places(features: Rows | None, labels: Rows | None) -> dict[str, str]:
    both = {"features": features, "labels": labels}
    return {argument: str(rows.path) for argument, rows in both.items() if rows is not None}


# Nodes without names.


def _numbered(edges: Edges, features: Rows | None, labels: Rows | None, build: Build, stated: bool) -> Parts:
    """The parts of a graph whose nodes are numbered from 0, with a row of features and of labels for each.

    Args:
        stated: whether the caller says that the nodes are numbers.
    """
    rows = features or labels
    words = np.array([not DIGITS.fullmatch(name) or int(name) >= 2**63 for name in edges.names])
    if words.any():
        reason = f", because {rows.path} has rows without names" if rows else ""
        raise edges.wrong(edges.first_with(words), EDGE + reason)
    number = np.array([int(name) for name in edges.names], np.int64)
    highest, lowest = int(number.max()), int(number.min())

    def place() -> str:
        return edges.place(edges.first_with(number == highest))

    if rows is None:
        if is_far_beyond(highest, edges.ends[0].size):
            raise ValueError(
                f"{place()}: got node {highest} in a file of {edges.ends[0].size} edges, want nodes that are numbered "
                "from 0 without such gaps: names=True, or features or labels with a row per node"
            )
        nodes = highest + 1
        alone = int((np.bincount(number) == 0).sum())
        if not stated and alone:
            warn_outside(
                f"{edges.table.path}: {alone} of the numbers from 0 to {highest} have no "
                "edges, and are nodes without edges; names=True if the nodes are only those in the table"
            )
    else:
        nodes = _length(rows)
        if labels is not None and _length(labels) != nodes:
            raise ValueError(f"{labels.path}: got shape {_shape(labels)}, want one label per node: [{nodes}]")
        if highest >= nodes:
            hint = "; are the nodes numbered from 1?" if lowest == 1 and highest == nodes else ""
            raise ValueError(
                f"{place()}: got node {highest}, but {rows.path} has {nodes} rows: want 0 to {nodes - 1}{hint}"
            )
        if lowest > 0 and not stated:
            warn_outside(
                f"{edges.table.path}: the smallest node is {lowest}, so that the nodes before it have no edges: node i "
                f"is row i of {rows.path}, from 0 on"
            )
        elif highest + 2 == nodes and _may_begin_with_header(rows):
            first = rows.table.first
            options = "header=True" if len(first) == 1 else "header=True and names=False"
            warn_outside(
                f"{rows.path}: has {nodes} rows, and the highest node of {edges.table.path} is {highest}, so that the "
                f"last one has no edges; {options} if the first row, {short(' '.join(first))}, is names of columns"
            )
    adjacency, times, sides = build(edges, number, nodes)
    return Parts(adjacency, _values(features), _values(labels), _places(features, labels), None, times, sides=sides)


def _may_begin_with_header(rows: Rows) -> bool:
    """Whether the first of rows from a text may be names of columns: a word above labels, or 0, 1, 2 and so on."""
    if not isinstance(rows.table, TextFile) or rows.lines[0] != rows.table.first_line:
        return False
    return rows.values.dtype == object or are_places(rows.table.first)


def _length(rows: Rows) -> int:
    shape = _shape(rows)
    if not shape:
        raise TypeError(f"{rows.path}: got {shown(rows.values)}, want a path, a data frame or a row per node")
    return int(shape[0])


def _shape(rows: Rows) -> tuple[int, ...]:
    try:
        return tuple(rows.values.shape) if hasattr(rows.values, "shape") else np.shape(rows.values)
    except ValueError as error:
        raise ValueError(f"{rows.path}: got {type(rows.values).__name__}, want a row per node ({error})") from None


# Nodes with names.


def _named(edges: Edges, features: Rows | None, labels: Rows | None, build: Build) -> Parts:
    """The parts of a graph whose nodes are all names of the three tables, in their order."""
    tables = [rows for rows in (features, labels) if rows is not None]
    code = {name: number for number, name in enumerate(edges.names)} if tables else {}
    names = edges.names
    for rows in tables:
        for name in rows.names:
            code.setdefault(name, len(code))
        names = list(code)
    nodes, node = in_order(names)
    _warn_of_words(edges, nodes)
    in_edges = np.zeros(len(nodes), bool)
    in_edges[node[: len(edges.names)]] = True
    found = []
    for rows, what in ((features, "features are 0"), (labels, "label is unknown")):
        at = None if rows is None else node[[code[name] for name in rows.names]]
        if at is not None:
            _compare(edges, rows, at, in_edges, nodes, what)
        found.append(at)
    # Last, because it takes long.
    adjacency, times, sides = build(edges, node, len(nodes))
    return Parts(
        adjacency,
        None if features is None else _placed(features.values, found[0], len(nodes)),
        None if labels is None else _labels(labels.values, found[1], len(nodes)),
        _places(features, labels),
        nodes,
        times,
        sides=sides,
    )


def _warn_of_words(edges: Edges, nodes: np.ndarray) -> None:
    """Says which name makes words of names most of which are integers."""
    if nodes.dtype != object:
        return
    words = np.array([NUMBER.fullmatch(name.removeprefix("-")) is None for name in edges.names])
    if words.any() and 10 * words.sum() <= words.size:
        edge = edges.first_with(words)
        ends = [edges.names[end[edge]] for end in edges.ends]
        word = next(name for name in ends if NUMBER.fullmatch(name.removeprefix("-")) is None)
        warn_outside(
            f"{edges.place(edge)}: got {short(word)}, and {words.sum()} of the {words.size} names are not integers, so "
            "that all are read as words; names=False if all should be numbers"
        )


def _compare(edges: Edges, rows: Rows, at: np.ndarray, in_edges: np.ndarray, nodes: np.ndarray, what: str) -> None:
    """Counts the names that are in one table only.

    Raises:
        ValueError: the tables have no name in common, or two rows are of one node.
    """
    guess = f"; {rows.guess}" if rows.guess else ""
    order = np.argsort(at, kind="stable")
    twice = np.flatnonzero(np.diff(at[order]) == 0)
    if twice.size:
        first, second = (rows.table.place(rows.lines[order[twice[0] + k]]) for k in (0, 1))
        name = short(rows.names[order[twice[0] + 1]])
        raise ValueError(
            f"{second}: got a second row for {name}, whose first is {first.rpartition(', ')[2]}, want one row per "
            f"node{guess}"
        )
    path, other = edges.table.path, rows.path
    alone = ~in_edges[at]
    if alone.all():
        raise ValueError(
            f"{other}: got no name that is in {path}, want names such as {short(edges.names[0])} in its first column, "
            f"got {short(rows.names[0])}{guess}"
        )
    if alone.any():
        first = int(alone.argmax())
        warn_outside(
            f"{rows.table.place(rows.lines[first])}: {counted(np.count_nonzero(alone), 'name')} not in {path}, such as "
            f"{short(rows.names[first])}: nodes without edges"
        )
    missing = in_edges.copy()
    missing[at] = False
    if missing.any():
        first = short(str(nodes[missing.argmax()]))
        warn_outside(
            f"{path}: {counted(np.count_nonzero(missing), 'name')} not in {other}, such as {first}: their {what}"
        )


def _placed(values: Any, at: np.ndarray, nodes: int) -> Any:
    """Rows of features at their nodes; other nodes have zeros."""
    if scipy.sparse.issparse(values):
        placement = scipy.sparse.csr_matrix((np.ones(at.size), (at, np.arange(at.size))), (nodes, at.size))
        return placement @ values
    out = np.zeros((nodes, values.shape[1]))
    out[at] = values
    return out


def _labels(values: np.ndarray, at: np.ndarray, nodes: int) -> np.ndarray:
    out = np.full(nodes, "" if values.dtype == object else -1, values.dtype)
    out[at] = values
    return out
