"""``report.html``: what a run found, on one page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..calibration import Reliability
from ..graph import Graph
from ..support import html
from ..support.plots import LONGEST_LEGEND, Drawing
from ..support.report import readable_bytes, readable_seconds
from ..tasks.task import Task, TaskResult
from .output import node_names
from .suggestions import rows_of

CURVES = ("plain", "calibrated")


def report_page(
    title: str,
    task: Task,
    graph: Graph,
    result: TaskResult,
    drawing: Drawing,
    suggestions: Mapping[str, np.ndarray] | None,
    content: Mapping[str, Any],
) -> str:
    """The page.

    Args:
        title: its heading.
        drawing: the nodes of the embedding to draw.
        suggestions: the columns of the table of suggested links; None: there are none.
        content: what ``results.json`` holds.
    """
    data = content["data"]
    subtitle = (
        f"{data['nodes']:,} nodes, {data['edges']:,} edges, {data['features']:,} features; {result.epochs:,} epochs in "
        f"{readable_seconds(result.seconds)}, {readable_bytes(result.peak_memory)}"
        f"{'; interrupted' if result.interrupted else ''}"
    )
    sections = []
    if task.scores:
        sections.append(("Scores", _scores(task, result), False))
    if getattr(result, "reliability", None):
        sections.append(("Reliability", _reliability(result.reliability), False))
    sections.append(("Training", _curves(task, result), False))
    sections.append(("Embedding", _embedding(graph, drawing), False))
    if suggestions is not None:
        sections.append(("Suggested links", _links(suggestions, result.model.calibration is not None), True))
    sections += [
        (
            "Settings",
            html.table(["field", "value"], [(key, str(value)) for key, value in result.fields.items()]),
            False,
        ),
        ("Machine and versions", html.table(["", ""], _as_text(content["machine"], content["versions"])), False),
    ]
    return html.page(title, subtitle, sections)


def _scores(task: Task, result: TaskResult) -> str:
    rows = [(score.title, getattr(result, score.name), getattr(result, f"valid_{score.name}")) for score in task.scores]
    rows += [(f"Hits@{k}", value, None) for k, value in getattr(result, "hits", {}).items()]
    if getattr(result, "mrr", None) is not None:
        rows.append(("MRR", result.mrr, None))
    return html.table(["", "test", "validation"], rows)


def _curves(task: Task, result: TaskResult) -> str:
    def points(name: str) -> list[tuple[float, float]]:
        return [(entry["epoch"], entry[name]) for entry in result.history if entry.get(name) is not None]

    drawn = html.lines({"loss": points("loss")}, x="epoch")
    scores = {f"{score.title}, validation": points(f"valid_{score.name}") for score in task.scores}
    scores = {title: values for title, values in scores.items() if values}
    return drawn + (html.lines(scores, x="epoch") if scores else "")


def _reliability(curves: Mapping[str, Reliability]) -> str:
    series = {
        f"{name}, error {curves[name].error:.3f}": list(zip(curves[name].predicted, curves[name].observed, strict=True))
        for name in CURVES
        if name in curves
    }
    text = (
        "Of the test pairs with about the predicted probability (across), the share that are links (up). On the dashed "
        "line both agree. The error is the mean distance from it."
    )
    return html.paragraph(text) + html.lines(series, x="predicted probability", unit_square=True)


def _embedding(graph: Graph, drawing: Drawing) -> str:
    names = [str(name) for name in node_names(graph)[drawing.nodes].tolist()]
    labels = None if graph.labels is None else graph.labels.cpu().numpy()[drawing.nodes]
    legend = ""
    if labels is not None:
        titles = {kind: _class_title(graph, kind) for kind in np.unique(labels).tolist()}
        names = [f"{name}, {titles[kind]}" for name, kind in zip(names, labels.tolist(), strict=True)]
        if len(titles) <= LONGEST_LEGEND:
            legend = html.legend([(title, html.colour_of(kind)) for kind, title in titles.items()])
    return (
        html.paragraph(f"{drawing.sample}, by {drawing.method}. Point at one for its name.")
        + html.scatter(drawing.points, names, labels)
        + legend
    )


def _class_title(graph: Graph, kind: int) -> str:
    if kind < 0:
        return "unknown"
    return f"class {kind}" if graph.classes is None else graph.classes[kind]


def _links(suggestions: Mapping[str, np.ndarray], calibrated: bool) -> str:
    text = (
        "The most probable links that are not there yet. The deviation says how sure the model is of the probability."
    )
    if calibrated:
        text += " Probabilities are calibrated for pairs of which half are links; among all pairs, links are rarer."
    numbers = [name for name, column in suggestions.items() if column.dtype.kind == "f"]
    return html.paragraph(text) + html.table(list(suggestions), rows_of(suggestions), numbers)


def _as_text(*parts: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, str(value)) for part in parts for key, value in part.items()]
