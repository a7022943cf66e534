"""The steps of one epoch: of Adam on the whole graph, or on one batch after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from .batches import Source, Step, WholeGraph
from .capture import CapturedStep, recorded_on
from .distributed import Processes, by_torchrun
from .graph import Graph
from .model import SeeGera
from .objective import term_names
from .support.warning import warn_outside


class TrainingFailure(RuntimeError):
    """Raised when a number becomes NaN or infinite in training.

    Attributes:
        epoch: the epoch, counted from 1.
        term: what became NaN or infinite first: a term of the loss ("link", "feature", "prior", "mixture"), the "loss",
            or what the validation scores are computed from.
    """

    def __init__(self, epoch: int, term: str) -> None:
        change = (
            "a lower learning_rate"
            if epoch > 1
            else "features of smaller values, a lower dropout or a lower learning_rate"
        )
        super().__init__(f"epoch {epoch}: {term} became NaN or infinite first; {change} may help")
        self.epoch = epoch
        self.term = term

    def __reduce__(self) -> tuple[type[TrainingFailure], tuple[int, str]]:
        # Pickled for the other processes of a run, which raise it too.
        return type(self), (self.epoch, self.term)


def require_finite(epoch: int, name: str, tensor: torch.Tensor) -> None:
    """Raises a TrainingFailure if a tensor that scores are computed from has a NaN or infinite value."""
    if not bool(torch.isfinite(tensor).all()):
        raise TrainingFailure(epoch, name)


def check_processes(source: Source, processes: Processes) -> None:
    """Refuses batches that the processes of a run can't share.

    Raises:
        ValueError: as :func:`check_steps`; or fewer batches than processes.
    """
    check_steps(isinstance(source, WholeGraph), source.per_step, processes)
    size = processes.size
    if size == 1:
        return
    if source.count is None:
        raise ValueError(f"batches: got a loader without a length in a run of {size} processes, want one with len()")
    if source.count < size:
        raise ValueError(f"batches: got {source.count} an epoch in a run of {size} processes, want one for each")


def check_steps(whole: bool, per_step: int | None, processes: Processes) -> None:
    """Refuses steps that the processes of a run can't share, as far as that is known before the batches are made.

    Args:
        whole: whether each epoch is a step on the whole graph.
        per_step: number of batches of a step; None: as many as processes.

    Raises:
        ValueError: torchrun's processes are not connected; or several ones have the whole graph, or steps that don't
            give each the same number of batches.
    """
    size = processes.size
    if size == 1:
        launched = Processes.launched().size
        if by_torchrun() and launched > 1:
            raise ValueError(
                f"processes: torchrun has started {launched}, and they are not connected; call "
                "torch.distributed.init_process_group() before, or start one process"
            )
        return
    if whole:
        raise ValueError(
            f"batches: got None in a run of {size} processes, want seegera_fast.Batches (--parts), of which each "
            "process trains on its own; to train on the whole graph, start one process"
        )
    if per_step is not None and per_step % size:
        raise ValueError(
            f"per_step: got {per_step} in a run of {size} processes, want a multiple of {size}, so that each "
            "takes as many batches of a step"
        )


class EagerSteps:
    """Computes steps with one operation after the other."""

    def __init__(self, model: SeeGera, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def begin(self) -> None:
        """Begins a step."""
        self.optimizer.zero_grad()

    def gradients(self, step: Step, count: int, warmup: float) -> list[dict[str, float]]:
        """Adds the batches' gradients to those of the weights. Returns the loss and its terms of each batch.

        Args:
            count: number of batches of the step in all processes, of whose gradients the step takes the mean.
        """
        found: list[dict[str, torch.Tensor]] = []
        for make in step:
            batch = make()
            output = self.model(seed=batch.seed, warmup=warmup, **batch.arguments)
            loss = output.loss if count == 1 else output.loss / count
            loss.backward()
            found.append({**output.terms, "loss": output.loss.detach()})
            # Before the next one is made.
            del batch, output, loss
        return _numbers(found)

    def update(self) -> None:
        """The optimiser's step."""
        self.optimizer.step()


