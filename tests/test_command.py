"""The command line: what it writes, what it refuses, and its exit statuses."""

import contextlib
import errno
import fcntl
import gzip
import io
import json
import os
import platform
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse
import torch
from disk import largest_file
from matplotlib.figure import Figure

import seegera_fast as sf
from seegera_fast.command.output import OutputFolder
from seegera_fast.support import atomic, plots, tensor_file

NODES, FEATURES = 18, 12
SMALL = ["--set", "embedding_dim=6", "--set", "hidden_dim=7"]
QUICK_CLASSIFIER = ["--set", "classifier_epochs=20"]
RESULTS = ["embedding.npy", "links.csv", "model.safetensors", "picture.png", "report.html", "results.json"]
WRITTEN = ["checkpoint.safetensors", *RESULTS]


@pytest.fixture(autouse=True)
def one_thread():
    """One thread, because on such small graphs several threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plain_picture(monkeypatch):
    """Writes an empty file instead of the picture, which takes most of the time of a small run."""
    monkeypatch.setattr(
        "seegera_fast.command.written.save_picture", lambda file, **content: file.write(content["title"].encode())
    )


def two_groups():
    """Two cliques with two bridges, features that tell them apart, and which clique a node is in."""
    labels = np.arange(NODES) // (NODES // 2)
    edges = [(i, k) for i in range(NODES) for k in range(i + 1, NODES) if labels[i] == labels[k]]
    edges += [(0, NODES - 1), (1, NODES - 2)]
    draws = np.random.default_rng(0).random((NODES, FEATURES))
    likely = (np.arange(FEATURES) % 2)[None, :] == labels[:, None]
    return np.array(edges), (draws < np.where(likely, 0.8, 0.2)).astype(np.float64), labels


@pytest.fixture
def own(tmp_path):
    """Options that name a small graph's files."""
    edges, features, labels = two_groups()
    np.savetxt(tmp_path / "groups.csv", edges, fmt="%d", delimiter=",")
    scipy.sparse.save_npz(tmp_path / "features.npz", scipy.sparse.csr_matrix(features))
    np.savetxt(tmp_path / "labels.txt", labels, fmt="%d")
    names = {"--edges": "groups.csv", "--features": "features.npz", "--labels": "labels.txt"}
    return [text for option, name in names.items() for text in (option, str(tmp_path / name))]


def refused(outcome, *parts):
    """Asserts exit status 2 and one line of error that contains all the parts."""
    status, out, err = outcome
    assert (status, out) == (2, "")
    *before, line = err.splitlines()
    assert line.startswith("seegera-fast: error: ")
    assert not any("Traceback" in text or text.startswith("seegera-fast: error") for text in before)
    for part in parts:
        assert part in line


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def results_in(folder):
    return json.loads((folder / "results.json").read_text())


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
    (out / "results.json").write_text("old")
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


@pytest.mark.parametrize("normalize", [False, True])
def test_embed_gives_what_training_wrote(run, own, tmp_path, normalize, plain_picture):
    out = tmp_path / "out"
    fields = ["--set", f"normalize_features={normalize}"]
    assert run("train", *own, "--epochs", 2, "--out", out, *SMALL, *fields)[0] == 0
    expected = np.load(out / "embedding.npy")
    model = out / "model.safetensors"
    status, printed, _ = run("embed", model, *own, "--out", tmp_path / "e.npy")
    assert status == 0
    assert "18 x 6" in printed
    assert np.array_equal(np.load(tmp_path / "e.npy"), expected)

    assert run("embed", model, *own, "--out", tmp_path / "e.csv", "--quiet")[0] == 0
    lines = (tmp_path / "e.csv").read_text().splitlines()
    assert lines[0] == "node,z0,z1,z2,z3,z4,z5"
    rows = np.loadtxt(lines, delimiter=",", skiprows=1)
    assert np.array_equal(rows[:, 0], np.arange(NODES))
    assert np.array_equal(rows[:, 1:].astype(np.float32), expected)

    alone = tmp_path / "alone.safetensors"
    alone.write_bytes(model.read_bytes())
    assert run("embed", alone, *own, "--out", tmp_path / "e.npy")[0] == 0
    assert np.array_equal(np.load(tmp_path / "e.npy"), expected)
    assert run("embed", alone, *own, "--seed", 1, "--out", tmp_path / "e.npy")[0] == 0
    assert not np.array_equal(np.load(tmp_path / "e.npy"), expected)
    assert not [name for name in files_in(tmp_path) if name.endswith(".part")]


def test_embed_refuses(run, own, tmp_path):
    model = tmp_path / "model.safetensors"
    graph = sf.Graph.from_table(*own[1::2])
    sf.SeeGera(graph, embedding_dim=4, hidden_dim=4).save(model)
    other = tmp_path / "other.txt"
    other.write_text("0 1\n1 2\n")
    refused(run("embed", model, "--edges", other), "has 3 features, want 12", "the graph was given none")
    refused(run("embed", model, *own, "--out", tmp_path / "e.txt"), "e.txt", ".npy or .csv")
    refused(run("embed", model, *own, "--out", tmp_path / "none" / "e.npy"), "can't be written")
    refused(run("embed", tmp_path / "absent.safetensors", *own, "--out", tmp_path / "e.npy"), "absent.safetensors")
    refused(run("embed", own[1], *own, "--out", tmp_path / "e.npy"), "groups.csv", "not a safetensors file")
    assert not (tmp_path / "e.npy").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"rows": []}', '{"configuration": []}', "\udcff"])
