"""The documents say what the code does."""

import importlib
import re
from pathlib import Path

import pytest

from seegera_fast import ops

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def importable(monkeypatch):
    for folder in ("tools", "bench"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module


def test_the_api_page_is_that_of_the_docstrings(importable):
    api = importable("api")
    assert api.PAGE.read_text(encoding="utf-8") == api.page(), "`make docs` writes it anew"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (page.parent / target).exists(), target


def test_the_gpu_script_measures_every_operation(importable):
    """sparse_matmul has a section of its own."""
    measured = set(importable("device_operations").operation_cases())
    assert measured | {"sparse_matmul"} == set(ops.__all__)
