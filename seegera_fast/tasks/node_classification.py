"""Node classification: trains without labels, then fits a logistic regression to the fixed embeddings."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..batches import Batches
from ..checkpoint import Checkpoint, digest
from ..graph import Graph
from ..support import arguments
from ..support.warning import warn_outside
from ..training import require_finite
from .classifier import ClassifierConfig, fit_classifier
from .common import run
from .held_out import NodeSplit, check_node_split_of
from .splits import has_public_split, labelled, public_split, refuse_unused, split_nodes
from .task import HeldOut, Score, Scored, Task, TaskResult


@dataclass(frozen=True, kw_only=True)
class NodeClassificationResult(TaskResult):
    """The result of node classification. Accuracies are in [0, 1], or None if that part of the split is empty.

    Attributes:
        accuracy: accuracy on the test part.
        valid_accuracy: accuracy on the validation part, at the best epoch.
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
    split: NodeSplit | None = None,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
    batches: Batches | Iterable[Any] | None = None,
    **fields: Any,
) -> NodeClassificationResult:
    """Trains without labels and scores the embeddings with a logistic regression every ``evaluate_every`` epochs.

    The accuracy on the validation nodes decides which epoch of the classifier is taken, and which epoch of the model is
    the best one. There is no early stopping unless ``patience`` is given.

    Args:
        graph: a graph with labels, on the device to train on.
        preset: one of ``presets.names("node_classification")``; None: that of the data set, if the graph is one of
            ``sf.datasets``, else "default".
        variant: "v1" (independent), "v2" (correlated) or "v3" (correlated, with masking).
        seed: seed of the split, the initial weights and all draws.
        train, valid: shares of the labelled nodes in a random split, see :func:`split_nodes`.
        public: True: take the split in ``graph.masks``. False: draw a random split. None: take the split in
            ``graph.masks`` if it has one: "train", "test" and perhaps "valid".
        split: a split of the nodes, which replaces the one that would be taken or drawn.
        progress: show progress on stderr: a bar at a terminal or in a notebook, else a line now and then.
        checkpoint: where to save the run's state, and whether to continue from it; None: nowhere.
        batches: train on parts of the graph: a :class:`seegera_fast.Batches`, or a loader of PyTorch Geometric.
            None: each epoch is a step on the whole graph. Scores are those of the whole graph either way.
        fields: any field of SeeGeraConfig or TrainingConfig, ``classifier_epochs``, ``classifier_learning_rate``,
            ``classifier_weight_decay``, ``classifier_dropout``, and ``normalize_features`` (divide each row of the
            features by the sum of its absolute values); they override the preset.

    Raises:
        TypeError: an argument of a wrong kind, or an unknown field; the message names the most similar ones.
        ValueError: an unknown preset or variant, a value out of range, no labels, no nodes to train on, or a checkpoint
            of another run.
        TrainingFailure: a number became NaN or infinite.
        OSError: the checkpoint can't be written.

    Example:
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> result = sf.tasks.node_classification(graph, epochs=2, embedding_dim=16, classifier_epochs=10)
        >>> 0 <= result.accuracy <= 1
        True
    """
    arguments = {"train": train, "valid": valid, "public": public, "split": split}
    common = {"progress": progress, "checkpoint": checkpoint, "batches": batches}
    return run(TASK, graph, preset, variant, seed, arguments, fields, **common)


def _split(
    graph: Graph, seed: int, train: float, valid: float, public: bool | None, split: NodeSplit | None
) -> HeldOut:
    if split is None:
        if public is None:
            public = has_public_split(graph)
            if graph.masks and not public:
                warn_outside(
                    f"graph: its masks are {', '.join(map(repr, graph.masks))}, and those of a public split would be "
                    "'train', 'test' and perhaps 'valid', so that a split is drawn; public=False says so without this "
                    "warning"
                )
        public = arguments.flag("public", public)
        if public:
            why = "the split in graph.masks is taken; public=False draws one"
            refuse_unused(node_classification, {"train": train, "valid": valid}, why)
        split = public_split(graph) if public else split_nodes(graph, train, valid, seed)
        used: dict[str, Any] = {"train": train, "valid": valid, "public": public}
        source = f"public {public}, ratio {train}"
    else:
        if public is not None:
            raise ValueError(f"public: got {public!r}, want None where split is given")
        refuse_unused(node_classification, {"train": train, "valid": valid}, "split is given")
        check_node_split_of(graph, labelled(graph), split)
        split = NodeSplit(*(getattr(split, part).to(graph.device) for part in ("train", "valid", "test")))
        used = {"split": digest((split.train, split.valid, split.test))}
        source = "split"
    if not split.train.shape[0]:
        raise ValueError(f"train: got no node to train on, want at least one ({source})")
    return HeldOut(split, graph, bool(split.valid.shape[0]), used)


def _score(scored: Scored, parts: Collection[str]) -> dict[str, dict[str, float | None]]:
    embedding, known = scored.embedding, scored.graph.labels
    require_finite(scored.epoch, "the embeddings", embedding)
    # Labels may be any numbers, so classes are numbered from 0. A negative label means unknown and is no class.
    labels = torch.searchsorted(known[known >= 0].unique(), known).to(embedding.device)
    fit = fit_classifier(embedding, labels, scored.split, scored.config, scored.seed)
    accuracies = {"valid": fit.valid_accuracy, "test": fit.test_accuracy}
    return {part: {"accuracy": accuracies[part]} for part in parts}


def _configure(fields: Mapping[str, Any]) -> ClassifierConfig:
    return ClassifierConfig(**{name: fields[f"{PREFIX}{name}"] for name in CLASSIFIER_FIELDS})


PREFIX = "classifier_"
CLASSIFIER_FIELDS = {entry.name: entry.default for entry in dataclasses.fields(ClassifierConfig)}
TASK = Task(
    name="node_classification",
    key="node",
    title="node classification",
    purpose="classify nodes by a logistic regression on the embeddings",
    scores=(Score("accuracy", "accuracy"),),
    shares=("train", "valid"),
    splits={"paper": {}},
    other_split="the public one, or else 10/10/80",
    random={"public": False},
    split=_split,
    score=_score,
    result=NodeClassificationResult,
    fields={f"{PREFIX}{name}": default for name, default in CLASSIFIER_FIELDS.items()},
    training={"patience": None},
    configure=_configure,
)
