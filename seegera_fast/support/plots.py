"""Pictures of a run (loss, validation scores, the embedding in two dimensions) and of means over many runs."""

from __future__ import annotations

import contextlib
import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from .fonts import families
from .hints import shown_name
from .warning import warn_outside

# Okabe and Ito's palette, which colour-blind readers can tell apart. From the ninth class on, the markers change.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
# From the ninth line on, the line styles change.
LINE_STYLES = ("-", "--", ":", "-.")
UNKNOWN_COLOUR = "#BBBBBB"
# The most classes that a legend lists, and the widest name in it.
LONGEST_LEGEND = 24
WIDEST_NAME = 24
MOST_POINTS = 2000


class Drawing(NamedTuple):
    """Nodes of an embedding in two dimensions.

    Attributes:
        nodes: int64 ``[m]``: their numbers, in ascending order.
        points: ``[m, 2]``.
        method: how the embedding was projected: "t-SNE" or "PCA".
        sample: how many nodes of how many these are, for a reader.
    """

    nodes: np.ndarray
    points: np.ndarray
    method: str
    sample: str


def draw_nodes(embedding: np.ndarray, seed: int = 0) -> Drawing:
    """Projects an embedding ``[n, d]``; of more than 2,000 nodes 2,000 random ones.

    Args:
        seed: of the random nodes and of t-SNE.
    """
    count = embedding.shape[0]
    nodes, sample = np.arange(count), f"{count:,} nodes"
    if count > MOST_POINTS:
        nodes = np.sort(np.random.default_rng(seed).choice(count, MOST_POINTS, replace=False))
        sample = f"{MOST_POINTS:,} of {sample}"
    return Drawing(nodes, *project(embedding[nodes], seed), sample)


def save_picture(
    file: IO[bytes],
    *,
    title: str,
    scores: str,
    history: Sequence[Mapping[str, Any]],
    titles: Mapping[str, str],
    best_epoch: int | None,
    drawing: Drawing,
    labels: np.ndarray | None = None,
    classes: Sequence[str] | None = None,
) -> None:
    """Draws loss and validation scores over epochs on the left, the embedding on the right, as PNG (2,400 x 1,200).

    Args:
        file: an open file.
        title, scores: the two lines of the heading.
        history: a mapping per epoch with "epoch", "loss" and, in epochs with validation, the "valid_*" scores.
        titles: score name -> title.
        best_epoch: the epoch to mark; None: no mark.
        drawing: the nodes to draw.
        labels: int64 ``[n]``, negative: unknown. None: all nodes get the same colour.
        classes: the name of each label in the legend; None: its number.
    """
    with _picture(file, width=12, height=6, dpi=200) as figure:
        figure.suptitle(f"{title}\n{scores}", fontsize=14)
        left, right = figure.subfigures(1, 2, width_ratios=(1, 1.1))
        _draw_history(left, history, titles, best_epoch)
        _draw_embedding(right.subplots(), drawing, labels, classes)


@contextlib.contextmanager
def _picture(file: IO[bytes], *, width: float, height: float, dpi: int) -> Iterator[Any]:
    """A figure that is written to a file when the block ends.

    It looks the same whatever the user's settings of matplotlib are. Texts are drawn letter by letter, since a name
    with "$" in it is no formula, in fonts that have their letters.
    """
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    with style.context(["default", {"text.parse_math": False}]):
        figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        texts = figure.findobj(Text)
        fonts, missing = families(text.get_text() for text in texts)
        for text in texts:
            text.set_fontfamily(fonts)
        if missing:
            shown = missing[:20] + "..." * (len(missing) > 20)
            warn_outside(f"no installed font has {shown}: the picture has boxes for them")
        # Drawn in memory first: the error of a full disk would get lost in the library that writes images.
        content = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(content, format="png")
    file.write(content.getvalue())


def _draw_history(
    figure: Any, history: Sequence[Mapping[str, Any]], titles: Mapping[str, str], best_epoch: int | None
) -> None:
    taken = {key: title for key, title in titles.items() if any(key in entry for entry in history)}
    loss_axes, score_axes = figure.subplots(2, 1, sharex=True)
    _draw_lines(loss_axes, history, {"loss": "training loss"})
    _draw_lines(score_axes, history, taken)
    loss_axes.set(title="Loss", ylabel="loss")
    name = next(iter(taken.values())) if len(taken) == 1 else "score"
    score_axes.set(title="Validation", xlabel="epoch", ylabel=name)
    for axes in (loss_axes, score_axes):
        if best_epoch is not None:
            axes.axvline(best_epoch, color="#555555", linewidth=1, linestyle=":", label=f"best epoch: {best_epoch}")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    if score_axes.get_legend_handles_labels()[0]:
        score_axes.legend(frameon=False)


