"""Means over trials beside the paper's figures, as rows, Markdown and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .. import datasets
from ..support.report import readable_bytes, readable_seconds
from ..support.tables import read_tables
from .protocols import METHODS, PAPER, SCORES, TASKS
from .trials import Record, Setting


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
    """The rows of all settings, sorted by task, data set, split and method, with the paper's protocol first."""
    by_setting: dict[Setting, list[Record]] = {}
    for record in records:
        by_setting.setdefault(record.trial.setting, []).append(record)
    names = datasets.names()

    def order(setting: Setting) -> tuple[Any, ...]:
        orders = (list(TASKS).index(setting.task), names.index(setting.data), setting.split)
        return (*orders, bool(setting.fields), setting.title, list(METHODS).index(setting.method))

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
    )


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


def markdown(table: Sequence[Row]) -> str:
    """A Markdown table per task, followed by notes on how to read it."""
    parts = []
    for key, task in TASKS.items():
        chosen = [row for row in table if row.setting.task == key]
        if chosen:
            parts += [f"## {task.title.capitalize()}", _markdown_table(chosen)]
    return "\n\n".join([*parts, _notes(table)]) + "\n"


def _markdown_table(table: Sequence[Row]) -> str:
    head = [
        *("data set", "method", "split", "score", "paper", "ours", "difference", "reached"),
        *("trials", "failed", "epochs", "time per trial", "peak memory"),
    ]
    lines = [head, ["---"] * len(head), *map(_cells, table)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(row: Row) -> list[str]:
    score, paper, ours, difference, trials, failed = readable_row(row)
    return [
        *(row.setting.data, row.setting.title, row.setting.split, score, paper, ours, difference),
        {None: "–", True: "yes", False: "no"}[row.reached],
        *(trials, failed),
        "–" if row.epochs is None else f"{row.epochs:.0f}",
        "–" if row.seconds is None else readable_seconds(row.seconds),
        readable_bytes(row.peak_memory),
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


def _notes(table: Sequence[Row]) -> str:
    notes = [
        "AUC, AP and accuracy are in percent. After ± stands the standard deviation over the trials. A figure is "
        "reached where ours is within one standard deviation of the paper's, or better.",
        "Splits: " + "; ".join(_split_note(key) for key in TASKS) + ".",
    ]
    if any(row.setting.fields for row in table):
        notes.append(
            "**Not the paper's protocol:** rows with settings in brackets after the method, which override the paper's."
        )
    if any(row.failed for row in table):
        notes.append("Failed trials became NaN or infinite and are in no mean.")
    return "\n\n".join(notes)


def _split_note(key: str) -> str:
    task = TASKS[key]
    return f"{task.title} {', '.join(f'{name} {task.split_in_words(name)}' for name in task.splits)}"
