"""Runs a task: puts its settings together, splits, trains and scores. All tasks use this code."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, fields
from typing import Any, NamedTuple

import torch

from .. import checks, precision
from ..batches import Batches, check_batches, source_of, takes_whole
from ..blocks import rows_of_block
from ..checkpoint import Checkpoint
from ..config import SeeGeraConfig
from ..distributed import Processes
from ..graph import Graph, check_graph
from ..model import SeeGera
from ..steps import check_steps
from ..support.arguments import plain
from ..support.hints import nearest
from ..support.kept import lasting
from ..support.progress import phase
from ..training import Scores, Training, TrainingConfig, Validation, train
from . import presets
from .task import Scored, Task

MODEL_FIELDS = [entry.name for entry in fields(SeeGeraConfig)]
TRAINING_FIELDS = [entry.name for entry in fields(TrainingConfig)]
# The fields that every task has, and their defaults.
COMMON_FIELDS = {"normalize_features": False}


class Settings(NamedTuple):
    """The fields of one run, by what they configure. ``config`` is what the task's ``configure`` returned."""

    preset: str
    model: SeeGeraConfig
    training: TrainingConfig
    task: dict[str, Any]
    config: Any

    def all(self, **more: Any) -> dict[str, Any]:
        """Every field by name."""
        return {**asdict(self.model), **asdict(self.training), **self.task, **more}


@lasting
def run(
    task: Task,
    graph: Graph,
    preset: str | None,
    variant: str,
    seed: int,
    arguments: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    progress: bool,
    checkpoint: Checkpoint | None,
    batches: Any = None,
) -> Any:
    """Splits, trains, and scores the held-out parts with the weights of the best epoch.

    Args:
        task: the task.
        graph, preset, variant, seed, progress, checkpoint, batches: as in the task's function.
        arguments: the arguments of the task's split, by name.
        given: the fields that the caller gave, by name; they override the preset.

    Returns:
        ``task.result``.

    Raises:
        TypeError, ValueError, TrainingFailure, OSError: as in the task's function.
    """
    arguments = {name: plain(value) for name, value in arguments.items()}
    seed, progress = checks.whole("seed", seed, least=None), checks.flag("progress", progress)
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"checkpoint: got {checks.shown(checkpoint)}, want a seegera_fast.Checkpoint")
    processes = Processes.current()
    progress = progress and processes.first
    with processes.together():
        settings = resolve(task, graph, preset, variant, given, arguments=arguments)
        check_batches(batches, settings.model)
        per_step = batches.per_step if isinstance(batches, Batches) else None
        check_steps(batches is None, per_step, processes)
        whole = graph
        graph = normalized(graph, settings.task["normalize_features"])
        with phase("splitting the graph", show=progress):
            held_out = task.split(graph, seed, **arguments)
    cutting = phase("cutting the graph into parts", show=progress) if isinstance(batches, Batches) else nullcontext()
    with cutting:
        source = source_of(
            held_out.graph,
            batches,
            # Of a loader, only what names its nodes has the links and features that are trained on.
            numbered=held_out.graph is not whole,
            averaging=settings.model.feature_side and settings.model.feature_masking_rate == 0,
        )
    if processes.first:
        precision.say_if_slow(graph.device, graph.dtype)
    with processes.together():
        model = SeeGera(held_out.graph, settings.model, seed=seed, prepare=batches is None)
    model.normalize_features = settings.task["normalize_features"]

    def scored(epoch: int) -> Scored:
        # In all processes, which share the rows. What follows from the embedding is computed in the first one.
        embedding = embedded(model, held_out.graph, batches) if task.embeds else None
        return Scored(model, graph, held_out.split, seed, settings.config, epoch, embedding)

    def scores(found: Scored, *parts: str) -> Scores:
        prefix, by_part = {"valid": "valid_", "test": ""}, task.score(found, parts)
        return {f"{prefix[part]}{name}": value for part in parts for name, value in by_part[part].items()}

    def valid_scores(epoch: int) -> Scores:
        found = scored(epoch)
        return processes.broadcast(lambda: scores(found, "valid"))

    validation = None
    if held_out.validates:
        names = tuple(f"valid_{score.name}" for score in task.scores)
        validation = Validation(valid_scores, task.improves, names)
    run_fields = settings.all(task=task.name, seed=seed, **held_out.arguments, **source.facts)
    training = train(
        model,
        settings.training,
        seed=seed,
        validation=validation,
        progress=progress,
        checkpoint=checkpoint,
        source=source,
        data=graph,
        fields=run_fields,
    )
    with phase("scoring", show=progress):
        # Weights and seed are those of the best epoch, so its validation scores come out again.
        best = scored(training.best_epoch)
        final = processes.broadcast(lambda: {**scores(best, "valid", "test"), **task.finish(best)})
        model.calibration = processes.broadcast(lambda: model.calibration)
    return task.result(
        **{entry.name: getattr(training, entry.name) for entry in fields(Training)},
        model=model,
        split=held_out.split,
        preset=settings.preset,
        fields=run_fields,
        **final,
    )


