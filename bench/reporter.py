"""Writes the report of a benchmark: report.json, report.md and pictures, in a folder for each machine.

bench/report.py and bench/device.py both use it. ``bench/report.py --render FOLDER`` writes the page and the pictures of
a folder again from its report.json. This module does not import torch, because bench/device.py has to report an error
if torch cannot be imported.
"""

from __future__ import annotations

import json
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pictures

# Exit statuses: a test failed, a bar was missed, something could not be measured. The first that applies is taken.
FAILED, MISSED, UNMEASURED = 1, 3, 4
# Statuses of a part that need no comment.
FINE = ("passed", "done", "not rehearsed")


class Bar(NamedTuple):
    """A limit that figures have to reach."""

    work: str
    figure: str
    sign: str
    limit: float

    def met(self, values: Iterable[float]) -> bool:
        return all(value >= self.limit if self.sign == ">=" else value <= self.limit for value in values)


class Record:
    """The results of a section.

    Args:
        save: called with the results after each change.
        seconds: the time that the section may take.
    """

    def __init__(self, save: Callable[[dict[str, Any]], None] = lambda content: None, seconds: float = math.inf):
        self.begun, self.end, self.saved = time.monotonic(), time.monotonic() + seconds, save
        self.content: dict[str, Any] = {"status": "running", "rows": [], "notes": []}
        self.broken: list[str] = []
        self.save()

    def left(self) -> float:
        """Seconds that this section still has."""
        return self.end - time.monotonic()

    def row(self, work: str, figure: str, value: float, bar: Bar | None = None, nodes: int | None = None) -> None:
        """Adds a figure.

        Args:
            work: what was measured.
            figure: the quantity, with its unit.
            value: the number. For NaN and infinity, which JSON does not have, None and a note are written.
            bar: the bar that it has to reach; None: no bar.
            nodes: the size of the graph, for figures that a picture shows over the number of nodes.
        """
        found = float(value) if math.isfinite(value) else None
        row: dict[str, Any] = {"work": work, "figure": figure, "value": found}
        row |= {} if bar is None else {"bar": bar._asdict()}
        row |= {} if nodes is None else {"nodes": nodes}
        self.content["rows"].append(row)
        if found is None:
            self.content["notes"].append(f"{work}: {figure}: came out as {value}")
        self.save()

    def at_most(self, work: str, figure: str, value: float, limit: float) -> None:
        """Adds a figure with an upper limit."""
        self.row(work, figure, value, Bar(work, figure, "<=", limit))

    def at_least(self, work: str, figure: str, value: float, limit: float) -> None:
        """Adds a figure with a lower limit."""
        self.row(work, figure, value, Bar(work, figure, ">=", limit))

    def note(self, text: str) -> None:
        self.content["notes"].append(text)
        self.save()

    def fail(self, error: BaseException) -> None:
        """Marks the section as failed, and lets it continue."""
        self.broken.append("".join(traceback.format_exception(error))[-3000:])

    def finish(self) -> None:
        self.content["status"] = "failed" if self.broken else "done"
        if self.broken:
            self.content["error"] = "\n".join(self.broken)[-6000:]
        self.save()

    def save(self) -> None:
        self.content["seconds"] = time.monotonic() - self.begun
        self.saved(self.content)


