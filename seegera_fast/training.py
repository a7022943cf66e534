"""The training loop of all tasks: Adam, warm-up, validation, early stopping."""

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
from .support.signals import stop_on_signals
from .version import __version__

Scores = dict[str, float]


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained. Epochs count from 1, and each one sees the whole graph.

    Attributes:
        epochs: at most so many, at least 1.
        learning_rate, weight_decay: of Adam; the decay is its L2 term.
        warmup_epochs: the regularising terms weigh ``min(epoch / warmup_epochs, 1)``; 0 switches the warm-up off.
        patience: training ends once more than so many epochs have passed since the best one. None: never early.
        evaluate_every: the model is scored on the validation part every so many epochs, and after the last one.
        evaluate_after: and not before this many epochs have passed.

    Raises:
        TypeError, ValueError: a field of a wrong kind or out of range.
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
        for name, minimum in least.items():
            value = getattr(self, name)
            if name == "patience" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name}: got {value!r}, want an int{' or None' if name == 'patience' else ''}")
            if value < minimum:
                raise ValueError(f"{name}: got {value}, want at least {minimum}")
        for name in ("learning_rate", "weight_decay"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{name}: got {value!r}, want a number")
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name}: got {value}, want a finite number, 0 or above")

    def warmup(self, epoch: int) -> float:
        """t of the regularising terms."""
        return min(epoch / self.warmup_epochs, 1.0) if self.warmup_epochs else 1.0

    def evaluates(self, epoch: int) -> bool:
        """Whether the model is scored after this epoch."""
        due = epoch > self.evaluate_after and epoch % self.evaluate_every == 0
        return due or epoch == self.epochs


class TrainingFailure(RuntimeError):
    """A number that training can't go on with.

    Attributes:
        epoch: when, counted from 1.
        term: what was NaN or infinite first: a term of the loss ("link", "feature", "prior", "mixture"), the "loss"
            itself, or what the validation is made from.
    """

    def __init__(self, epoch: int, term: str) -> None:
        super().__init__(f"epoch {epoch}: {term} became NaN or infinite first; a lower learning_rate may help")
        self.epoch = epoch
        self.term = term


@dataclass(frozen=True)
class Validation:
    """How the best epoch is found.

    Attributes:
        score: gives the validation scores by name; called with the epoch.
        improves: whether the first scores are better than the second, those of the best epoch so far.
    """

    score: Callable[[int], Scores]
    improves: Callable[[Scores, Scores], bool]


@dataclass(frozen=True)
class Training:
    """What a training run leaves beside the weights.

    Attributes:
        history: one mapping per epoch: "epoch", the terms of the bound by name, "loss" (all from before the epoch's
            step), the validation scores by name (in the epochs that have them) and "seconds", the epoch's wall time.
        epochs: how many were trained.
        best_epoch: the one whose weights the model carries.
        seconds: wall time, that of an earlier part of a resumed run included.
        peak_memory: the most memory that was in use, in bytes: on a GPU, that of tensors since the training began; on a
            CPU, that of the process since it was started. None where the system doesn't say.
        interrupted: by SIGINT (from the keyboard) or SIGTERM, be it in the last epoch, so that the caller ends too.
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

    Epoch ``e`` draws from ``derive_seed(seed, e)``, so that the run depends on the seed alone. An interrupt from the
    keyboard ends the run early; before the end of the first epoch it goes through. With a checkpoint, the first SIGINT
    or SIGTERM ends it after the epoch, with the state written, and a SIGINT after it at once.

    Args:
        validation: None: there is no early stopping, and the weights are those of the last epoch.
        progress: a bar on stderr, where that is a terminal.
        checkpoint: where the state is kept, and whether the run goes on from there.
        data: the graph that all of the run follows from, where that is not the model's; a checkpoint knows it again.
        fields: further settings of the run by name, which a checkpoint must share.

    Raises:
        TrainingFailure: the loss or a term of it is NaN or infinite.
        ValueError: a checkpoint of another graph or configuration, or an unreadable one.
        OSError: the checkpoint can't be written.
    """
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
            # A run that was stopped in its last epoch goes on to none.
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
                # Asked once: what ends the run has its state written.
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
    """What two runs share that have the same bits."""
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
    """Whether this epoch was the last one: there are no more, or the best one is too long ago."""
    out_of_patience = best is not None and config.patience is not None and epoch - best.epoch > config.patience
    return epoch >= config.epochs or out_of_patience


def _larger(first: int | None, second: int | None) -> int | None:
    return max((number for number in (first, second) if number is not None), default=None)


def _step(
    model: SeeGera, optimizer: torch.optim.Optimizer, config: TrainingConfig, seed: int, epoch: int
) -> dict[str, float]:
    """One step of Adam; gives the loss and its terms from before it."""
    model.train()
    optimizer.zero_grad()
    output = model(seed=derive_seed(seed, epoch), warmup=config.warmup(epoch))
    output.loss.backward()
    # Read only now, and in one piece, so that a GPU is waited for once.
    parts = {**output.terms, "loss": output.loss.detach()}
    numbers = dict(zip(parts, torch.stack([part.double() for part in parts.values()]).tolist(), strict=True))
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise TrainingFailure(epoch, name)
    optimizer.step()
    return numbers


def require_finite(epoch: int, name: str, tensor: torch.Tensor) -> None:
    """Raises a TrainingFailure where a tensor that the validation is made from holds a NaN or an infinite value."""
    if not bool(torch.isfinite(tensor).all()):
        raise TrainingFailure(epoch, name)


def peak_memory(device: torch.device) -> int | None:
    """The most memory that was in use, in bytes; None where the system doesn't say.

    On a GPU: what tensors held there since the training began. On a CPU: the resident memory of the process since it
    was started.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        # Preferred, since what getrusage says includes the memory of the process that started this one.
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
