"""Writes docs/api.md from the docstrings of the public names.

python tools/api.py
"""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import seegera_fast as sf
from seegera_fast import training
from seegera_fast.capture import CapturedStep

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"

# Title -> the names in it: (as they are written by a user, the object).
SECTIONS: dict[str, list[tuple[str, Any]]] = {
    "Graphs": [("sf.Graph", sf.Graph), ("sf.SparseMatrix", sf.SparseMatrix)],
    "Data sets": [(f"sf.datasets.{name}", getattr(sf.datasets, name)) for name in sf.datasets.__all__],
    "The model": [
        ("sf.SeeGera", sf.SeeGera),
        ("sf.SeeGeraConfig", sf.SeeGeraConfig),
        ("CapturedStep, from SeeGera.capture", CapturedStep),
    ],
    "Tasks": [
        *((f"sf.tasks.{name}", getattr(sf.tasks, name)) for name in sf.tasks.__all__ if name != "presets"),
        ("TrainingConfig, whose fields the tasks take", training.TrainingConfig),
        ("Training, what every task's result holds", training.Training),
        ("TrainingFailure", training.TrainingFailure),
        ("sf.tasks.presets.names", sf.tasks.presets.names),
        ("sf.tasks.presets.load", sf.tasks.presets.load),
        ("sf.Checkpoint", sf.Checkpoint),
    ],
    "Operations": [(f"sf.ops.{name}", getattr(sf.ops, name)) for name in sf.ops.__all__],
    "Backends": [("sf.use_backend", sf.use_backend), ("sf.backends.info", sf.backends.info)],
}

HEAD = """# The API

`import seegera_fast as sf`. Written by `tools/api.py` from the docstrings. Every operation has a namesake with the same
arguments in `sf.reference`, in plain PyTorch: the definition of correct.
"""


def page() -> str:
    parts = [HEAD]
    for title, entries in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name, thing in entries:
            parts += [f"### {name}\n", *_entry(name, thing)]
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> list[str]:
    lines = []
    if not (inspect.isclass(thing) and issubclass(thing, BaseException)):
        lines += ["```python", _signature(name.split(",")[0], thing), "```", ""]
    lines += [_markdown(inspect.getdoc(thing) or ""), ""]
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            if member.startswith("_") and member != "__call__":
                continue
            own = f"{thing.__name__}.{member}" if member != "__call__" else f"{thing.__name__}()"
            if isinstance(value, property) and value.__doc__:
                lines += [f"**`{own}`** (property) {_markdown(inspect.getdoc(value))}", ""]
            elif callable(getattr(thing, member)) and not isinstance(value, property) and value.__doc__:
                function = getattr(thing, member)
                lines += ["```python", _signature(own.removesuffix("()"), function), "```", ""]
                lines += [_markdown(inspect.getdoc(function) or ""), ""]
    return lines


def _signature(name: str, thing: Any) -> str:
    """As it is called; in a line for each parameter where one would be long."""
    signature = inspect.signature(thing)
    words: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name != "self":
            if parameter.kind is parameter.KEYWORD_ONLY and not any(word.startswith("*") for word in words):
                words.append("*")
            words.append(_parameter(parameter))
    given = (
        ""
        if inspect.isclass(thing) or not isinstance(signature.return_annotation, str)
        else signature.return_annotation
    )
    result = f" -> {given}" if given else ""
    text = f"{name}({', '.join(words)}){result}"
    return text if len(text) <= 110 else f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    if isinstance(parameter.annotation, str):
        text += f": {parameter.annotation}"
    if parameter.default is not parameter.empty:
        default = repr(parameter.default)
        text += f" = {'...' if default.startswith('<') else default}"
    return text


def _markdown(doc: str) -> str:
    """A docstring's sections as lists, its literals as code."""
    doc = re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", doc).replace("``", "`")
    lines: list[str] = []
    section = False
    for line in doc.split("\n"):
        if re.fullmatch(r"(Args|Attributes|Returns|Raises|Yields):", line):
            section = line[:-1] not in ("Returns", "Yields")
            lines += ["", f"*{line[:-1]}*", ""]
        elif section and re.match(r" {4}\S", line):
            names, colon, rest = line.strip().partition(": ")
            lines.append(f"- {_code(names)}: {rest}" if colon else f"- {line.strip()}")
        elif section and line.startswith("        "):
            lines.append("  " + line.strip())
        else:
            section = section and not line.strip()
            lines.append(line.removeprefix("    ") if lines and lines[-1] == "" else textwrap.dedent(line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _code(names: str) -> str:
    return ", ".join(name if name.startswith("`") else f"`{name}`" for name in names.split(", "))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
