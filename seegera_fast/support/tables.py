"""Reads the package's TOML files."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@functools.cache
def read_tables(path: Path) -> dict[str, Any]:
    """The tables of a TOML file of the package. Each file is read once."""
    return tomllib.loads(path.read_text(encoding="utf-8"))
