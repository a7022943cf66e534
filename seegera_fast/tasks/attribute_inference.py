"""Attribute inference: hides features, trains on the rest, and predicts the hidden features."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..batches import Batches
from ..checkpoint import Checkpoint, digest
from ..graph import Graph
from ..training import require_finite
from .common import run
from .held_out import FeatureSplit, check_feature_split_of
from .splits import refuse_unused, split_features
from .task import HeldOut, Score, Scored, Task, TaskResult


@dataclass(frozen=True, kw_only=True)
class AttributeInferenceResult(TaskResult):
    """The result of attribute inference. An error is None if that part of the split is empty.

    Attributes:
        mse: mean squared error on the test part, over hidden and zero entries together.
        valid_mse: the same on the validation part, at the best epoch.
    """

    mse: float | None
    valid_mse: float | None


def attribute_inference(
    graph: Graph,
    preset: str | None = None,
    variant: str = "v3",
    seed: int = 0,
    valid: float = 0.1,
    test: float = 0.2,
    *,
    split: FeatureSplit | None = None,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
    batches: Batches | Iterable[Any] | None = None,
    **fields: Any,
) -> AttributeInferenceResult:
    """Hides a part of the features, trains, and scores the test part with the weights of the best epoch.

    Entries are predicted by ``model.reconstruct_features``, from sampled embeddings and the training features. The best
    epoch is the one with the lowest validation error.

    Args:
        graph: the graph, on the device to train on.
        preset: one of ``presets.names("attribute_inference")``; None: that of the data set, if the graph is one of
            ``sf.datasets``, else "default".
        variant: "v1" (independent), "v2" (correlated) or "v3" (correlated, with masking).
        seed: seed of the split, the initial weights and all draws.
        valid, test: shares of the non-zero features, see :func:`split_features`.
        split: a split of the graph, which replaces the one that would be drawn. With ``normalize_features`` it is a
            split of the graph whose features are normalised.
        progress: show progress on stderr: a bar at a terminal or in a notebook, else a line now and then.
        checkpoint: where to save the run's state, and whether to continue from it; None: nowhere.
        batches: train on parts of the graph: a :class:`seegera_fast.Batches`, or a loader of PyTorch Geometric.
            None: each epoch is a step on the whole graph. Scores are those of the whole graph either way.
        fields: any field of SeeGeraConfig or TrainingConfig, and ``normalize_features`` (divide each row of the
            features by the sum of its absolute values, before the split); they override the preset.

    Raises:
        TypeError: an argument of a wrong kind, or an unknown field; the message names the most similar ones.
        ValueError: an unknown preset or variant, a value out of range, an impossible split, or a checkpoint of another
            run.
        TrainingFailure: a number became NaN or infinite.
        OSError: the checkpoint can't be written.

    Example:
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> result = sf.tasks.attribute_inference(graph, epochs=2, embedding_dim=16)
        >>> result.mse > 0
        True
    """
    arguments = {"valid": valid, "test": test, "split": split}
    common = {"progress": progress, "checkpoint": checkpoint, "batches": batches}
    return run(TASK, graph, preset, variant, seed, arguments, fields, **common)


def _split(graph: Graph, seed: int, valid: float, test: float, split: FeatureSplit | None) -> HeldOut:
    if split is None:
        split, used = split_features(graph, valid, test, seed), {"valid": valid, "test": test}
    else:
        refuse_unused(attribute_inference, {"valid": valid, "test": test}, "split is given")
        check_feature_split_of(graph, split)
        train = graph.with_features(split.train.features, graph.feature_names)
        parts = (split.valid_pos, split.valid_neg, split.test_pos, split.test_neg)
        split, used = replace(split, train=train), {"split": digest(parts)}
    return HeldOut(split, split.train, bool(split.valid_pos.shape[0]), used)


def _score(scored: Scored, parts: Collection[str]) -> dict[str, dict[str, float | None]]:
    return {part: {"mse": _error(scored, part)} for part in parts}


def _error(scored: Scored, part: str) -> float | None:
    """The mean squared error on the hidden and the zero entries of a part, computed in float64."""
    hidden, values, zero = (getattr(scored.split, f"{part}_{kind}") for kind in ("pos", "values", "neg"))
    if not hidden.shape[0]:
        return None
    predicted = scored.model.reconstruct_features(*torch.cat([hidden, zero]).t())
    require_finite(scored.epoch, "the predicted features", predicted)
    expected = torch.cat([values, values.new_zeros(zero.shape[0])])
    return float((predicted.double() - expected.double()).square().mean())


TASK = Task(
    name="attribute_inference",
    key="attribute",
    title="attribute inference",
    purpose="predict hidden features",
    scores=(Score("mse", "MSE", error=True),),
    shares=("valid", "test"),
    splits={"paper": {"valid": 0.1, "test": 0.2}, "released": {"valid": 0.05, "test": 0.1}},
    split=_split,
    score=_score,
    result=AttributeInferenceResult,
    embeds=False,
    needs_features=True,
)
