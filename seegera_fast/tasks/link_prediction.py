"""Link prediction: hides links, trains on the rest, and tells hidden links from pairs without a link."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from ..batches import Batches
from ..calibration import Reliability, fit_calibration, reliability
from ..checkpoint import Checkpoint, digest
from ..graph import Graph
from ..scores import pair_products
from ..sides import AUTO
from ..support import arguments
from ..training import require_finite
from .common import run
from .held_out import LinkSplit, check_link_split_of
from .ranking import HITS, hits_at, mean_reciprocal_rank
from .splits import refuse_unused, split_links
from .task import HeldOut, Score, Scored, Task, TaskResult


@dataclass(frozen=True, kw_only=True)
class LinkPredictionResult(TaskResult):
    """The result of link prediction. Scores are in [0, 1], or None if that part of the split is empty.

    Attributes:
        auc, ap: area under the receiver operating characteristic, and average precision, on the test part.
        valid_auc, valid_ap: the same on the validation part, at the best epoch.
        hits: Hits@k on the test part, by k: the share of its links that score higher than all but the best ``k - 1`` of
            its pairs without a link, for those of k = 10, 50, 100 for which there are enough pairs.
        mrr: mean reciprocal rank of the test links, each among all the pairs of the test part without a link.
        reliability: how well the probabilities agree with what is so on the test part: "plain" those of the sigmoid,
            and "calibrated" those of ``model.calibration``, which is fitted to the validation part and exists if there
            is one.
    """

    auc: float | None
    ap: float | None
    valid_auc: float | None
    valid_ap: float | None
    hits: Mapping[int, float]
    mrr: float | None
    reliability: Mapping[str, Reliability] = field(repr=False)


def link_prediction(
    graph: Graph,
    preset: str | None = None,
    variant: str = "v3",
    seed: int = 0,
    valid: float = 0.2,
    test: float = 0.1,
    *,
    sides: str | None = None,
    split: LinkSplit | None = None,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
    batches: Batches | Iterable[Any] | None = None,
    **fields: Any,
) -> LinkPredictionResult:
    """Splits the links, trains, and scores the test part with the weights of the best epoch.

    The score of a pair is the inner product of its two mean embeddings. An epoch becomes the best one if AUC and AP on
    the validation part are both higher than at the best epoch before.

    Args:
        graph: the graph, on the device to train on.
        preset: one of ``presets.names("link_prediction")``; None: that of the data set, if the graph is one of
            ``sf.datasets``, else "default".
        variant: "v1" (independent), "v2" (correlated) or "v3" (correlated, with masking).
        seed: seed of the split, the initial weights and all draws.
        valid, test: shares of the links, see :func:`split_links`.
        sides: "auto": the graph is bipartite, and the pairs without a link are drawn across its two sides, see
            :func:`split_links`. None: they are pairs of any nodes.
        split: a split of the graph, which replaces the one that would be drawn. Sides that you know are given so:
            ``split=split_links(graph, sides=[0, 0, 1])``.
        progress: show progress on stderr: a bar at a terminal or in a notebook, else a line now and then.
        checkpoint: where to save the run's state, and whether to continue from it; None: nowhere.
        batches: train on parts of the graph: a :class:`seegera_fast.Batches`, or a loader of PyTorch Geometric.
            None: each epoch is a step on the whole graph. Scores are those of the whole graph either way.
        fields: any field of SeeGeraConfig or TrainingConfig, and ``normalize_features`` (divide each row of the
            features by the sum of its absolute values); they override the preset.

    Raises:
        TypeError: an argument of a wrong kind, or an unknown field; the message names the most similar ones.
        ValueError: an unknown preset or variant, a value out of range, an impossible split, or a checkpoint of another
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
    given = {"valid": valid, "test": test, "sides": sides, "split": split}
    common = {"progress": progress, "checkpoint": checkpoint, "batches": batches}
    return run(TASK, graph, preset, variant, seed, given, fields, **common)


def _split(graph: Graph, seed: int, valid: float, test: float, sides: str | None, split: LinkSplit | None) -> HeldOut:
    if sides is not None:
        arguments.choice("sides", sides, (AUTO,))
    if split is None:
        split = split_links(graph, valid, test, seed, sides=sides)
        used: dict[str, Any] = {"valid": valid, "test": test}
        # Runs of graphs that are not bipartite keep the fields that they had.
        used |= {} if sides is None else {"sides": sides}
        return HeldOut(split, split.train, bool(split.valid_pos.shape[0]), used)
    refuse_unused(link_prediction, {"valid": valid, "test": test}, "split is given")
    check_link_split_of(graph, split)
    if sides is not None:
        raise ValueError(f"sides: got {sides!r}, want None where split is given")
    train = graph.with_edges(split.train.edges())
    parts = (train.edges(), split.valid_pos, split.valid_neg, split.test_pos, split.test_neg)
    sizes = torch.tensor([part.shape[0] for part in parts], device="cpu")
    used = {"split": digest((sizes, *parts))}
    return HeldOut(replace(split, train=train), train, bool(split.valid_pos.shape[0]), used)


def _score(scored: Scored, parts: Collection[str]) -> dict[str, dict[str, float | None]]:
    embedding = scored.embedding
    require_finite(scored.epoch, "the embeddings", embedding)
    found = {}
    for part in parts:
        positive, negative = (getattr(scored.split, f"{part}_{kind}") for kind in ("pos", "neg"))
        found[part] = dict(zip(("auc", "ap"), pair_metrics(embedding, positive, negative), strict=True))
    return found


def _finish(scored: Scored) -> dict[str, Any]:
    """Calibrates the model on the validation part, and scores ranking and probabilities on the test part."""
    embedding, split = scored.embedding, scored.split
    valid, test = (
        [pair_products(embedding, getattr(split, f"{part}_{kind}")) for kind in ("pos", "neg")]
        for part in ("valid", "test")
    )
    more = None if split.more_neg is None else pair_products(embedding, split.more_neg)
    probabilities = {"plain": torch.sigmoid}
    if all(map(len, valid)):
        scored.model.calibration = fit_calibration(torch.cat(valid), _linked(*valid), more)
        if scored.model.calibration is not None:
            probabilities["calibrated"] = scored.model.calibration
    if not len(test[0]):
        probabilities = {}
    hits = {k: hits_at(*test, k) for k in HITS}
    return {
        "hits": {k: value for k, value in hits.items() if value is not None},
        "mrr": mean_reciprocal_rank(*test),
        "reliability": {name: reliability(of(torch.cat(test)), _linked(*test)) for name, of in probabilities.items()},
    }


def _linked(positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(positive) + len(negative), device=positive.device) < len(positive)


def pair_metrics(
    embedding: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor
) -> tuple[float, float] | tuple[None, None]:
    """AUC and AP of the scores ``e_i . e_k`` of two sets of pairs, int64 ``[m, 2]``; None: both sets are empty.

    AUC and AP depend only on the order of the scores, so the sigmoid is left out. In float32 it would round different
    products to the same score.
    """
    if not positive.shape[0]:
        return None, None
    from sklearn.metrics import average_precision_score, roc_auc_score

    pairs = torch.cat([positive, negative])
    target = np.arange(pairs.shape[0]) < positive.shape[0]
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
    finish=_finish,
)
