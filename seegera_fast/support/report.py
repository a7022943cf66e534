"""Results as text: JSON, tables, and readable numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .hints import columns, utf8


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


def readable_bytes(count: int | None) -> str:
    """Formats a number of bytes in a suitable unit; None: "unknown"."""
    if count is None:
        return "unknown"
    if count < 2**30:
        return f"{count / 2**20:.0f} MiB"
    return f"{count / 2**30:.2f} GiB"


def readable_seconds(seconds: float) -> str:
    """Formats seconds with three digits; a long time is given in minutes as well."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds:.0f} s ({seconds / 60:.1f} min)"