def save_dots(
    file: IO[bytes], panels: Mapping[str, Mapping[str, Mapping[str, tuple[float, float | None]]]], *, columns: int
) -> None:
    """Draws means as dots with their deviations as error bars, with one panel per title, as PNG.

    The axes begin near the smallest value, because differences are small compared with the values; they say so.

    Args:
        panels: title -> series -> label of the line -> mean and deviation (None: no error bar).
        columns: number of panels in a row.
    """
    from matplotlib.lines import Line2D

    labels_of = [list(dict.fromkeys(label for dots in panel.values() for label in dots)) for panel in panels.values()]
    columns = min(columns, len(panels))
    heights = [
        1.2 + 0.5 * max(map(len, labels_of[start : start + columns])) for start in range(0, len(panels), columns)
    ]
    with _picture(file, width=3.2 * columns + 2.4, height=sum(heights) + 0.6, dpi=130) as figure:
        series = list(dict.fromkeys(name for panel in panels.values() for name in panel))
        looks = {
            name: {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], "linestyle": "none"}
            for index, name in enumerate(series)
        }
        every = _panels(figure, len(panels), columns, height_ratios=heights)
        for index, (axes, (title, panel)) in enumerate(zip(every, panels.items(), strict=True)):
            labels = labels_of[index]
            for number, (name, dots) in enumerate(panel.items()):
                at = [labels.index(label) + (number - (len(panel) - 1) / 2) * 0.6 / len(panel) for label in dots]
                means, deviations = zip(*dots.values(), strict=True)
                errors = [0.0 if deviation is None else deviation for deviation in deviations]
                axes.errorbar(means, at, xerr=errors, capsize=2, elinewidth=1, markersize=4.5, **looks[name])
            # The panel on the left may have the same lines.
            shown = index % columns == 0 or labels != labels_of[index - 1]
            names = [label.replace(" (", "\n(", 1) if shown else "" for label in labels]
            axes.set_yticks(range(len(labels)), names, fontsize=9)
            axes.set_ylim(len(labels) - 0.5, -0.5)
            ends = [end for dots in panel.values() for mean, spread in dots.values() for end in _ends(mean, spread)]
            margin = 0.08 * (max(ends) - min(ends)) or 0.05 * abs(max(ends)) or 1.0
            low, high = max(min(ends) - margin, 0.0), max(ends) + margin
            axes.set_xlim(low, high)
            axes.set_xlabel(f"the axis begins at {low:.4g}" if low > 0 else "", fontsize=8)
            # Numbers with many digits would run into each other.
            axes.locator_params(axis="x", nbins=4)
            axes.set_title(title, fontsize=10)
            axes.grid(axis="x", alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        _draw_legend(figure, [Line2D([], [], **look, label=name) for name, look in looks.items()])


def _ends(mean: float, deviation: float | None) -> tuple[float, float]:
    return mean - (deviation or 0.0), mean + (deviation or 0.0)


def save_histogram(file: IO[bytes], values: np.ndarray, *, title: str, x: str, y: str) -> None:
    """Draws how many of the values, which are in [0, 1], lie in each of 20 bins, as PNG.

    Args:
        x, y: labels of the axes.
    """
    with _picture(file, width=7, height=4.2, dpi=160) as figure:
        axes = figure.subplots()
        axes.hist(values, bins=np.linspace(0, 1, 21), color=COLOURS[0], edgecolor="white", linewidth=0.5)
        axes.set(title=title, xlabel=x, ylabel=y, xlim=(0, 1))
        axes.grid(axis="y", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)


def save_curves(
    file: IO[bytes], panels: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], *, columns: int
) -> None:
    """Draws lines over epochs, with one panel per title, as PNG.

    Args:
        panels: title -> name of the line -> epochs and values.
        columns: number of panels in a row.
    """
    from matplotlib.lines import Line2D

    with _panelled(file, len(panels), height=2.8, columns=columns) as figure:
        names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
        looks = {
            name: {"color": COLOURS[index % len(COLOURS)], "linestyle": LINE_STYLES[index // len(COLOURS) % 4]}
            for index, name in enumerate(names)
        }
        for axes, (title, panel) in zip(_panels(figure, len(panels), columns), panels.items(), strict=True):
            for name, points in panel.items():
                axes.plot(*zip(*points, strict=True), **looks[name], linewidth=1.2)
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("epoch")
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        _draw_legend(figure, [Line2D([], [], **look, label=name) for name, look in looks.items()])


def save_heat_maps(
    file: IO[bytes], panels: Mapping[str, Mapping[tuple[float, float], float]], *, x: str, y: str
) -> None:
    """Draws values over two rates as a heat map, larger values darker, with one panel per title, as PNG.

    Args:
        panels: title -> rates (x, y) -> value. A cell without a value stays empty.
        x, y: labels of the axes.
    """
    with _panelled(file, len(panels), height=4.0) as figure:
        for axes, (title, cells) in zip(_panels(figure, len(panels)), panels.items(), strict=True):
            across, down = (sorted({rates[side] for rates in cells}) for side in (0, 1))
            grid = np.full((len(down), len(across)), np.nan)
            for (first, second), value in cells.items():
                grid[down.index(second), across.index(first)] = value
            image = axes.imshow(grid, cmap="Blues", origin="lower", aspect="auto")
            for row, column in zip(*np.nonzero(~np.isnan(grid)), strict=True):
                dark = image.norm(grid[row, column]) > 0.6
                colour = "white" if dark else "black"
                axes.text(column, row, f"{grid[row, column]:#.4g}", ha="center", va="center", color=colour, fontsize=8)
            axes.set_xticks(range(len(across)), [f"{rate:g}" for rate in across])
            axes.set_yticks(range(len(down)), [f"{rate:g}" for rate in down])
            axes.set(xlabel=x, ylabel=y)
            axes.set_title(textwrap.fill(title, TITLE_LETTERS), fontsize=10)
            figure.colorbar(image, ax=axes, shrink=0.8)


# The largest number of panels in a row.
MOST_COLUMNS = 4
# Letters of a title over one of them, beside which others have theirs.
TITLE_LETTERS = 34


def _panelled(file: IO[bytes], panels: int, height: float, columns: int = MOST_COLUMNS) -> Any:
    """A picture with room for panels of a height."""
    columns = min(panels, columns)
    rows = -(-panels // columns)
    return _picture(file, width=max(3.4 * columns, 5), height=height * rows + 0.6, dpi=130)


def _panels(figure: Any, count: int, columns: int = MOST_COLUMNS, **options: Any) -> list[Any]:
    """The axes of ``count`` panels; unused axes in the last row are hidden."""
    columns = min(count, columns)
    every = list(figure.subplots(-(-count // columns), columns, squeeze=False, **options).flat)
    for axes in every[count:]:
        axes.set_visible(False)
    return every[:count]


def _draw_legend(figure: Any, handles: Sequence[Any]) -> None:
    """Draws the legend below the panels, in as many columns as fit."""
    # A letter is about 0.09 inches wide; the coloured field and the gap take an inch.
    columns = int(figure.get_figwidth() / (0.09 * max(len(handle.get_label()) for handle in handles) + 1))
    figure.legend(handles=handles, loc="outside lower center", ncols=max(1, min(columns, len(handles))), frameon=False)


def _draw_lines(axes: Any, history: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> None:
    for (key, name), colour, style in zip(names.items(), COLOURS, ("-", "--", "-.", ":"), strict=False):
        points = [(entry["epoch"], entry[key]) for entry in history if entry.get(key) is not None]
        if points:
            epochs, values = zip(*points, strict=True)
            marker = "o" if len(points) <= 40 else None
            axes.plot(epochs, values, style, color=colour, linewidth=1.5, marker=marker, markersize=3, label=name)


def _draw_embedding(axes: Any, drawing: Drawing, labels: np.ndarray | None, names: Sequence[str] | None) -> None:
    nodes, points = drawing.nodes, drawing.points
    classes = np.zeros(len(nodes), np.int64) if labels is None else labels[nodes]
    size = float(np.clip(20000 / max(len(nodes), 1), 7, 60))
    present = np.unique(classes)
    for label in present:
        kind = max(int(label), 0)
        axes.scatter(
            *points[classes == label].T,
            s=size,
            color=UNKNOWN_COLOUR if label < 0 else COLOURS[kind % len(COLOURS)],
            marker=MARKERS[kind // len(COLOURS) % len(MARKERS)],
            linewidths=0,
            alpha=0.85,
            label="unknown" if label < 0 else str(label),
        )
    if labels is not None and 1 < len(present) <= LONGEST_LEGEND:
        legend = axes.legend(title="class", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        for handle in legend.legend_handles:
            handle.set_sizes([40.0])
        # Not given as labels, of which matplotlib leaves out those that begin with "_".
        for text, label in zip(legend.get_texts(), present, strict=True):
            if label >= 0 and names is not None:
                text.set_text(shown_name(names[label], WIDEST_NAME))
    axes.set(title=f"Embedding by {drawing.method}, {drawing.sample}", xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")


def project(embedding: np.ndarray, seed: int = 0) -> tuple[np.ndarray, str]:
    """Projects the rows to two dimensions, ``[n, 2]``, and returns the name of the method too.

    The method is t-SNE, or PCA for fewer than 20 rows or rows that are nearly the same.
    """
    values = np.asarray(embedding, np.float64)
    # scikit-learn squares distances in float32, which very small and very large ones leave.
    scale = float(np.abs(values).max()) or 1.0
    values = values / scale
    values = values - values.mean(axis=0)
    left, lengths, _ = np.linalg.svd(values, full_matrices=False)
    main = left[:, :50] * lengths[:50]
    if main.shape[1] < 2:
        main = np.pad(main, ((0, 0), (0, 2 - main.shape[1])))
    # t-SNE divides by the spread of the first direction, which must be more than rounding.
    flat = not main[:, 0].std() > 1e-6
    if len(main) < 20 or main.shape[1] == 2 or flat:
        return main[:, :2] * scale, "PCA"
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(30.0, (len(main) - 1) / 3)
    # t-SNE makes many small steps. On a busy machine its threads would wait for each other in each of them, so one
    # thread is several times faster. After 500 of them the picture keeps as many neighbours together as after 1,000.
    with threadpool_limits(1):
        tsne = TSNE(2, perplexity=perplexity, init="pca", max_iter=500, random_state=seed)
        return tsne.fit_transform(main), "t-SNE"
