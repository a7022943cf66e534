"""Reads JSON that may have been changed or damaged: strict parsing, and fields that are checked when they are taken."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from typing import Any

from .hints import quoted


def parse(text: str | bytes) -> Any:
    """Parses JSON by the letter of its standard, in UTF-8.

    Raises:
        ValueError: it isn't JSON, has NaN, an infinite number or a name twice in one object, or is nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"got the number {quoted(text)}, want finite ones")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"got the name {quoted(twice)} twice in one object")
    return content


class Fields:
    """The fields of a JSON object. Each method takes one field, and raises a ValueError that names it if it is wrong.

    Args:
        where: the start of every message, which names the file.
        content: the object.
        name: the name of the object itself, if it is a field of another one.

    Raises:
        ValueError: ``content`` is not an object.
    """

    def __init__(self, where: str, content: Any, name: str = "") -> None:
        if not isinstance(content, dict):
            raise ValueError(f"{where}: {name + ': ' if name else ''}got {quoted(content)}, want an object with fields")
        self._where, self._content, self._name = where, content, name

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def wrong(self, name: str, want: str) -> ValueError:
        """The error for a field with a wrong value."""
        return ValueError(f"{self._where}: {self._path(name)}: got {quoted(self._content[name])}, want {want}")

    def have(self, names: Collection[str], optional: Collection[str] = ()) -> None:
        """Checks that the object has all fields of these names, and no others but optional ones."""
        missing = [self._path(name) for name in names if name not in self._content]
        if missing:
            raise ValueError(f"{self._where}: lacks {', '.join(missing)}")
        for name in self._content:
            if name not in names and name not in optional:
                raise ValueError(f"{self._where}: has a field {quoted(self._path(name))}, which does not belong there")

    def take(self, name: str) -> Any:
        """A field of any kind."""
        if name not in self._content:
            raise ValueError(f"{self._where}: lacks {self._path(name)}")
        return self._content[name]

    def whole(self, name: str, least: int = 0, most: int = 2**63 - 1, *, none: bool = False) -> Any:
        """An int from ``least`` to ``most``; with ``none``, None too."""
        value = self.take(name)
        if value is None and none:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(name, f"an int from {least} to {most}{' or null' if none else ''}")
        return value

    def number(self, name: str, least: float = -math.inf, most: float = math.inf, *, none: bool = False) -> Any:
        """A finite number from ``least`` to ``most``; with ``none``, None too."""
        value = self.take(name)
        if value is None and none:
            return None
        if not is_number(value) or not least <= value <= most:
            above = "" if least == -math.inf else f" of {least:g} or above"
            limits = above if most == math.inf else f" from {least:g} to {most:g}"
            raise self.wrong(name, f"a number{limits}{' or null' if none else ''}")
        return value

    def text(self, name: str, choices: Collection[str] | None = None) -> str:
        """A string, one of ``choices`` if they are given."""
        value = self.take(name)
        if not isinstance(value, str) or (choices is not None and value not in choices):
            raise self.wrong(name, "a string" if choices is None else f"one of {', '.join(choices)}")
        return value

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def items(self, name: str, length: int | None = None) -> list[Any]:
        """A list, of ``length`` items if that is given."""
        value = self.take(name)
        if not isinstance(value, list) or (length is not None and len(value) != length):
            raise self.wrong(name, "a list" if length is None else f"a list of {length}")
        return value

    def fields(self, name: str) -> Fields:
        """An object."""
        return Fields(self._where, self.take(name), self._path(name))

    def item(self, name: str, index: int) -> Fields:
        """An object in a list."""
        return Fields(self._where, self.items(name)[index], f"{self._path(name)}[{index}]")

    def _path(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name


def is_number(value: Any) -> bool:
    """Whether a value from JSON is a number within the range of floats."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the range of floats
        return False
