"""No run goes on from the checkpoint of another run or from a damaged file; without resume a new run replaces it."""

from __future__ import annotations

import json
import math
import os
import signal
import warnings

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from short_runs import assert_same_run, crash, epoch_of, graph, run, stop_at, whole

from seegera_fast import Checkpoint, Graph, checkpoint


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A checkpoint after four epochs."""
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, 5, crash)
        with pytest.raises(RuntimeError, match="the power failed"):
            run("node_classification", checkpoint=Checkpoint(path, every=4))
    return path


def other_graph(weighted=False, masks=None, **changes):
    base = graph()
    parts = {"adjacency": base.adjacency, "features": base.features, "labels": base.labels, **changes}
    return Graph(parts["adjacency"], parts["features"], parts["labels"], weighted=weighted, masks=masks)


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"seed": 6}, ["seed (checkpoint: 5, this run: 6)", "seed of the weights (checkpoint: 5"]),
        ({"dropout": 0.0, "hidden_dim": 6}, ["hidden_dim (checkpoint: 5, this run: 6)", "dropout (checkpoint: 0.2"]),
        ({"classifier_dropout": 0.5}, ["classifier_dropout (checkpoint: 0.0, this run: 0.5)"]),
        ({"valid": 0.2}, ["valid (checkpoint: 0.3, this run: 0.2)"]),
    ],
)
def test_another_configuration_is_refused(written, fields, parts):
    with pytest.raises(ValueError, match=r"c\.safetensors is of another run, which differs in") as caught:
        run("node_classification", checkpoint=Checkpoint(written, resume=True), **fields)
    assert all(part in str(caught.value) for part in parts)
    assert str(caught.value).count("(checkpoint:") == len(parts)


def test_another_graph_is_refused(written):
    base = graph()
    edges = base.edges()[1:]
    others = {
        "labels": other_graph(labels=(base.labels + 1) % 3),
        "features": other_graph(features=base.features.with_values(0.5 * base.features.values)),
        "adjacency": other_graph(adjacency=base.with_edges(edges).adjacency),
    }
    edge_counts = rf"number of edges \(checkpoint: {base.num_edges}, this run: {base.num_edges - 1}\), adjacency"
    for name, other in others.items():
        named = edge_counts if name == "adjacency" else name
        with pytest.raises(ValueError, match=rf"differs in .*{named} \(checkpoint: "):
            run("node_classification", of=other, checkpoint=Checkpoint(written, resume=True))
    weighted = other_graph(weighted=True, adjacency=base.adjacency.with_values(2 * base.adjacency.values))
    with pytest.raises(ValueError, match=r"differs in weights \(checkpoint: absent"):
        run("node_classification", of=weighted, checkpoint=Checkpoint(written, resume=True))


def test_weights_and_masks_tell_graphs_apart():
    base = graph()
    double = base.adjacency.with_values(2 * base.adjacency.values)
    mask = torch.arange(base.num_nodes) < 3
    graphs = [
        other_graph(),
        other_graph(weighted=True),
        other_graph(weighted=True, adjacency=double),
        other_graph(masks={"train": mask}),
        other_graph(masks={"train": ~mask}),
    ]
    prints = [checkpoint.fingerprint(each) for each in graphs]
    for sides in ([1, 0], [0, 1]):
        graphs.append(other_graph())
        graphs[-1].sides = np.resize(sides, base.num_nodes)
        prints.append(checkpoint.fingerprint(graphs[-1]))
    assert [prints.count(each) for each in prints] == [1] * 7
    with torch.device("meta"):
        assert checkpoint.fingerprint(graphs[-1]) == prints[-1]
    # Checkpoints of unweighted graphs have always had these names.
    sizes = ["number of nodes", "number of edges", "number of features", "dtype"]
    assert list(prints[0]) == [*sizes, "adjacency", "features", "labels"]


def test_another_task_is_refused(written):
    with pytest.raises(ValueError, match=r"task \(checkpoint: node_classification, this run: link_prediction\)"):
        run("link_prediction", checkpoint=Checkpoint(written, resume=True))


def test_another_version_is_refused(written, monkeypatch):
    monkeypatch.setattr("seegera_fast.checkpoint.__version__", "99")
    with pytest.raises(ValueError, match=r"version \(checkpoint: .*, this run: 99\)"):
        run("node_classification", checkpoint=Checkpoint(written, resume=True))


def rewritten(path, change):
    """The file with another header."""
    with safetensors.safe_open(path, framework="pt") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    safetensors.torch.save_file(tensors, path, change(header))


def refused(path, *words, task="node_classification", monkeypatch=None):
    """Asserts that no run goes on from the file, which the error names in one line, and that nothing is changed."""
    content = path.read_bytes()
    with monkeypatch.context() as patch:
        calls = stop_at(patch, 0, crash)
        with pytest.raises(ValueError, match=r"^checkpoint: .*c\.safetensors") as caught:
            run(task, checkpoint=Checkpoint(path, resume=True))
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)
    assert (calls, path.read_bytes()) == ([], content)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda header: {**header, "format": json.dumps("seegera_fast.Checkpoint/9")}, "format 'seegera_fast.Check"),
        (lambda header: {"format": "seegera_fast.SeeGera/1"}, "is a model, want a checkpoint"),
        (lambda header: {"format": "SeeGera"}, "'format' is not JSON"),
        (lambda header: {}, "format None"),
        (lambda header: {key: header[key] for key in header if key != "best"}, "lacks best"),
        (lambda header: {**header, "more": "1"}, "has a field 'more', which does not belong there"),
        (lambda header: {**header, "seconds": "NaN"}, "'seconds' is not JSON (got the number 'NaN'"),
        (lambda header: {**header, "epoch": "[" * 10**5}, "'epoch' is not JSON (JSON that is nested too deeply"),
        (lambda header: {**header, "epoch": "9" * 5000}, "'epoch' is not JSON"),
        (lambda header: {**header, "identity": "[]"}, "identity: got [], want an object"),
        (lambda header: {**header, "best": '{"epoch": 2, "epoch": 2}'}, "got the name 'epoch' twice"),
    ],
)
def test_another_kind_of_file_is_refused(written, change, words, monkeypatch):
    rewritten(written, change)
    refused(written, words, monkeypatch=monkeypatch)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("epoch", -5, "epoch: got -5, want an int from 1"),
        ("epoch", 0, "epoch: got 0"),
        ("epoch", 2.5, "epoch: got 2.5"),
        ("epoch", "7", "epoch: got '7'"),
        ("epoch", True, "epoch: got True"),
        ("epoch", None, "epoch: got None"),
        ("epoch", 10**9, "history: got a list of 4, want a list of 1000000000"),
        ("epoch", 3, "history: got a list of 4, want a list of 3"),
        ("seconds", "x", "seconds: got 'x', want a number of 0 or above"),
        ("seconds", -1, "seconds: got -1"),
        ("seconds", None, "seconds: got None"),
        ("seconds", 10**400, "seconds: got an int of 1329 bits"),
        ("peak_memory", 1.5, "peak_memory: got 1.5, want an int from 0"),
        ("peak_memory", -1, "peak_memory: got -1"),
        ("history", None, "history: got None, want a list"),
        ("history", {}, "history: got {}, want a list"),
        ("history", [1, 2, 3, 4], "history[0]: got 1, want an object"),
        ("untrained", 3, "untrained: got 3, want a list"),
        ("untrained", [{}], "untrained: got a list of 1, want names of weights"),
        ("untrained", ["node_mean"], "untrained: got a list of 1, want names of weights"),
        ("untrained", ["node_mean.first.weight"], "has a tensor 'adam/node_mean.first.weight/"),
        ("best", None, "best: got None, want epoch "),
        ("best", 3, "best: got 3, want epoch "),
        ("best", {"epoch": 2}, "best: got an object of 1, want epoch "),
        ("best", {"epoch": 3, "scores": {}}, "best: got an object of 2, want epoch "),
        ("best", {"epoch": 2, "scores": {"valid_accuracy": 0.123}}, "best: got an object of 2, want epoch "),
    ],
)
def test_a_wrong_field_of_the_header_is_refused(written, key, value, words, monkeypatch):
    rewritten(written, lambda header: {**header, key: json.dumps(value)})
    refused(written, words, monkeypatch=monkeypatch)


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (0, lambda record: {**record, "epoch": 2}, "history[0].epoch: got 2, want 1"),
        (3, lambda record: {**record, "epoch": "4"}, "history[3].epoch: got '4'"),
        (1, lambda record: {**record, "loss": "x"}, "history[1].loss: got 'x', want a number"),
        (1, lambda record: {**record, "link": None}, "history[1].link: got None, want a number"),
        (1, lambda record: {**record, "valid_accuracy": True}, "history[1].valid_accuracy: got True"),
        (0, lambda record: {**record, "valid_accuracy": 0.5}, "'history[0].valid_accuracy', which does not belong"),
        (2, lambda record: {**record, "more": 1.0}, "'history[2].more', which does not belong"),
        (2, lambda record: {**record, "seconds": -1.0}, "history[2].seconds: got -1.0, want a number of 0"),
        (2, lambda record: {key: record[key] for key in record if key != "prior"}, "lacks history[2].prior"),
        (3, lambda record: {**record, "valid_accuracy": 1.0}, "best: got an object of 2, want epoch 4 with its"),
    ],
)
def test_a_wrong_record_of_the_history_is_refused(written, number, change, words, monkeypatch):
    def changed(header):
        history = json.loads(header["history"])
        history[number] = change(history[number])
        return {**header, "history": json.dumps(history)}

    rewritten(written, changed)
    refused(written, words, monkeypatch=monkeypatch)


def test_a_history_that_goes_on_after_its_last_epoch_is_refused(tmp_path, monkeypatch):
    fields = {"patience": 1, "evaluate_every": 1, "epochs": 60}
    expected = whole("link_prediction", **fields)
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr("seegera_fast.training.TrainingConfig.ended", lambda config, epoch, best: epoch == 9)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # So few links may give none.
            warnings.filterwarnings("ignore", "the probabilities are not calibrated")
            stop_at(patch, 9, lambda: os.kill(os.getpid(), signal.SIGTERM))
            run("link_prediction", checkpoint=Checkpoint(path), **fields)
    assert expected.epochs < epoch_of(path) == 9
    with pytest.raises(ValueError, match=rf"epoch: got 9, want {expected.epochs}, the last epoch of this run"):
        run("link_prediction", checkpoint=Checkpoint(path, resume=True), **fields)


WEIGHT = "node_mean.first.weight"


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (f"weights/{WEIGHT}", None, f"lacks the tensor weights/{WEIGHT}"),
        (f"best/{WEIGHT}", None, f"lacks the tensor best/{WEIGHT}"),
        (f"adam/{WEIGHT}/step", None, f"lacks the tensor adam/{WEIGHT}/step"),
        ("other/x", lambda tensor: torch.zeros(1), "has a tensor 'other/x', which does not belong there"),
        ("x", lambda tensor: torch.zeros(1), "has a tensor 'x', which does not belong there"),
        (
            f"weights/{WEIGHT}",
            lambda tensor: tensor.to(torch.int32),
            f"has weights/{WEIGHT} as torch.int32 (9, 5), want",
        ),
        (f"weights/{WEIGHT}", lambda tensor: tensor.double(), f"has weights/{WEIGHT} as torch.float64 (9, 5), want"),
        (
            f"weights/{WEIGHT}",
            lambda tensor: tensor[:-1].clone(),
            f"has weights/{WEIGHT} as torch.float32 (8, 5), want",
        ),
        (
            f"adam/{WEIGHT}/exp_avg",
            lambda tensor: tensor.flatten(),
            f"has adam/{WEIGHT}/exp_avg as torch.float32 (45,)",
        ),
        (f"adam/{WEIGHT}/step", lambda tensor: tensor.double(), f"has adam/{WEIGHT}/step as torch.float64 (), want"),
        (
            f"adam/{WEIGHT}/step",
            lambda tensor: tensor - 1,
            f"has 3 in adam/{WEIGHT}/step, want 4, the number of epochs",
        ),
        (f"adam/{WEIGHT}/exp_avg_sq", lambda tensor: -1 - tensor, f"negative numbers in adam/{WEIGHT}/exp_avg_sq"),
        (f"adam/{WEIGHT}/exp_avg_sq", lambda tensor: tensor * math.nan, f"NaN or negative numbers in adam/{WEIGHT}"),
        (
            f"adam/{WEIGHT}/exp_avg",
            lambda tensor: tensor * math.nan,
            f"NaN or infinite numbers in its tensor adam/{WEIGHT}",
        ),
        (f"weights/{WEIGHT}", lambda tensor: tensor / 0, f"NaN or infinite numbers in its tensor weights/{WEIGHT}"),
        (f"best/{WEIGHT}", lambda tensor: tensor * math.nan, f"NaN or infinite numbers in its tensor best/{WEIGHT}"),
    ],
)
def test_a_wrong_tensor_is_refused(written, name, change, words, monkeypatch):
    with safetensors.safe_open(written, framework="pt") as file:
        header, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    tensor = tensors.pop(name, None)
    if change is not None:
        tensors[name] = change(tensor)
    safetensors.torch.save_file(tensors, written, header)
    refused(written, words, monkeypatch=monkeypatch)


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"no tensors"])
def test_a_broken_file_is_refused(content, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    path.write_bytes(content)
    refused(path, "is not a safetensors file", task="link_prediction", monkeypatch=monkeypatch)


def test_a_cut_file_is_refused(written, monkeypatch):
    content = written.read_bytes()
    for length in (4, 1000, len(content) // 2, len(content) - 1):
        written.write_bytes(content[:length])
        refused(written, "is not a safetensors file", monkeypatch=monkeypatch)


def test_without_resume_a_run_starts_anew_and_replaces_the_file(written):
    result = run("node_classification", checkpoint=Checkpoint(written, every=5))
    assert_same_run(result, whole("node_classification"))
    assert epoch_of(written) == 12