def test_other_results_beside_a_model_are_only_warned_of(run, own, tmp_path, content):
    """Such as those of reproduce."""
    model = tmp_path / "model.safetensors"
    sf.SeeGera(sf.Graph.from_table(*own[1::2]), embedding_dim=4, hidden_dim=4).save(model)
    (tmp_path / "results.json").write_bytes(content.encode(errors="surrogateescape"))
    status, _, err = run("embed", model, *own, "--out", tmp_path / "e.npy", "--quiet")
    assert status == 0
    assert err.startswith(f"seegera-fast: warning: {tmp_path / 'results.json'}: is not the results file of train")
    assert err.count("\n") == 1


def test_embed_takes_weights_where_training_did(run, own, tmp_path, plain_picture):
    edges, _, _ = two_groups()
    (tmp_path / "groups.csv").write_text("".join(f"{i},{k},{1 + (i + k) % 3}\n" for i, k in edges))
    out, e = tmp_path / "out", tmp_path / "e.npy"
    assert run("train", *own, "--weighted", "--epochs", 2, "--out", out, *SMALL)[0] == 0
    results = results_in(out)
    assert results["data"]["weighted"] is True
    expected = np.load(out / "embedding.npy")
    status, _, err = run("embed", out / "model.safetensors", *own, "--out", e)
    assert status == 0
    assert "edges weighted" in err
    assert "warning" not in err
    assert np.array_equal(np.load(e), expected)
    # The model's file alone says so, too.
    alone = tmp_path / "alone.safetensors"
    shutil.copy(out / "model.safetensors", alone)
    status, _, err = run("embed", alone, *own, "--out", e)
    assert (status, "edges weighted" in err) == (0, True)
    assert np.array_equal(np.load(e), expected)
    # Files of earlier versions do not have this entry, and results of still earlier ones have it neither.
    file = tensor_file.read(alone)
    texts = {name: text for name, text in file.texts.items() if name not in ("weighted", "normalize_features")}
    for path in (alone, out / "model.safetensors"):
        with open(path, "wb") as written:
            tensor_file.write(written, {name: file.tensor(name) for name in file.entries}, texts)
    status, _, err = run("embed", alone, *own, "--out", e)
    want = "alone.safetensors does not say how it was trained: give --weighted and --normalize-features here too if"
    assert err.startswith(want)
    assert not np.array_equal(np.load(e), expected)
    assert run("embed", out / "model.safetensors", *own, "--out", e)[0] == 0
    assert np.array_equal(np.load(e), expected)
    del results["data"]["weighted"]
    (out / "results.json").write_text(json.dumps(results))
    assert "which are ignored" in run("embed", out / "model.safetensors", *own, "--out", e)[2]
    assert not np.array_equal(np.load(e), expected)
    assert run("embed", out / "model.safetensors", *own, "--weighted", "--out", e)[0] == 0
    assert np.array_equal(np.load(e), expected)


def test_files_in_every_format_give_the_same_graph(tmp_path):
    edges, features, labels = two_groups()
    adjacency = scipy.sparse.coo_matrix((np.ones(len(edges)), edges.T), shape=(NODES, NODES))
    adjacency = adjacency + adjacency.T
    tmp_path.joinpath("commas.csv").write_text("# source, target\n" + "".join(f"{i},{k}\n" for i, k in edges))
    tmp_path.joinpath("blanks.txt").write_text(
        "\ufeff0 0\n\n" + "".join(f" {k}\t{i}  # back\r\n{i} {k} 1.0\n" for i, k in edges), encoding="utf-8"
    )
    for form in ("csr", "csc", "coo"):
        scipy.sparse.save_npz(tmp_path / f"{form}.npz", adjacency.asformat(form))
        scipy.sparse.save_npz(tmp_path / f"features-{form}.npz", scipy.sparse.csr_array(features).asformat(form))
    np.save(tmp_path / "features.npy", features)
    np.savetxt(tmp_path / "features.csv", features, delimiter=", ")
    np.save(tmp_path / "labels.npy", labels.astype(np.int32))
    np.savetxt(tmp_path / "labels.txt", labels, fmt="%d", header="class")
    expected = sf.Graph(adjacency, features, labels)
    for edge_name in ("commas.csv", "blanks.txt", "csr.npz", "csc.npz", "coo.npz"):
        graph = sf.Graph.from_table(tmp_path / edge_name)
        assert torch.equal(graph.adjacency.to_dense(), expected.adjacency.to_dense())
        assert graph.name == edge_name.split(".")[0]
        assert graph.num_features == NODES
    for name in ("features-csr.npz", "features-csc.npz", "features-coo.npz", "features.npy", "features.csv"):
        graph = sf.Graph.from_table(tmp_path / "commas.csv", tmp_path / name)
        assert torch.equal(graph.features.to_dense(), expected.features.to_dense())
    for name in ("labels.npy", "labels.txt"):
        assert torch.equal(sf.Graph.from_table(tmp_path / "csr.npz", None, tmp_path / name).labels, expected.labels)


