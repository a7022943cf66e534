"""Parts of messages: what came, known names that are near an unknown one, and the user's own names."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

# The longest text and the longest int, in bits, that a message repeats.
LONGEST_QUOTE, MOST_BITS = 60, 128
# So many names are listed.
MOST_NAMES = 4
# Letters that move a terminal's cursor, change its colours or ring its bell.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# What makes a Graph of those of other libraries.
MAKERS = {"networkx": "from_networkx", "torch_geometric": "from_pyg"}
WORDS = re.compile(r"[^\W_]+")


def counted(count: int, noun: str) -> str:
    """How many there are: "1 name is", "2 names are"."""
    return f"{count:,} {noun} is" if count == 1 else f"{count:,} {noun}s are"


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns "the nearest: ..." with known names that it is short for or similar to, or else "want one of ..." all."""
    known = list(known)
    short_for = [other for other in known if _abbreviates(name, other)]
    alike = list(dict.fromkeys([*short_for, *difflib.get_close_matches(name, known, n=3, cutoff=0.5)]))[:3]
    return f"the nearest: {', '.join(alike)}" if 0 < len(alike) < len(known) else f"want one of {', '.join(known)}"


def _abbreviates(name: str, other: str) -> bool:
    """Whether a name is the first letters of all words of another one: lr or l_rate of learning_rate."""
    letters, words = "".join(WORDS.findall(name.lower())), WORDS.findall(other.lower())
    ends = {0}
    for word in words:
        ends = {
            end + count for end in ends for count in range(1, len(word) + 1) if letters.startswith(word[:count], end)
        }
    return len(words) > 1 and len(letters) in ends


def maker(value: Any) -> str:
    """What a message says of a graph of another library: what takes it; of other values nothing."""
    for kind in type(value).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in MAKERS:
            return f"; Graph.{MAKERS[library]} takes those of {library}"
    return ""


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


def some(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    first, more = ", ".join(map(short, names[:MOST_NAMES])), len(names) - MOST_NAMES
    return f"{first} and {more:,} more" if more > 0 else first


def one_line(text: str) -> str:
    """The text on one line: ends of lines become blanks, other control characters escapes such as ``\\x1b``."""
    joined = " ".join(line.strip() for line in text.splitlines())
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), joined)


def columns(text: str) -> int:
    """The width of a text on a terminal: Chinese, Japanese and Korean letters take two columns, accents none."""
    widths = {"W": 2, "F": 2}
    return sum(
        0 if unicodedata.combining(letter) else widths.get(unicodedata.east_asian_width(letter), 1) for letter in text
    )


def utf8(text: str) -> str:
    """The text with what UTF-8 can't express as escapes: the bytes of file names in other encodings."""
    try:
        content = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        content = text.encode("utf-8", "backslashreplace")
    return content.decode("utf-8", "backslashreplace")


def shown_name(name: str, most: int = LONGEST_QUOTE) -> str:
    """A name of the user's for a heading or a picture: on one line, and cut where it has more than ``most`` columns."""
    whole = one_line(utf8(name))
    # Looked at letter by letter below, which would take long for a very long name.
    name = whole[: 8 * most]
    if len(name) == len(whole) and columns(name) <= most:
        return name
    kept = next(length for length in range(len(name), -1, -1) if columns(name[:length]) <= most - 3)
    return name[:kept] + "..."
