"""Triton's interpreter, without work that it does again at each call of a device function."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path

import ahead_of_time


def run(script: str | Path, *arguments: str | Path) -> str:
    """The output of a Python script in a process of its own, in which kernels are interpreted."""
    return ahead_of_time.run_python(__file__, script, *arguments, TRITON_INTERPRET="1")


def replace_language_once() -> None:
    """While a kernel runs, the interpreter replaces the functions of Triton's language by its own.

    It does so anew at each launch, and again whenever the kernel calls a device function: it looks for them among all
    members of the language's modules, and changes the class of blocks, for which Python then looks up everything anew.
    Here they are replaced once for each module with kernels, and stay so: nothing else in the process calls them.
    """
    from triton.runtime import interpreter

    replace, done = interpreter._patch_lang, set()
    # What a launch asks to restore the language.
    stays = types.SimpleNamespace(restore=lambda: None)

    def replace_once(function):
        # By the module of the function, because that is where it finds the language.
        module = id(function.__globals__)
        if module not in done:
            replace(function)
            done.add(module)
        return stays

    interpreter._patch_lang = replace_once


if __name__ == "__main__":
    replace_language_once()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
