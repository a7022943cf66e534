"""Data frames of pandas, polars and pyarrow, given where a matrix is expected."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse

from .arguments import shown


def is_frame(value: Any) -> bool:
    """Whether a value is a data frame in memory: of pandas, polars or pyarrow."""
    return hasattr(value, "columns") and (hasattr(value, "to_numpy") or hasattr(value, "to_batches"))


def column_names(frame: Any) -> list[str] | None:
    """The names of the columns; None: they are no words, as those that pandas gives by itself, or are there twice."""
    names = list(getattr(frame, "column_names", frame.columns))
    words = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    return names if words else None


def matrix_of_frame(name: str, frame: Any) -> np.ndarray | scipy.sparse.coo_matrix:
    """The numbers of a data frame, float64 ``[rows, columns]``; missing ones are NaN. The index of pandas is no column.

    Columns of pandas that are all sparse with a fill value of 0 give a sparse matrix.

    Args:
        name: name of the frame in error messages.

    Raises:
        TypeError: a column has other values than numbers.
    """
    if hasattr(frame, "sparse") and not any(kind.fill_value for kind in frame.dtypes):
        return frame.sparse.to_coo()
    names = list(getattr(frame, "column_names", frame.columns))
    column = frame.iloc.__getitem__ if hasattr(frame, "iloc") else None
    columns = [frame[label] if column is None else column((slice(None), k)) for k, label in enumerate(names)]
    found = np.empty((len(frame), len(names)), order="F")
    for place, (label, values) in enumerate(zip(names, columns, strict=True)):
        found[:, place] = _numbers(name, label, np.asarray(values))
    return found


def _numbers(name: str, label: Any, values: np.ndarray) -> np.ndarray | list[float]:
    if values.dtype.kind in "biuf":
        return values
    listed = values.tolist() if values.dtype.kind == "O" else []
    missing = [value is None or type(value).__name__ == "NAType" for value in listed]
    wrong = [
        value
        for value, none in zip(listed, missing, strict=True)
        if not none and not isinstance(value, (bool, int, float, np.number))
    ]
    if wrong or values.dtype.kind != "O":
        got = f"{shown(wrong[0])} in it" if wrong else f"type {values.dtype}"
        raise TypeError(
            f"{name}: got a column {shown(label)} with {got}, want numbers (Graph.from_table makes features of words)"
        )
    return [math.nan if none else float(value) for value, none in zip(listed, missing, strict=True)]
