"""Parts of error messages: what came, and the known names that are near an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

LONGEST_QUOTE = 60


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns "the nearest: ..." with similar known names, or "want one of ..." with all if none is similar."""
    known = list(known)
    alike = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"the nearest: {', '.join(alike)}" if 0 < len(alike) < len(known) else f"want one of {', '.join(known)}"


def quoted(value: Any) -> str:
    """What a message says of a value from a file: the value as Python writes it, cut where it is long."""
    if isinstance(value, int) and abs(value) >= 10**LONGEST_QUOTE:
        # Python refuses to write an int of very many digits.
        return f"an int of more than {LONGEST_QUOTE} digits"
    if isinstance(value, (dict, list)) and value:
        # Not written, because it may be as large as the file.
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    try:
        text = repr(value[: LONGEST_QUOTE + 1] if isinstance(value, str) else value)
    except (RecursionError, ValueError):  # nested too deeply, or an int of too many digits in it
        return f"a large {type(value).__name__}"
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "..."
