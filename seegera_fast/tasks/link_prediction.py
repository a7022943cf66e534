"""Link prediction: hide links, train on the rest, tell hidden links from pairs without one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from ..checkpoint import Checkpoint
from ..graph import Graph
from ..model import pair_products
from ..training import require_finite
from .common import run
from .splits import split_links
from .task import HeldOut, Score, Scored, Task, TaskResult


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

    Example:
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> result = sf.tasks.link_prediction(graph, epochs=2, embedding_dim=16)
        >>> 0 <= result.auc <= 1
        True
        >>> result.model.embed().shape
        torch.Size([1797, 16])
    """
    arguments = {"valid": valid, "test": test}
    return run(TASK, graph, preset, variant, seed, arguments, fields, progress=progress, checkpoint=checkpoint)


def _split(graph: Graph, seed: int, valid: float, test: float) -> HeldOut:
    split = split_links(graph, valid, test, seed)
    return HeldOut(split, split.train, bool(split.valid_pos.shape[0]), {"valid": valid, "test": test})


def _score(scored: Scored, parts: Collection[str]) -> dict[str, dict[str, float | None]]:
    embedding = scored.model.embed()
    require_finite(scored.epoch, "the embeddings", embedding)
    found = {}
    for part in parts:
        positive, negative = (getattr(scored.split, f"{part}_{kind}") for kind in ("pos", "neg"))
        found[part] = dict(zip(("auc", "ap"), pair_metrics(embedding, positive, negative), strict=True))
    return found


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


TASK = Task(
    name="link_prediction",
    key="link",
    title="link prediction",
    purpose="tell hidden links from pairs without one",
    scores=(Score("auc", "AUC"), Score("ap", "AP")),
    shares=("valid", "test"),
    splits={"paper": {"valid": 0.2, "test": 0.1}, "released": {"valid": 0.05, "test": 0.1}},
    split=_split,
    score=_score,
    result=LinkPredictionResult,
)