class RecordedSteps:
    """Replays a step on one graph. The methods are those of :class:`EagerSteps`.

    Args:
        graph: the graph of all steps; None: that of the model.
    """

    def __init__(self, model: SeeGera, optimizer: torch.optim.Optimizer, graph: Graph | None) -> None:
        self.model, self.optimizer = model, optimizer
        self.captured: CapturedStep | None = model.capture(optimizer, graph)

    def begin(self) -> None:
        """Nothing: a replay writes the gradients anew."""

    def gradients(self, step: Step, count: int, warmup: float) -> list[dict[str, float]]:
        [make] = step
        output = self.captured.gradients(seed=make().seed, warmup=warmup)
        return _numbers([{**output.terms, "loss": output.loss}])

    def update(self) -> None:
        self.captured.update()

    def eager(self) -> EagerSteps:
        """The same steps without the recording, whose memory is given back for a validation."""
        _warn_of_eager_steps("the device has too little memory for the recording beside a validation")
        self.optimizer.zero_grad()
        self.captured = None
        torch.cuda.empty_cache()
        return EagerSteps(self.model, self.optimizer)


Stepping = EagerSteps | RecordedSteps


def steps_of(model: SeeGera, optimizer: torch.optim.Optimizer, source: Source) -> Stepping:
    """Records a step that is always on one graph, if the device has CUDA graphs; a warning says why it could not be.

    Batches have different shapes, and a recording has one. A batch of all nodes counts as the whole graph does, so that
    the recording needs only its graph.
    """
    repeated = source.repeated() if recorded_on(next(model.parameters()).device) else None
    if repeated is not None:
        try:
            return RecordedSteps(model, optimizer, repeated.get("graph"))
        except (RuntimeError, ValueError) as error:
            first_line = str(error).partition("\n")[0]
            _warn_of_eager_steps(first_line)
    return EagerSteps(model, optimizer)


def _warn_of_eager_steps(why: str) -> None:
    warn_outside(f"training: its steps are not recorded as CUDA graphs, and take longer: {why}")


def run_epoch(
    model: SeeGera,
    steps: Stepping,
    source: Source,
    seed: int,
    epoch: int,
    warmup: float,
    done: Callable[[int, int | None], None],
    processes: Processes,
) -> dict[str, float]:
    """Takes the steps of an epoch and returns the loss and its terms, each computed before its step: the mean over the
    batches.

    Args:
        steps: compute the steps.
        done: is called after each step, with the number of batches that are done and of all of them.
        processes: share the batches of each step.
    """
    model.train()
    names = (*term_names(model.config), "loss")
    totals, count, batches = [0.0] * len(names), 0, source.steps(seed, epoch)
    while processes.size == 1 or count < source.count:
        steps.begin()
        with processes.adding_gradients(model.parameters()):
            step = _next(batches, epoch, count, source.count)
            own = step[processes.rank :: processes.size]
            for record in steps.gradients(own, len(step), warmup) if own else []:
                _require_finite(epoch, record)
                totals = [total + record[name] for total, name in zip(totals, names, strict=True)]
        if not step:
            break
        steps.update()
        count += len(step)
        done(count, source.count)
    if processes.size > 1:
        with processes.together():
            _next(batches, epoch, count, source.count)
    if not count:
        raise ValueError(f"batches: got none in epoch {epoch}, want a loader that can be iterated anew in each epoch")
    return {name: total / count for name, total in zip(names, processes.sum(totals), strict=True)}


def _next(steps: Iterator[Step], epoch: int, count: int, expected: int | None) -> Step:
    """The next step; an empty one: there is none.

    Raises:
        ValueError: there are fewer or more batches than expected.
    """
    step = next(steps, [])
    got = count + len(step)
    if expected is not None and (got > expected or (not step and got < expected)):
        raise ValueError(f"batches: got {got} in epoch {epoch}, want {expected}, the loader's length")
    return step


def _require_finite(epoch: int, record: dict[str, float]) -> None:
    if not math.isfinite(record["loss"]):
        raise TrainingFailure(epoch, next(name for name, number in record.items() if not math.isfinite(number)))


def _numbers(found: list[dict[str, torch.Tensor]]) -> list[dict[str, float]]:
    """The numbers in some scalars. All are read together, so that the host waits for the GPU only once."""
    numbers = torch.stack([torch.stack([part.double() for part in parts.values()]) for parts in found]).tolist()
    return [dict(zip(parts, row, strict=True)) for parts, row in zip(found, numbers, strict=True)]