def test_weights_of_an_edge_list(tmp_path):
    (tmp_path / "weights.txt").write_text("0 1 2\n1 2 0.5\n2 1 0.25\n")
    with pytest.warns(UserWarning, match="weighted=True"):
        plain = sf.Graph.from_table(tmp_path / "weights.txt")
    weighted = sf.Graph.from_table(tmp_path / "weights.txt", weighted=True)
    dense = np.array([[1, 2, 0], [2, 1, 0.5], [0, 0.5, 1]])
    scale = 1 / np.sqrt(dense.sum(axis=1))
    assert np.allclose(weighted.propagation.to_dense().numpy(), dense * scale[:, None] * scale[None, :])
    assert not torch.equal(plain.propagation.to_dense(), weighted.propagation.to_dense())
    assert torch.equal(plain.adjacency.to_dense(), weighted.adjacency.to_dense())


@pytest.mark.parametrize("more", ["", "2 3 7\n"])
def test_repeated_lines_have_the_largest_weight_whatever_other_lines_say(tmp_path, more):
    (tmp_path / "weights.txt").write_text("0 1\n0 1\n1 0\n1 2\n2 1\n" + more)
    graph = sf.Graph.from_table(tmp_path / "weights.txt", weighted=True)
    assert graph.weights.tolist() == [1, 1, 1, 1, *[7, 7] * bool(more)]


