"""Writes the table in docs/pytorch.md from the tests of tests/test_pytorch.py.

python tools/habits.py

The first line of each test's docstring is a row: what somebody does, a colon, and what happens.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "test_pytorch.py"
PAGE = ROOT / "docs" / "pytorch.md"
HEAD = "| what you do | what happens |\n| --- | --- |\n"


def table() -> str:
    """The table as Markdown."""
    rows = []
    for node in ast.parse(TESTS.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            does, colon, happens = ast.get_docstring(node).splitlines()[0].partition(": ")
            if not colon:
                raise ValueError(f"{TESTS.name}, {node.name}: got no row in the docstring, want 'you do: it happens'")
            rows.append(f"| {does} | {happens} |\n")
    return HEAD + "".join(rows)


def page(text: str) -> str:
    """The page with the table of now instead of the one that it has."""
    before, _, rest = text.partition(HEAD)
    after = rest.splitlines(keepends=True)
    while after and after[0].startswith("|"):
        del after[0]
    return before + table() + "".join(after)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
