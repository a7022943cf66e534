"""Node classification: train without labels, then a logistic regression on frozen embeddings."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from ..checkpoint import Checkpoint
from ..graph import Graph
from ..model import SeeGera
from ..training import Scores, Validation, require_finite
from ..training import train as train_model
from .common import TaskResult, normalized, resolve, training_fields
from .splits import NodeSplit, public_split, split_nodes

# Of the classifier's gradient.
MAX_NORM = 3.0


@dataclass(frozen=True, kw_only=True)
class NodeClassificationResult(TaskResult):
    """Accuracies in [0, 1]; None where that part of the split is empty.

    Attributes:
        accuracy: on the test part.
        valid_accuracy: on the validation part, at the best epoch.
    """

    accuracy: float | None
    valid_accuracy: float | None


@dataclass(frozen=True)
class ClassifierConfig:
    """The logistic regression.

    Attributes:
        epochs: how many, each on all training nodes.
        learning_rate, weight_decay: of Adam.
        dropout: rate in [0, 1) on the embeddings.

    Raises:
        TypeError, ValueError: a field of a wrong kind or out of range.
    """

    epochs: int = 500
    learning_rate: float = 1e-2
    weight_decay: float = 0.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.epochs, bool) or not isinstance(self.epochs, int):
            raise TypeError(f"classifier_epochs: got {self.epochs!r}, want an int")
        if self.epochs < 1:
            raise ValueError(f"classifier_epochs: got {self.epochs}, want at least 1")
        for name, limit in (("learning_rate", math.inf), ("weight_decay", math.inf), ("dropout", 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"classifier_{name}: got {value!r}, want a number")
            if not 0 <= value < limit:
                raise ValueError(f"classifier_{name}: got {value}, want a number in [0, {limit})")


def node_classification(
    graph: Graph,
    preset: str | None = None,
    variant: str = "v3",
    seed: int = 0,
    train: float = 0.1,
    valid: float = 0.1,
    *,
    public: bool | None = None,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
    **fields: Any,
) -> NodeClassificationResult:
    """Trains without labels and scores the embeddings with a logistic regression every ``evaluate_every`` epochs.

    The classifier is that of its best epoch on the validation nodes, and the embeddings are those of the best epoch by
    the same measure. There is no early stopping unless ``patience`` is given.

    Args:
        graph: with labels, on the device that the model is to train on.
        preset: one of ``presets.names("node_classification")``; None: that of the graph's name, else "default".
        variant: "v1" (independent), "v2" (correlated) or "v3" (correlated, with masking).
        seed: of the split, the initial weights and all draws.
        train, valid: shares of the labelled nodes in a random split, see :func:`split_nodes`.
        public: take the split in ``graph.masks``; None: where it is there.
        progress: a bar on stderr, where that is a terminal.
        checkpoint: where the run keeps its state, and whether it goes on from there.
        fields: any field of SeeGeraConfig or TrainingConfig, ``classifier_epochs``, ``classifier_learning_rate``,
            ``classifier_weight_decay``, ``classifier_dropout``, and ``normalize_features`` (each row of the features
            divided by its sum); they override the preset.

    Raises:
        TypeError: an argument of a wrong kind; an unknown field, with the nearest ones.
        ValueError: an unknown preset or variant, a value out of range, no labels, no nodes to train on; a checkpoint
            of another run.
        TrainingFailure: a number became NaN or infinite.
        OSError: the checkpoint can't be written.
    """
    defaults = {f"classifier_{field.name}": field.default for field in dataclasses.fields(ClassifierConfig)}
    settings = resolve(
        "node_classification",
        graph,
        preset,
        variant,
        fields,
        own={"normalize_features": False, **defaults},
        arguments=("preset", "seed", "train", "valid", "public", "progress", "checkpoint"),
        training={"patience": None},
    )
    classifier = ClassifierConfig(**{name.removeprefix("classifier_"): settings.task[name] for name in defaults})
    graph = normalized(graph, settings.task["normalize_features"])
    if public not in (None, True, False):
        raise TypeError(f"public: got {public!r}, want True, False or None")
    if public is None:
        public = {"train", "valid", "test"} <= set(graph.masks)
    split = public_split(graph) if public else split_nodes(graph, train, valid, seed)
    if not split.train.shape[0]:
        raise ValueError(f"train: got no node to train on, want at least one (public {public}, ratio {train})")
    # Classes are numbered anew, so that a label may be any number.
    labels = torch.unique(graph.labels, return_inverse=True)[1].to(graph.device)
    model = SeeGera(graph, settings.model, seed=seed)

    def fit(epoch: int) -> Fit:
        embedding = model.embed()
        require_finite(epoch, "the embeddings", embedding)
        return fit_classifier(embedding, labels, split, classifier, seed)

    validation = None
    if split.valid.shape[0]:
        validation = Validation(lambda epoch: {"valid_accuracy": fit(epoch).valid_accuracy}, _improves)
    run_fields = settings.all(task="node_classification", seed=seed, train=train, valid=valid, public=public)
    training = train_model(
        model,
        settings.training,
        seed=seed,
        validation=validation,
        progress=progress,
        checkpoint=checkpoint,
        data=graph,
        fields=run_fields,
    )
    # The same weights and seed give the same classifier as at the best epoch.
    best = fit(training.best_epoch)
    return NodeClassificationResult(
        **training_fields(training),
        model=model,
        split=split,
        preset=settings.preset,
        fields=run_fields,
        accuracy=best.test_accuracy,
        valid_accuracy=best.valid_accuracy,
    )


def _improves(scores: Scores, best: Scores) -> bool:
    return scores["valid_accuracy"] > best["valid_accuracy"]


class Fit(NamedTuple):
    """A classifier, weight ``[d, classes]`` and bias ``[classes]``; an accuracy is None where the part is empty."""

    weight: torch.Tensor
    bias: torch.Tensor
    valid_accuracy: float | None
    test_accuracy: float | None


def fit_classifier(
    embedding: torch.Tensor, labels: torch.Tensor, split: NodeSplit, config: ClassifierConfig, seed: int
) -> Fit:
    """Trains a logistic regression on frozen embeddings ``[n, d]`` and scores it at its best epoch by validation.

    Without validation nodes, the last epoch counts.
    """
    num_classes = int(labels.max()) + 1
    weight = embedding.new_zeros(embedding.shape[1], num_classes, requires_grad=True)
    bias = embedding.new_zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)
    generator = torch.Generator(embedding.device).manual_seed(seed)
    inputs, targets = embedding[split.train], labels[split.train]
    valid_inputs, valid_targets = embedding[split.valid], labels[split.valid]
    best, best_accuracy = (weight.detach(), bias.detach()), None
    for _ in range(config.epochs):
        optimizer.zero_grad()
        functional.cross_entropy(_dropout(inputs, config.dropout, generator) @ weight + bias, targets).backward()
        torch.nn.utils.clip_grad_norm_([weight, bias], MAX_NORM)
        optimizer.step()
        if split.valid.shape[0]:
            accuracy = _accuracy(valid_inputs, valid_targets, weight, bias)
            if best_accuracy is None or accuracy > best_accuracy:
                best, best_accuracy = (weight.detach().clone(), bias.detach().clone()), accuracy
    test_accuracy = None
    if split.test.shape[0]:
        test_accuracy = _accuracy(embedding[split.test], labels[split.test], *best)
    return Fit(*best, best_accuracy, test_accuracy)


def _dropout(inputs: torch.Tensor, rate: float, generator: torch.Generator) -> torch.Tensor:
    if rate == 0:
        return inputs
    kept = torch.empty_like(inputs).bernoulli_(1 - rate, generator=generator)
    return inputs * kept / (1 - rate)


def _accuracy(inputs: torch.Tensor, targets: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> float:
    with torch.no_grad():
        predicted = (inputs @ weight + bias).argmax(dim=1)
        return float((predicted == targets).double().mean())