def test_isolated_nodes_are_counted_by_features_or_labels(tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n")
    np.save(tmp_path / "features.npy", np.ones((4, 2)))
    (tmp_path / "labels.txt").write_text("0\n1\n-1\n")
    assert sf.Graph.from_table(tmp_path / "edges.txt", tmp_path / "features.npy").num_nodes == 4
    assert sf.Graph.from_table(tmp_path / "edges.txt", None, tmp_path / "labels.txt").num_nodes == 3
    assert sf.Graph.from_table(tmp_path / "edges.txt").num_nodes == 2


BAD_EDGES = [
    ("e.txt", b"0 1\n\n# note\n2\n", ["e.txt, line 4", "'2'", "two node numbers"]),
    ("e.txt", b"source,target\n0,x\n", ["line 2", "'0 x'", "#"]),
    ("e.txt", b"0 1\n1 1.5\n", ["line 2", "'1 1.5'", "integers from 0"]),
    ("e.txt", b"0 1\n-1 2\n", ["line 2", "'-1 2'", "integers from 0"]),
    ("e.txt", b"0 1 2 3\n", ["line 1", "'0 1 2 3'"]),
    ("e.txt", b"0 1 nan\n", ["line 1", "a weight of 0 or more"]),
    ("e.txt", b"0 1 -2\n", ["line 1", "a weight of 0 or more"]),
    ("e.txt", b"0 99999999999999999999\n", ["line 1"]),
    ("e.txt", b"0 1\n0 18\n", ["e.txt, line 2", "node 18", "18 rows", "0 to 17"]),
    ("e.txt", b"0 1\n9223372036854775807 0\n", ["line 2", "node 9223372036854775807", "18 rows"]),
    ("e.txt", b"\xff\xfe\x00\x01", ["e.txt", "not a text file"]),
    ("e.txt", b"0 1\n1_0 2\n", ["e.txt, line 2", "'1_0 2'", "two node numbers", "in the digits 0 to 9"]),
    ("e.txt", b"", ["e.txt: holds no edges", "two node numbers"]),
    ("e.txt", b" \n# nothing\n", ["e.txt: holds no edges"]),
    ("e.npy", b"", ["e.npy", "save_npz"]),
    ("e.npz", b"", ["e.npz", "save_npz"]),
    ("e.npz", b"PK\x03\x04 and no more", ["e.npz", "save_npz"]),
]


@pytest.mark.parametrize(("name", "content", "parts"), BAD_EDGES)
def test_wrong_edges_are_refused(run, own, tmp_path, name, content, parts):
    (tmp_path / name).write_bytes(content)
    refused(run("train", "--edges", tmp_path / name, *own[2:], "--out", tmp_path / "out"), *parts)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("node", [2**63 - 1, 2**63 - 2, 2**31, 10**8 + 1, 99_999_999, 2_000_001])
def test_names_that_look_like_numbers_are_no_numbers(run, tmp_path, node):
    (tmp_path / "e.txt").write_text(f"# pages\n0 1\n1 {node}\n2 3\n")
    refused(
        run("train", "--edges", tmp_path / "e.txt", "--no-names", "--out", tmp_path / "out"),
        "e.txt, line 3",
        f"node {node} in a file of 3 edges",
        "names=True",
    )
    assert sf.Graph.from_table(tmp_path / "e.txt").nodes.tolist() == [0, 1, 2, 3, node]


BAD_FEATURES = [
    ("f.txt", b"1 2\n3\n", ["f.txt, line 2", "1 columns, want 2"]),
    ("f.txt", b"1 2\n3 x\n", ["line 2", "'3 x'", "numbers"]),
    ("f.txt", b"# nothing\n", ["f.txt", "no rows"]),
    ("f.txt", b"1 1_0\n" * NODES, ["f.txt, line 1", "'1 1_0'", "in the digits 0 to 9"]),
    ("f.npy", b"", ["f.npy", "NumPy array file"]),
    ("f.txt", b"1 inf\n" * NODES, ["f.txt, line 1", "'1 inf'", "finite", "column 1"]),
    ("f.txt", b"1 2\n" * 3, ["groups.csv", "node 17", "3 rows"]),
    ("f.npy", b"not an array", ["f.npy", "NumPy"]),
    ("f.npz", b"not an archive", ["f.npz", "save_npz"]),
]


@pytest.mark.parametrize(("name", "content", "parts"), BAD_FEATURES)
def test_wrong_features_are_refused(run, own, tmp_path, name, content, parts):
    (tmp_path / name).write_bytes(content)
    refused(run("train", *own[:2], "--features", tmp_path / name, "--out", tmp_path / "out"), *parts)


def test_wrong_arrays_are_refused(run, own, tmp_path):
    def check(option, array, *parts):
        name = tmp_path / "array.npy"
        np.save(name, array)
        kept = own[:2] if option == "--features" else own[:4]
        refused(run("train", *kept, option, name, "--out", tmp_path / "out"), *parts)

    check("--features", np.ones(NODES), "array.npy", "(18,)", "two dimensions")
    check("--features", np.array([[{}]] * NODES), "array.npy", "NumPy")
    check("--features", np.array([["a"]] * NODES), "array.npy", "<U1", "want numbers")
    check("--labels", np.ones(NODES), "array.npy", "float64", "want integers")
    check("--labels", np.ones(NODES + 1, np.int64), "array.npy", "(19,)", "one label per node")
    (tmp_path / "labels.txt").write_text("0\n1 2\n")
    refused(run("train", *own, "--out", tmp_path / "out"), "labels.txt, line 2", "'1 2'", "one integer")


def test_hostile_sparse_archive_is_refused(run, own, tmp_path):
    parts = {"data": np.ones(2), "indptr": np.array([0, 1, 2]), "shape": np.array([2, 2]), "format": np.array(b"csr")}
    np.savez(tmp_path / "e.npz", indices=np.array([0, 900000000]), **parts)
    refused(run("train", "--edges", tmp_path / "e.npz", "--out", tmp_path / "out"), "e.npz", "900000000")
    scipy.sparse.save_npz(tmp_path / "dia.npz", scipy.sparse.identity(4, format="dia"))
    refused(run("train", "--edges", tmp_path / "dia.npz", "--out", tmp_path / "out"), "dia.npz", "csr, csc or coo")
    scipy.sparse.save_npz(tmp_path / "wide.npz", scipy.sparse.csr_matrix(np.ones((2, 3))))
    refused(run("train", "--edges", tmp_path / "wide.npz", "--out", tmp_path / "out"), "2 x 3", "square")


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
    assert err.startswith("seegera-fast: warning: adjacency: got a directed graph")
    assert err.count("\n") == 1


BAD_OPTIONS = [
    (["trian"], ["'trian'", "the nearest: train"]),
    ([], ["COMMAND"]),
    (["--versoin"], ["--versoin", "--version"]),
    (["train"], ["--data", "--edges", "required"]),
    (["train", "--dta", "digits"], ["--dta", "the nearest: --data"]),
    (["train", "--epoch=3", "--data", "digits"], ["--epoch", "the nearest: --epochs"]),
    (["embed", "m", "--edgs", "e"], ["--edgs", "the nearest: --edges"]),
    (["info", "--jsn"], ["--jsn", "the nearest: --json"]),
    (["train", "--data", "coar"], ["--data", "'coar'", "the nearest: cora"]),
    (["train", "--data", "digits", "--edges", "e.txt"], ["--edges", "not allowed with"]),
    (["train", "--data", "digits", "--features", "f.npy"], ["--features goes with --edges"]),
    (["train", "--edges", "e.txt", "--root", "r"], ["--root goes with --data"]),
    (["train", "--data", "digits", "--task", "nod"], ["--task", "'nod'", "the nearest: node"]),
    (["train", "--data", "digits", "--variant", "v4"], ["--variant", "'v4'", "v1, v2, v3"]),
    (["train", "--data", "digits", "--preset", "pubmeed"], ["preset", "'pubmeed'", "the nearest: pubmed"]),
    (["train", "--data", "digits", "--split", "papr"], ["--split", "'papr'", "the nearest: paper"]),
    (["train", "--data", "digits", "--split", "0.6,0.6"], ["valid", "0.6", "below 1"]),
    (["train", "--data", "digits", "--seed", "-1"], ["--seed", "'-1'", "from 0"]),
    (["train", "--data", "digits", "--epochs", "many"], ["--epochs", "'many'"]),
    (["train", "--data", "digits", "--checkpoint-every", "0"], ["--checkpoint-every", "'0'", "1 or more"]),
    (["train", "--data", "digits", "--set", "checkpoint=c"], ["--set", "checkpoint", "--checkpoint-every"]),
    (["train", "--data", "digits", "--epochs", "0"], ["epochs", "0", "1 to"]),
    (["train", "--data", "digits", "--device", "gpu"], ["--device", "'gpu'", "cuda"]),
    (["train", "--data", "digits", "--device", "cuda:99"], ["--device", "'cuda:99'", "NVIDIA GPUs"]),
    (["train", "--data", "digits", "--backend", "cpuu"], ["--backend", "the nearest: cpu"]),
    (["train", "--data", "digits", "--set", "embeding_dim=3"], ["'embeding_dim'", "the nearest: embedding_dim"]),
    (["train", "--data", "digits", "--set", f"embedding_dim={10**20}"], ["embedding_dim", f"{10**20}", f"{2**31 - 1}"]),
    (["train", "--data", "digits", "--set", "encoder=gnc"], ["encoder", "'gnc'", "'gcn'"]),
    (["train", "--data", "digits", "--set", "dropout=high"], ["dropout", "'high'", "number"]),
    (["train", "--data", "digits", "--set", "dropout"], ["--set", "'dropout'", "FIELD=VALUE"]),
    (["train", "--data", "digits", "--set", "epochs=3"], ["--set", "epochs", "--epochs"]),
    (["train", "--edges", "absent.txt"], ["absent.txt", "No such file"]),
    (["train", "--data", "cora", "--root", "file"], ["file"]),
]


@pytest.mark.parametrize(("argv", "parts"), BAD_OPTIONS, ids=lambda value: " ".join(value[:6]))
def test_bad_options_are_refused(run, tmp_path, monkeypatch, argv, parts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    refused(run(*argv), *parts)
    assert files_in(tmp_path) == ["file"]


def test_debug_shows_the_traceback(run, tmp_path):
    status, _, err = run("train", "--edges", tmp_path / "absent.txt", "--out", tmp_path / "out", "--debug")
    assert status == 2
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith("seegera-fast: error: ")


def test_unavailable_backend_is_refused_with_the_reason(run, own, tmp_path, monkeypatch):
    monkeypatch.setattr(sf.backends.CUDA, "missing", "a reason")
    refused(run("train", *own, "--backend", "cuda", "--out", tmp_path / "out"), "'cuda'", "a reason")


def test_folder_that_cannot_be_written_is_refused_before_anything_is_read(run, own, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "seegera_fast.graph.Graph.from_table", lambda *arguments, **options: pytest.fail("the graph was read")
    )
    (tmp_path / "file").write_text("mine")
    refused(run("train", *own, "--out", tmp_path / "file"), "file can't be written")
    refused(run("train", *own, "--out", tmp_path / "file" / "below"), "below can't be written")
    (tmp_path / "out" / "picture.png").mkdir(parents=True)
    refused(run("train", *own, "--out", tmp_path / "out"), "can't be written", "picture.png in it is a folder")
    assert (tmp_path / "file").read_text() == "mine"
    assert files_in(tmp_path / "out") == ["picture.png"]


@pytest.mark.parametrize(("split", "epoch", "first"), [("paper", 1, "embeddings"), ("0,0.1", 2, "link")])
def test_nan_names_epoch_and_term_and_leaves_earlier_results(run, own, tmp_path, plain_picture, split, epoch, first):
    out = tmp_path / "out"
    assert run("train", *own, "--epochs", 1, "--out", out, *SMALL)[0] == 0
    before = {name: (out / name).read_bytes() for name in WRITTEN}
    options = ["--set", "learning_rate=1e30", "--epochs", 9, "--split", split]
    status, printed, err = run("train", *own, "--out", out, *SMALL, *options)
    assert (status, printed) == (3, "")
    line = err.splitlines()[-1]
    assert line.startswith(f"seegera-fast: error: epoch {epoch}: ")
    assert first in line
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_interrupt_keeps_what_was_trained(run, own, tmp_path, monkeypatch, plain_picture):
    embed, calls = sf.SeeGera.embed, []

    def interrupted(model, *arguments, **options):
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return embed(model, *arguments, **options)

    monkeypatch.setattr(sf.SeeGera, "embed", interrupted)
    out = tmp_path / "out"
    status, printed, _ = run("train", *own, "--epochs", 50, "--out", out, *SMALL)
    assert status == 130
    assert "2 (best: " in printed
    assert "interrupted" in printed
    results = results_in(out)
    assert (results["interrupted"], results["epochs"], len(results["history"])) == (True, 2, 2)
    assert files_in(out) == RESULTS


@pytest.mark.parametrize(
    ("interrupted", "missing"),
    [("suggested_links", ["links.csv", "picture.png", "report.html"]), ("draw_nodes", ["picture.png", "report.html"])],
)
def test_interrupt_after_the_training_leaves_what_was_written(
    run, own, tmp_path, monkeypatch, plain_picture, interrupted, missing
):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    assert run("train", *own, "--epochs", 1, "--out", out, *SMALL)[0] == 0
    monkeypatch.setattr(f"seegera_fast.command.written.{interrupted}", interrupt)
    status, printed, err = run("train", *own, "--epochs", 2, "--out", out, *SMALL)
    assert status == 130
    assert "seegera-fast: interrupted after the training, before all files were made" in err
    # Nothing is left of the earlier run.
    assert files_in(out) == [name for name in WRITTEN if name not in missing]
    results = results_in(out)
    assert (results["epochs"], results["interrupted"]) == (2, False)
    model = sf.SeeGera.load(out / "model.safetensors", sf.Graph.from_table(*own[1::2]))
    assert np.array_equal(np.load(out / "embedding.npy"), model.embed().numpy())
    assert "AUC" in printed
    assert "picture.png" not in printed
    assert ("links.csv" in printed) == ("links.csv" not in missing)


def test_the_embedding_is_projected_once(run, own, tmp_path, monkeypatch):
    project, calls = plots.project, []
    monkeypatch.setattr(plots, "project", lambda *given: calls.append(given) or project(*given))
    assert run("train", *own, "--epochs", 1, "--out", tmp_path / "out", *SMALL)[0] == 0
    assert len(calls) == 1


def test_interrupt_before_the_first_epoch_leaves_nothing(run, own, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("seegera_fast.graph.Graph.from_table", interrupted)
    status, out, err = run("train", *own, "--out", tmp_path / "new" / "out")
    assert (status, out, err) == (130, "", "seegera-fast: interrupted\n")
    assert not (tmp_path / "new").exists()


def test_what_killed_processes_left_is_removed_and_what_lives_is_not(run, own, tmp_path, monkeypatch, plain_picture):
    out = tmp_path / "out"
    out.mkdir()
    dead, living = (out / f".model.safetensors.{name}.part" for name in ("deaddead", "11111111"))
    for path in (dead, living, out / ".lock"):
        path.write_text("half")
    held = os.open(living, os.O_RDONLY)
    assert atomic.hold(held)
    forward = sf.SeeGera.forward

    def looking(model, *arguments, **options):
        assert sorted(path.name for path in out.glob("*.part")) == [living.name]
        return forward(model, *arguments, **options)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(sf.SeeGera, "forward", looking)
            assert run("train", *own, "--epochs", 1, "--out", out, *SMALL)[0] == 0
        assert files_in(out) == [living.name, *WRITTEN]
    finally:
        os.close(held)

    dead, living = (tmp_path / f".e.npy.{name}.part" for name in ("deaddead", "11111111"))
    dead.write_text("half")
    with open(living, "w") as file:
        assert atomic.hold(file.fileno())
        assert run("embed", out / "model.safetensors", *own, "--out", tmp_path / "e.npy")[0] == 0
        assert (dead.exists(), living.exists()) == (False, True)


def test_writers_of_one_file_do_not_take_each_others_for_left_behind(tmp_path):
    path = tmp_path / "file"

    def write(number):
        for _ in range(300):
            with atomic.written_aside(path) as file:
                file.write(b"%d" % number * 1000)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (1, 2)))
    assert path.read_bytes() in (b"1" * 1000, b"2" * 1000)
    assert files_in(tmp_path) == ["file"]


def test_without_marks_nothing_is_taken_for_left_behind(tmp_path, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    (tmp_path / ".file.deaddead.part").write_text("half")
    with atomic.written_aside(tmp_path / "file") as file:
        file.write(b"whole")
    assert files_in(tmp_path) == [".file.deaddead.part", "file"]
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_a_run_that_crashed_is_resumed(run, own, tmp_path, monkeypatch, plain_picture):
    out, whole = tmp_path / "out", tmp_path / "whole"
    command = ["train", *own, "--epochs", 6, "--checkpoint-every", 2, *SMALL]
    assert run(*command, "--out", whole)[0] == 0
    assert files_in(whole) == WRITTEN
    forward, calls = sf.SeeGera.forward, []

    def crashing(model, *arguments, **options):
        calls.append(None)
        if len(calls) == 6:
            raise MemoryError("no memory")
        return forward(model, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sf.SeeGera, "forward", crashing)
        refused(run(*command, "--out", out), "no memory")
    assert files_in(out) == ["checkpoint.safetensors"]
    refused(
        run(*command, "--out", out, "--resume", "--seed", 1), "is of another run", "seed (checkpoint: 0, this run: 1)"
    )
    status, _, err = run(*command, "--out", out, "--resume")
    assert status == 0
    assert f"going on from {out / 'checkpoint.safetensors'}" in err
    assert files_in(out) == WRITTEN
    assert (out / "embedding.npy").read_bytes() == (whole / "embedding.npy").read_bytes()
    assert results_in(out)["scores"] == results_in(whole)["scores"]

    (out / "checkpoint.safetensors").unlink()
    # --resume without a checkpoint, and a checkpoint without --resume, which is replaced: both are reported.
    assert "the run starts at its beginning" in run(*command, "--out", out, "--resume")[2]
    (out / "checkpoint.safetensors").write_bytes(b"old")
    assert "will be replaced; --resume goes on" in run(*command, "--out", out)[2]
    assert files_in(out) == WRITTEN


# --- two runs, full disks, folders that go away ----------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_a_second_run_with_one_folder_is_refused_and_the_first_goes_on(
    run, own, tmp_path, monkeypatch, plain_picture, more
):
    out, refusals = tmp_path / "out", []
    command = ["train", *own, "--epochs", 3, "--out", out, *SMALL]
    forward = sf.SeeGera.forward

    def with_a_second_run(model, *arguments, **options):
        if not refusals:
            refusals.append(None)
            refusals[0] = run(*command, *more)
        return forward(model, *arguments, **options)

    monkeypatch.setattr(sf.SeeGera, "forward", with_a_second_run)
    assert run(*command)[0] == 0
    status, printed, err = refusals[0]
    assert (status, printed) == (5, "")
    assert err.splitlines()[-1] == (
        f"seegera-fast: error: the folder {out} is in use by another run: process {os.getpid()} on {platform.node()}"
    )
    assert files_in(out) == WRITTEN
    assert run(*command, *more)[0] == 0


def test_without_locks_a_run_writes_its_files(run, own, tmp_path, monkeypatch, plain_picture):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    assert run("train", *own, "--epochs", 2, "--out", tmp_path / "out", *SMALL)[0] == 0
    assert files_in(tmp_path / "out") == WRITTEN


def test_the_lock_of_a_killed_run_is_taken_over(run, own, tmp_path, plain_picture):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".lock").write_text("process 1 on a machine\n")
    assert run("train", *own, "--epochs", 2, "--out", out, *SMALL)[0] == 0
    assert files_in(out) == WRITTEN


