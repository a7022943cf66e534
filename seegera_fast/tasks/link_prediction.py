"""Link prediction: hide links, train on the rest, tell hidden links from pairs without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..checkpoint import Checkpoint
from ..graph import Graph
from ..model import SeeGera, pair_products
from ..training import Scores, Validation, require_finite, train
from .common import TaskResult, normalized, resolve, training_fields
from .splits import split_links


@dataclass(frozen=True, kw_only=True)
class LinkPredictionResult(TaskResult):
    """Scores in [0, 1]; None where that part of the split is empty.

    Attributes:
        auc, ap: area under the receiver operating characteristic, and average precision, on the test part.
        valid_auc, valid_ap: the same on the validation part, at the best epoch.
    """

    auc: float | None
    ap: float | None
    valid_auc: float | None
    valid_ap: float | None


def link_prediction(
    graph: Graph,
    preset: str | None = None,
    variant: str = "v3",
    seed: int = 0,
    valid: float = 0.2,
    test: float = 0.1,
    *,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
    **fields: Any,
) -> LinkPredictionResult:
    """Splits the links, trains, and scores the test part with the weights of the best epoch.

    A pair scores by the inner product of the mean embeddings. An epoch is better than the best so far where AUC and AP
    on the validation part are both higher.

    Args:
        graph: on the device that the model is to train on.
        preset: one of ``presets.names("link_prediction")``; None: that of the graph's name, else "default".
        variant: "v1" (independent), "v2" (correlated) or "v3" (correlated, with masking).
        seed: of the split, the initial weights and all draws.
        valid, test: shares of the links, see :func:`split_links`.
        progress: a bar on stderr, where that is a terminal.
        checkpoint: where the run keeps its state, and whether it goes on from there.
        fields: any field of SeeGeraConfig or TrainingConfig, and ``normalize_features`` (each row of the features
            divided by its sum); they override the preset.

    Raises:
        TypeError: an argument of a wrong kind; an unknown field, with the nearest ones.
        ValueError: an unknown preset or variant, a value out of range, an impossible split; a checkpoint of another
            run.
        TrainingFailure: a number became NaN or infinite.
        OSError: the checkpoint can't be written.
    """
    settings = resolve(
        "link_prediction",
        graph,
        preset,
        variant,
        fields,
        arguments=("preset", "seed", "valid", "test", "progress", "checkpoint"),
    )
    graph = normalized(graph, settings.task["normalize_features"])
    split = split_links(graph, valid, test, seed)
    model = SeeGera(split.train, settings.model, seed=seed)

    def scores(epoch: int) -> Scores:
        embedding = model.embed()
        require_finite(epoch, "the embeddings", embedding)
        auc, ap = pair_metrics(embedding, split.valid_pos, split.valid_neg)
        return {"valid_auc": auc, "valid_ap": ap}

    validation = Validation(scores, _improves) if split.valid_pos.shape[0] else None
    run_fields = settings.all(task="link_prediction", seed=seed, valid=valid, test=test)
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
    embedding = model.embed()
    require_finite(training.best_epoch, "the embeddings", embedding)
    valid_auc, valid_ap = pair_metrics(embedding, split.valid_pos, split.valid_neg)
    auc, ap = pair_metrics(embedding, split.test_pos, split.test_neg)
    return LinkPredictionResult(
        **training_fields(training),
        model=model,
        split=split,
        preset=settings.preset,
        fields=run_fields,
        auc=auc,
        ap=ap,
        valid_auc=valid_auc,
        valid_ap=valid_ap,
    )


def _improves(scores: Scores, best: Scores) -> bool:
    return all(scores[name] > best[name] for name in ("valid_auc", "valid_ap"))


def pair_metrics(
    embedding: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor
) -> tuple[float, float] | tuple[None, None]:
    """AUC and AP of the inner products ``e_i . e_k`` of two sets of pairs, int64 ``[m, 2]``; None where both are empty.

    Both depend on the order of the scores alone, so that the sigmoid is left out: in float32 it would round different
    products to the same score.
    """
    if not positive.shape[0]:
        return None, None
    from sklearn.metrics import average_precision_score, roc_auc_score

    pairs = torch.cat([positive, negative])
    target = torch.arange(pairs.shape[0]) < positive.shape[0]
    scores = pair_products(embedding, pairs).cpu().numpy()
    return float(roc_auc_score(target, scores)), float(average_precision_score(target, scores))
