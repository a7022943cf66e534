"""The tables with a row per node together: whether their rows have names, and which column is the label."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..convert import is_far_beyond
from ..support.hints import short
from ..support.warning import warn_outside
from .columns import is_frame
from .edges import Edges
from .matrices import read_features, read_labels
from .names import DIGITS, NUMBER, is_integer
from .reading import Reading
from .rows import FEATURES, LABELS, Rows, RowTable


class NodeTables:
    """The features and the labels, which may be one table. Their first records have been looked at.

    Args:
        features, labels: see :meth:`seegera_fast.Graph.from_table`.

    Attributes:
        label_column: the label, where features and labels are one table: its name, or without names its number; else
            None.
    """

    label_column: str | int | None = None

    def __init__(self, features: Any, labels: Any, reading: Reading) -> None:
        _require_tables(features, labels, reading)
        self._reading = reading
        self._one = _is_same(features, labels)
        self.features = self._open("features", features, FEATURES, read_features)
        self.labels = self._open("labels", labels, LABELS, read_labels)

    def _open(self, argument: str, value: Any, want: str, read_matrix: Callable[[Path], Any]) -> Rows | RowTable | None:
        """A table with a row per node, or a matrix, whose rows have no names."""
        if value is None:
            return None
        if is_path(value):
            if Path(value).suffix in (".npy", ".npz") and not (argument == "labels" and Path(value).suffix == ".npz"):
                return Rows(value, read_matrix(Path(value)))
        elif not is_frame(value):
            return Rows(argument, value)
        return self._reading.open_rows(argument, self._reading.open(argument, value, want), self._one)

    def named(self) -> bool | None:
        """Whether the nodes have names, as far as the features and the labels tell; None: the edges decide.

        Raises:
            ValueError: one table has names and another has none, or one should have names and has none.
        """
        given = [opened for opened in (self.features, self.labels) if opened is not None]
        without = [opened for opened in given if isinstance(opened, Rows) or opened.named is False]
        named = [opened for opened in given if isinstance(opened, RowTable) and opened.named]
        stated = self._reading.names
        if without and (stated or named):
            other = "names=True" if stated else f"names in {named[0].path}"
            raise ValueError(
                f"{without[0].path}: got rows without names, and {other}: want the name of each node in its first "
                "column"
            )
        if stated is not None:
            return stated
        undecided = isinstance(self.features, RowTable) and self.features.named is None
        return True if named and not undecided else False if without else None

    @property
    def labels_have_names(self) -> bool:
        return isinstance(self.labels, RowTable) and self.labels.named is True

    def decide(self, edges: Edges) -> bool:
        """Whether the nodes have names, from the edges and from features that are all numbers.

        They have none if they are numbered from 0: all are such integers, 0 is there, and no number is far beyond.
        Where only 0 is missing, they have names if the first column of the features holds all of them, and only
        integers.
        """
        undecided = None
        if isinstance(self.features, RowTable):
            undecided = self.features.features(self._reading.categories, self._label_of_features())
        if undecided is not None and self.labels_have_names:
            named = _look_like_names(undecided, edges)
            if not named:
                raise ValueError(
                    f"{undecided.path}: got rows whose first column does not look like names, and names in "
                    f"{self.labels.path}: want the name of each node in both, or in none"
                )
        else:
            named = _have_names(edges, undecided)
        if undecided is not None:
            if not named:
                _warn_of_ignored_names(undecided, edges)
            self.features = undecided.settled(named)
        return named

    def read(self, named: bool, known: list[str]) -> tuple[Rows | None, Rows | None]:
        """The features and the labels.

        Args:
            known: the names of the nodes of the edges.
        """
        features, labels = self.features, self.labels
        if isinstance(features, RowTable):
            features.settle(named, known)
        if isinstance(labels, RowTable):
            if self._one and isinstance(features, RowTable):
                labels.header = features.header
            labels.settle(named, known)
        if isinstance(features, RowTable):
            features = features.features(self._reading.categories, self._label_of_features())
            if named:
                _warn_of_guessed_names(features, known)
        if isinstance(labels, RowTable):
            labels = labels.labels(self._reading.label)
        return features, labels

    def _label_of_features(self) -> int | None:
        """The column of the features that is the label, and so no feature; None: there is none."""
        features, labels, label = self.features, self.labels, self._reading.label
        if labels is None:
            # A command that reads features only is given the label that training left out.
            if isinstance(label, str):
                return features.first.index(label) if features.has_feature(label) else None
            return label
        if not isinstance(labels, RowTable):
            return None
        place = labels.label_place(label)
        if self._one:
            self.label_column = labels.first[place] if labels.header else place
            return place
        if labels.header and features.has_feature(labels.first[place]):
            warn_outside(
                f"{features.path}: the column {short(labels.first[place])} is read as a feature, and {labels.path} has "
                "the labels in a column of this name; if they are the same, give one table as features and labels"
            )
        return None


def _require_tables(features: Any, labels: Any, reading: Reading) -> None:
    """Refuses columns of tables that are not there. A label may be one that the features leave out."""
    for name, columns, tables, wanted in (
        ("categories", reading.categories, (features,), "features="),
        ("label", (reading.label,), (features, labels), "labels="),
        ("node", (reading.node,), (features, labels), "features= or labels="),
    ):
        stated = [column for column in columns if column is not None]
        if stated and all(table is None for table in tables):
            raise ValueError(f"{name}: got {short(stated[0])} and no table that has it, want {wanted} too")


def is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_same(features: Any, labels: Any) -> bool:
    """Whether features and labels are one table."""
    if is_path(features) and is_path(labels):
        # A file that is not there is named where it is opened.
        with suppress(OSError, ValueError):
            return os.path.samefile(features, labels)
    return features is labels


def _have_names(edges: Edges, undecided: Rows | None) -> bool:
    if not all(map(DIGITS.fullmatch, edges.names)):
        return True
    numbers = set(map(int, edges.names))
    plain = all(map(NUMBER.fullmatch, edges.names))
    if plain and 0 in numbers and not is_far_beyond(max(numbers), edges.ends[0].size):
        return False
    return undecided is None or (set(undecided.names) >= {*edges.names} and all(map(is_integer, undecided.names)))


def _look_like_names(features: Rows, edges: Edges) -> bool:
    """Whether the first column holds different integers, of which at least half of the nodes of the edges are."""
    numbers = {*features.names}
    different = len(numbers) == len(features.names) and all(map(is_integer, numbers))
    return different and 2 * sum(name in numbers for name in edges.names) >= len(edges.names)


def _warn_of_guessed_names(features: Rows, known: list[str]) -> None:
    """Says that a column of different integers is read as names, where the nodes may be numbered and have none."""
    names = features.names
    numbered = "0" in known and all(map(NUMBER.fullmatch, known))
    different = len({*names}) == len(names) and all(map(is_integer, names))
    if features.guess and numbered and different and names != list(map(str, range(len(names)))):
        warn_outside(f"{features.path}: {features.guess}")


def _warn_of_ignored_names(features: Rows, edges: Edges) -> None:
    """Says that the first column of features is read as one, though it looks like the numbers of the nodes."""
    if features.values.shape[1] > 1 and _look_like_names(features, edges):
        warn_outside(
            f"{features.path}: the first column holds different integers, as the nodes of {edges.table.path} are, and "
            "is read as a feature; names=True if these are the numbers of the nodes"
        )