@pytest.fixture
def spare(tmp_path, monkeypatch):
    """The folder for temporary files."""
    (tmp_path / "spare").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spare"))
    return tmp_path / "spare"


def during_epoch(monkeypatch, number, action):
    forward, calls = sf.SeeGera.forward, []

    def acting(model, *arguments, **options):
        calls.append(None)
        if len(calls) == number:
            action()
        return forward(model, *arguments, **options)

    monkeypatch.setattr(sf.SeeGera, "forward", acting)


def test_what_a_removed_folder_cannot_take_is_written_elsewhere(run, own, tmp_path, monkeypatch, spare, plain_picture):
    out, whole = tmp_path / "out", tmp_path / "whole"
    command = ["train", *own, "--epochs", 3, "--checkpoint-every", 2, *SMALL]
    assert run(*command, "--out", whole)[0] == 0
    during_epoch(monkeypatch, 2, lambda: shutil.rmtree(out))
    status, printed, err = run(*command, "--out", out)
    assert status == 6
    assert "epoch 2: no checkpoint was written, the training goes on" in err
    assert not out.exists()
    (folder,) = spare.glob("seegera-fast-out-*")
    assert files_in(folder) == RESULTS
    for name in ("embedding.npy", "model.safetensors"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    reason = f"{out / 'model.safetensors'} can't be written: No such file or directory;"
    names = "model.safetensors, embedding.npy, results.json, links.csv, picture.png, report.html"
    assert err.splitlines()[-1] == f"seegera-fast: error: {reason} {folder} has instead: {names}"
    assert "AUC" in printed
    assert "files in" not in printed


def test_a_folder_that_another_run_made_anew_is_left_to_it(tmp_path, spare):
    out, content = tmp_path / "out", {"results.json": lambda file: file.write(b"{}")}
    with OutputFolder(out) as first:
        shutil.rmtree(out)
        with OutputFolder(out) as second:
            first.write(content)
            assert files_in(out) == [".lock"]
            second.write(content)
            assert second.refused == []
        ((error, names, folder),) = first.refused
    assert str(error) == f"the folder {out} can't be written: it was removed, and another run has made it anew"
    assert (names, folder.parent) == (("results.json",), spare)
    assert files_in(folder) == files_in(out) == ["results.json"]


def full(monkeypatch, is_full):
    """No file whose path is one of a full disk can be written."""
    replace = os.replace

    def replacing(aside, path):
        if is_full(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(aside, path)

    monkeypatch.setattr(atomic.os, "replace", replacing)


def test_a_full_disk_keeps_the_earlier_files_and_the_checkpoint(run, own, tmp_path, monkeypatch, spare, plain_picture):
    out = tmp_path / "out"
    command = ["train", *own, "--epochs", 3, "--checkpoint-every", 2, "--out", out, *SMALL]
    assert run(*command)[0] == 0
    before = {name: (out / name).read_bytes() for name in RESULTS}
    full(monkeypatch, lambda path: path.parent == out and path.name == "results.json")
    status, printed, err = run(*command, "--seed", 1)
    assert status == 6
    assert f"{out / 'results.json'} can't be written: No space left on device; {spare}" in err
    assert "files in" not in printed
    (folder,) = spare.glob("seegera-fast-out-*")
    assert files_in(folder) == RESULTS
    assert results_in(folder)["configuration"]["seed"] == 1
    assert {name: (out / name).read_bytes() for name in before} == before
    assert files_in(out) == WRITTEN


def test_a_full_disk_that_takes_no_picture(run, own, tmp_path, monkeypatch, spare, plain_picture):
    out = tmp_path / "out"
    full(monkeypatch, lambda path: path == out / "picture.png")
    status, printed, err = run("train", *own, "--epochs", 2, "--out", out, *SMALL)
    assert status == 6
    assert printed.endswith(f"files in {out}: results.json, model.safetensors, embedding.npy, links.csv\n")
    (folder,) = spare.glob("seegera-fast-out-*")
    assert files_in(folder) == ["picture.png", "report.html"]
    assert err.splitlines()[-1].endswith(f"; {folder} has instead: picture.png, report.html")


def test_where_no_folder_can_take_the_files_this_is_said(run, own, tmp_path, monkeypatch, spare, plain_picture):
    full(monkeypatch, lambda path: True)
    status, printed, err = run("train", *own, "--epochs", 2, "--out", tmp_path / "out", *SMALL)
    assert status == 6
    assert "AUC" in printed
    assert err.count("; no other folder could take: ") == 1
    assert list(spare.glob("seegera-fast-*")) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["e.npy", "e.csv"])
def test_embed_names_the_file_that_it_cannot_write(run, own, tmp_path, name):
    model = tmp_path / "model.safetensors"
    sf.SeeGera(sf.Graph.from_table(*own[1::2]), embedding_dim=40, hidden_dim=4).save(model)
    before = files_in(tmp_path)
    with largest_file(1000):
        outcome = run("embed", model, *own, "--out", tmp_path / name)
    refused(outcome, f"{tmp_path / name} can't be written: File too large")
    assert files_in(tmp_path) == before


def test_a_picture_that_cannot_be_written_is_named(tmp_path):
    with (
        largest_file(1000),
        pytest.raises(OSError, match=r"p\.png can't be written: File too large"),
        atomic.written_aside(tmp_path / "p.png") as file,
    ):
        plots.save_dots(file, {"title": {"series": {"label": (1.0, 0.1)}}}, columns=1)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"configuration": {"normalize_features": "false"}, "data": {}}, "normalize_features: got 'false', want true"),
        ({"configuration": {"normalize_features": 0}, "data": {}}, "configuration.normalize_features: got 0"),
        ({"configuration": {"normalize_features": False}, "data": {"weighted": "no"}}, "data.weighted: got 'no', want"),
    ],
)
def test_results_with_a_field_of_a_wrong_kind_are_refused(run, own, tmp_path, content, words):
    model = tmp_path / "model.safetensors"
    sf.SeeGera(sf.Graph.from_table(*own[1::2]), embedding_dim=4, hidden_dim=4).save(model)
    (tmp_path / "results.json").write_text(json.dumps(content))
    refused(run("embed", model, *own, "--out", tmp_path / "e.npy"), "results.json: ", words)
    assert not (tmp_path / "e.npy").exists()


