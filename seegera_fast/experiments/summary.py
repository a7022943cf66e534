"""Means over trials beside the paper's figures, as rows, Markdown and JSON."""

from __future__ import annotations

import itertools
import statistics
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from .. import datasets
from ..precision import PRECISIONS
from ..support.report import readable_bytes, readable_seconds
from ..support.tables import read_tables
from .protocols import METHODS, PAPER, SCORES, TASKS
from .trials import RATES, Record, Setting


@dataclass(frozen=True)
class Row:
    """One score of one setting, in the paper's unit: percent, or the MSE as it is.

    Attributes:
        setting, score: what was run, and the name of the score.
        paper: the paper's mean and standard deviation; None: the paper has no such figure.
        mean: mean over the trials that did not fail; None: there are none.
        deviation: sample standard deviation; None: fewer than two trials.
        trials, failed: number of trials in the mean, and of those left out because a number became NaN or infinite.
        seconds, epochs: means over the trials.
        peak_memory: the largest peak of all trials, in bytes.
        cut_off: whether a trial ended because the setting allows fewer epochs than the paper's.
        machines: the machines of the trials, in words.
    """

    setting: Setting
    score: str
    paper: tuple[float, float] | None
    mean: float | None
    deviation: float | None
    trials: int
    failed: int
    seconds: float | None
    epochs: float | None
    peak_memory: int | None
    cut_off: bool
    machines: tuple[str, ...]

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's."""
        return None if self.paper is None or self.mean is None else self.mean - self.paper[0]

    @property
    def reached(self) -> bool | None:
        """Whether our mean is better than the paper's, or at most one standard deviation of the paper worse.

        The difference is rounded first: to a hundredth of a percent, the last digit that the paper prints, or for an
        MSE to a thousandth of its deviation, which the paper prints with three digits.
        """
        if self.difference is None:
            return None
        error = SCORES[self.score].error
        shortfall = self.difference if error else -self.difference
        unit = (self.paper[1] or self.paper[0]) / 1000 if error else 0.01
        return round(shortfall / unit) <= round(self.paper[1] / unit)


def rows(records: Iterable[Record]) -> list[Row]:
    """The rows of all settings, sorted by task, data set, split and method.

    In each group the paper's protocol comes first.
    """
    by_setting: dict[Setting, list[Record]] = {}
    for record in records:
        by_setting.setdefault(record.trial.setting, []).append(record)
    names = datasets.names()

    def order(setting: Setting) -> tuple[Any, ...]:
        orders = (list(TASKS).index(setting.task), names.index(setting.data), setting.split)
        precision = PRECISIONS.index(setting.precision)
        return (*orders, bool(setting.fields), setting.title, list(METHODS).index(setting.method), precision)

    return [
        _row(setting, score, by_setting[setting])
        for setting in sorted(by_setting, key=order)
        for score, _, _ in TASKS[setting.task].scores
    ]


def _row(setting: Setting, score: str, records: Sequence[Record]) -> Row:
    good = [record.content for record in records if record.failure is None]
    values = [in_papers_unit(score, content["scores"][score]) for content in good]
    memory = [content["peak_memory_bytes"] for content in good if content["peak_memory_bytes"] is not None]
    figure = read_tables(PAPER).get(setting.task, {}).get(score, {}).get(setting.method, {}).get(setting.data)
    return Row(
        setting=setting,
        score=score,
        paper=None if figure is None else tuple(figure),
        mean=statistics.fmean(values) if values else None,
        deviation=statistics.stdev(values) if len(values) > 1 else None,
        trials=len(good),
        failed=len(records) - len(good),
        seconds=statistics.fmean(content["seconds"] for content in good) if good else None,
        epochs=statistics.fmean(content["epochs"] for content in good) if good else None,
        peak_memory=max(memory, default=None),
        cut_off=any(record.cut_off for record in records),
        machines=tuple(sorted({machine_in_words(record.content) for record in records})),
    )


