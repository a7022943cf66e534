"""Pictures of a run: the projection of the embedding, the legend, and runs with little to show."""

import io

import numpy as np
import pytest
from disk import files_in, largest_file
from matplotlib.figure import Figure

from seegera_fast.support import atomic, plots


def test_projection():
    draws = np.random.default_rng(0)
    groups = np.repeat([0.0, 50.0], 20)[:, None] + draws.standard_normal((40, 8))
    points, method = plots.project(groups, seed=1)
    assert (method, points.shape) == ("t-SNE", (40, 2))
    assert np.array_equal(points, plots.project(groups, seed=1)[0])
    centres = points[:20].mean(axis=0), points[20:].mean(axis=0)
    spread = max(points[:20].std(axis=0).max(), points[20:].std(axis=0).max())
    assert np.linalg.norm(centres[0] - centres[1]) > 2 * spread
    for rows, width in ((1, 3), (2, 1), (5, 4)):
        points, method = plots.project(draws.standard_normal((rows, width)))
        assert (method, points.shape) == ("PCA", (rows, 2))
        assert np.isfinite(points).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-25, 1e-18, 1e19, 1e200])
def test_projection_at_any_scale(scale):
    values = np.random.default_rng(0).standard_normal((40, 4))
    points, method = plots.project(values * scale)
    assert method == "t-SNE"
    # The same picture but for rounding: the same nearest neighbour of nearly every point.
    want = plots.project(values)[0]
    near = [np.linalg.norm(found[:, None] - found[None], axis=2) + 1e9 * np.eye(40) for found in (points, want)]
    assert np.mean(near[0].argmin(axis=1) == near[1].argmin(axis=1)) > 0.7


@pytest.mark.parametrize("noise", [0.0, 1e-30, 1e-9])
def test_projection_of_rows_that_are_nearly_the_same(noise):
    draws = np.random.default_rng(0)
    points, method = plots.project((0.1 + noise * draws.standard_normal((40, 5))).astype(np.float32))
    assert method == "PCA"
    assert np.isfinite(points).all()


@pytest.mark.parametrize("names", [None, ("ice", "rain", "snow")])
def test_legend_has_the_names_of_the_classes(names):
    axes = Figure().subplots()
    plots._draw_embedding(axes, plots.draw_nodes(np.eye(4, 2)), np.array([2, 0, -1, 2]), names)
    want = ["unknown", "0", "2"] if names is None else ["unknown", "ice", "snow"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == want


def test_picture_of_an_odd_run():
    """No validation scores, no labels or many and unknown ones, more nodes than are drawn."""
    draws = np.random.default_rng(0)
    history = [{"epoch": 1, "loss": 2.0}]
    for labels, nodes in ((None, 3), (draws.integers(-1, 40, 30), 30), (None, plots.MOST_POINTS + 1)):
        embedding = draws.standard_normal((nodes, 2))
        file = io.BytesIO()
        plots.save_picture(
            file,
            title="t",
            scores="",
            history=history,
            titles={},
            best_epoch=1,
            drawing=plots.draw_nodes(embedding),
            labels=labels,
        )
        assert len(file.getvalue()) > 10000


def test_a_picture_that_cannot_be_written_is_named(tmp_path):
    with (
        largest_file(1000),
        pytest.raises(OSError, match=r"p\.png can't be written: File too large"),
        atomic.written_aside(tmp_path / "p.png") as file,
    ):
        plots.save_dots(file, {"title": {"series": {"label": (1.0, 0.1)}}}, columns=1)
    assert files_in(tmp_path) == []
