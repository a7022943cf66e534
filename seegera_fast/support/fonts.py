"""Fonts for the texts of a picture: a user's names may have letters that matplotlib's own font lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

# Comes with matplotlib.
FIRST = "DejaVu Sans"
# Fonts that have a box or nothing for every letter.
EMPTY = ("last resort", "lastresort", "notdef", "blank")


def families(texts: Iterable[str]) -> tuple[list[str], str]:
    """The families of fonts for some texts, in the order in which matplotlib should look for a letter.

    Returns:
        The families, and the letters that no installed font has.
    """
    from matplotlib import font_manager

    missing = {letter for text in texts for letter in text if letter != "\n"}
    missing -= _letters(font_manager.findfont(FIRST), missing)
    chosen = [FIRST]
    # There may be thousands of fonts, so they are opened only if a letter is missing.
    others = _others(font_manager.fontManager.ttflist) if missing else ()
    found = {name: _letters(file, missing) for name, file in others}
    while missing and found:
        name = max(found, key=lambda name: len(found[name] & missing))
        if not found[name] & missing:
            break
        chosen.append(name)
        missing -= found[name]
    return chosen, "".join(sorted(missing))


def _others(entries: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """The families and the file of the most regular font of each, those without serifs first."""
    best: dict[str, tuple[tuple[bool, bool], str]] = {}
    for entry in entries:
        rank = entry.style != "normal", entry.weight not in (400, "normal", "regular")
        if entry.name not in best or rank < best[entry.name][0]:
            best[entry.name] = rank, entry.fname
    for name in sorted(best, key=lambda name: ("sans" not in name.lower(), name)):
        if not any(word in name.lower() for word in EMPTY):
            yield name, best[name][1]


def _letters(file: str, wanted: Iterable[str]) -> set[str]:
    """Those of the wanted letters that a font has; none, if it is damaged, gone, or made of pixels."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(file)
    except (OSError, RuntimeError, ValueError):
        return set()
    if not font.scalable:
        return set()
    return {letter for letter in wanted if font.get_char_index(ord(letter))}
