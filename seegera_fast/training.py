"""The training loop of all tasks, with Adam, warm-up, validation and early stopping."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from .checkpoint import Best, Checkpoint, State, adam_state, fingerprint, restore_adam
from .graph import Graph
from .model import SeeGera
from .seeds import derive_seed
from .support import arguments
from .support.signals import stop_on_signals
from .version import __version__

Scores = dict[str, float]


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of training. Epochs are counted from 1. Each epoch is one step on the whole graph.

    Attributes:
        epochs: the largest number of epochs, at least 1.
        learning_rate, weight_decay: settings of Adam; the decay is its L2 term.
        warmup_epochs: the regularising terms have the factor ``min(epoch / warmup_epochs, 1)``; 0: no warm-up.
        patience: training ends when more than this number of epochs have passed since the best one; None: no early
            stopping.
        evaluate_every: number of epochs between two validations. The last epoch is validated too.
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
        due = epoch > self.evaluate_after and epoch % self.evaluate_every == 0
        return due or epoch == self.epochs


class TrainingFailure(RuntimeError):
    """Raised when a number becomes NaN or infinite in training.

    Attributes:
        epoch: the epoch, counted from 1.
        term: what became NaN or infinite first: a term of the loss ("link", "feature", "prior", "mixture"), the "loss",
            or what the validation scores are computed from.
    """

    def __init__(self, epoch: int, term: str) -> None:
        super().__init__(f"epoch {epoch}: {term} became NaN or infinite first; a lower learning_rate may help")
        self.epoch = epoch
        self.term = term


@dataclass(frozen=True)
class Validation:
    """How the best epoch is found.

    Attributes:
        score: epoch -> validation scores by name.
        improves: ``(scores, best)`` -> whether the scores are better than those of the best epoch so far.
    """

    score: Callable[[int], Scores]
    improves: Callable[[Scores, Scores], bool]


@dataclass(frozen=True)
class Training:
    """What a training run returns besides the weights.

    Attributes:
        history: one mapping per epoch: "epoch"; the terms of the bound by name and "loss", computed before the epoch's
            step; in epochs with validation the scores by name; and "seconds", the epoch's wall time.
        epochs: number of epochs trained.
        best_epoch: the epoch whose weights the model has.
        seconds: wall time, including that of earlier parts of a resumed run.
        peak_memory: the most memory that was in use, in bytes: on a GPU, that of tensors since the training began; on a
            CPU, that of the process since it was started. None where the system doesn't say.
        interrupted: whether SIGINT (from the keyboard) or SIGTERM came, even in the last epoch. The caller should end.
    """

    history: list[dict[str, Any]] = field(repr=False)
    epochs: int
    best_epoch: int
    seconds: float
    peak_memory: int | None
    interrupted: bool


def train(
    model: SeeGera,
    config: TrainingConfig,
    *,
    seed: int = 0,
    validation: Validation | None = None,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
    data: Graph | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Training:
    """Trains a model on the graph it was built with and leaves the weights of the best epoch in it.

    Epoch ``e`` draws from ``derive_seed(seed, e)``, so all draws follow from the seed.

    A KeyboardInterrupt ends the run early; in the first epoch it is raised to the caller. With a checkpoint, the first
    SIGINT or SIGTERM ends the run after the current epoch, whose state is written, and another SIGINT ends it at once.

    Args:
        validation: how to find the best epoch; None: no early stopping, and the last epoch counts as the best.
        progress: show a bar on stderr, if that is a terminal.
        checkpoint: where to save the run's state, and whether to continue from it; None: nowhere.
        data: the graph that the run started from, if it is not the model's graph. It must be the same in a checkpoint.
        fields: further settings of the run by name. They must be the same in a checkpoint.

    Raises:
        TrainingFailure: the loss or one of its terms is NaN or infinite.
        ValueError: the checkpoint can't be read, or belongs to another graph or other settings.
        OSError: the checkpoint can't be written.
    """
    seed = arguments.whole("seed", seed, least=None)
    device = next(model.parameters()).device
    optimizer = torch.optim.Adam(
        model.parameters(),
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=device.type in ("cpu", "cuda"),
    )
    identity: dict[str, Any] = {}
    resumed = None
    if checkpoint is not None:
        identity = _identity(model, config, seed, data, fields or {})
        resumed = checkpoint.begin(identity)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    history: list[dict[str, Any]] = []
    best: Best | None = None
    interrupted = False
    start = time.perf_counter()
    earlier_peak = None
    if resumed is not None:
        model.load_state_dict(resumed.weights)
        restore_adam(model, optimizer, resumed.adam)
        history, best, earlier_peak = resumed.history, resumed.best, resumed.peak_memory
        start -= resumed.seconds

    def state() -> State:
        return State(
            epoch=len(history),
            history=history,
            best=best,
            weights=model.state_dict(),
            adam=adam_state(model, optimizer),
            seconds=time.perf_counter() - start,
            peak_memory=_larger(peak_memory(device), earlier_peak),
        )

    bar = tqdm(
        total=config.epochs,
        initial=len(history),
        unit="epoch",
        file=sys.stderr,
        disable=None if progress else True,
    )
    try:
        with stop_on_signals(active=checkpoint is not None) as stop:
            # A run that was stopped after its last epoch has no epoch left.
            while not _ended(config, len(history), best):
                epoch = len(history) + 1
                begin = time.perf_counter()
                record: dict[str, Any] = {"epoch": epoch, **_step(model, optimizer, config, seed, epoch)}
                scores: Scores = {}
                if validation is not None and config.evaluates(epoch):
                    scores = validation.score(epoch)
                history.append({**record, **scores, "seconds": time.perf_counter() - begin})
                if validation is not None and scores and (best is None or validation.improves(scores, best.scores)):
                    best = Best(epoch, scores, _copy_of(model))
                bar.update()
                bar.set_postfix({"loss": record["loss"], **(best.scores if best else {})}, refresh=False)
                # Read once per epoch, so that the signal that ends the run is also one that writes the state.
                interrupted = stop.requested
                if checkpoint is not None and (
                    interrupted or (epoch % checkpoint.every == 0 and not _ended(config, epoch, best))
                ):
                    checkpoint.save(state(), identity)
                if interrupted:
                    break
        interrupted = interrupted or stop.requested
    except KeyboardInterrupt:
        if not history:
            raise
        interrupted = True
    finally:
        bar.close()
    optimizer.zero_grad()
    if best is not None:
        model.load_state_dict(best.weights)
    model.eval()
    return Training(
        history=history,
        epochs=len(history),
        best_epoch=best.epoch if best is not None else len(history),
        seconds=time.perf_counter() - start,
        peak_memory=_larger(peak_memory(device), earlier_peak),
        interrupted=interrupted,
    )


def _identity(
    model: SeeGera, config: TrainingConfig, seed: int, data: Graph | None, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that determines the bits of a run, by name."""
    return {
        "version": __version__,
        **asdict(model.config),
        **asdict(config),
        "seed": seed,
        "seed of the weights": model.seed,
        **fields,
        **fingerprint(model.graph if data is None else data),
    }


