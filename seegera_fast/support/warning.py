"""Warnings that point to the line of the user's code."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

import torch

from .naming import renamed

# What stands between a user's line and the line that warns: this package, torch's decorators, an import under way.
_PASSED_ON = (
    os.path.join(os.path.dirname(os.path.dirname(__file__)), ""),
    os.path.join(os.path.dirname(torch.__file__), ""),
    contextlib.__file__,
    "<frozen importlib",
)


def warn_outside(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line outside this package that called it, with the names that :func:`named` gives to arguments."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PASSED_ON):
        frame = frame.f_back
    scope = frame.f_globals
    warnings.warn_explicit(
        renamed(message),
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        scope.get("__name__", "<string>"),
        scope.setdefault("__warningregistry__", {}),
    )
