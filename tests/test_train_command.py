"""The command train: what it writes for each task, and the options of data, split and fields."""

import gzip
import json

import numpy as np
import pytest
import scipy.sparse
import torch
from command import NODES, SMALL, WRITTEN, results_in, two_groups
from disk import files_in

import seegera_fast as sf
from seegera_fast.support import plots

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK_CLASSIFIER = ["--set", "classifier_epochs=20"]

TASKS = [
    ("link", "link_prediction", ["auc", "ap"], "AUC"),
    ("attribute", "attribute_inference", ["mse"], "MSE"),
    ("node", "node_classification", ["accuracy"], "accuracy"),
]


@pytest.mark.parametrize(("task", "function", "scores", "shown"), TASKS)
def test_training_writes_its_four_files(run, own, tmp_path, task, function, scores, shown):
    out = tmp_path / "new" / "run"
    node = ["--set", "evaluate_every=2", "--split", "0.3,0.2", *QUICK_CLASSIFIER] if task == "node" else []
    status, printed, err = run("train", *own, "--task", task, "--epochs", 4, "--out", out, "--seed", 5, *SMALL, *node)
    assert status == 0
    assert shown in printed
    assert "peak memory" in printed
    assert "18 nodes, 74 edges, 12 features" in err
    assert "epoch/s" not in err
    assert files_in(out) == WRITTEN

    results = results_in(out)
    assert results["task"] == function
    assert sorted(results["scores"]["test"]) == sorted(results["scores"]["validation"]) == sorted(scores)
    assert all(0 <= value < 10 for part in results["scores"].values() for value in part.values())
    assert (results["variant"], results["preset"], results["interrupted"]) == ("v3", "default", False)
    assert (results["epochs"], len(results["history"])) == (4, 4)
    assert [entry["epoch"] for entry in results["history"]] == [1, 2, 3, 4]
    assert all(np.isfinite(entry[key]) for entry in results["history"] for key in ("loss", "link", "seconds"))
    assert (
        results["history"][results["best_epoch"] - 1][f"valid_{scores[0]}"]
        == results["scores"]["validation"][scores[0]]
    )
    assert results["seconds_per_epoch"] == pytest.approx(results["seconds"] / 4)
    assert results["configuration"]["seed"] == 5
    assert results["configuration"]["embedding_dim"] == 6
    assert results["versions"]["seegera-fast"] == sf.__version__
    assert results["versions"]["torch"] == torch.__version__
    data = results["data"]
    assert (data["name"], data["nodes"], data["edges"], data["features"], data["classes"]) == ("groups", 18, 74, 12, 2)
    assert data["files"]["edges"].endswith("groups.csv")

    graph = sf.Graph.from_table(*own[1::2])
    embedding = np.load(out / "embedding.npy")
    assert embedding.dtype == np.float32
    assert np.array_equal(embedding, sf.SeeGera.load(out / "model.safetensors", graph).embed().numpy())
    header = (out / "picture.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:], "big")) == (2400, 1200)


def test_same_command_gives_the_same_and_replaces_only_its_own_files(run, own, tmp_path, plain_picture):
    out = tmp_path / "out"
    arguments = ["train", *own, "--epochs", 3, "--out", out, *SMALL]
    assert run(*arguments)[0] == 0
    first, embedding = results_in(out), (out / "embedding.npy").read_bytes()
    (out / "notes.txt").write_text("mine")
    (out / "results.json").write_text(json.dumps({**first, "scores": "old"}))
    assert run(*arguments, "--quiet")[0] == 0
    assert results_in(out)["scores"] == first["scores"]
    assert (out / "embedding.npy").read_bytes() == embedding
    assert (out / "notes.txt").read_text() == "mine"
    assert files_in(out) == sorted([*WRITTEN, "notes.txt"])


def test_default_folder_is_named_after_data_and_task(run, own, tmp_path, monkeypatch, plain_picture):
    monkeypatch.chdir(tmp_path)
    assert run("train", *own, "--epochs", 1, *SMALL)[0] == 0
    assert files_in(tmp_path / "runs" / "groups-link") == WRITTEN


def test_default_folder_of_a_compressed_table(run, own, tmp_path, monkeypatch, plain_picture):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cora.csv.gz").write_bytes(gzip.compress((tmp_path / "groups.csv").read_bytes()))
    assert run("train", "--edges", "cora.csv.gz", *own[2:], "--epochs", 1, *SMALL)[0] == 0
    results = results_in(tmp_path / "runs" / "cora-link")
    assert (results["data"]["name"], results["preset"]) == ("cora", "default")


def test_a_graph_that_is_too_small_to_hold_links_out_is_said_once(run, tmp_path, plain_picture):
    (tmp_path / "e.csv").write_text("a,b\nb,c\nc,a\nc,d\n")
    status, printed, err = run("train", "--edges", tmp_path / "e.csv", "--epochs", 1, "--out", tmp_path / "out", *SMALL)
    assert status == 0
    assert err.count("warning: graph: has too few edges (4) for valid=0.2 and test=0.1: these parts are empty") == 1
    assert "most probable new links, of 2 in links.csv; their probabilities are not calibrated:" in printed
    found = run(
        "links", tmp_path / "out" / "model.safetensors", "--edges", tmp_path / "e.csv", "--out", tmp_path / "l.csv"
    )
    assert "not calibrated: training held out no links for validation, or too few, or larger scores were" in found[2]


def test_quiet_says_nothing_on_stderr(run, own, tmp_path, plain_picture):
    status, out, err = run("train", *own, "--epochs", 1, "--out", tmp_path / "out", "--quiet", *SMALL)
    assert (status, err) == (0, "")
    assert "AUC" in out


@pytest.mark.parametrize(
    ("task", "split", "expected"),
    [
        ("link", "paper", {"valid": 0.2, "test": 0.1}),
        ("link", "released", {"valid": 0.05, "test": 0.1}),
        ("attribute", "paper", {"valid": 0.1, "test": 0.2}),
        ("attribute", "released", {"valid": 0.05, "test": 0.1}),
        ("link", "0,0.3", {"valid": 0.0, "test": 0.3}),
        ("node", "0.5,0", {"train": 0.5, "valid": 0.0, "public": False}),
    ],
)
def test_split(run, own, tmp_path, task, split, expected, plain_picture):
    out = tmp_path / "out"
    node = QUICK_CLASSIFIER if task == "node" else []
    status, printed, _ = run(
        "train", *own, "--task", task, "--split", split, "--epochs", 1, "--out", out, *SMALL, *node
    )
    assert status == 0
    configuration = results_in(out)["configuration"]
    assert {key: configuration[key] for key in expected} == expected
    if expected["valid"] == 0:
        assert "none held out" in printed
        assert set(results_in(out)["scores"]["validation"].values()) == {None}


def test_a_graph_denser_than_what_is_trained_on(run, tmp_path, plain_picture):
    """The whole graph, 10 nodes with 27 of 45 edges, has fewer non-edges than edges; the training part has more."""
    pairs = [(i, k) for i in range(10) for k in range(i + 1, 10)][:27]
    (tmp_path / "dense.txt").write_text("".join(f"{i} {k}\n" for i, k in pairs))
    options = ["--set", "negatives=edges", "--split", "0.2,0.2", "--epochs", 1, *SMALL]
    out = tmp_path / "out"
    assert run("train", "--edges", tmp_path / "dense.txt", "--out", out, *options)[0] == 0
    command = ["embed", out / "model.safetensors", "--edges", tmp_path / "dense.txt", "--out", tmp_path / "e.npy"]
    assert run(*command)[0] == 0
    assert np.array_equal(np.load(tmp_path / "e.npy"), np.load(out / "embedding.npy"))


def test_bipartite(run, tmp_path, plain_picture):
    """Pairs without a link are drawn across the two sides, in link prediction only."""
    edges = tmp_path / "orders.txt"
    edges.write_text("".join(f"{user} {5 + (user + step) % 6}\n" for user in range(5) for step in (0, 1, 3)))
    out = tmp_path / "out"
    status, _, err = run("train", "--edges", edges, "--bipartite", "--epochs", 1, "--out", out, *SMALL)
    assert status == 0, err
    assert results_in(out)["configuration"]["sides"] == "auto"
    triangle = tmp_path / "triangle.txt"
    triangle.write_text("0 1\n1 2\n2 0\n3 0\n")
    for argv, message in [
        (["--edges", triangle, "--bipartite"], "sides: got 'auto', but the graph is not bipartite"),
        (
            ["--edges", edges, "--bipartite", "--task", "attribute"],
            "--bipartite goes with --task link, got --task attr",
        ),
        (["--edges", edges, "--set", "sides=auto"], "sides has an option of its own: --bipartite"),
    ]:
        status, _, err = run("train", *argv, "--epochs", 1, "--out", tmp_path / "none", *SMALL)
        assert status == 2
        assert message in err


def test_set_reads_every_kind_of_value(run, own, tmp_path, plain_picture):
    values = ["noisy_variance=true", "negatives=edges", "patience=none", "learning_rate=1e-2", "noise_dim=2"]
    options = [text for value in values for text in ("--set", value)]
    out = tmp_path / "out"
    assert run("train", *own, "--variant", "v1", "--epochs", 1, "--out", out, *SMALL, *options)[0] == 0
    configuration = results_in(out)["configuration"]
    assert configuration["noisy_variance"] is True
    assert configuration["negatives"] == "edges"
    assert configuration["patience"] is None
    assert (configuration["learning_rate"], configuration["noise_dim"]) == (0.01, 2)
    assert configuration["variant"] == "independent"


def test_directed_matrix_is_used_with_a_warning(run, own, tmp_path, plain_picture):
    edges, _, _ = two_groups()
    directed = scipy.sparse.coo_matrix((np.ones(len(edges)), edges.T), shape=(NODES, NODES))
    scipy.sparse.save_npz(tmp_path / "directed.npz", directed)
    argv = [
        "train",
        "--edges",
        tmp_path / "directed.npz",
        *own[2:],
        "--epochs",
        1,
        "--out",
        tmp_path / "out",
        "--quiet",
    ]
    status, _, err = run(*argv, *SMALL)
    assert status == 0
    assert err.startswith(f"seegera-fast: warning: {tmp_path / 'directed.npz'}: got a directed graph")
    assert err.count("\n") == 1


def test_the_embedding_is_projected_once(run, own, tmp_path, monkeypatch):
    project, calls = plots.project, []
    monkeypatch.setattr(plots, "project", lambda *given: calls.append(given) or project(*given))
    assert run("train", *own, "--epochs", 1, "--out", tmp_path / "out", *SMALL)[0] == 0
    assert len(calls) == 1
