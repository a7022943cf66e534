"""Attribute inference: hide features, train on the rest, predict what was hidden."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from ..checkpoint import Checkpoint
from ..graph import Graph
from ..training import require_finite
from .common import run
from .splits import split_features
from .task import HeldOut, Score, Scored, Task, TaskResult


@dataclass(frozen=True, kw_only=True)
class AttributeInferenceResult(TaskResult):
    """Errors in the square of the features' unit; None where that part of the split is empty.

    Attributes:
        mse: mean squared error on the test part, hidden and zero entries together.
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
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
    **fields: Any,
) -> AttributeInferenceResult:
    """Hides a part of the features, trains, and scores the test part with the weights of the best epoch.

    An entry is predicted by ``model.reconstruct_features``: decoded from sampled embeddings, with the training features
    as weights. An epoch is better than the best so far where the validation error is lower.

    Args:
        graph: on the device that the model is to train on.
        preset: one of ``presets.names("attribute_inference")``; None: that of the graph's name, else "default".
        variant: "v1" (independent), "v2" (correlated) or "v3" (correlated, with masking).
        seed: of the split, the initial weights and all draws.
        valid, test: shares of the non-zero features, see :func:`split_features`.
        progress: a bar on stderr, where that is a terminal.
        checkpoint: where the run keeps its state, and whether it goes on from there.
        fields: any field of SeeGeraConfig or TrainingConfig, and ``normalize_features`` (each row of the features is
            divided by its sum before the split; rows that sum to 1 stay as they are); they override the preset.

    Raises:
        TypeError: an argument of a wrong kind; an unknown field, with the nearest ones.
        ValueError: an unknown preset or variant, a value out of range, an impossible split; a checkpoint of another
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
    arguments = {"valid": valid, "test": test}
    return run(TASK, graph, preset, variant, seed, arguments, fields, progress=progress, checkpoint=checkpoint)


def _split(graph: Graph, seed: int, valid: float, test: float) -> HeldOut:
    split = split_features(graph, valid, test, seed)
    return HeldOut(split, split.train, bool(split.valid_pos.shape[0]), {"valid": valid, "test": test})


def _score(scored: Scored, parts: Collection[str]) -> dict[str, dict[str, float | None]]:
    return {part: {"mse": _error(scored, part)} for part in parts}


def _error(scored: Scored, part: str) -> float | None:
    """Mean squared error on the hidden and the zero entries of a part, summed in float64."""
    hidden, values, zero = (getattr(scored.split, f"{part}_{kind}") for kind in ("pos", "values", "neg"))
    if not hidden.shape[0]:
        return None
    predicted = scored.model.reconstruct_features(*torch.cat([hidden, zero]).t())
    require_finite(scored.epoch, "the predicted features", predicted)
    wanted = torch.cat([values, torch.zeros_like(values)])
    return float((predicted.double() - wanted.double()).square().mean())


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
    needs_features=True,
)
