"""Runs the commands of a tool's steps. The error of a step that fails is one line, which says why."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

# What the user has set for other programs than those of a step.
UNSET = ("PYTHONPATH", "PYTHONHOME", "SEEGERA_ISA", "TRITON_INTERPRET")


class Step(RuntimeError):
    """A command failed; its last line says why."""


def run(*command: Any, timeout: float = 1800, **environment: str) -> str:
    """Runs a command and returns its output.

    Raises:
        Step: it failed, could not be started, or took longer than ``timeout`` seconds.
    """
    merged = {key: value for key, value in os.environ.items() if key not in UNSET}
    merged |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment}
    try:
        answer = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            timeout=timeout,
            env=merged,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Step(str(error)) from error
    if answer.returncode != 0:
        raise Step(last_error(answer.stderr) or last_error(answer.stdout) or f"exit status {answer.returncode}")
    return answer.stdout


def last_error(output: str) -> str:
    """The last line that pip marks as an error, or else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [line for line in lines if re.match(r"(ERROR|error):", line)]
    return (marked or lines or [""])[-1]
