"""The classifier of node classification: a logistic regression, scored at its best epoch, and its labels."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import cases
import numpy as np
import pytest
import torch
from communities import SMALL, planted
from tolerances import assert_close, assert_same_bits

from seegera_fast import Graph, tasks
from seegera_fast.tasks import split_nodes
from seegera_fast.tasks.classifier import ClassifierConfig, fit_classifier

# The package has a function of the module's name.
node_module = sys.modules["seegera_fast.tasks.node_classification"]


def test_an_unknown_label_is_no_class(monkeypatch):
    """The planted graph has three communities, and two nodes with the label -1."""
    seen = []
    through = node_module.fit_classifier

    def fit(embedding, labels, split, config, seed):
        found = through(embedding, labels, split, config, seed)
        seen.append((found.weight.shape[1], labels))
        return found

    monkeypatch.setattr(node_module, "fit_classifier", fit)
    base = planted()
    labels = torch.where(base.labels > 0, 10 * base.labels, base.labels)
    graph = Graph(base.adjacency, base.features, labels)
    split = tasks.node_classification(graph, epochs=2, classifier_epochs=2, **SMALL).split
    for classes, labels in seen:
        assert classes == 3
        for part in (split.train, split.valid, split.test):
            assert torch.equal(10 * labels[part], graph.labels[part])


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("epochs", 0, ValueError),
        ("epochs", 1.0, TypeError),
        ("learning_rate", -1.0, ValueError),
        ("weight_decay", math.nan, ValueError),
        ("dropout", 1.0, ValueError),
        ("dropout", "0.1", TypeError),
    ],
)
def test_fields_of_the_classifier_are_checked(field, value, error):
    with pytest.raises(error, match=f"classifier_{field}: got"):
        tasks.node_classification(planted(), **{f"classifier_{field}": value})


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_classifier_is_a_logistic_regression(dropout):
    """Against a loop that is written out with the plain form of Adam."""
    labels = planted().labels
    split = replace(split_nodes(planted(), 0.5), valid=torch.empty(0, dtype=torch.int64))
    # Long vectors, so that the gradient is longer than 3 at the start and shorter later on.
    embedding = 6 * cases.normal(90, 4) + 12 * torch.eye(4).double()[labels]
    config = ClassifierConfig(epochs=30, learning_rate=0.03, weight_decay=0.1, dropout=dropout)
    fit = fit_classifier(embedding, labels, split, config, seed=6)
    weight, bias = torch.zeros(4, 3).double().requires_grad_(), torch.zeros(3).double().requires_grad_()
    optimizer = torch.optim.Adam([weight, bias], lr=0.03, weight_decay=0.1, foreach=False)
    generator = torch.Generator().manual_seed(6)
    norms = []
    for _ in range(30):
        inputs = embedding[split.train]
        if dropout:
            inputs = inputs * torch.empty_like(inputs).bernoulli_(0.7, generator=generator) / 0.7
        logits = inputs @ weight + bias
        loss = (logits.logsumexp(dim=1) - logits[torch.arange(44), labels[split.train]]).mean()
        gradients = torch.autograd.grad(loss, [weight, bias])
        norms.append(torch.cat([part.flatten() for part in gradients]).norm().item())
        # A norm in the sixth digit after the point is added by torch's clipping.
        scale = min(1.0, 3.0 / (norms[-1] + 1e-6))
        weight.grad, bias.grad = (part * scale for part in gradients)
        optimizer.step()
    assert min(norms) < 3 < max(norms)
    assert_close(fit.weight, weight.detach(), terms=1000, name="weight")
    assert_close(fit.bias, bias.detach(), terms=1000, name="bias")
    right = ((embedding @ fit.weight + fit.bias).argmax(dim=1) == labels)[split.test]
    assert fit.test_accuracy == pytest.approx(right.double().mean().item())
    assert fit.valid_accuracy is None


def test_classifier_is_float32_in_autocast_and_trains_without_gradients():
    labels, split = planted().labels, split_nodes(planted(), 0.5, 0.2)
    embedding = cases.normal(90, 4).float()
    config = ClassifierConfig(epochs=5)
    expected = fit_classifier(embedding, labels, split, config, seed=4)
    for context in (torch.autocast("cpu", torch.bfloat16), torch.no_grad()):
        with context:
            found = fit_classifier(embedding, labels, split, config, seed=4)
        assert_same_bits(found.weight, expected.weight)
        assert found[2:] == expected[2:]


def test_classifier_is_scored_at_its_best_epoch_by_validation():
    split = split_nodes(planted(), 0.5, 0.2)
    labels = planted().labels
    rng = np.random.default_rng(1)
    embedding = torch.from_numpy(np.eye(3)[labels.numpy()] + rng.normal(size=(90, 3))).float()
    config = ClassifierConfig(learning_rate=0.3, dropout=0.5)
    blind = replace(split, valid=split.valid[:0])
    lasts = [
        fit_classifier(embedding, labels, blind, replace(config, epochs=epochs), seed=4) for epochs in range(1, 30)
    ]
    rights = [(embedding @ last.weight + last.bias).argmax(dim=1) == labels for last in lasts]
    valid = [right[split.valid].double().mean().item() for right in rights]
    ties = 0
    for epochs in range(1, 30):
        # The last one of the best, since few nodes give many ties.
        best = max(range(epochs), key=lambda epoch: (valid[epoch], epoch))
        ties += valid.index(valid[best]) != best
        fit = fit_classifier(embedding, labels, split, replace(config, epochs=epochs), seed=4)
        assert_same_bits(fit.weight, lasts[best].weight)
        assert fit.valid_accuracy == pytest.approx(valid[best])
        assert fit.test_accuracy == pytest.approx(rights[best][split.test].double().mean().item())
    assert ties
    assert len(set(valid)) > 3


def test_labels_may_be_any_numbers():
    """Classes count by their order, so that a large number costs nothing."""
    graph = planted()
    renamed = Graph(graph.adjacency, graph.features, graph.labels * 900_000_000_000 + 7)
    fields = {"epochs": 2, "embedding_dim": 4, "hidden_dim": 4, "classifier_epochs": 3, "progress": False}
    first, second = (tasks.node_classification(each, **fields).accuracy for each in (renamed, graph))
    assert first == second
