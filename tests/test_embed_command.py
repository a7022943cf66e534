"""The command embed: it gives what training wrote, and refuses other graphs, models and results."""

import json
import os
import shutil

import numpy as np
import pytest
from command import NODES, SMALL, refused, results_in, two_groups
from disk import files_in, largest_file

import seegera_fast as sf
from seegera_fast.support import tensor_file

pytestmark = pytest.mark.usefixtures("one_thread")


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
    # A reader of the pipe would wait for ever if a file took its name.
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "link.npy").symlink_to(os.devnull)
    for name in ("pipe.npy", "link.npy"):
        refused(run("embed", model, *own, "--out", tmp_path / name), name, "it is a device or a pipe")
        assert not (tmp_path / name).is_file()


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


@pytest.mark.parametrize("name", ["e.npy", "e.csv"])
def test_embed_names_the_file_that_it_cannot_write(run, own, tmp_path, name):
    model = tmp_path / "model.safetensors"
    sf.SeeGera(sf.Graph.from_table(*own[1::2]), embedding_dim=40, hidden_dim=4).save(model)
    before = files_in(tmp_path)
    with largest_file(1000):
        outcome = run("embed", model, *own, "--out", tmp_path / name)
    refused(outcome, f"{tmp_path / name} can't be written: File too large")
    assert files_in(tmp_path) == before
