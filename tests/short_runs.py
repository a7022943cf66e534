"""Short runs of the three tasks, which stop in an epoch, and what is the same in two of them."""

from __future__ import annotations

import functools

import cases
import numpy as np
import safetensors
from tolerances import assert_same_bits

from seegera_fast import Graph, SeeGera, tasks

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
