"""The pictures of a report: steps compared with plain PyTorch, times over floors, and growth with the nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

# Okabe and Ito's blue and vermilion, which colour-blind readers can tell apart.
BLUE, ORANGE = "#0072B2", "#D55E00"
FASTER, FLOOR = "times faster than ", "times its floor"
THAN_HIGHEST = ": times faster than highest"

Row = dict[str, Any]


def draw(content: dict[str, Any], folder: Path) -> dict[str, str]:
    """Draws the pictures for which there are figures, and removes those of an earlier report for which there are none.

    Returns:
        Title -> file name.
    """
    kinds: dict[str, tuple[str, list[Row], Callable[[list[Row]], Any]]] = {
        "A training step, times faster than plain PyTorch": ("speed.png", steps(content), draw_speed),
        "Work at each precision, times faster than at highest": (
            "precision.png",
            by_precision(content),
            draw_precision,
        ),
        "Times over their floors": ("floors.png", over_floors(content), draw_floors),
        "Time and memory of a step over the number of nodes": ("growth.png", by_nodes(content), draw_growth),
    }
    drawn = {}
    for title, (file, rows, function) in kinds.items():
        (folder / file).unlink(missing_ok=True)
        if rows:
            function(rows).savefig(folder / file, dpi=130)
            drawn[title] = file
    return drawn


def measured(content: dict[str, Any]) -> list[tuple[str, Row]]:
    """The section and the row of each figure that is a number."""
    found, barred = [], set()
    for name, section in content["sections"].items():
        for row in section.get("rows", ()):
            figure = row["work"], row["figure"]
            # A figure with two bars has a row for each, and is drawn once, with the first.
            if row["value"] is not None and not ("bar" in row and figure in barred):
                found.append((name, row))
                barred |= {figure} if "bar" in row else set()
    return found


def steps(content: dict[str, Any]) -> list[Row]:
    rows = [row for _, row in measured(content)]
    return [row for row in rows if row["work"].startswith("step, ") and row["figure"].startswith(FASTER)]


def by_precision(content: dict[str, Any]) -> list[Row]:
    return [row for _, row in measured(content) if row["figure"].endswith(THAN_HIGHEST)]


def over_floors(content: dict[str, Any]) -> list[Row]:
    """The rows of times over floors, without the sparse products, which have a row for each matrix and width."""
    return [row for name, row in measured(content) if row["figure"].startswith(FLOOR) and name != "sparse_matmul"]


def by_nodes(content: dict[str, Any]) -> list[Row]:
    return [row for _, row in measured(content) if "nodes" in row]


def new_figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_bars(names: list[str], rows: list[Row]) -> tuple[Any, Any]:
    """Draws horizontal bars from top to bottom, and a line at 1."""
    figure = new_figure(9, 0.5 * len(rows) + 1.2)
    axes = figure.subplots()
    bars = axes.barh(range(len(rows)), [row["value"] for row in rows], color=BLUE)
    axes.set_yticks(range(len(rows)), names)
    axes.axvline(1, color="black", linewidth=1)
    axes.margins(x=0.1)
    axes.invert_yaxis()
    axes.bar_label(bars, [f"{row['value']:.3g} ×" for row in rows], padding=4)
    return figure, axes


def draw_speed(rows: list[Row]) -> Any:
    names = [f"{row['work'].removeprefix('step, ')}, against {row['figure'].removeprefix(FASTER)}" for row in rows]
    figure, axes = draw_bars(names, rows)
    axes.set_xlabel("a training step: times faster than plain PyTorch")
    return figure


def draw_precision(rows: list[Row]) -> Any:
    names = [f"{row['work'].removeprefix('precision: ')}, {row['figure'].removesuffix(THAN_HIGHEST)}" for row in rows]
    figure, axes = draw_bars(names, rows)
    axes.set_xlabel("times faster than at highest")
    return figure


def draw_floors(rows: list[Row]) -> Any:
    figure, axes = draw_bars([row["work"] + row["figure"].removeprefix(FLOOR) for row in rows], rows)
    barred = [(index, row["bar"]["limit"]) for index, row in enumerate(rows) if "bar" in row]
    for index, limit in barred:
        axes.plot([limit, limit], [index - 0.4, index + 0.4], color=ORANGE, linewidth=2)
    axes.set_xlabel("time over floor (orange: the bar)" if barred else "time over floor")
    return figure


def draw_growth(rows: list[Row]) -> Any:
    from matplotlib import ticker

    quantities = list(dict.fromkeys(row["figure"] for row in rows))
    figure = new_figure(5.5 * len(quantities), 4.5)
    for axes, quantity in zip(figure.subplots(1, len(quantities), squeeze=False)[0], quantities, strict=True):
        for work in dict.fromkeys(row["work"] for row in rows):
            points = [(row["nodes"], row["value"]) for row in rows if (row["work"], row["figure"]) == (work, quantity)]
            axes.loglog(*zip(*points, strict=True), marker="o", label=work.removeprefix("growth, "))
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.set_xlabel("nodes")
        axes.set_ylabel(quantity)
        axes.grid(True, which="both", alpha=0.3)
        axes.legend()
    return figure
