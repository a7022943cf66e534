"""TOML files of the package."""

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
def read_tables(name: str) -> dict[str, Any]:
    """The tables of a file of the package, which is read once."""
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
