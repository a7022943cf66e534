"""Results as text: JSON, tables, and readable numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .hints import columns, utf8

# A column of numbers has so many digits after the point.
FEWEST, MOST = 4, 9
# What float32 rounds to 1 is above this.
ALMOST_ONE = "> 0.9999999"


def json_text(content: Any) -> str:
    """The content as strict JSON in UTF-8: NaN and infinite numbers become null, and what UTF-8 lacks, escapes."""
    return json.dumps(_plain(content), indent=1, allow_nan=False) + "\n"


def compact_json_text(content: Mapping[str, Any]) -> str:
    """The content as strict JSON with one line per key and no blanks."""
    lines = [
        f"{json.dumps(str(key))}:{json.dumps(_plain(value), separators=(',', ':'), allow_nan=False)}"
        for key, value in content.items()
    ]
    return "{" + ",\n".join(lines) + "}\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {utf8(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table(rows: Iterable[Sequence[str]]) -> str:
    """Formats rows of equally many cells as aligned columns: the first is left-aligned, the others right-aligned."""
    rows = [list(row) for row in rows]
    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        blanks = [" " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)]
        others = [blank + cell for cell, blank in zip(row[1:], blanks[1:], strict=True)]
        lines.append("  ".join([row[0] + blanks[0], *others]))
    return "\n".join(lines)


def number_texts(values: Sequence[float], *, apart: bool = True, probabilities: bool = False) -> list[str]:
    """Finite numbers for one column: with four digits after the point, or more where fewer would hide something.

    There are as many digits, nine at most, as keep numbers above 0 from looking like 0; with ``apart``, different
    numbers from looking alike; and with ``probabilities``, those below 1 from looking like 1. A number that is too
    small for nine digits has an exponent, and a probability that rounding has made 1 is written as what it is above.
    """

    def text(value: float, digits: int) -> str:
        written = f"{value:.{digits}f}"
        if probabilities and float(written) == 1:
            return ALMOST_ONE
        return f"{value:.1e}" if value and not float(written) else written

    def shown(digits: int) -> set[str]:
        return {text(value, digits) for value in different}

    # What the most digits don't show, fewer need not.
    different = {*values}
    special = {value: text(value, MOST) for value in different if _is_special(text(value, MOST))}
    different -= {*special}
    count = len(shown(MOST))
    digits = next(
        (
            number
            for number in range(FEWEST, MOST)
            if not any(map(_is_special, shown(number))) and (not apart or len(shown(number)) == count)
        ),
        MOST,
    )
    return [special.get(value) or text(value, digits) for value in values]


def _is_special(text: str) -> bool:
    return text == ALMOST_ONE or "e" in text


def readable_bytes(count: int | None) -> str:
    """Formats a number of bytes in a suitable unit; None: "unknown"."""
    if count is None:
        return "unknown"
    if count < 2**30:
        return f"{count / 2**20:.0f} MiB"
    return f"{count / 2**30:.2f} GiB"


def readable_number(value: float) -> str:
    """Formats a number with four digits after the point, or with an exponent if it is small."""
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3e}"


def readable_seconds(seconds: float) -> str:
    """Formats seconds with three digits; a long time is given in minutes as well."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds:.0f} s ({seconds / 60:.1f} min)"
