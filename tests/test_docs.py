"""The documents say what the code does."""

import importlib
import re
from pathlib import Path

import pytest

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
