"""Parts of error messages: what came, and the known names that are near an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

# The longest text and the longest int, in bits, that a message repeats.
LONGEST_QUOTE, MOST_BITS = 60, 128


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns "the nearest: ..." with similar known names, or "want one of ..." with all if none is similar."""
    known = list(known)
    alike = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"the nearest: {', '.join(alike)}" if 0 < len(alike) < len(known) else f"want one of {', '.join(known)}"


def quoted(value: Any) -> str:
    """What a message says of a value from a file: the value as Python writes it, cut where it is long."""
    if isinstance(value, (str, int)):
        return short(value)
    if isinstance(value, (dict, list)) and value:
        # Not written, because it may be as large as the file.
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    try:
        return cut(repr(value))
    except (RecursionError, ValueError):  # nested too deeply, or an int of too many digits in it
        return f"a large {type(value).__name__}"


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "..."


def short(value: str | int) -> str:
    """A string or an int as Python writes it, cut where it is long."""
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        # Python refuses to write out numbers of some thousand digits.
        return f"an int of {value.bit_length()} bits"
    return repr(cut(value) if isinstance(value, str) else value)
