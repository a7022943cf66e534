"""Attribute inference: hide features, train on the rest, predict what was hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..checkpoint import Checkpoint
from ..graph import Graph
from ..model import SeeGera
from ..training import Scores, Validation, require_finite, train
from .common import TaskResult, normalized, resolve, squared_error, training_fields
from .splits import split_features


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
    """
    settings = resolve(
        "attribute_inference",
        graph,
        preset,
        variant,
        fields,
        arguments=("preset", "seed", "valid", "test", "progress", "checkpoint"),
    )
    graph = normalized(graph, settings.task["normalize_features"])
    split = split_features(graph, valid, test, seed)
    model = SeeGera(split.train, settings.model, seed=seed)

    def error(epoch: int, hidden: torch.Tensor, values: torch.Tensor, zero: torch.Tensor) -> float | None:
        if not hidden.shape[0]:
            return None
        predicted = model.reconstruct_features(*torch.cat([hidden, zero]).t())
        require_finite(epoch, "the predicted features", predicted)
        return squared_error(predicted, torch.cat([values, torch.zeros_like(values)]))

    def valid_error(epoch: int) -> float | None:
        return error(epoch, split.valid_pos, split.valid_values, split.valid_neg)

    validation = None
    if split.valid_pos.shape[0]:
        validation = Validation(lambda epoch: {"valid_mse": valid_error(epoch)}, _improves)
    run_fields = settings.all(task="attribute_inference", seed=seed, valid=valid, test=test)
    training = train(
        model,
        settings.training,
        seed=seed,
        validation=validation,
        progress=progress,
        checkpoint=checkpoint,
        data=graph,
        fields=run_fields,
    )
    return AttributeInferenceResult(
        **training_fields(training),
        model=model,
        split=split,
        preset=settings.preset,
        fields=run_fields,
        mse=error(training.best_epoch, split.test_pos, split.test_values, split.test_neg),
        valid_mse=valid_error(training.best_epoch),
    )


def _improves(scores: Scores, best: Scores) -> bool:
    return scores["valid_mse"] < best["valid_mse"]
