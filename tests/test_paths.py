"""Paths that users give: with ~, empty, through links, with blanks, and folders that can't be written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import cases
import numpy as np
import pytest
from command import EDGES, QUICK, RECORDS, results_in

import seegera_fast as sf
from seegera_fast import datasets
from seegera_fast.training import TrainingConfig, train

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def page_without_pictures(monkeypatch):
    for name in ("save_dots", "save_curves"):
        monkeypatch.setattr(f"seegera_fast.experiments.page.{name}", lambda file, panels, **options: None)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The user's home, with the edges of a graph in it; the working folder is another one."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "e.txt").write_text(EDGES)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    yield tmp_path / "home"
    assert list((tmp_path / "work").iterdir()) == []


def test_home_in_every_path_of_the_commands(run, home, plain_picture, page_without_pictures, monkeypatch):
    np.save(home / "f.npy", np.eye(10))
    np.save(home / "l.npy", np.arange(10) % 2)
    files = ["--edges=~/e.txt", "--features", "~/f.npy", "--labels=~/l.npy"]
    assert run("train", *files, *QUICK, "--out=~/new/run")[0] == 0
    assert run("embed", "~/new/run/model.safetensors", *files, "--out", "~/e.npy")[0] == 0
    assert np.array_equal(np.load(home / "e.npy"), np.load(home / "new" / "run" / "embedding.npy"))
    shutil.copytree(RECORDS, home / "r" / "trials")
    command = ["reproduce", "--budget", "0", "--out=~/r", "--page=~/page.md", "--root=~"]
    assert run(*command)[0] == 4
    assert (home / "r" / "results.json").is_file()
    assert (home / "page.md").is_file()
    assert run("sweep", "--budget", "0", "--out=~/s")[0] == 4
    assert (home / "s" / "sweep.json").is_file()
    seen = []
    monkeypatch.setattr("seegera_fast.datasets.registry._provide", lambda *given: seen.append(given[2]) or 1 / 0)
    for option in ("--root=~/sets", None):
        monkeypatch.setenv("SEEGERA_DATA", "~/sets")
        with pytest.raises(ZeroDivisionError):
            run("train", "--data", "cora", *filter(None, [option]), "--out=~/o")
    assert seen == [home / "sets" / "Planetoid" / "Cora" / "raw"] * 2


def test_home_in_every_path_of_python(home, monkeypatch):
    graph = cases.graph("random", "binary")
    model = sf.SeeGera(graph, embedding_dim=4, hidden_dim=5)
    model.save("~/m")
    assert sf.SeeGera.load(Path("~/m")).num_nodes == graph.num_nodes
    train(model, TrainingConfig(epochs=2), checkpoint=sf.Checkpoint("~/c", every=1), progress=False)
    assert {"m", "c"} < {path.name for path in home.iterdir()}
    with pytest.raises(FileNotFoundError, match=str(home / "sets")):
        datasets.load("cora", "~/sets", download=False)
    monkeypatch.setenv("SEEGERA_DATA", "~/more")
    with pytest.raises(FileNotFoundError, match=str(home / "more")):
        datasets.load("cora", download=False)


@pytest.mark.parametrize("command", [["train", "--data", "digits", "--out", ""], ["embed", "", "--data", "digits"]])
def test_an_empty_path_is_refused(run, command, home):
    """As of a variable of the shell that is not set."""
    status, printed, err = run(*command)
    assert (status, printed) == (2, "")
    assert "got '', want a path" in err
    with pytest.raises(ValueError, match="path: got '', want a path"):
        sf.Checkpoint("")


def test_what_a_link_leads_to_is_written(run, tmp_path, plain_picture):
    (tmp_path / "e.txt").write_text(EDGES)
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to("disk")
    (tmp_path / "e.npy").symlink_to(Path("disk") / "new.npy")
    assert run("train", "--edges", tmp_path / "e.txt", *QUICK, "--out", tmp_path / "out")[0] == 0
    model = tmp_path / "out" / "model.safetensors"
    assert run("embed", model, "--edges", tmp_path / "e.txt", "--out", tmp_path / "e.npy")[0] == 0
    assert (tmp_path / "e.npy").is_symlink()
    embeddings = [np.load(tmp_path / "disk" / name) for name in ("new.npy", "embedding.npy")]
    assert np.array_equal(*embeddings)
    assert not list((tmp_path / "disk").glob(".*"))


def test_blanks_and_ends_of_lines_in_paths(run, tmp_path, plain_picture):
    folder = tmp_path / "two  blanks\nand a line"
    folder.mkdir()
    (folder / "e\x1b[1m.txt").write_text(EDGES)
    status, printed, err = run("train", "--edges", folder / "e\x1b[1m.txt", *QUICK, "--out", folder / "o")
    assert status == 0
    assert "two  blanks and a line/o: results.json" in printed
    assert "\x1b" not in printed + err
    assert results_in(folder / "o")["data"]["files"]["edges"].endswith("two  blanks\nand a line/e\x1b[1m.txt")
    status, _, err = run("train", "--edges", folder / "none.txt", *QUICK, "--out", folder / "p")
    assert (status, err.count("\n")) == (2, 1)
    assert "two  blanks and a line/none.txt: No such file" in err


def test_a_page_whose_name_has_blanks(run, tmp_path, page_without_pictures):
    shutil.copytree(RECORDS, tmp_path / "r" / "trials")
    page = tmp_path / os.fsdecode("a (b)\xff.md".encode("latin-1"))
    status, _, err = run("reproduce", "--budget", "0", "--out", tmp_path / "r", "--page", page)
    assert status == 4, err
    assert "](a%20%28b%29%FF/link-dots.png)" in page.read_text()


def test_a_working_folder_that_cannot_be_written(run, tmp_path, monkeypatch):
    (tmp_path / "e.txt").write_text(EDGES)
    monkeypatch.chdir("/proc")
    status, printed, err = run("train", "--edges", tmp_path / "e.txt", *QUICK)
    assert (status, printed) == (2, "")
    assert err.startswith("seegera-fast: error: the folder runs/e-link can't be written: ")
