"""The training loop of all tasks, with Adam, warm-up, validation and early stopping."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from . import backends
from .batches import Source, WholeGraph
from .capture import recorded_on
from .checkpoint import Checkpoint, identity, more_facts
from .checkpoint_file import Best, Course, State, adam_state, restore_adam
from .distributed import Processes
from .graph import Graph
from .model import SeeGera
from .objective import term_names
from .steps import RecordedSteps, Stepping, TrainingFailure, check_processes, require_finite, run_epoch, steps_of
from .support import arguments
from .support.atomic import Lock
from .support.kept import lasting
from .support.memory import peak_memory
from .support.progress import Steps
from .support.signals import stop_on_signals

Scores = dict[str, float]


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of training. Epochs are counted from 1.

    Each epoch is one step on the whole graph, or with :class:`seegera_fast.Batches` some steps that see each node once.

    Attributes:
        epochs: the largest number of epochs, at least 1.
        learning_rate, weight_decay: settings of Adam; the decay is its L2 term.
        warmup_epochs: the regularising terms have the factor ``min(epoch / warmup_epochs, 1)``; 0: no warm-up.
        patience: training ends when more than this number of epochs have passed since the best one; None: no early
            stopping.
        evaluate_every: number of epochs between two validations. Epoch ``epochs`` is validated too.
        evaluate_after: number of epochs at the start without validation.

    Raises:
        TypeError, ValueError: a field is of a wrong kind or out of range.
    """

    epochs: int = 3500
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    warmup_epochs: int = 300
    patience: int | None = 100
    evaluate_every: int = 1
    evaluate_after: int = 0

    def __post_init__(self) -> None:
        least = {"epochs": 1, "warmup_epochs": 0, "patience": 0, "evaluate_every": 1, "evaluate_after": 0}
        checked: dict[str, Any] = {}
        for name, minimum in least.items():
            value = getattr(self, name)
            if name != "patience" or value is not None:
                wanted = "an int or None" if name == "patience" else "an int"
                checked[name] = arguments.whole(name, value, least=minimum, most=arguments.MOST_INT, wanted=wanted)
        for name in ("learning_rate", "weight_decay"):
            checked[name] = arguments.non_negative(name, getattr(self, name))
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def warmup(self, epoch: int) -> float:
        """The factor t of the regularising terms."""
        epoch = arguments.whole("epoch", epoch)
        return epoch / self.warmup_epochs if epoch < self.warmup_epochs else 1.0

    def evaluates(self, epoch: int) -> bool:
        """Whether the model is validated after this epoch."""
        epoch = arguments.whole("epoch", epoch)
        return epoch == self.epochs or self.scheduled(epoch)

    def scheduled(self, epoch: int) -> bool:
        """Whether the model is validated after this epoch even if more epochs follow."""
        epoch = arguments.whole("epoch", epoch)
        return epoch > self.evaluate_after and epoch % self.evaluate_every == 0

    def ended(self, epoch: int, best_epoch: int | None) -> bool:
        """Whether this epoch is the last one, by the number of epochs or by early stopping."""
        epoch = arguments.whole("epoch", epoch)
        best_epoch = None if best_epoch is None else arguments.whole("best_epoch", best_epoch)
        out_of_patience = best_epoch is not None and self.patience is not None and epoch - best_epoch > self.patience
        return epoch >= self.epochs or out_of_patience


@dataclass(frozen=True)
class Validation:
    """How the best epoch is found.

    Attributes:
        score: epoch -> validation scores by name. All processes of a run call it, and those of the first one count.
        improves: ``(scores, best)`` -> whether the scores are better than those of the best epoch so far.
        names: the names of the scores.
    """

    score: Callable[[int], Scores]
    improves: Callable[[Scores, Scores], bool]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Training:
    """What a training run returns besides the weights.

    Attributes:
        history: one mapping per epoch: "epoch"; the terms of the bound by name and "loss", computed before the epoch's
            step, with batches the mean over them; in epochs with validation the scores by name; and "seconds", the
            epoch's wall time.
        epochs: number of epochs trained.
        best_epoch: the epoch whose weights the model has.
        seconds: wall time, including that of earlier parts of a resumed run.
        peak_memory: the most memory that was in use, in bytes: on a GPU, that of tensors since the training began; on a
            CPU, that of the process since it was started. None where the system doesn't say.
        interrupted: whether Ctrl-C or a signal of :class:`Checkpoint` came, even in the last epoch. The caller should
            end.
    """

    history: list[dict[str, Any]] = field(repr=False)
    epochs: int
    best_epoch: int
    seconds: float
    peak_memory: int | None
    interrupted: bool


