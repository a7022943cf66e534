"""What ``seegera-fast train`` writes: the model and the embedding, the most probable links, and the pages."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..experiments.protocols import EVERY_TASK, SCORES
from ..graph import Graph
from ..support.hints import one_line
from ..support.plots import draw_nodes, save_picture
from ..support.progress import phase
from ..support.report import json_text, readable_number
from ..tasks.task import TaskResult
from .options import PROGRAM, say
from .output import (
    EMBEDDING,
    EMBEDDING_TABLE,
    FILES,
    LINKS,
    MODEL,
    PICTURE,
    REPORT,
    RESULTS,
    OutputFolder,
    Writer,
    embedding_table,
    write_array,
    write_table,
)
from .report_page import report_page
from .suggestions import suggested_links

# So many links of the whole graph are suggested, of graphs of so many nodes at most: a minute on two cores.
SUGGESTED, MOST_NODES = 100, 50_000


def write_model(
    folder: OutputFolder, graph: Graph, result: TaskResult, embedding: np.ndarray, content: Mapping[str, Any]
) -> None:
    """Writes what a training is run for. What follows may take minutes, in which a batch system may end the process."""
    files: dict[str, Writer] = {MODEL: result.model.save, EMBEDDING: lambda file: write_array(file, embedding)}
    if graph.nodes is not None:
        files[EMBEDDING_TABLE] = lambda file: write_table(file, embedding_table(graph, embedding), ".csv")
    # The last one to be written is the first one to get its name: without it the earlier files stay.
    files[RESULTS] = lambda file: file.write(json_text(content).encode())
    folder.write(files, instead_of=[LINKS, PICTURE, REPORT, *{EMBEDDING_TABLE} - {*files}])


def write_links(
    folder: OutputFolder, options: argparse.Namespace, graph: Graph, result: TaskResult
) -> dict[str, np.ndarray] | None:
    """Writes and returns the most probable links of the whole graph; None: it is too large, or has none."""
    missing = graph.num_nodes * (graph.num_nodes - 1) // 2 - graph.num_edges
    if graph.num_nodes > MOST_NODES or not missing:
        return None
    with phase("looking for links", show=not options.quiet):
        k = min(SUGGESTED, missing)
        links = suggested_links(result.model, graph, k, per_node=False, bipartite=options.sides is not None)
    folder.write({LINKS: lambda file: write_table(file, links, ".csv")})
    return links


def write_pages(
    folder: OutputFolder,
    options: argparse.Namespace,
    heading: str,
    graph: Graph,
    result: TaskResult,
    embedding: np.ndarray,
    links: Mapping[str, np.ndarray] | None,
    content: Mapping[str, Any],
) -> None:
    """Writes what is looked at: the picture and the page."""
    say(options, "drawing the picture")
    task, drawing, picture = EVERY_TASK[options.task], draw_nodes(embedding), io.BytesIO()
    save_picture(
        picture,
        title=heading,
        scores=_score_line(content["scores"], result),
        history=result.history,
        titles={f"valid_{score.name}": score.title for score in task.scores},
        best_epoch=result.best_epoch,
        drawing=drawing,
        labels=None if graph.labels is None else graph.labels.cpu().numpy(),
        classes=graph.classes,
    )
    page = report_page(heading, task, graph, result, drawing, links, content)
    folder.write({PICTURE: lambda file: file.write(picture.getvalue()), REPORT: lambda file: file.write(page.encode())})


def print_files(folder: OutputFolder) -> None:
    """Says where the files are, and on stderr why some are somewhere else."""
    elsewhere = {name for _, names, _ in folder.refused for name in names}
    names = [name for name in FILES if name in folder.written and name not in elsewhere]
    if names:
        print(one_line(f"files in {folder.path}: {', '.join(names)}"))
    for error, names, instead in folder.refused:
        where = "no other folder could take" if instead is None else f"{instead} has instead"
        print(one_line(f"{PROGRAM}: error: {error}; {where}: {', '.join(names)}"), file=sys.stderr)


def _score_line(scores: dict[str, dict[str, float | None]], result: TaskResult) -> str:
    parts = [
        f"{part} " + ", ".join(f"{SCORES[key].title} {readable_number(value)}" for key, value in values.items())
        for part, values in scores.items()
        if values and None not in values.values()
    ]
    if result.interrupted:
        parts.append(f"interrupted after epoch {result.epochs}")
    return "; ".join(parts)
