"""Checkpoints: a stopped run is resumed with the same bits, and no other run can be resumed from its file."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cases
import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from tolerances import assert_same_bits

from seegera_fast import Checkpoint, Graph, SeeGera, checkpoint, checkpoint_file, tasks
from seegera_fast.support import atomic
from seegera_fast.support.signals import ENDING

TASKS = {
    "link_prediction": (tasks.link_prediction, {}),
    "attribute_inference": (tasks.attribute_inference, {}),
    "node_classification": (tasks.node_classification, {"classifier_epochs": 5, "train": 0.4, "valid": 0.3}),
}
# Everything that draws random numbers is on.
FIELDS = {
    "epochs": 12,
    "embedding_dim": 4,
    "hidden_dim": 5,
    "learning_rate": 1e-2,
    "weight_decay": 1e-3,
    "dropout": 0.2,
    "structure_masking_rate": 0.3,
    "feature_masking_rate": 0.2,
    "num_importance_samples": 2,
    "num_mixture_samples": 2,
    "negatives": "edges",
    "evaluate_every": 2,
    "warmup_epochs": 9,
    "progress": False,
}


@functools.cache
def graph() -> Graph:
    base = cases.graph("random", "binary")
    return Graph(base.adjacency, base.features, np.arange(17) % 3)


def run(task, *, of=None, **fields):
    function, more = TASKS[task]
    return function(of or graph(), seed=fields.pop("seed", 5), **{**FIELDS, **more, **fields})


@functools.cache
def whole(task, **fields):
    """A run that is not stopped."""
    return run(task, **fields)


def stop_at(monkeypatch, epoch, action):
    """Calls ``action`` in an epoch."""
    forward, calls = SeeGera.forward, []

    def counted(model, *arguments, **options):
        calls.append(None)
        if len(calls) == epoch:
            action()
        return forward(model, *arguments, **options)

    monkeypatch.setattr(SeeGera, "forward", counted)
    return calls


def crash():
    raise RuntimeError("the power failed")


def without_seconds(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


def assert_same_run(result, expected):
    assert without_seconds(result.history) == without_seconds(expected.history)
    assert (result.epochs, result.best_epoch) == (expected.epochs, expected.best_epoch)
    assert result.fields == expected.fields
    for name in ("auc", "ap", "mse", "accuracy", "valid_auc", "valid_mse", "valid_accuracy"):
        assert getattr(result, name, None) == getattr(expected, name, None), name
    for name, tensor in expected.model.state_dict().items():
        assert_same_bits(result.model.state_dict()[name], tensor, name=name)


def epoch_of(path):
    with safetensors.safe_open(path, framework="pt") as file:
        return int(file.metadata()["epoch"])


@pytest.mark.parametrize("task", TASKS)
def test_a_run_that_crashed_goes_on_to_the_same_bits(task, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, 9, crash)
        with pytest.raises(RuntimeError, match="the power failed"):
            run(task, checkpoint=Checkpoint(path, every=4))
    assert epoch_of(path) == 8
    with monkeypatch.context() as patch:
        calls = stop_at(patch, 0, crash)
        result = run(task, checkpoint=Checkpoint(path, every=4, resume=True))
    assert len(calls) == 4
    assert not result.interrupted
    assert_same_run(result, whole(task))
    assert sum(record["seconds"] for record in result.history) <= result.seconds


@pytest.mark.parametrize("number", [signal.SIGINT, *ENDING])
def test_a_signal_ends_the_run_after_the_epoch(number, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    # If tests run in the background or under nohup, the signal is ignored at their start.
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)
    try:
        for epoch in (3, 7):
            with monkeypatch.context() as patch:
                done = epoch_of(path) if path.exists() else 0
                stop_at(patch, epoch - done, lambda: os.kill(os.getpid(), number))
                result = run("link_prediction", checkpoint=Checkpoint(path, resume=True))
            assert result.interrupted
            assert result.epochs == epoch_of(path) == epoch
            assert signal.getsignal(number) == usual
    finally:
        signal.signal(number, before)
    result = run("link_prediction", checkpoint=Checkpoint(path, resume=True))
    assert not result.interrupted
    assert_same_run(result, whole("link_prediction"))


@pytest.mark.parametrize("fields", [{}, {"patience": 3, "evaluate_every": 1, "epochs": 60}])
def test_a_signal_in_the_last_epoch_is_reported(fields, tmp_path, monkeypatch):
    """The last epoch is that of the configuration, or the one after which patience ends."""
    path, expected = tmp_path / "c.safetensors", whole("link_prediction", **fields)
    with monkeypatch.context() as patch:
        stop_at(patch, expected.epochs, lambda: os.kill(os.getpid(), signal.SIGTERM))
        result = run("link_prediction", checkpoint=Checkpoint(path), **fields)
    assert result.interrupted
    assert epoch_of(path) == expected.epochs
    assert_same_run(result, expected)
    with monkeypatch.context() as patch:
        calls = stop_at(patch, 0, crash)
        result = run("link_prediction", checkpoint=Checkpoint(path, resume=True), **fields)
    assert (len(calls), result.interrupted) == (0, False)
    assert_same_run(result, expected)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_after_a_signal_ends_the_run_at_once_and_a_sigterm_does_not(first, second, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def twice():
        os.kill(os.getpid(), first)
        os.kill(os.getpid(), second)

    try:
        with monkeypatch.context() as patch:
            stop_at(patch, 6, twice)
            result = run("link_prediction", checkpoint=Checkpoint(path, every=4))
    finally:
        signal.signal(signal.SIGINT, before)
    at_once = second == signal.SIGINT
    assert (result.interrupted, result.epochs) == (True, 5 if at_once else 6)
    assert epoch_of(path) == (4 if at_once else 6)
    assert_same_run(
        run("link_prediction", checkpoint=Checkpoint(path, resume=True)),
        whole("link_prediction"),
    )


def test_signals_of_the_program_are_left_alone(tmp_path, monkeypatch):
    """Existing signal handlers stay, and another thread sets no handlers."""
    caught = []
    before = signal.signal(signal.SIGTERM, lambda *arguments: caught.append(arguments))
    try:
        stop_at(monkeypatch, 3, lambda: os.kill(os.getpid(), signal.SIGTERM))
        result = run("link_prediction", checkpoint=Checkpoint(tmp_path / "c.safetensors"))
        assert (len(caught), result.interrupted) == (1, False)
    finally:
        signal.signal(signal.SIGTERM, before)
    results = []
    checkpointed = Checkpoint(tmp_path / "d.safetensors")
    thread = threading.Thread(target=lambda: results.append(run("link_prediction", checkpoint=checkpointed)))
    thread.start()
    thread.join()
    assert_same_run(results[0], whole("link_prediction"))


def test_early_stopping_goes_on_counting(tmp_path, monkeypatch):
    fields = {"patience": 3, "evaluate_every": 1, "epochs": 60}
    expected = whole("link_prediction", **fields)
    assert expected.best_epoch + 4 == expected.epochs < 60
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, expected.epochs, crash)
        with pytest.raises(RuntimeError, match="the power failed"):
            run("link_prediction", checkpoint=Checkpoint(path, every=1), **fields)
    assert epoch_of(path) == expected.epochs - 1
    assert_same_run(run("link_prediction", checkpoint=Checkpoint(path, resume=True), **fields), expected)


def goes_on(task, path, monkeypatch, **fields):
    """Resumes a run; gives its result and how many epochs it trained."""
    with monkeypatch.context() as patch:
        calls = stop_at(patch, 0, crash)
        result = run(task, checkpoint=Checkpoint(path, resume=True), **fields)
    assert not result.interrupted
    assert epoch_of(path) == result.epochs
    return result, len(calls)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("first", [3, 6, 7])
def test_more_epochs_go_on_to_the_bits_of_one_long_run(task, first, tmp_path, monkeypatch):
    """Every other epoch is validated: 3 and 7 only because they are the last ones of the short run."""
    path = tmp_path / "c.safetensors"
    short = run(task, epochs=first, checkpoint=Checkpoint(path, every=4))
    assert_same_run(short, whole(task, epochs=first))
    assert ("valid_" in str(short.history[-1])) == ("valid_" in str(short.history[1])) is True
    for epochs, trained in ((first, 0), (first + 2, 2), (12, 12 - first - 2)):
        result, calls = goes_on(task, path, monkeypatch, epochs=epochs)
        assert_same_run(result, whole(task, epochs=epochs))
        assert calls == trained


def test_more_epochs_after_an_interrupt_in_the_last_one(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, 5, lambda: os.kill(os.getpid(), signal.SIGTERM))
        short = run("link_prediction", epochs=5, checkpoint=Checkpoint(path))
    assert short.interrupted
    assert_same_run(short, whole("link_prediction", epochs=5))
    result, calls = goes_on("link_prediction", path, monkeypatch)
    assert_same_run(result, whole("link_prediction"))
    assert calls == 7


def test_more_epochs_after_early_stopping_train_none(tmp_path, monkeypatch):
    fields = {"patience": 3, "evaluate_every": 1}
    path, expected = tmp_path / "c.safetensors", whole("link_prediction", **fields, epochs=60)
    stopped = expected.epochs
    assert expected.best_epoch + 4 == stopped < 60
    # The patience that was used up before the end of the short run counts.
    for epochs, trained in ((stopped - 2, stopped - 2), (60, 2), (90, 0), (stopped, 0)):
        result, calls = goes_on("link_prediction", path, monkeypatch, **fields, epochs=epochs)
        assert_same_run(result, whole("link_prediction", **fields, epochs=epochs))
        assert calls == trained


def test_fewer_epochs_than_are_left_and_than_are_done(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, 6, crash)
        with pytest.raises(RuntimeError, match="the power failed"):
            run("link_prediction", checkpoint=Checkpoint(path, every=5))
    with pytest.raises(ValueError, match="epoch: got 5, want 4, the last epoch of this run"):
        run("link_prediction", epochs=4, checkpoint=Checkpoint(path, resume=True))
    result, calls = goes_on("link_prediction", path, monkeypatch, epochs=7)
    assert_same_run(result, whole("link_prediction", epochs=7))
    assert calls == 2


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import test_checkpoint as here
from seegera_fast import Checkpoint
from seegera_fast.support import atomic, tensor_file
here.torch.set_num_threads(1)
path, moment = sys.argv[2:]
kill = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
if moment == "epoch":
    class Patch:
        setattr = staticmethod(setattr)
    here.stop_at(Patch, 10, kill)
elif moment == "rename":
    replace, calls = os.replace, []
    def counted(*arguments):
        calls.append(None)
        kill() if len(calls) == 3 else replace(*arguments)
    atomic.os.replace = counted
else:
    write, calls = tensor_file.write, []
    def half(file, tensors, texts):
        calls.append(None)
        if len(calls) == 3:
            file.write(b"half")
            file.flush()
            kill()
        write(file, tensors, texts)
    tensor_file.write = half
here.run("node_classification", checkpoint=Checkpoint(path, every=3))
"""


