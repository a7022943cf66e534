"""Hints in error messages about an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns "the nearest: ..." with similar known names, or "want one of ..." with all if none is similar."""
    known = list(known)
    alike = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"the nearest: {', '.join(alike)}" if 0 < len(alike) < len(known) else f"want one of {', '.join(known)}"