def _ended(config: TrainingConfig, epoch: int, best: Best | None) -> bool:
    """Whether this epoch was the last one, by the number of epochs or by early stopping."""
    out_of_patience = best is not None and config.patience is not None and epoch - best.epoch > config.patience
    return epoch >= config.epochs or out_of_patience


def _larger(first: int | None, second: int | None) -> int | None:
    return max((number for number in (first, second) if number is not None), default=None)


def _step(
    model: SeeGera, optimizer: torch.optim.Optimizer, config: TrainingConfig, seed: int, epoch: int
) -> dict[str, float]:
    """Takes one step of Adam and returns the loss and its terms, computed before the step."""
    model.train()
    optimizer.zero_grad()
    output = model(seed=derive_seed(seed, epoch), warmup=config.warmup(epoch))
    output.loss.backward()
    # All values are read together at the end, so that the host waits for the GPU only once.
    parts = {**output.terms, "loss": output.loss.detach()}
    numbers = dict(zip(parts, torch.stack([part.double() for part in parts.values()]).tolist(), strict=True))
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise TrainingFailure(epoch, name)
    optimizer.step()
    return numbers


def require_finite(epoch: int, name: str, tensor: torch.Tensor) -> None:
    """Raises a TrainingFailure if a tensor that scores are computed from has a NaN or infinite value."""
    if not bool(torch.isfinite(tensor).all()):
        raise TrainingFailure(epoch, name)


def peak_memory(device: torch.device) -> int | None:
    """The peak memory in bytes; None: the system doesn't report it.

    For a GPU: the peak memory of tensors since the training began. For a CPU: the peak resident memory of the process.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        # Preferred, because the peak of getrusage includes the memory of the process that started this one.
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _copy_of(model: SeeGera) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