@lasting
@torch.enable_grad()
def train(
    model: SeeGera,
    config: TrainingConfig,
    *,
    seed: int = 0,
    validation: Validation | None = None,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
    source: Source | None = None,
    data: Graph | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Training:
    """Trains a model on the graph it was built with and leaves the weights of the best epoch in it.

    Epoch ``e`` draws from ``derive_seed(seed, e)``, and batch ``b`` in it from ``derive_seed(seed, e, Site.BATCHES,
    b)``, so all draws follow from the seed.

    A KeyboardInterrupt ends the run early, without the batches of an epoch that is not complete; in the first epoch it
    is raised to the caller. With a checkpoint, the first SIGINT (Ctrl-C), SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2 ends the
    run after the current epoch, whose state is written, and a SIGINT after that ends it at once.

    Args:
        validation: how to find the best epoch; None: no early stopping, and the last epoch counts as the best.
        progress: show progress on stderr: a bar at a terminal or in a notebook, else a line now and then.
        checkpoint: where to save the run's state, and whether to continue from it; None: nowhere. A run continues to
            the same bits also if it has more epochs than the one that wrote the file.
        source: the batches; None: the whole graph in each epoch.
        data: the graph that the run started from, if it is not the model's graph. It must be the same in a checkpoint.
        fields: further settings of the run by name. They must be the same in a checkpoint.

    Raises:
        TrainingFailure: the loss or one of its terms is NaN or infinite.
        TypeError: an argument is of a wrong kind.
        ValueError: the validation scores have other names than ``validation.names``, in the first epoch with
            validation. The checkpoint can't be read, is damaged, or belongs to another graph or other settings; nothing
            is trained then.
        OSError: the checkpoint can't be written, or another run is using it.
    """
    arguments.instance("model", model, SeeGera)
    arguments.instance("config", config, TrainingConfig)
    for name, value, kind in (
        ("validation", validation, Validation),
        ("checkpoint", checkpoint, Checkpoint),
        ("data", data, Graph),
        ("fields", fields, Mapping),
    ):
        arguments.instance(name, value, kind, optional=True)
    if not isinstance(source, Source | None):
        raise TypeError(f"source: got {arguments.shown(source)}, want None, or what batches.source_of makes of batches")
    if model.graph is None:
        raise ValueError("model: has no graph, want one that was built with the graph that it is trained on")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("model: has no parameter that requires a gradient, want at least one to train")
    seed = arguments.whole("seed", seed, least=None)
    progress = arguments.flag("progress", progress)
    source, processes = WholeGraph() if source is None else source, Processes.current()
    with processes.together():
        check_processes(source, processes)
    run = _Run(model, config, source, processes)
    with ExitStack() as stack:
        lock = course = None
        with processes.together():
            # The checkpoint belongs to this run until its end, so that two runs don't write one file.
            if checkpoint is not None and processes.first:
                lock = stack.enter_context(checkpoint.kept())
        if checkpoint is not None or processes.size > 1:
            settings = asdict(config)
            facts = identity(model, settings, seed, data, {**(fields or {}), **source.facts})
            if processes.size > 1:
                processes.require_same({**facts, **more_facts(model, settings, checkpoint, data)})
            course = _course(model, config, facts, validation, source.steps_per_epoch)
        state = None if checkpoint is None else processes.broadcast(lambda: checkpoint.begin(course))
        run.resume(state)
        if run.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(run.device)
        interrupted = _train(run, seed, validation, progress, checkpoint, course, lock)
    run.optimizer.zero_grad()
    backends.release_memory()
    if run.best is not None:
        model.load_state_dict(run.best.weights)
    with processes.together():
        run.require_finite_weights()
    model.eval()
    return Training(
        history=run.history,
        epochs=len(run.history),
        best_epoch=run.best.epoch if run.best is not None else len(run.history),
        seconds=run.seconds,
        peak_memory=max((peak for peak in processes.gather(run.peak_memory) if peak is not None), default=None),
        interrupted=interrupted,
    )


class _Run:
    """What changes from epoch to epoch."""

    def __init__(self, model: SeeGera, config: TrainingConfig, source: Source, processes: Processes) -> None:
        self.model, self.config, self.source, self.processes = model, config, source, processes
        self.device = next(model.parameters()).device
        self.optimizer = torch.optim.Adam(
            model.parameters(),
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
            capturable=recorded_on(self.device),
        )
        # Made at the first epoch, with the weights and the state of Adam that a checkpoint may have given.
        self._steps: Stepping | None = None
        self.history: list[dict[str, Any]] = []
        self.best: Best | None = None
        # The number of epochs before the one that is under way, and the weights that they gave.
        self._before: tuple[int, dict[str, torch.Tensor]] | None = None
        self._start = time.perf_counter()
        self._earlier_peak: int | None = None

    def resume(self, state: State | None) -> None:
        """Goes on from a state; None: from the beginning, with the weights of the first process."""
        if state is None:
            self.processes.copy_first(self.model.parameters())
            return
        self.model.load_state_dict(state.weights)
        restore_adam(self.model, self.optimizer, state.adam)
        self.history, self.best, self._earlier_peak = state.history, state.best, state.peak_memory
        self._start -= state.seconds

    def require_finite_weights(self) -> None:
        """Raises a TrainingFailure where a gradient has become NaN or infinite though the loss before it was finite."""
        sums = torch.stack([parameter.detach().double().abs().sum() for parameter in self.model.parameters()])
        require_finite(len(self.history), "weights", sums)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    @property
    def peak_memory(self) -> int | None:
        peaks = (peak_memory(self.device), self._earlier_peak)
        return max((number for number in peaks if number is not None), default=None)

    @property
    def ended(self) -> bool:
        return self.config.ended(len(self.history), None if self.best is None else self.best.epoch)

    @property
    def state(self) -> State:
        return State(
            epoch=len(self.history),
            history=self.history,
            best=self.best,
            weights=self.model.state_dict(),
            adam=adam_state(self.model, self.optimizer),
            seconds=self.seconds,
            peak_memory=self.peak_memory,
        )

    def epoch(self, seed: int, validation: Validation | None, done: Callable[[int, int | None], None]) -> None:
        """Trains and validates for one epoch. ``done`` is told how many batches are done, and of how many."""
        epoch, begin = len(self.history) + 1, time.perf_counter()
        # An epoch of the whole graph is one step, so that only its validation may be left half done; and the weights of
        # a best epoch are kept anyway.
        may_end_within = self.best is None and (validation is not None or self.source.steps_per_epoch != 1)
        self._before = (len(self.history), self._copied_weights()) if may_end_within else None
        warmup = self.config.warmup(epoch)
        self._steps = self._steps or steps_of(self.model, self.optimizer, self.source)
        terms = run_epoch(self.model, self._steps, self.source, seed, epoch, warmup, done, self.processes)
        record: dict[str, Any] = {"epoch": epoch, **terms}
        scores = self._scores(epoch, validation) if self.config.scheduled(epoch) else {}
        self.history.append({**record, **scores, "seconds": time.perf_counter() - begin})
        self._keep_if_best(epoch, scores, validation)

    def _copied_weights(self) -> dict[str, torch.Tensor]:
        """A copy of the weights, in the memory of the copy before."""
        if self._before is None:
            return _copy_of(self.model)
        copied = self._before[1]
        torch._foreach_copy_([*copied.values()], [*self.model.state_dict().values()])
        return copied

    def undo_steps(self) -> None:
        """Takes back the steps of an epoch that was not completed, also if only its validation was not."""
        if self._before is not None and self._before[0] == len(self.history):
            self.model.load_state_dict(self._before[1])

    def validate_last(self, validation: Validation | None) -> None:
        """Validates the last epoch, if its turn is only because it is the last one.

        No state has these scores: a run with more epochs, which goes on from the state, would not have them either.
        """
        epoch, begin = len(self.history), time.perf_counter()
        if epoch != self.config.epochs or self.config.scheduled(epoch):
            return
        scores = self._scores(epoch, validation)
        record = self.history.pop()
        seconds = record.pop("seconds") + time.perf_counter() - begin
        self.history.append({**record, **scores, "seconds": seconds})
        self._keep_if_best(epoch, scores, validation)

    def _scores(self, epoch: int, validation: Validation | None) -> Scores:
        if validation is None:
            return {}
        no_memory = False
        try:
            found = validation.score(epoch)
        except torch.OutOfMemoryError:
            no_memory = isinstance(self._steps, RecordedSteps)
            if not no_memory:
                raise
        if no_memory:
            # After the handler, which keeps the tensors of the call that failed.
            self._steps = self._steps.eager()
            found = validation.score(epoch)
        scores = self.processes.broadcast(lambda: _plain(found))
        if set(scores) != set(validation.names):
            got, want = (", ".join(map(repr, names)) or "none" for names in (scores, validation.names))
            raise ValueError(f"validation: got scores named {got}, want those of its names, {want}")
        for name, score in scores.items():
            if not math.isfinite(score):
                raise TrainingFailure(epoch, name)
        return scores

    def _keep_if_best(self, epoch: int, scores: Scores, validation: Validation | None) -> None:
        if scores and (self.best is None or validation.improves(scores, self.best.scores)):
            self.best = Best(epoch, scores, _copy_of(self.model))


def _train(
    run: _Run,
    seed: int,
    validation: Validation | None,
    progress: bool,
    checkpoint: Checkpoint | None,
    course: Course | None,
    lock: Lock | None,
) -> bool:
    """Runs the epochs that are left. Returns whether a signal, to any of the processes, ended them."""
    interrupted, processes = False, run.processes
    try:
        with (
            stop_on_signals(active=checkpoint is not None or processes.size > 1) as stop,
            Steps(run.config.epochs, "epoch", show=progress and processes.first, done=len(run.history)) as steps,
        ):
            # A run that was stopped after its last epoch has no epoch left.
            while not run.ended:
                run.epoch(seed, validation, steps.within)
                steps.advance(loss=run.history[-1]["loss"], **(run.best.scores if run.best else {}))
                # Read once per epoch, so that the signal that ends the run is also one that writes the state.
                interrupted = processes.any(stop.requested)
                if checkpoint is not None and (interrupted or run.ended or len(run.history) % checkpoint.every == 0):
                    with processes.together():
                        run.require_finite_weights()
                        if processes.first:
                            checkpoint.save(run.state, course, lock)
                if interrupted:
                    break
            run.validate_last(validation)
        return interrupted or processes.any(stop.requested)
    except KeyboardInterrupt:
        # Alone among several processes, one can't end an epoch early.
        if not run.history or processes.size > 1:
            raise
        run.undo_steps()
        return True


def _course(
    model: SeeGera,
    config: TrainingConfig,
    facts: Mapping[str, Any],
    validation: Validation | None,
    steps_per_epoch: int | None,
) -> Course:
    return Course(
        identity=facts,
        weights=model.state_dict(),
        terms=(*term_names(model.config), "loss"),
        scores=() if validation is None else validation.names,
        evaluates=config.scheduled,
        improves=(lambda scores, best: False) if validation is None else validation.improves,
        ended=config.ended,
        steps_per_epoch=steps_per_epoch,
    )


def _plain(scores: Any) -> Scores:
    """Validation scores as floats, which a checkpoint can hold."""
    if not isinstance(scores, Mapping):
        raise TypeError(f"validation: got {arguments.shown(scores)}, want a mapping of names to scores")
    numbers = {name: score.item() if isinstance(score, torch.Tensor) else score for name, score in scores.items()}
    return {name: arguments.number(f"validation's {name}", number) for name, number in numbers.items()}


def _copy_of(model: SeeGera) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
