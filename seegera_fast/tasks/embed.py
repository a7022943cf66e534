"""Embedding: trains on the whole graph, with nothing held out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ..batches import Batches
from ..checkpoint import Checkpoint
from ..graph import Graph
from .common import run
from .task import HeldOut, Scored, Task, TaskResult


@dataclass(frozen=True, kw_only=True)
class EmbedResult(TaskResult):
    """The result of :func:`embed`: the model, trained on all links and features. There are no scores."""


def embed(
    graph: Graph,
    preset: str | None = None,
    variant: str = "v3",
    seed: int = 0,
    *,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
    batches: Batches | Iterable[Any] | None = None,
    **fields: Any,
) -> EmbedResult:
    """Trains on the whole graph, for embeddings, suggestions of links and missing attributes.

    Nothing is held out, so nothing is scored and there is no early stopping: all epochs are run. To see how well a
    model of this kind predicts on a graph, use :func:`link_prediction` first.

    Args:
        graph: the graph, on the device to train on.
        preset: one of ``presets.names("embed")``, those of link prediction; None: that of the data set, if
            the graph is one of ``sf.datasets``, else "default".
        variant: "v1" (independent), "v2" (correlated) or "v3" (correlated, with masking).
        seed: seed of the initial weights and all draws.
        progress: show progress on stderr: a bar at a terminal or in a notebook, else a line now and then.
        checkpoint: where to save the run's state, and whether to continue from it; None: nowhere.
        batches: train on parts of the graph: a :class:`seegera_fast.Batches`, or a loader of PyTorch Geometric.
            None: each epoch is a step on the whole graph. Scores are those of the whole graph either way.
        fields: any field of SeeGeraConfig or TrainingConfig, and ``normalize_features`` (divide each row of the
            features by the sum of its absolute values); they override the preset. ``epochs`` is 500 by default.

    Raises:
        TypeError: an argument of a wrong kind, or an unknown field; the message names the most similar ones.
        ValueError: an unknown preset or variant, a value out of range, or a checkpoint of another run.
        TrainingFailure: a number became NaN or infinite.
        OSError: the checkpoint can't be written.

    Example:
        >>> import seegera_fast as sf
        >>> result = sf.tasks.embed(sf.datasets.load("digits"), epochs=2, embedding_dim=16)
        >>> result.model.embed().shape
        torch.Size([1797, 16])
    """
    common = {"progress": progress, "checkpoint": checkpoint, "batches": batches}
    return run(TASK, graph, preset, variant, seed, {}, fields, **common)


def _split(graph: Graph, seed: int) -> HeldOut:
    return HeldOut(None, graph, False, {})


def _score(scored: Scored, parts: Collection[str]) -> dict[str, dict[str, float | None]]:
    return {part: {} for part in parts}


TASK = Task(
    name="embed",
    key="embed",
    title="embedding",
    purpose="train on all links, with nothing held out",
    scores=(),
    shares=(),
    splits={"paper": {}},
    other_split="nothing is held out",
    split=_split,
    score=_score,
    result=EmbedResult,
    embeds=False,
    like="link_prediction",
)
