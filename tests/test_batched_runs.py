"""Runs in batches: they are resumed, learn as well as on the whole graph, and make nothing of the whole."""

from __future__ import annotations

import functools
import io
import itertools
import math
import re
import sys

import pytest
import torch
from cliques import SMALL, Loader, graph, halves, parts_of, ring_of_cliques
from short_runs import without_seconds
from tolerances import assert_same_bits

import seegera_fast as sf
from seegera_fast import Batches, Checkpoint, SeeGera, tasks
from seegera_fast.batches import source_of
from seegera_fast.support import progress
from seegera_fast.training import TrainingConfig, TrainingFailure, train

# Everything that draws random numbers is on.
FIELDS = {
    "epochs": 4,
    "learning_rate": 1e-2,
    "dropout": 0.2,
    "structure_masking_rate": 0.3,
    "feature_masking_rate": 0.2,
    "negatives": "edges",
    "evaluate_every": 2,
    "warmup_epochs": 3,
    "progress": False,
    "seed": 5,
    **SMALL,
}
SOURCES = {
    "parts": lambda: Batches(8, per_batch=2, per_step=3, method="streaming"),
    "loader": lambda: Loader(graph(), halves()),
}


def test_v1_without_a_feature_side_has_batches():
    result = tasks.embed(
        graph(), variant="v1", batches=Batches(parts_of(graph())), epochs=1, progress=False, feature_side=False, **SMALL
    )
    assert math.isfinite(result.history[0]["loss"])


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_goes_on_to_the_same_bits(source, tmp_path):
    def run(epochs, checkpoint=None):
        fields = {**FIELDS, "epochs": epochs}
        return tasks.link_prediction(graph(), batches=SOURCES[source](), checkpoint=checkpoint, **fields)

    path = tmp_path / "c.safetensors"
    run(2, Checkpoint(path))
    result, expected = run(4, Checkpoint(path, resume=True)), run(4)
    assert without_seconds(result.history) == without_seconds(expected.history)
    assert result.auc == expected.auc
    for name, tensor in expected.model.state_dict().items():
        assert_same_bits(result.model.state_dict()[name], tensor, name=name)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        (None, "parts (checkpoint: 8, this run: absent)"),
        (Batches(4, 2, 3, "streaming"), "parts (checkpoint: 8, this run: 4)"),
        (Batches(8, 1, 3, "streaming"), "per_batch (checkpoint: 2, this run: 1)"),
        (Batches(8, 2, 1, "streaming"), "per_step (checkpoint: 3, this run: 1)"),
        ("turned", "which differs in partition (checkpoint: "),
    ],
)
def test_a_checkpoint_of_other_batches_is_refused(batches, words, tmp_path):
    path = tmp_path / "c.safetensors"
    first = tasks.embed(graph(), batches=SOURCES["parts"](), checkpoint=Checkpoint(path), **FIELDS)
    assert {name: first.fields[name] for name in ("parts", "per_batch", "per_step")} == {
        "parts": 8,
        "per_batch": 2,
        "per_step": 3,
    }
    if batches == "turned":
        batches = Batches(7 - parts_of(graph()), 2, 3)
    with pytest.raises(ValueError, match=re.escape(words)):
        tasks.embed(graph(), batches=batches, checkpoint=Checkpoint(path, resume=True), **FIELDS)


def test_adams_number_of_steps_is_checked(tmp_path):
    path = tmp_path / "c.safetensors"
    tasks.embed(graph(), batches=SOURCES["parts"](), checkpoint=Checkpoint(path), **FIELDS)
    header, tensors = _read(path)
    step = next(name for name in tensors if name.endswith("/step"))
    tensors[step] = torch.tensor(4.0)
    _write(path, header, tensors)
    with pytest.raises(ValueError, match=r"has 4 in adam/.*, want 8, the number of steps"):
        tasks.embed(graph(), batches=SOURCES["parts"](), checkpoint=Checkpoint(path, resume=True), **FIELDS)


def _read(path):
    import safetensors.torch

    with safetensors.safe_open(path, framework="pt") as file:
        return file.metadata(), safetensors.torch.load_file(path)


def _write(path, header, tensors):
    import safetensors.torch

    safetensors.torch.save_file(tensors, path, header)


DIGITS = {"epochs": 15, "embedding_dim": 16, "hidden_dim": 16, "learning_rate": 1e-2, "warmup_epochs": 15}


@functools.cache
def on_digits(task, batched):
    batches = Batches(16, 4, method="streaming") if batched else None
    more = {"classifier_epochs": 60, "evaluate_every": 5} if task == "node_classification" else {}
    fields = {**DIGITS, "progress": False, **more}
    return getattr(tasks, task)(sf.datasets.load("digits"), batches=batches, **fields)


