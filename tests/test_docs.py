"""The documents say what the code does."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from seegera_fast import ops

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_api_page_is_that_of_the_docstrings(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    api = importlib.import_module("api")
    assert api.PAGE.read_text(encoding="utf-8") == api.page(), "`make docs` writes it anew"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (page.parent / target).exists(), target


def test_the_gpu_script_measures_every_operation():
    """sparse_matmul has a section of its own. In a process of its own: bench and tests both have a module `cases`."""
    code = "import device_operations; print(*device_operations.operation_cases())"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "bench", capture_output=True, text=True, check=True)
    assert {*found.stdout.split(), "sparse_matmul"} == set(ops.__all__)
