"""Checks that all links of the site have a target, and that its pages fetch nothing from other sites.

python tools/check_site.py build/site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements that a browser fetches by itself, and their attribute with the address. Links in the text may be to other
# sites.
FETCHED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
CODE = ("pre", "code", "script", "style")


class Page(HTMLParser):
    """The anchors of a page, its links, and the addresses that a browser fetches for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.unresolved: list[str] = []
        self._code = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self._code += tag in CODE
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if found.get(FETCHED.get(tag, "")):
            self.fetched.append(found[FETCHED[tag]])
        elif tag == "a" and found.get("href"):
            self.links.append(found["href"])

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in CODE

    def handle_data(self, data: str) -> None:
        # Markdown leaves [text][target] in the page if the target is not known.
        if not self._code and "][" in data:
            self.unresolved.append(data.strip())


def faults(folder: Path) -> list[str]:
    """A line for each faulty link or address."""
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    # The links of the page 404.html start at the root of a server.
    pages.pop(folder / "404.html", None)
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        found += [f"{name}: {text}: a reference to nothing" for text in page.unresolved]
        for target in (*page.fetched, *page.links):
            address = urlsplit(target)
            if address.scheme or address.netloc:
                if target in page.fetched and address.scheme != "data":
                    found.append(f"{name}: fetches {target}")
                continue
            goal = (path.parent / unquote(address.path)).resolve() if address.path else path
            anchor = unquote(address.fragment)
            if goal.is_dir():
                goal /= "index.html"
            if not goal.is_file():
                found.append(f"{name}: {target}: there is no such file")
            elif anchor and goal in pages and anchor not in pages[goal].anchors:
                found.append(f"{name}: {target}: there is no such anchor")
    return found if pages else [f"{folder}: no pages"]


def main() -> int:
    found = faults(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "all links lead somewhere, and nothing is fetched from outside")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
