"""The names of nodes: how they are numbered while files are read, and their order in a graph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

# With so many different names, and so many at once, pyarrow numbers them faster than a dictionary does.
MANY, AT_ONCE = 2 * 10**5, 2**23
# An integer as it is written to a column of integers, or of numbers with a decimal point.
INTEGER = re.compile(r"(0|-?[1-9][0-9]*)(\.0)?")
EXACT = 2**53
# Digits, and a number from 0 on as it is written.
DIGITS, NUMBER = re.compile(r"[0-9]{1,19}"), re.compile(r"0|[1-9][0-9]{0,18}")


class _Numbers(dict):
    """Numbers words in the order in which they are asked for."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class Names:
    """Numbers names in the order in which they come. The same numbers with and without pyarrow.

    Args:
        codes: what int32 arrays are appended to: the number of each name, an array for each call of :meth:`add`.
    """

    def __init__(self, codes: Any) -> None:
        self._numbers: _Numbers | None = _Numbers()
        self._codes = codes
        # With pyarrow: the names so far, and those that are still to be numbered.
        self._known: Any = None
        self._waiting: list[Any] = []

    def add(self, words: Sequence[str]) -> None:
        if self._numbers is not None:
            self._codes.append(np.fromiter(map(self._numbers.__getitem__, words), np.int32, len(words)))
            if len(self._numbers) > MANY:
                self._change_over()
            return
        import pyarrow

        self._waiting.append(pyarrow.array(words, pyarrow.large_string()).dictionary_encode())
        if sum(map(len, self._waiting)) > AT_ONCE:
            self._number_waiting()

    def finish(self) -> list[str]:
        """The different names, by their numbers."""
        if self._numbers is not None:
            return list(self._numbers)
        self._number_waiting()
        return self._known.to_pylist()

    def _change_over(self) -> None:
        try:
            import pyarrow
        except ImportError:
            return
        self._known = pyarrow.array(list(self._numbers), pyarrow.large_string())
        self._numbers = None

    def _number_waiting(self) -> None:
        import pyarrow

        nothing = pyarrow.array([], pyarrow.int32())
        pieces = [pyarrow.DictionaryArray.from_arrays(nothing, self._known), *self._waiting]
        merged = pyarrow.chunked_array(pieces).unify_dictionaries().chunks
        self._known = merged[0].dictionary
        for piece in merged[1:]:
            self._codes.append(np.array(piece.indices.to_numpy(), np.int32))
        self._waiting = []


def in_order(names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of different names in their order, and the node of each name.

    Names that are all integers of 64 bits ascend as integers, and ``1.0`` is 1 as long as a float tells it from its
    neighbours. All others are words, which are sorted by their characters.

    Returns:
        int64 or objects (str) ``[n]``; int64 ``[names]``.
    """
    integers = as_integers(names)
    if integers is not None:
        return np.unique(integers, return_inverse=True)
    order = sorted(range(len(names)), key=names.__getitem__)
    node = np.empty(len(names), np.int64)
    node[order] = np.arange(len(names))
    return np.array([names[place] for place in order], object), node


def as_integers(names: list[str]) -> np.ndarray | None:
    """The integers that all the names are; None: some are words."""
    matches = []
    for name in names:
        match = INTEGER.fullmatch(name)
        if match is None or (match[2] and abs(int(match[1])) > EXACT) or len(name) > 20:
            return None
        matches.append(int(match[1]))
    if not matches or min(matches) < -(2**63) or max(matches) >= 2**63:
        return None
    return np.array(matches, np.int64)


def is_integer(name: str) -> bool:
    return INTEGER.fullmatch(name) is not None
