"""What a task is: one object, which the presets, the command and the experiments read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..graph import Graph
from ..model import SeeGera
from ..training import Scores, Training


class Score(NamedTuple):
    """A figure that says how good a model is.

    Attributes:
        name: of the result's attribute on the test part; on the validation part it is ``valid_<name>``.
        title: in words.
        error: False: a share in [0, 1], printed in percent, and higher is better. True: an error, printed as it is,
            and lower is better.
    """

    name: str
    title: str
    error: bool = False


class HeldOut(NamedTuple):
    """What a task keeps from training.

    Attributes:
        split: the parts, as the result hands them on.
        graph: what the model is trained on.
        validates: whether there is a validation part.
        arguments: those of the split, as they were taken.
    """

    split: Any
    graph: Graph
    validates: bool
    arguments: Mapping[str, Any]


class Scored(NamedTuple):
    """What a score is computed from.

    Attributes:
        model: in the state of ``epoch``.
        graph: the whole graph, its features normalised where the run wants it.
        split: :attr:`HeldOut.split`.
        seed: of the run.
        config: what :attr:`Task.configure` made of the task's own fields.
        epoch: an error names it.
    """

    model: SeeGera
    graph: Graph
    split: Any
    seed: int
    config: Any
    epoch: int


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


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task. Making one makes it known: to the presets, the command and the experiments.

    Attributes:
        name: of its function in ``seegera_fast.tasks``, and of its table in ``presets.toml``.
        key: its name on the command line and in the names of files.
        title: in words.
        purpose: what is predicted, as the command's help says it.
        scores: on the test part; each is taken on the validation part as well. An epoch is better than another where
            all of its validation scores are.
        shares: names of the two ratios that describe a random split.
        splits: arguments of a split by its name: "paper" (the paper's text), "released" (the authors' program). The
            first one stands for those that the task does not have.
        other_split: a split without ratios, in words.
        random: further arguments of a split that is drawn by ratios.
        split: ``(graph, seed, **arguments)``: what is held out.
        score: ``(scored, parts)``, parts "valid" or "test" or both: each part's scores, by name. A score of a part
            that is empty is None.
        result: what the task's function returns.
        fields: the task's own fields and their defaults.
        training: defaults of TrainingConfig that differ for this task.
        configure: checks the task's own fields, and gives what ``score`` needs of them. By default they are handed on
            as they are.
        needs_features: whether it predicts features, so that a model without a feature side is refused, and so are the
            methods that know links only.
    """

    name: str
    key: str
    title: str
    purpose: str
    scores: tuple[Score, ...]
    shares: tuple[str, str]
    splits: Mapping[str, Mapping[str, Any]]
    split: Callable[..., HeldOut]
    score: Callable[[Scored, Collection[str]], dict[str, dict[str, float | None]]]
    result: type[TaskResult]
    other_split: str = ""
    random: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    configure: Callable[[Mapping[str, Any]], Any] = dict
    needs_features: bool = False

    def __post_init__(self) -> None:
        TASKS[self.name] = self

    def split_named(self, name: str) -> str:
        """The name itself where the task has such a split, else its first one."""
        return name if name in self.splits else next(iter(self.splits))

    def arguments(self, split: str | Sequence[float]) -> dict[str, Any]:
        """Arguments of the task's function for a split, by its name or by two ratios."""
        if isinstance(split, str):
            return dict(self.splits[self.split_named(split)])
        return {**dict(zip(self.shares, split, strict=True)), **self.random}

    def split_in_words(self, name: str) -> str:
        """The parts of a split in percent: what is left for training or testing, and its ratios."""
        ratios = self.splits[name]
        if not ratios:
            return self.other_split
        return "/".join(f"{100 * ratio:.0f}" for ratio in (1 - sum(ratios.values()), *ratios.values()))

    def improves(self, scores: Scores, best: Scores) -> bool:
        """Whether validation scores are better than the best so far. Equal ones are not."""
        return all(
            scores[f"valid_{name}"] < best[f"valid_{name}"]
            if error
            else scores[f"valid_{name}"] > best[f"valid_{name}"]
            for name, _, error in self.scores
        )


# By name.
TASKS: dict[str, Task] = {}