@pytest.mark.parametrize(("moment", "epoch"), [("epoch", 9), ("write", 6), ("rename", 6)])
def test_a_killed_process_goes_on_to_the_same_bits(moment, epoch, tmp_path):
    """SIGKILL in the middle of an epoch, while the third checkpoint is written, and before it is renamed."""
    path = tmp_path / "c.safetensors"
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(path), moment]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert epoch_of(path) == epoch
    result = run("node_classification", checkpoint=Checkpoint(path, every=3, resume=True))
    assert_same_run(result, whole("node_classification"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]


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
    assert [prints.count(each) for each in prints] == [1] * 5
    # Checkpoints of unweighted graphs have always had these names.
    sizes = ["number of nodes", "number of edges", "number of features", "dtype"]
    assert list(prints[0]) == [*sizes, "adjacency", "features", "labels"]


def test_another_task_is_refused(written):
    with pytest.raises(ValueError, match=r"task \(checkpoint: node_classification, this run: link_prediction\)"):
        run("link_prediction", checkpoint=Checkpoint(written, resume=True))


def test_another_version_is_refused(written, monkeypatch):
    monkeypatch.setattr("seegera_fast.training.__version__", "99")
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
        (lambda header: {"format": "seegera_fast.SeeGera/1"}, "'format' is not JSON"),
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


# --- one run at a time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_run_with_the_file_is_refused_and_the_first_goes_on(resume, tmp_path, monkeypatch):
    path, refusals = tmp_path / "c.safetensors", []

    def second():
        with pytest.raises(OSError, match=r"the checkpoint .*c\.safetensors is in use by another run") as caught:
            run("link_prediction", checkpoint=Checkpoint(path, resume=resume))
        refusals.append(str(caught.value))

    with monkeypatch.context() as patch:
        stop_at(patch, 6, second)
        result = run("link_prediction", checkpoint=Checkpoint(path, every=4))
    (refusal,) = refusals
    assert f"process {os.getpid()} on " in refusal
    assert_same_run(result, whole("link_prediction"))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    run("link_prediction", checkpoint=Checkpoint(path, resume=True))


def test_runs_in_threads_with_one_file_leave_one(tmp_path):
    path = tmp_path / "c.safetensors"

    def one(number):
        try:
            return run("link_prediction", checkpoint=Checkpoint(path, every=1))
        except OSError as error:
            return str(error)

    with warnings.catch_warnings(), ThreadPoolExecutor(4) as pool:
        warnings.simplefilter("error")
        # So few links may give none.
        warnings.filterwarnings("ignore", "the probabilities are not calibrated")
        results = list(pool.map(one, range(4)))
    done = [result for result in results if not isinstance(result, str)]
    assert done
    for result in done:
        assert_same_run(result, whole("link_prediction"))
    assert all("is in use by another run" in result for result in results if isinstance(result, str))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_without_locks_a_run_keeps_its_checkpoint(tmp_path, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    path = tmp_path / "c.safetensors"
    assert_same_run(run("link_prediction", checkpoint=Checkpoint(path, every=4)), whole("link_prediction"))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_the_folder_of_the_checkpoint_is_removed_during_a_run(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    stop_at(monkeypatch, 6, lambda: shutil.rmtree(folder))
    with pytest.warns(
        UserWarning, match=r"epoch (8|12): no checkpoint was written, .*c\.safetensors can't be written: No such"
    ):
        result = run("link_prediction", checkpoint=Checkpoint(folder / "c.safetensors", every=4))
    assert_same_run(result, whole("link_prediction"))
    assert not folder.exists()


def test_the_file_of_a_run_that_made_the_folder_anew_is_not_replaced(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    with contextlib.ExitStack() as stack:

        def another_run():
            shutil.rmtree(folder)
            folder.mkdir()
            stack.enter_context(Checkpoint(folder / "c.safetensors").kept())

        stop_at(monkeypatch, 6, another_run)
        words = r"epoch (8|12): no checkpoint was written, .* another run has made it anew"
        with pytest.warns(UserWarning, match=words):
            result = run("link_prediction", checkpoint=Checkpoint(folder / "c.safetensors", every=4))
        assert [entry.name for entry in folder.iterdir()] == [".c.safetensors.lock"]
    assert_same_run(result, whole("link_prediction"))


def test_without_resume_a_run_starts_anew_and_replaces_the_file(written):
    result = run("node_classification", checkpoint=Checkpoint(written, every=5))
    assert_same_run(result, whole("node_classification"))
    assert epoch_of(written) == 12


def test_a_file_that_cannot_be_written_is_refused_before_the_first_epoch(tmp_path, monkeypatch):
    calls = stop_at(monkeypatch, 0, crash)
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path, tmp_path / "file" / "c", tmp_path / "absent" / "c"):
        with pytest.raises(OSError, match=r"the checkpoint .* can't be written"):
            run("link_prediction", checkpoint=Checkpoint(path))
    assert not calls


def test_a_full_disk_warns_and_keeps_the_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    replace, calls = os.replace, []

    def fails(*arguments):
        calls.append(None)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        replace(*arguments)

    monkeypatch.setattr(atomic.os, "replace", fails)
    with pytest.warns(UserWarning, match=r"epoch (8|12): no checkpoint was written, the training goes on \(.*No space"):
        result = run("link_prediction", checkpoint=Checkpoint(path, every=4))
    assert_same_run(result, whole("link_prediction"))
    assert epoch_of(path) == 4
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"path": 3}, TypeError),
        ({"path": "c", "every": 0}, ValueError),
        ({"path": "c", "every": 1.5}, TypeError),
        ({"path": "c", "every": True}, TypeError),
        ({"path": "c", "resume": 1}, TypeError),
    ],
)
def test_attributes_are_checked(fields, error):
    with pytest.raises(error, match=f"{list(fields)[-1]}: got"):
        Checkpoint(**fields)


