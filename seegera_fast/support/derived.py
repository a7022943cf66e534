"""Lists that are found by looking at the files of a folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any


def functions(package: str, folders: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """The functions of a package that have the name of their module, by name. Modules without one are skipped.

    Args:
        package, folders: ``__name__`` and ``__path__`` of the package.
    """
    found = {}
    for entry in pkgutil.iter_modules(folders):
        function = getattr(importlib.import_module(f"{package}.{entry.name}"), entry.name, None)
        if callable(function):
            found[entry.name] = function
    return found
