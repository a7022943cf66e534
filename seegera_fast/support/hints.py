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
    """The value as Python writes it, cut where it is long."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or an int of too many digits
        return f"a large {type(value).__name__}"
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "..."
