"""Writes the tables in docs/pytorch.md from the tests.

python tools/habits.py

The first line of each test's docstring is a row: what somebody does or has, a colon, and what happens.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "pytorch.md"
# The first line of each table, and the files with its tests.
TABLES = {
    "| what you do | what happens |\n": ("test_pytorch.py", "test_compile.py"),
    "| what you have | what happens |\n": ("test_pyg.py", "test_networkx.py", "test_sides.py", "test_given_splits.py"),
}


def table(head: str, files: tuple[str, ...]) -> str:
    """The table as Markdown."""
    rows = []
    for file in files:
        for node in ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                does, colon, happens = ast.get_docstring(node).splitlines()[0].partition(": ")
                if not colon:
                    raise ValueError(f"{file}, {node.name}: got no row in the docstring, want 'you do: it happens'")
                rows.append(f"| {does} | {happens} |\n")
    return head + "| --- | --- |\n" + "".join(rows)


def page(text: str) -> str:
    """The page with the tables of now instead of those that it has."""
    for head, files in TABLES.items():
        before, _, rest = text.partition(head)
        after = rest.splitlines(keepends=True)
        while after and after[0].startswith("|"):
            del after[0]
        text = before + table(head, files) + "".join(after)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
