"""What the three tasks share: fields, presets, results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import torch

from ..config import SeeGeraConfig
from ..graph import Graph
from ..model import SeeGera
from ..support.hints import nearest
from ..training import Training, TrainingConfig
from . import presets
from .classifier import ClassifierConfig

MODEL_FIELDS = [entry.name for entry in fields(SeeGeraConfig)]
TRAINING_FIELDS = [entry.name for entry in fields(TrainingConfig)]
# Fields that a task has beside those of the configurations, and where it starts from other defaults.
OWN_FIELDS: dict[str, dict[str, Any]] = {
    "link_prediction": {"normalize_features": False},
    "attribute_inference": {"normalize_features": False},
    "node_classification": {
        "normalize_features": False,
        **{f"classifier_{entry.name}": entry.default for entry in fields(ClassifierConfig)},
    },
}
TRAINING_DEFAULTS = {"node_classification": {"patience": None}}


@dataclass(frozen=True, kw_only=True)
class TaskResult(Training):
    """What every task gives back, beside its scores.

    Attributes:
        model: with the weights of the best epoch by validation. The graph that it was trained on is its default graph.
        split: the held-out parts and, where they are taken out of the graph, the training graph.
        preset: name of the preset that was used.
        fields: every field of the run by name: of the configurations, the task, and the seed.
    """

    model: SeeGera = field(repr=False)
    split: Any = field(repr=False)
    preset: str
    fields: dict[str, Any] = field(repr=False)


class Settings(NamedTuple):
    """The fields of one run, by where they belong."""

    preset: str
    model: SeeGeraConfig
    training: TrainingConfig
    task: dict[str, Any]
    classifier: ClassifierConfig | None

    def all(self, **more: Any) -> dict[str, Any]:
        """Every field by name."""
        return {**asdict(self.model), **asdict(self.training), **self.task, **more}


def resolve(
    task: str,
    graph: Graph,
    preset: str | None,
    variant: str,
    given: Mapping[str, Any],
    *,
    arguments: tuple[str, ...],
) -> Settings:
    """Puts together defaults, preset and what the caller gave, in rising order.

    Args:
        task: whose presets.
        preset: a name; None: that of the graph where there is such a preset, else "default".
        variant: "v1", "v2" or "v3".
        given: fields by name.
        arguments: the task's further arguments, which a misspelt field may have meant.

    Raises:
        TypeError: an unknown field, with the nearest ones, or one of a wrong kind.
        ValueError: an unknown preset or variant, or a field out of range.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"graph: got {type(graph).__name__}, want a seegera_fast.Graph")
    if preset is None:
        preset = graph.name if graph.name in presets.names(task) else presets.DEFAULT
    return settle(task, preset, variant, given, arguments=arguments)


def settle(
    task: str, preset: str, variant: str, given: Mapping[str, Any], *, arguments: tuple[str, ...] = ()
) -> Settings:
    """What :func:`resolve` does once the preset is known."""
    own = OWN_FIELDS[task]
    known = [*MODEL_FIELDS, *TRAINING_FIELDS, *own, *arguments]
    for name in given:
        if name not in known:
            raise TypeError(f"{task}() got an unknown field {name!r}; {nearest(name, known)}")
    values = {**own, **TRAINING_DEFAULTS.get(task, {}), **presets.load(task, preset, variant), **given}
    if not isinstance(values["normalize_features"], bool):
        raise TypeError(f"normalize_features: got {values['normalize_features']!r}, want True or False")
    model = SeeGeraConfig(**{name: values[name] for name in MODEL_FIELDS if name in values})
    if task == "attribute_inference" and not model.feature_side:
        raise ValueError("feature_side: got False, want True: attribute inference predicts features")
    return Settings(
        preset,
        model,
        TrainingConfig(**{name: values[name] for name in TRAINING_FIELDS if name in values}),
        {name: values[name] for name in own},
        _classifier(values) if task == "node_classification" else None,
    )


def _classifier(values: Mapping[str, Any]) -> ClassifierConfig:
    return ClassifierConfig(**{entry.name: values[f"classifier_{entry.name}"] for entry in fields(ClassifierConfig)})


def normalized(graph: Graph, wanted: bool) -> Graph:
    """The graph with each row of its features divided by its sum of absolute values, where that is wanted."""
    return graph.with_features(graph.features.row_normalized) if wanted else graph


def training_fields(training: Training) -> dict[str, Any]:
    """The fields of a run, for a result that adds to them."""
    return {entry.name: getattr(training, entry.name) for entry in fields(Training)}


def squared_error(predicted: torch.Tensor, wanted: torch.Tensor) -> float:
    """Mean squared error, summed in float64."""
    return float((predicted.double() - wanted.double()).square().mean())