def write(path: Path, text: str) -> None:
    """Writes a temporary file and renames it to ``path``, so that a file is never half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".part")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def shown(value: float | None) -> str:
    """Formats a figure; None: it was not a number."""
    return "none" if value is None else f"{value:.4g}"


def work_of(row: dict[str, Any]) -> str:
    return f"{row['work']}, {row['nodes']:,} nodes" if "nodes" in row else row["work"]


def fact(value: object) -> str:
    """Formats a property of the machine; unknown properties and tables become an empty string."""
    if value is None or isinstance(value, (dict, list)):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def joined(blocks: list[list[str]]) -> str:
    """Joins blocks of lines, with an empty line between blocks; empty blocks are left out."""
    return "\n\n".join("\n".join(block) for block in blocks if block)


class Report:
    """The report of a machine, which is written again after each part.

    Args:
        folder: folder of report.json, report.md and the pictures.
        bars: the bars that must have figures. Rows may have further bars.
        dry: whether this is a rehearsal, whose figures mean nothing.
    """

    def __init__(self, folder: Path, bars: Iterable[Bar] = (), *, dry: bool = False) -> None:
        self.folder, self.bars, self.begun = folder, list(bars), time.monotonic()
        self.content: dict[str, Any] = {
            "dry run": dry,
            "date": time.strftime("%Y-%m-%d"),
            "machine": {},
            "tests": {},
            "sections": {},
            "sanitizer": {},
        }

    @classmethod
    def read(cls, folder: Path) -> Report:
        """Reads the report of a folder."""
        report = cls(folder)
        report.content = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        return report

    @property
    def title(self) -> str:
        machine = self.content["machine"]
        if self.content["dry run"]:
            return "Rehearsal"
        return machine.get("card") or machine.get("processor") or "unknown machine"

    def judged(self) -> list[dict[str, Any]]:
        """Each bar with its figures, and whether all of them reach it."""
        rows = [row for section in self.content["sections"].values() for row in section.get("rows", ()) if "bar" in row]
        table = []
        for bar in dict.fromkeys([*self.bars, *(Bar(**row["bar"]) for row in rows)]):
            judged = [row for row in rows if Bar(**row["bar"]) == bar]
            details = {f"{row['work']}: {row['figure']}": row["value"] for row in judged if row["value"] is not None}
            met = bar.met(details.values()) if details and not self.content["dry run"] else None
            if met and len(details) < len(judged):
                # A figure could not be measured, so it is not known whether all meet the bar.
                met = None
            limit = f"{bar.sign} {bar.limit:g}"
            table.append({"work": bar.work, "figure": bar.figure, "bar": limit, "measured": details, "met": met})
        return table

    def parts(self) -> dict[str, dict[str, Any]]:
        """The parts that pass or fail: tests and sanitizers."""
        return {**self.content["tests"], **self.content["sanitizer"]}

    def status(self) -> int:
        """The exit status, from the bars as they were last judged."""
        outcomes = {part["status"] for part in self.parts().values()}
        if "failed" in outcomes or self.content.get("build"):
            return FAILED
        if any(row["met"] is False for row in self.content["bars"]):
            return MISSED
        outcomes |= {section["status"] for section in self.content["sections"].values()}
        judged = self.content["dry run"] or all(row["met"] for row in self.content["bars"])
        return 0 if outcomes <= set(FINE) and judged else UNMEASURED

    def save(self) -> None:
        """Judges the bars and writes report.json and report.md, without drawing pictures."""
        self.content["seconds"] = round(time.monotonic() - self.begun, 1)
        self.content["bars"] = self.judged()
        self.content["exit status"] = self.status()
        write(self.folder / "report.json", json.dumps(self.content, indent=1) + "\n")
        write(self.folder / "report.md", self.page({}))

    def render(self) -> None:
        """Draws the pictures and writes the page with them."""
        try:
            drawn = pictures.draw(self.content, self.folder)
        except ImportError as error:
            print(f"no pictures: {error}", file=sys.stderr)
            drawn = {}
        write(self.folder / "report.md", self.page(drawn))

    def summary(self) -> list[list[str]]:
        """Blocks of lines: the table of bars, the number of passed tests, and what failed."""
        words = {True: "met", False: "**missed**", None: "not judged" if self.content["dry run"] else "not measured"}
        table = ["| work | figure | measured | bar | |", "| --- | --- | --- | --- | --- |"]
        for row in self.content["bars"]:
            found = [shown(value) for value in sorted(row["measured"].values())]
            span = " to ".join(dict.fromkeys((found[0], found[-1]))) if found else ""
            table.append(f"| {row['work']} | {row['figure']} | {span} | {row['bar']} | {words[row['met']]} |")
        judged = [part["status"] for part in self.parts().values() if part["status"] != "not rehearsed"]
        passed = f"{judged.count('passed')} of {len(judged)} test files and sanitizer runs passed."
        problems = ["- build: failed"] if self.content.get("build") else []
        for name, part in {**self.parts(), **self.content["sections"]}.items():
            if part["status"] not in FINE:
                reason = part.get("error", "").strip().splitlines()[-1:] or [""]
                problems.append(f"- {name}: {part['status']} {part.get('result', '')} {reason[0][:300]}".rstrip())
        return [table if self.content["bars"] else [], [passed] if judged else [], problems]

    def page(self, drawn: dict[str, str]) -> str:
        """The page in Markdown.

        Args:
            drawn: title -> file of the pictures.
        """
        facts = [f"{name}: {fact(value)}" for name, value in self.content["machine"].items() if fact(value)]
        about = ". ".join(filter(None, (self.content["date"], ", ".join(facts))))
        blocks = [[f"# {self.title}"], [f"{about}."], *self.summary()]
        blocks.append(["What a floor is: bench/floors.py. Who the contenders are: bench/baselines.py."])
        blocks += [[f"![{title}]({file})"] for title, file in drawn.items()]
        for name, section in self.content["sections"].items():
            blocks.append([f"## {name}: {section['status']}"])
            rows = [f"| {work_of(row)} | {row['figure']} | {shown(row['value'])} |" for row in section.get("rows", ())]
            blocks.append(["| work | figure | value |", "| --- | --- | --- |", *rows] if rows else [])
            blocks.append([f"- {' '.join(note.split())}" for note in section.get("notes", ())])
        return joined(blocks) + "\n"

    def show(self, name: str) -> None:
        """Prints a section."""
        found = self.content["sections"][name]
        print(f"\n{name}: {found['status']}, {found['seconds']:.0f} s")
        for row in found["rows"]:
            print(f"  {work_of(row)}  {shown(row['value'])} {row['figure']}")
        for note in found["notes"]:
            print(f"  {note[:300]}")
        if "error" in found:
            print(f"  {found['error'][-1000:]}")

    def close(self) -> int:
        """Writes everything, prints the table of bars, and returns the exit status."""
        self.save()
        self.render()
        print()
        print(joined(self.summary()))
        print(f"\n{self.folder / 'report.json'}, {self.content['seconds']:.0f} s", flush=True)
        return self.content["exit status"]