def machine_in_words(content: dict[str, Any]) -> str:
    """The machine of a record and the versions of its libraries."""
    machine, versions = content["machine"], content["versions"]
    threads = f"{machine['threads']} thread" + ("s" if machine["threads"] > 1 else "")
    name = machine["gpu"] or machine["processor"] or "a CPU"
    kernels = "" if machine["gpu"] else f" ({machine['instruction_set'] or 'no native kernels'}, {threads})"
    on = f"operations on {' and '.join(machine['backends'])}"
    libraries = ("seegera-fast", "torch", "numpy", "scipy", "scikit-learn")
    listed = ", ".join(f"{library} {versions[library]}" for library in libraries)
    return f"{name}{kernels}, {on}, {machine['system']}; {listed}"


def in_papers_unit(score: str, value: float) -> float:
    """Converts a score to the paper's unit: to percent, or not at all."""
    return value if SCORES[score].error else 100 * value


def title_with_unit(score: str) -> str:
    """The title of a score, with its unit in tables and pictures."""
    return SCORES[score].title + ("" if SCORES[score].error else " (%)")


def readable_value(score: str, value: float) -> str:
    """Formats a score in [0, 1], or an error, as the paper prints it."""
    return _number(in_papers_unit(score, value))


def _number(value: float, like: float | None = None) -> str:
    """Formats a number with two digits after the point, or with an exponent if it (or ``like``) is small."""
    size = abs(value if like is None else like)
    return f"{value:.2f}" if size >= 0.01 or value == 0 else f"{value:.2e}"


def _with_deviation(mean: float | None, deviation: float | None) -> str:
    if mean is None:
        return "–"
    return _number(mean) + ("" if deviation is None else f" ± {_number(deviation, like=mean)}")