def test_a_state_reads_as_it_was_written(tmp_path):
    weights = {"a.b": cases.normal(3, 2, seed=1)}
    adam = {
        "a.b/step": torch.tensor(2.0),
        "a.b/exp_avg": cases.normal(3, 2, seed=2),
        "a.b/exp_avg_sq": torch.ones(3, 2),
    }
    # The square of a large gradient is infinite in float32, and training goes on.
    adam["a.b/exp_avg_sq"] = adam["a.b/exp_avg_sq"].double() / torch.tensor([1.0, 0.0])
    state = checkpoint_file.State(
        epoch=2,
        history=[
            {"epoch": 1, "loss": 0.1 + 0.2, "valid_auc": 1 / 3, "seconds": 0.5},
            {"epoch": 2, "loss": 1e-310, "seconds": 0},
        ],
        best=checkpoint_file.Best(1, {"valid_auc": 1 / 3}, {"a.b": cases.normal(3, 2)}),
        weights=weights,
        adam=adam,
        seconds=1.5,
        peak_memory=None,
    )
    course = checkpoint_file.Course(
        identity={"seed": 1, "split": (0.1, 0.2)},
        weights=weights,
        terms=("loss",),
        scores=("valid_auc",),
        evaluates=lambda epoch: epoch == 1,
        improves=lambda scores, best: False,
        ended=lambda epoch, best: epoch == 9,
    )
    path = tmp_path / "c.safetensors"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # So few links may give none.
        warnings.filterwarnings("ignore", "the probabilities are not calibrated")
        checkpoint_file.write(path, state, course.identity)
    found = checkpoint_file.read(path, course)
    for part in dataclasses.fields(state):
        if part.name not in ("best", "weights", "adam"):
            assert getattr(found, part.name) == getattr(state, part.name)
    assert (found.best.epoch, found.best.scores) == (1, {"valid_auc": 1 / 3})
    for group in (lambda each: each.weights, lambda each: each.adam, lambda each: each.best.weights):
        assert sorted(group(found)) == sorted(group(state))
        for name, tensor in group(state).items():
            assert_same_bits(group(found)[name], tensor, name=name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_a_checkpoint_from_a_gpu_goes_on_on_a_cpu(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, 9, crash)
        with pytest.raises(RuntimeError, match="the power failed"):
            run("link_prediction", of=graph().to("cuda"), checkpoint=Checkpoint(path, every=4))
    result = run("link_prediction", checkpoint=Checkpoint(path, resume=True))
    assert result.epochs == 12
    for record, expected in zip(result.history, whole("link_prediction").history, strict=True):
        assert record["loss"] == pytest.approx(expected["loss"], rel=1e-3)
