"""Columns of a block of records as names, numbers and times. Each error names the line and what came."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np

from ..support.arguments import is_integer
from ..support.frames import is_missing
from ..support.hints import quoted, short

NAME = "words or integers as names"
COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+")


def names_of(table: Any, block: Any, place: int) -> Sequence[str]:
    """A column of names as strings: words as they are, integers in digits.

    Raises:
        TypeError: the column holds neither words nor integers.
        ValueError: a name is missing or empty, or a number that is no integer.
    """
    column = block.column(place)
    if isinstance(column, np.ndarray):
        column = _strings(table, block, column)
    if "" in column:
        raise wrong_field(table, block, column.index(""), place, "", table.want)
    return column


def wrong_field(
    table: Any, block: Any, number: int, place: int, value: Any, want: str, of_words: str = ""
) -> ValueError:
    """The error for one field of a record.

    Args:
        number: of the record in the block.
        of_words: what the message says of a word.
    """
    name = short(table.titles[place]) if table.titles else place
    if is_missing(value) or value == "":
        got, hint = "an empty field", ""
        if not isinstance(block.column(place), np.ndarray) and 0 < place == block.width - 1:
            hint = "; a separator at the end of a line begins another column"
    else:
        got, hint = quoted(value), of_words if isinstance(value, str) and not is_number(value) else ""
        if isinstance(value, str) and COMMA.fullmatch(value):
            hint = "; decimals are written with a point, as in 1.5"
    return ValueError(f"{table.place(block.lines[number])}: got {got} in column {name}, want {want}{hint}")


def _strings(table: Any, block: Any, column: np.ndarray) -> list[str]:
    if column.dtype.kind == "f":
        wrong = np.flatnonzero(~((np.abs(column) <= 2.0**53) & (column == np.floor(column))))
        if wrong.size:
            got = "no name" if np.isnan(column[wrong[0]]) else column[wrong[0]]
            raise ValueError(
                f"{table.place(block.lines[wrong[0]])}: got {got}, want {NAME}; of numbers with a decimal point only "
                "whole ones up to 2**53 are exact"
            )
        column = column.astype(np.int64)
    if column.dtype.kind in "iu":
        different, where = np.unique(column, return_inverse=True)
        return np.array(list(map(str, different.tolist())), object)[where].tolist()
    if column.dtype.kind not in "OUT":
        raise TypeError(f"{table.path}: got names of type {column.dtype}, want {NAME}")
    names = column.tolist()
    if set(map(type, names)) <= {str}:
        return names
    return [_string(table, block.lines[number], name) for number, name in enumerate(names)]


def _string(table: Any, line: int, name: Any) -> str:
    if isinstance(name, str):
        return str(name)
    if is_integer(name):
        return str(int(name))
    if isinstance(name, (float, np.floating)) and abs(name) <= 2.0**53 and name == math.floor(name):
        return str(int(name))
    if (whole := whole_decimal(name)) is not None:
        return str(whole)
    got = "no name" if is_missing(name) else quoted(name)
    raise ValueError(f"{table.place(line)}: got {got}, want {NAME}")


def whole_decimal(value: Any) -> int | None:
    """The integer that a decimal number is; None: it is none, or of more digits than databases write."""
    if not isinstance(value, Decimal) or not value.is_finite() or value.adjusted() > 100:
        return None
    return int(value) if value == value.to_integral_value() else None


def numbers_of(fields: Sequence[str]) -> np.ndarray | None:
    """Numbers that are written in the digits 0 to 9; None: some are not."""
    try:
        found = array("d", map(float, fields))
    except (ValueError, TypeError):
        return None
    together = "".join(fields)
    return np.frombuffer(found) if together.isascii() and "_" not in together else None


def is_number(field: str) -> bool:
    return numbers_of([field]) is not None


def column_of_numbers(
    table: Any, block: Any, place: int, want: str, least: float = -math.inf, of_words: str = ""
) -> np.ndarray:
    """A column of finite numbers as float64.

    Args:
        of_words: what the message says where a field is a word.

    Raises:
        ValueError: a field is no finite number, or below ``least``.
    """
    column = block.column(place)
    if isinstance(column, np.ndarray):
        found = _as_numbers(table, block, place, want, of_words)
    else:
        found = numbers_of(column)
        if found is None:
            number = next(number for number, field in enumerate(column) if not is_number(field))
            raise wrong_field(table, block, number, place, column[number], want, of_words)
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(~(np.isfinite(found) & (found >= least)))
    if wrong.size:
        value = column.tolist()[wrong[0]] if isinstance(column, np.ndarray) else column[wrong[0]]
        raise wrong_field(table, block, wrong[0], place, value, want)
    return found


def _as_numbers(table: Any, block: Any, place: int, want: str, of_words: str) -> np.ndarray:
    column = block.column(place)
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    if column.dtype.kind != "O":
        name = short(table.titles[place]) if table.titles else place
        raise TypeError(f"{table.path}: got the column {name} of type {column.dtype}, want {want}")
    for number, value in enumerate(column.tolist()):
        known = isinstance(value, (bool, int, float, np.number, Decimal)) or is_missing(value)
        if not known or (isinstance(value, Decimal) and value.is_snan()):
            raise wrong_field(table, block, number, place, value, want, of_words)
    return np.array([math.nan if is_missing(value) else float(value) for value in column.tolist()])


def times_of(table: Any, block: Any, place: int) -> np.ndarray:
    """A column of times as float64: numbers as they are, dates (ISO 8601) as seconds since 1970.

    Raises:
        ValueError: a field is neither.
    """
    want = "a number or a date such as 2026-01-31 or 2026-01-31T12:00:00Z as time"
    column = block.column(place)
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        found = column.astype("datetime64[us]")
        missing = np.flatnonzero(np.isnat(found))
        if missing.size:
            raise wrong_field(table, block, missing[0], place, None, want)
        return found.astype(np.int64) / 1e6
    if isinstance(column, np.ndarray) and column.dtype.kind not in "OUT":
        return column_of_numbers(table, block, place, want)
    values = column.tolist() if isinstance(column, np.ndarray) else column
    if all(isinstance(value, str) for value in values):
        found = numbers_of(values)
        if found is not None and np.isfinite(found).all():
            return found
    elif not any(hasattr(value, "timetuple") or isinstance(value, str) for value in values):
        return column_of_numbers(table, block, place, want)
    seconds = np.empty(len(values))
    for number, value in enumerate(values):
        try:
            seconds[number] = _seconds(value)
        except (ValueError, TypeError, OverflowError):
            raise wrong_field(table, block, number, place, value, want) from None
    return seconds


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        if not value.isascii():
            raise ValueError
        # Python 3.10 doesn't know the Z.
        value = datetime.fromisoformat(value[:-1] + "+00:00" if value.endswith("Z") else value)
    elif not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).timestamp()