def resolve(
    task: Task,
    graph: Graph,
    preset: str | None,
    variant: str,
    given: Mapping[str, Any],
    *,
    arguments: Mapping[str, Any],
) -> Settings:
    """Puts together the settings of a run. The caller's fields override the preset, which overrides the defaults.

    Args:
        task: the task.
        preset: name of a preset; None: that of the data set, if the graph is one, else "default".
        variant: "v1", "v2" or "v3".
        given: the fields that the caller gave, by name.
        arguments: the arguments of the task's split, for the hint in the message about an unknown field.

    Raises:
        TypeError: a field of a wrong kind, or an unknown field; the message names the most similar ones.
        ValueError: an unknown preset or variant, or a field out of range.
    """
    check_graph(graph)
    if preset is None:
        preset = graph.data_set if graph.data_set in presets.names(task.name) else presets.DEFAULT
    return settle(
        task, preset, variant, given, arguments=("preset", "seed", *arguments, "progress", "checkpoint", "batches")
    )


def known_fields(task: Task) -> list[str]:
    """The names of the fields that a caller can give for a task."""
    return [*MODEL_FIELDS, *TRAINING_FIELDS, *COMMON_FIELDS, *task.fields]


def settle(
    task: Task, preset: str, variant: str, given: Mapping[str, Any], *, arguments: tuple[str, ...] = ()
) -> Settings:
    """:func:`resolve` for a preset whose name is known."""
    presets.check("preset", preset, presets.names(task.name))
    defaults = {**COMMON_FIELDS, **task.fields}
    known = [*known_fields(task), *arguments]
    for name in given:
        if name not in known:
            raise TypeError(f"{task.name}() got an unknown field {name!r}; {nearest(name, known)}")
    values = {**defaults, **task.training, **presets.load(task.name, preset, variant), **given}
    values["normalize_features"] = checks.flag("normalize_features", values["normalize_features"])
    model = SeeGeraConfig(**{name: values[name] for name in MODEL_FIELDS if name in values})
    if task.needs_features and not model.feature_side:
        raise ValueError(f"feature_side: got False, want True: {task.title} predicts features")
    training = TrainingConfig(**{name: values[name] for name in TRAINING_FIELDS if name in values})
    fields = {name: plain(values[name]) for name in defaults}
    return Settings(preset, model, training, fields, task.configure(fields))


def embedded(model: SeeGera, graph: Graph, batches: Any) -> torch.Tensor:
    """The mean embeddings of all nodes of a graph, ``[n, d]``, in all processes, which share the rows.

    After steps on parts of it they are computed some rows at a time, since the layers of a whole graph, and what it
    keeps for steps on it, may outgrow the memory.
    """
    whole = takes_whole(batches, graph)
    rows = None if whole else rows_of_block(model.node_mean, model.config.num_importance_samples)
    return model.embed(graph, shared=True, rows_at_once=rows)


def normalized(graph: Graph, normalize: bool) -> Graph:
    """The graph; with ``normalize``, each row of its features is divided by the sum of its absolute values."""
    return graph.with_features(graph.features.row_normalized, graph.feature_names) if normalize else graph
