"""Data frames of pandas, polars and pyarrow, given where a matrix is expected, and what stands for none in them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse

from .arguments import shown

OF_WORDS = " (Graph.from_table makes features of words)"


# A frame's own attributes may be its columns, so only those of its type say what it is.
def _is_pandas(value: Any) -> bool:
    return hasattr(type(value), "iloc") and hasattr(type(value), "columns")


def _is_pyarrow(value: Any) -> bool:
    return hasattr(type(value), "to_pylist") and hasattr(type(value), "num_columns")


def is_frame(value: Any) -> bool:
    """Whether a value is a data frame in memory: of pandas, polars or pyarrow."""
    kind = type(value)
    return _is_pandas(value) or _is_pyarrow(value) or (hasattr(kind, "get_columns") and hasattr(kind, "to_numpy"))


def column_names(frame: Any) -> list[str] | None:
    """The names of the columns; None: they are no words, as those that pandas gives by itself, or are there twice."""
    names = _labels(frame)
    words = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    return names if words else None


def matrix_of_frame(name: str, frame: Any) -> np.ndarray | scipy.sparse.coo_matrix:
    """The numbers of a data frame, float64 ``[rows, columns]``; missing ones are NaN. The index of pandas is no column.

    Columns of pandas that are all sparse, and 0 where they store nothing, give a sparse matrix.

    Args:
        name: name of the frame in error messages.

    Raises:
        TypeError: a column has other values than real numbers.
        ValueError: a number is beyond those of float64.
    """
    if _is_pandas(frame) and len(frame.columns) and all(map(_is_sparse, frame.dtypes)):
        # Of one type, since pandas takes no columns of several ones together.
        one_type = type(frame.dtypes.iloc[0])(np.float64, 0)
        return frame.astype(one_type).sparse.to_coo()
    found = np.empty((len(frame), len(_labels(frame))), order="F")
    for place, (label, column) in enumerate(zip(_labels(frame), _columns(frame), strict=True)):
        found[:, place] = _numbers(f"{name}: got a column {shown(label)}", column)
    return found


def check_square(name: str, value: Any) -> None:
    """Refuses a data frame of pandas whose rows and columns have the same labels in different orders."""
    if _is_pandas(value) and _are_reordered(value.index.tolist(), list(value.columns)):
        raise ValueError(
            f"{name}: got rows and columns with the same labels in different orders, want one order: "
            f"{name}.loc[{name}.columns], or {name}.to_numpy() if the labels say nothing"
        )


def check_index(name: str, value: Any, nodes: np.ndarray | None, axes: int = 1) -> None:
    """Refuses a data frame or a series of pandas whose index has the names or numbers of the nodes in another order.

    Args:
        axes: how many axes of it have a place for each node. The numbers of two may be in any order.
    """
    if not hasattr(type(value), "iloc"):
        return
    labels, names = value.index.tolist(), None if nodes is None else nodes.tolist()
    # An index from 0 on counts the rows, as pandas makes it by itself.
    counting = list(range(len(labels)))
    if any(map(is_missing, labels)) or labels in (counting, names):
        return
    if names is not None and _are_reordered(labels, names):
        names = ", ".join(["names"] * axes)
        raise ValueError(
            f"{name}: got an index with the names of the nodes in another order, want {name}.loc[{names}] with the "
            f"names in order, or {name}.reset_index(drop=True) if the rows are in order and the index says nothing"
        )
    if axes == 1 and _are_reordered(labels, counting):
        raise ValueError(
            f"{name}: got an index with the numbers of the nodes in another order, want {name}.sort_index(), or "
            f"{name}.reset_index(drop=True) if the rows are in order and the index says nothing"
        )


def _are_reordered(labels: list[Any], wanted: list[Any]) -> bool:
    if len(labels) != len(wanted) or any(map(is_missing, labels)):
        return False
    return Counter(labels) == Counter(wanted) and labels != wanted


def is_missing(value: Any) -> bool:
    """Whether a value of a column stands for none: None, NaN or pandas' NA."""
    return (
        value is None
        or type(value).__name__ == "NAType"
        or (isinstance(value, (float, np.floating)) and value != value)
    )


def _labels(frame: Any) -> list[Any]:
    return list(frame.schema.names if _is_pyarrow(frame) else frame.columns)


def _columns(frame: Any) -> Iterator[Any]:
    """The columns in their order, since several may have one name."""
    if _is_pandas(frame):
        return (frame.iloc[:, place] for place in range(len(frame.columns)))
    return iter(frame.columns if _is_pyarrow(frame) else frame.get_columns())


def _is_sparse(kind: Any) -> bool:
    """Whether a type of pandas is sparse, with real numbers, and 0 where nothing is stored."""
    fill = getattr(kind, "fill_value", None)
    return getattr(getattr(kind, "subtype", None), "kind", "") in tuple("biuf") and _is_number(fill) and fill == 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (Real, Decimal, np.bool_)) and not isinstance(value, np.timedelta64)


def _numbers(got: str, column: Any) -> np.ndarray | list[float]:
    """The numbers of a column; ``got`` begins the messages of errors."""
    try:
        values = np.asarray(column)
    except Exception as error:  # Each library has errors of its own.
        reason = str(error).partition("\n")[0]
        raise TypeError(f"{got} that NumPy does not take ({reason}), want real numbers") from None
    if values.ndim != 1 or values.dtype.kind not in "biufO":
        hint = OF_WORDS if values.dtype.kind in "UT" else ""
        raise TypeError(f"{got} of type {getattr(column, 'dtype', values.dtype)}, want real numbers{hint}")
    if values.dtype.kind != "O":
        return values
    found = []
    for value in values.tolist():
        missing = is_missing(value)
        if not missing and not _is_number(value):
            hint = OF_WORDS if isinstance(value, str) else ""
            raise TypeError(f"{got} with {shown(value)} in it, want real numbers{hint}")
        try:
            found.append(math.nan if missing else float(value))
        except OverflowError:
            raise ValueError(f"{got} with {shown(value)} in it, want numbers that float64 holds") from None
    return found