def test_embed_refuses_a_model_with_nan(run, own, tmp_path):
    path = tmp_path / "model.safetensors"
    sf.SeeGera(sf.Graph.from_table(*own[1::2]), embedding_dim=4, hidden_dim=4).save(path)
    file = tensor_file.read(path)
    weights = {name: file.tensor(name) for name in file.entries}
    weights["node_mean.first.weight"][0, 0] = float("nan")
    with open(path, "wb") as damaged:
        tensor_file.write(damaged, weights, file.texts)
    outcome = run("embed", path, *own, "--out", tmp_path / "e.npy")
    refused(outcome, "model.safetensors has NaN or infinite numbers in its tensor node_mean.first.weight")
    assert not (tmp_path / "e.npy").exists()


def test_ctrl_c_in_a_terminal(own, tmp_path):
    """Sends the signal to a real process. Its progress bar shows when it trains."""
    out = tmp_path / "out"
    argv = ["train", *own, "--epochs", "10000000", "--set", "patience=none", "--out", str(out), *SMALL]
    terminal, standard_error = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 150, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "seegera_fast", *argv],
        stdout=subprocess.PIPE,
        stderr=standard_error,
        text=True,
        # If tests run in the background, the signal is ignored at their start, which a child process would inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(standard_error)
    try:
        shown = b""
        while b"loss=" not in shown:
            assert select.select([terminal], [], [], 60)[0], shown
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        # The terminal is read, because a full one blocks the process. The end of the process is an error of read.
        end = time.monotonic() + 120
        with contextlib.suppress(OSError):
            while select.select([terminal], [], [], 60)[0] and time.monotonic() < end:
                os.read(terminal, 4096)
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(terminal)
    assert process.returncode == 130
    assert "interrupted" in printed
    assert results_in(out)["interrupted"] is True
    assert files_in(out) == WRITTEN
    model = sf.SeeGera.load(out / "model.safetensors", sf.Graph.from_table(*own[1::2]))
    assert np.array_equal(np.load(out / "embedding.npy"), model.embed().numpy())


