"""Triton's interpreter, without work that it does again at each call of a device function."""

from __future__ import annotations

import inspect
import runpy
import sys
from pathlib import Path

import ahead_of_time


def run(script: str | Path, *arguments: str | Path) -> str:
    """The output of a Python script in a process of its own, in which kernels are interpreted."""
    return ahead_of_time.run_python(__file__, script, *arguments, TRITON_INTERPRET="1")


def replace_language_once() -> None:
    """While a kernel runs, the interpreter replaces the functions of Triton's language by its own.

    It looks for them anew, among all members of the language's modules, whenever the kernel calls a device function,
    and finds that they are replaced: a quarter of the time of the tests. Here it looks at one of them first.
    """
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    replace = interpreter._patch_builtin
    one_of = {}

    def replace_unless_done(module, *rest):
        if module not in one_of:
            one_of[module] = next((name for name, value in inspect.getmembers(module) if is_builtin(value)), None)
        if one_of[module] is None or is_builtin(getattr(module, one_of[module])):
            replace(module, *rest)

    interpreter._patch_builtin = replace_unless_done


if __name__ == "__main__":
    replace_language_once()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