@pytest.mark.parametrize(
    ("task", "score", "sign", "margin"),
    [
        ("link_prediction", "auc", 1, 0.02),
        ("attribute_inference", "mse", -1, 0.01),
        ("node_classification", "accuracy", 1, 0.05),
    ],
)
def test_batches_learn_as_well_as_the_whole_graph(task, score, sign, margin):
    """In the same number of epochs, which are more steps here."""
    whole, batched = (getattr(on_digits(task, batched), score) for batched in (False, True))
    assert sign * batched > sign * whole - margin


def kept_of(graph):
    """What was computed of a whole graph and is kept."""
    found = {*graph.__dict__, *graph.adjacency.__dict__, *graph.features.__dict__}
    found &= {"propagation", "_looped", "above", "row", "order", "non_edges", "dense"}
    return found if graph.features._transposed is None else {*found, "transposed"}


def test_nothing_of_the_whole_graph_is_made_for_batches():
    """Not its propagation matrix, nor its list of edges, nor the transpose of its features."""
    whole = ring_of_cliques(8, 6)
    tasks.embed(whole, batches=Batches(8, 2, method="streaming"), **FIELDS)
    assert not kept_of(whole)
    # Nor by validations and scores, beside what the split has made.
    found = tasks.node_classification(whole, batches=Batches(8, 2, method="streaming"), classifier_epochs=2, **FIELDS)
    assert found.accuracy is not None
    assert not kept_of(whole)
    split = tasks.split_links(whole)
    before = kept_of(whole), kept_of(whole.with_edges(split.train.edges()))
    found = tasks.link_prediction(whole, split=split, batches=Batches(8, 2, method="streaming"), **FIELDS)
    assert found.valid_auc is not None
    assert (kept_of(whole), kept_of(found.model.graph)) == before
    SeeGera(whole, prepare=True, **SMALL)
    assert {"propagation", "_looped"} <= {*whole.__dict__}


def test_warmup_counts_epochs(monkeypatch):
    model = SeeGera(graph(), seed=3, prepare=False, **SMALL)
    calls, forward = [], model.forward
    monkeypatch.setattr(model, "forward", lambda **given: calls.append(given) or forward(**given))
    source = source_of(graph(), Batches(parts_of(graph()), per_batch=4))
    training = train(model, TrainingConfig(epochs=2, warmup_epochs=2), source=source)
    assert [call["warmup"] for call in calls] == [0.5, 0.5, 1.0, 1.0]
    assert [record["epoch"] for record in training.history] == [1, 2]


def test_ctrl_c_within_an_epoch_leaves_the_weights_of_the_one_before(monkeypatch):
    run = functools.partial(tasks.embed, graph(), batches=Batches(parts_of(graph()), per_batch=3))
    expected = run(**{**FIELDS, "epochs": 2})
    calls, forward = [], SeeGera.forward

    def interrupted(model, **given):
        calls.append(given)
        # Three batches an epoch: the third epoch has taken two steps.
        if len(calls) == 9:
            raise KeyboardInterrupt
        return forward(model, **given)

    monkeypatch.setattr(SeeGera, "forward", interrupted)
    found = run(**FIELDS)
    assert found.interrupted
    assert len(calls) == 9
    assert without_seconds(found.history) == without_seconds(expected.history)
    for name, tensor in expected.model.state_dict().items():
        assert_same_bits(found.model.state_dict()[name], tensor, name=name)


def test_a_nan_in_a_batch_stops_before_the_step():
    model = SeeGera(graph(), seed=3, prepare=False, likelihood="mse", scaling="sum", **SMALL)
    source = source_of(graph(), Batches(parts_of(graph()), per_batch=4))
    steps = source.steps

    def spoiled(seed, epoch):
        for number, step in enumerate(steps(seed, epoch)):
            if (epoch, number) == (2, 1):
                before.update({name: tensor.clone() for name, tensor in model.state_dict().items()})
                spoil = step[0]().arguments["graph"]
                spoil.features.values[0] = math.nan
                batch = step[0]()._replace(arguments={"graph": spoil, "whole": graph()})
                step = [lambda batch=batch: batch]
            yield step

    before = {}
    source.steps = spoiled
    with pytest.raises(TrainingFailure, match="epoch 2: link became NaN"):
        train(model, TrainingConfig(epochs=3), source=source, progress=False)
    for name, tensor in model.state_dict().items():
        assert_same_bits(tensor, before[name], name=name)


def test_progress_within_an_epoch(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    clock = itertools.count(0, 60)
    monkeypatch.setattr(progress, "monotonic", lambda: float(next(clock)))
    batches = Batches(parts_of(graph()), per_batch=2)
    shown = []
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        tasks.embed(graph(), batches=batches, epochs=2, progress=True, **SMALL)
        shown.append(stream.getvalue())
    assert "epoch 0 of 2, batch 1 of 4 of the next, " in shown[0]
    assert " left" in shown[0].splitlines()[0]
    assert "2/2" in shown[1]
    assert "2.0/2" not in shown[1]