def as_json(table: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as values that JSON can hold."""
    return [
        {
            **asdict(row),
            "setting": {**vars(row.setting), "fields": dict(row.setting.fields)},
            "difference": row.difference,
            "reached": row.reached,
        }
        for row in table
    ]


def markdown(table: Sequence[Row], after: Mapping[str, str] = MappingProxyType({})) -> str:
    """Markdown tables of each task, followed by notes on how to read them.

    Rows that were cut off have a table of their own, as have grids of masking rates.

    Args:
        after: what follows the tables of a task, by its key.
    """
    letters = _letters(table)
    of_grids = in_grids(table)
    parts = []
    for key, task in TASKS.items():
        of_task = [row for row in table if row.setting.task == key]
        plain = [row for row in of_task if row.setting not in of_grids]
        ended, cut = ([row for row in plain if row.cut_off == was_cut] for was_cut in (False, True))
        if not of_task:
            continue
        parts.append(f"## {task.title.capitalize()}")
        if ended:
            parts.append(_markdown_table(ended, letters))
        if cut:
            parts += ["Cut off after fewer epochs than the paper allows:", _markdown_table(cut, letters)]
        for title, rows_of_grid in _by_title(row for row in of_task if row.setting in of_grids).items():
            machines = ", ".join(sorted({letters[name] for row in rows_of_grid for name in row.machines}))
            parts += [f"{title}, over the masking rates (machine {machines}):", _markdown_grid(rows_of_grid)]
        if key in after:
            parts.append(after[key])
    return "\n\n".join([*parts, _notes(table, letters)]) + "\n"


def in_grids(table: Iterable[Row]) -> set[Setting]:
    """The settings of grids of masking rates: several that have both rates and are else the same."""
    found: dict[Setting, set[Setting]] = {}
    for row in table:
        if row.setting.rates is not None:
            found.setdefault(row.setting.without(*RATES), set()).add(row.setting)
    return {setting for group in found.values() if len(group) > 1 for setting in group}


def grids(table: Sequence[Row]) -> dict[str, dict[tuple[float, float], float]]:
    """The means of grids of masking rates: title -> (structure, feature) -> mean."""
    chosen = in_grids(table)
    found = _by_title(row for row in table if row.setting in chosen and row.mean is not None)
    return {title: {row.setting.rates: row.mean for row in cells} for title, cells in found.items()}


def _by_title(table: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of grids, by a title for each grid and score. A grid is cut off if one of its cells is."""
    of_grid: dict[tuple[Setting, str], list[Row]] = {}
    for row in table:
        of_grid.setdefault((row.setting.without(*RATES), row.score), []).append(row)
    found = {}
    for (setting, score), cells in of_grid.items():
        parts = [setting.data, f"{setting.split} split", setting.title, *setting.rougher]
        parts += ["cut off"] * any(row.cut_off for row in cells)
        found[f"{', '.join(parts)}: {title_with_unit(score)}"] = cells
    return found


def _markdown_grid(table: Sequence[Row]) -> str:
    cells = {}
    for row in table:
        failed = f", {row.failed} failed" if row.failed else ""
        cells[row.setting.rates] = f"{_with_deviation(row.mean, row.deviation)} ({row.trials}{failed})"
    across, down = (sorted({rates[side] for rates in cells}) for side in (0, 1))
    head = ["features masked", *(f"{rate:g} of the links masked" for rate in across)]
    lines = [head, ["---"] * len(head)]
    lines += [[f"{second:g}", *(cells.get((first, second), "–") for first in across)] for second in down]
    return _lines(lines)


def _letters(table: Sequence[Row]) -> dict[str, str]:
    """A letter for each machine: A to Z, then AA and so on."""
    machines = sorted({machine for row in table for machine in row.machines})
    names = itertools.chain.from_iterable(
        map("".join, itertools.product(string.ascii_uppercase, repeat=length)) for length in itertools.count(1)
    )
    return dict(zip(machines, names, strict=False))


def _markdown_table(table: Sequence[Row], letters: Mapping[str, str]) -> str:
    head = [
        *("data set", "method", "split", "score", "paper", "ours", "difference", "reached"),
        *("trials", "failed", "epochs", "time per trial", "peak memory", "precision", "machine"),
    ]
    return _lines([head, ["---"] * len(head), *(_cells(row, letters) for row in table)])


def _lines(cells: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _cells(row: Row, letters: Mapping[str, str]) -> list[str]:
    score, paper, ours, difference, trials, failed = readable_row(row)
    return [
        *(row.setting.data, row.setting.title, row.setting.split, score, paper, ours, difference),
        {None: "–", True: "yes", False: "no"}[row.reached],
        *(trials, failed),
        "–" if row.epochs is None else f"{row.epochs:.0f}",
        "–" if row.seconds is None else readable_seconds(row.seconds),
        readable_bytes(row.peak_memory),
        row.setting.precision,
        ", ".join(letters[machine] for machine in row.machines),
    ]


def readable_row(row: Row) -> list[str]:
    """The cells of a row: score, the paper's figure, ours, their difference, trials, and failed trials."""
    difference = "–"
    if row.difference is not None:
        difference = ("+" if row.difference >= 0 else "") + _number(row.difference, like=row.paper[0])
    return [
        SCORES[row.score].title,
        "–" if row.paper is None else _with_deviation(*row.paper),
        _with_deviation(row.mean, row.deviation),
        difference,
        str(row.trials),
        str(row.failed),
    ]


def _notes(table: Sequence[Row], letters: Mapping[str, str]) -> str:
    notes = [
        "AUC, AP and accuracy are in percent. After ± stands the standard deviation over the trials. A figure is "
        "reached where ours is within one standard deviation of the paper's, or better.",
        "Splits: " + "; ".join(_split_note(key) for key in TASKS) + ".",
    ]
    chosen = in_grids(table)
    if any(row.setting.without(*RATES).fields or (row.setting.fields and row.setting not in chosen) for row in table):
        notes.append(
            "**Not the paper's protocol:** rows with settings in brackets after the method, which override the paper's."
        )
    if any(row.failed for row in table):
        notes.append("Failed trials became NaN or infinite and are in no mean.")
    if chosen:
        notes.append("In the tables over masking rates, the number of trials is in brackets.")
    notes.append("Machines:")
    notes.append("\n".join(f"- {letter}: {machine}." for machine, letter in letters.items()))
    return "\n\n".join(notes)


def _split_note(key: str) -> str:
    task = TASKS[key]
    return f"{task.title} {', '.join(f'{name} {task.split_in_words(name)}' for name in task.splits)}"
