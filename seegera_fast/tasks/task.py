"""The description of a task, which the presets, the command and the experiments read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ..graph import Graph
from ..model import SeeGera
from ..training import Scores, Training


class Score(NamedTuple):
    """A score of a model.

    Attributes:
        name: the attribute of the result for the test part; that for the validation part is ``valid_<name>``.
        title: the score's name for readers.
        error: False: a share in [0, 1], printed in percent, higher is better. True: an error, printed as it is, lower
            is better.
    """

    name: str
    title: str
    error: bool = False


class HeldOut(NamedTuple):
    """What a task's split returns.

    Attributes:
        split: the held-out parts, which become the result's ``split``.
        graph: the graph to train on.
        validates: whether there is a validation part.
        arguments: the arguments of the split, with defaults filled in.
    """

    split: Any
    graph: Graph
    validates: bool
    arguments: Mapping[str, Any]


class Scored(NamedTuple):
    """What scores are computed from.

    Attributes:
        model: the model with the weights of ``epoch``.
        graph: the whole graph; its features are normalised if the run normalises them.
        split: :attr:`HeldOut.split`.
        seed: seed of the run.
        config: what :attr:`Task.configure` returned for the task's fields.
        epoch: the epoch, for error messages.
        embedding: the mean embeddings of the nodes, ``[n, d]``; None: :attr:`Task.embeds` is False.
    """

    model: SeeGera
    graph: Graph
    split: Any
    seed: int
    config: Any
    epoch: int
    embedding: torch.Tensor | None


@dataclass(frozen=True, kw_only=True)
class TaskResult(Training):
    """What the result of every task has, besides scores.

    Attributes:
        model: the model with the weights of the best epoch. Its default graph is the graph that it was trained on.
        split: the held-out parts and, if they were taken out of the graph, the training graph.
        preset: name of the preset that was used.
        fields: every field of the run by name: those of the configurations and of the task, and the seed.
    """

    model: SeeGera = field(repr=False)
    split: Any = field(repr=False)
    preset: str
    fields: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task. Making an object registers it for the presets, the command and the experiments.

    Attributes:
        name: name of its function in ``seegera_fast.tasks``, and of its table in ``presets.toml``.
        key: its name on the command line and in file names.
        title: its name for readers.
        purpose: what is predicted, for the command's help.
        scores: the scores, computed on the test part and on the validation part. An epoch is better than another if all
            its validation scores are better.
        shares: names of the two ratios that describe a random split; empty: the task holds nothing out.
        splits: arguments of each split, by its name: "paper" (the paper's text), "released" (the authors' program). The
            first one is used for a name that the task does not have.
        other_split: description of a split without ratios.
        random: further arguments of a random split.
        split: ``(graph, seed, **arguments)`` -> HeldOut.
        score: ``(scored, parts)`` -> part -> score name -> score. Parts are "valid", "test" or both. The scores of an
            empty part are None.
        result: the type that the task's function returns.
        finish: what the result has besides scores, by the names of its fields, from the trained model. It is called
            once, at the end.
        fields: the fields that only this task has, and their defaults.
        training: defaults of TrainingConfig that differ for this task.
        configure: checks these fields and converts them to what ``score`` needs. By default they are not converted.
        embeds: whether the scores follow from the embeddings of the nodes, which several processes compute together.
        needs_features: whether the task predicts features. If it does, a model without a feature side is refused, and
            so are the methods that model links only.
        like: name of the task whose presets hold for this one too, beside its own; "": no other's.
    """

    name: str
    key: str
    title: str
    purpose: str
    scores: tuple[Score, ...]
    shares: tuple[str, ...]
    splits: Mapping[str, Mapping[str, Any]]
    split: Callable[..., HeldOut]
    score: Callable[[Scored, Collection[str]], dict[str, dict[str, float | None]]]
    result: type[TaskResult]
    finish: Callable[[Scored], dict[str, Any]] = lambda scored: {}
    other_split: str = ""
    random: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    configure: Callable[[Mapping[str, Any]], Any] = dict
    embeds: bool = True
    needs_features: bool = False
    like: str = ""

    def __post_init__(self) -> None:
        TASKS[self.name] = self

    def split_named(self, name: str) -> str:
        """The name itself if the task has that split, else the name of its first split."""
        return name if name in self.splits else next(iter(self.splits))

    def arguments(self, split: str | Sequence[float]) -> dict[str, Any]:
        """The arguments of the task's function for a split, which is given by its name or by two ratios."""
        if isinstance(split, str):
            return dict(self.splits[self.split_named(split)])
        if not self.shares:
            raise ValueError(f"split: got {split[0]:g},{split[1]:g}, and the task {self.key!r} holds nothing out")
        return {**dict(zip(self.shares, split, strict=True)), **self.random}

    def split_in_words(self, name: str) -> str:
        """Describes a split: the share of each part in percent."""
        ratios = self.splits[name]
        if not ratios:
            return self.other_split
        return "/".join(f"{100 * ratio:.0f}" for ratio in (1 - sum(ratios.values()), *ratios.values()))

    def improves(self, scores: Scores, best: Scores) -> bool:
        """Whether all validation scores are better than those of the best epoch; equal ones are not."""
        return all(
            scores[f"valid_{name}"] < best[f"valid_{name}"]
            if error
            else scores[f"valid_{name}"] > best[f"valid_{name}"]
            for name, _, error in self.scores
        )


# All tasks, by name.
TASKS: dict[str, Task] = {}