def test_info(run):
    status, out, err = run("info")
    assert (status, err) == (0, "")
    assert sf.__version__ in out
    assert torch.__version__ in out
    for name, backend in sf.backends.info().items():
        (line,) = [line for line in out.splitlines() if line.startswith(f"{name} ")]
        assert (backend["reason"] or "available") in line

    status, out, _ = run("info", "--json")
    assert status == 0
    content = json.loads(out)
    assert content["versions"]["torch"] == torch.__version__
    assert content["machine"]["threads"] == torch.get_num_threads()
    assert content["machine"]["instruction_set"] == sf.backends.instruction_set()
    assert content["backends"] == sf.backends.info()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_module_version_and_closed_pipe(unbuffered):
    command = [sys.executable, "-m", "seegera_fast"]
    shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"seegera-fast {sf.__version__}\n"
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    closed = subprocess.run([*command, "info"], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(writer)
    assert (closed.returncode, closed.stderr) == (141, "")


@pytest.mark.parametrize("command", [[], ["train"], ["embed"], ["reproduce"], ["sweep"], ["info"]])
def test_help(run, command):
    status, out, err = run(*command, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(" ".join(["usage: seegera-fast", *command]))


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


@pytest.mark.parametrize("noise", [0.0, 1e-30, 1e-9])
def test_projection_of_rows_that_are_nearly_the_same(noise):
    draws = np.random.default_rng(0)
    points, method = plots.project((0.1 + noise * draws.standard_normal((40, 5))).astype(np.float32))
    assert method == "PCA"
    assert np.isfinite(points).all()


def take_terminal():
    """Makes standard input the terminal of the new session, and lets SIGHUP through, which nohup ignores."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=["loud", "quiet"])
def test_a_terminal_that_is_closed_ends_the_run_with_its_files(quiet, tmp_path):
    """The kernel sends SIGHUP, and what is written to the terminal fails from then on."""
    screen, terminal = pty.openpty()
    fields = ["--set", "embedding_dim=8", "--set", "hidden_dim=8", "--set", "patience=none", "--epochs", "100000"]
    command = ["train", "--data", "digits", *fields, *quiet, "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-m", "seegera_fast", *command],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(terminal)
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    while process.poll() is None and not checkpoint.exists():
        if select.select([screen], [], [], 0.1)[0]:
            os.read(screen, 4096)
    os.close(screen)
    try:
        assert process.wait(120) == 130
    finally:
        process.kill()
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"results.json", "model.safetensors", "embedding.npy", "picture.png"} <= names
    assert json.loads((tmp_path / "run" / "results.json").read_text())["interrupted"] is True
