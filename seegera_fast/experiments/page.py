"""Writes the page of results: tables and pictures of the trials' scores, what was noticed, and how they were run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..support.atomic import make_folder, require_file, require_writable, written_aside
from ..support.plots import save_curves, save_dots, save_heat_maps
from ..support.report import readable_seconds
from .protocols import TASKS
from .summary import Row, grids, in_grids, markdown, rows, title_with_unit
from .trials import Record, Setting

# The texts of a page's folder that have a place of their own on it, or none: "results.md" is what reproduce writes.
NOTES, OWN = "notes.md", "results.md"


def write_page(path: Path, records: Sequence[Record]) -> None:
    """Writes a Markdown page, and its pictures to a folder beside it with the page's name without the suffix.

    Each task has its tables and, below them, its pictures. The text of other files with the suffix .md in that folder
    comes after them. If it has a file notes.md, its text comes next, with the title "What to make of it".

    Raises:
        ValueError: there are no records, or as :func:`texts_of`.
        OSError: the page or its pictures can't be written, or as :func:`texts_of`.
    """
    if not records:
        raise ValueError(f"{path}: there is no finished trial to write about")
    table = rows(records)
    folder, texts_beside = path.with_suffix(""), texts_of(path)
    of_grids = in_grids(table)
    pictures: dict[str, str] = {}
    for key, task in TASKS.items():
        chosen = [row for row in table if row.setting.task == key and row.mean is not None]
        plain = [row for row in chosen if row.setting not in of_grids]
        kept = [
            record
            for record in records
            if record.trial.setting.task == key and record.failure is None and record.trial.setting not in of_grids
        ]
        shown = [
            # One row of panels for each data set.
            ("dots", "ours and the paper's, with standard deviations", _dots(plain), save_dots, len(task.scores)),
            (
                "curves",
                "loss and validation scores of the first seed",
                _curves(kept),
                save_curves,
                1 + len(task.scores),
            ),
        ]
        texts = [
            _picture(
                folder, f"{key}-{name}", f"{task.title.capitalize()}: {caption}", partial(draw, columns=columns), panels
            )
            for name, caption, panels, draw, columns in shown
            if panels
        ]
        maps = grids(chosen)
        if maps:
            caption = f"{task.title.capitalize()} over the masking rates"
            draw = partial(save_heat_maps, x="structure masking rate", y="feature masking rate")
            texts.append(_picture(folder, f"{key}-rates", caption, draw, maps))
        if texts:
            pictures[key] = "\n\n".join(texts)
    remarks = [f"## What to make of it\n\n{texts_beside.pop(NOTES)}"] if NOTES in texts_beside else []
    tables = markdown(table, pictures).rstrip()
    parts = ["# Results", _how_it_was_run(records), tables, *texts_beside.values(), *remarks]
    with written_aside(path) as file:
        file.write(("\n\n".join(parts) + "\n").encode())


def texts_of(path: Path) -> dict[str, str]:
    """Makes the folder beside a page, and reads the texts in it that become part of the page, by their file names.

    Raises:
        ValueError: a text is not in UTF-8.
        OSError: the page can't be written, the folder can't be made, or a text can't be read.
    """
    folder = path.with_suffix("")
    require_file(path)
    make_folder(folder)
    require_writable(str(path), path.resolve().parent)
    texts = {}
    for text in sorted(folder.glob("*.md")):
        try:
            texts[text.name] = text.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError as error:
            raise ValueError(f"{text}: is not a text in UTF-8 ({error.reason}, byte {error.start + 1})") from error
    texts.pop(OWN, None)
    return texts


def _picture(
    folder: Path, name: str, caption: str, draw: Callable[[Any, Mapping[str, Any]], None], panels: Mapping[str, Any]
) -> str:
    """Draws a picture, and returns the Markdown that shows it."""
    with written_aside(folder / f"{name}.png") as file:
        draw(file, panels)
    # As part of an address, in which blanks and brackets have other meanings.
    address = quote(folder.name, errors="surrogateescape")
    return f"![{caption}]({address}/{name}.png)\n\n{caption}."


def _series(setting: Setting) -> str:
    return f"ours, {TASKS[setting.task].split_in_words(setting.split)}"


def _line(setting: Setting) -> str:
    return ", ".join([setting.title, *setting.rougher])


def _dots(table: Sequence[Row]) -> dict[str, dict[str, dict[str, tuple[float, float | None]]]]:
    """Title -> series -> line -> mean and deviation. What was cut off has panels of its own, which come last."""
    panels: dict[str, dict[str, dict[str, Any]]] = {}
    for row in sorted(table, key=lambda row: row.cut_off):
        title = f"{row.setting.data}, {title_with_unit(row.score)}" + (", cut off" if row.cut_off else "")
        panel = panels.setdefault(title, {"paper": {}})
        if row.paper is not None:
            panel["paper"][_line(row.setting)] = row.paper
        panel.setdefault(_series(row.setting), {})[_line(row.setting)] = (row.mean, row.deviation)
    return {title: {name: dots for name, dots in panel.items() if dots} for title, panel in panels.items()}


def _curves(records: Sequence[Record]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Title -> line -> epochs and values, of the first seed of each setting."""
    first: dict[Setting, Record] = {}
    for record in records:
        known = first.setdefault(record.trial.setting, record)
        if record.trial.seed < known.trial.seed:
            first[record.trial.setting] = record
    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for setting, record in first.items():
        history = record.content["history"]
        lines = {f"valid_{score.name}": f"validation {score.title}" for score in TASKS[setting.task].scores}
        for key, name in {"loss": "loss", **lines}.items():
            values = zip(history["epoch"], history.get(key, ()), strict=False)
            points = [(epoch, value) for epoch, value in values if value is not None]
            if points:
                panels.setdefault(f"{setting.data}, {name}", {})[f"{_line(setting)}, {setting.split} split"] = points
    return dict(sorted(panels.items()))


def _how_it_was_run(records: Sequence[Record]) -> str:
    ended = [record.content["seconds"] for record in records if record.failure is None]
    failed = f", and {len(records) - len(ended)} that failed" if len(ended) < len(records) else ""
    return (
        "Generated by `seegera-fast reproduce --page` from the records of its trials. The settings are those of the "
        "paper. Settings that the paper does not print, and a few for which the authors' released program is known to "
        "have another value, are those of that program; `seegera_fast/tasks/presets.toml` says which.\n\n"
        f"{len(ended)} trials, {readable_seconds(sum(ended))} of training in all{failed}. Each ran in a process of its "
        "own."
    )
