"""Node classification: train without labels, then a logistic regression on frozen embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..checkpoint import Checkpoint
from ..graph import Graph
from ..model import SeeGera
from ..training import Scores, Validation, require_finite
from ..training import train as train_model
from .classifier import Fit, fit_classifier
from .common import TaskResult, normalized, resolve, training_fields
from .splits import public_split, split_nodes


@dataclass(frozen=True, kw_only=True)
class NodeClassificationResult(TaskResult):
    """Accuracies in [0, 1]; None where that part of the split is empty.

    Attributes:
        accuracy: on the test part.
        valid_accuracy: on the validation part, at the best epoch.
    """

    accuracy: float | None
    valid_accuracy: float | None


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
    settings = resolve(
        "node_classification",
        graph,
        preset,
        variant,
        fields,
        arguments=("preset", "seed", "train", "valid", "public", "progress", "checkpoint"),
    )
    graph = normalized(graph, settings.task["normalize_features"])
    if public not in (None, True, False):
        raise TypeError(f"public: got {public!r}, want True, False or None")
    if public is None:
        public = {"train", "valid", "test"} <= set(graph.masks)
    split = public_split(graph) if public else split_nodes(graph, train, valid, seed)
    if not split.train.shape[0]:
        raise ValueError(f"train: got no node to train on, want at least one (public {public}, ratio {train})")
    # Classes are numbered anew, so that a label may be any number; a negative one is unknown, and no class.
    labels = torch.searchsorted(graph.labels[graph.labels >= 0].unique(), graph.labels).to(graph.device)
    model = SeeGera(graph, settings.model, seed=seed)

    def fit(epoch: int) -> Fit:
        embedding = model.embed()
        require_finite(epoch, "the embeddings", embedding)
        return fit_classifier(embedding, labels, split, settings.classifier, seed)

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
