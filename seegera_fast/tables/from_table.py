"""A graph from tables: the method that :class:`seegera_fast.Graph` has for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ..support.naming import named
from .join import parts_of_graph
from .reading import Reading

Made = TypeVar("Made", bound="FromTable")


class FromTable:
    """Reads tables and makes an object of the class from their parts."""

    # The column that is the label, and so no feature, where features and labels are one table: its name, or its number.
    label_column: str | int | None = None

    @classmethod
    def from_table(
        cls: type[Made],
        edges: Any,
        features: Any = None,
        labels: Any = None,
        *,
        source: str | int | None = None,
        target: str | int | None = None,
        weight: str | int | None = None,
        time: str | int | None = None,
        node: str | int | None = None,
        label: str | int | None = None,
        categories: Sequence[str | int] = (),
        names: bool | None = None,
        header: bool | None = None,
        separator: str | None = None,
        encoding: str | None = None,
        comments: str = "#%",
        weighted: bool | None = None,
        **options: Any,
    ) -> Made:
        """Makes a graph from tables of edges, of features and of labels, whose nodes may have names.

        A table is a file or in memory. A file is text (CSV, TSV, or split at blanks; plain or ``.gz``), Parquet or
        Arrow (with pyarrow). In memory it is a data frame of pandas, polars or pyarrow, a mapping of columns, or an
        array. Rows without names may also be ``.npy``, ``.npz`` (SciPy) or any matrix, and an adjacency ``.npz``.

        Each row of ``edges`` is an edge. One direction is enough; an edge that is there several times counts once, with
        the largest of its weights and the first of its times. A third column of a text without a header is the weight.
        The nodes are all names in the three tables: integers ascend, words are sorted, and ``graph.nodes`` keeps them.
        ``graph.feature_names`` keeps the names of the features, where there is a header.
        A node without a row of features has zeros, one without a label is unknown; a warning counts either.

        The nodes have no names where they are numbered from 0: all in ``edges`` are integers from 0 on, and rows of
        features and labels have no names.

        Args:
            edges: two columns of names, which are words or integers.
            features: a row of numbers per node, with its name in the first column. A text without a header whose
                columns are all numbers has none where the nodes are numbered from 0. None: the identity.
            labels: names in the first column and one integer or word per node (negative or empty: unknown) in another,
                or one column without names. None: no labels.
            source, target, weight, time: columns of ``edges``, by their name or their number from 0. None: the first,
                the second (or two that are called "source" and "target" or the like), the one that is called
                "weight", and none. Times are numbers or dates (ISO 8601; as seconds since 1970).
            node, label: the column of the names, and that of the labels. None: the first, and the one that is left or
                is called "label" or "class". Features in the same table leave out the label.
            categories: columns of words among the features: each word becomes a feature of 0 and 1.
            names: True: nodes have names. False: they are numbers from 0. None: as above.
            header: whether the first line of a text has the names of columns. None: as it looks (its fields are words
                above numbers, or usual names of columns, or names that another argument gives for this table).
            separator: "," or ";" or a tab or " " (blanks). None: as in the first line.
            encoding: of text. None: UTF-8.
            comments: letters with which lines of comment start; "": there are none.
            weighted: None: whether ``weight`` is given.
            options: further arguments of :class:`seegera_fast.Graph`. The default name is that of the file of edges.

        Raises:
            OSError: a file can't be read.
            ImportError: a Parquet or Arrow file, and pyarrow is not installed.
            TypeError, ValueError: an argument or a table is wrong; the message names the file and the line.

        Example:
            >>> import seegera_fast as sf
            >>> graph = sf.Graph.from_table({"from": ["Ann", "Bob"], "to": ["Bob", "Eve"]}, name="friends")
            >>> graph
            Graph('friends': 3 nodes, 2 edges, 3 features, torch.float32, cpu)
            >>> graph.nodes[graph.edges()].tolist()
            [['Ann', 'Bob'], ['Bob', 'Eve']]
        """
        reading = Reading(
            source=source,
            target=target,
            weight=weight,
            time=time,
            node=node,
            label=label,
            categories=categories,
            names=names,
            header=header,
            separator=separator,
            encoding=encoding,
            comments=comments,
            weighted=weight is not None if weighted is None else weighted,
        ).checked()
        parts = parts_of_graph(edges, features, labels, reading)
        found = {"name": parts.name, "nodes": parts.nodes, "feature_names": parts.feature_names}
        options = {**found, "weighted": reading.weighted, **options}
        with named(parts.places):
            graph = cls(parts.adjacency, parts.features, parts.labels, **options)
        graph.sides, graph.label_column = parts.sides, parts.label_column
        if parts.edge_times is not None:
            # An edge of weight 0 may have vanished.
            graph.edge_times = parts.edge_times.of(graph.edges(), graph.num_nodes)
        return graph
