"""The steps of one epoch: of Adam on the whole graph, or on one batch after another."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .batches import Source, Step
from .model import SeeGera


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


def require_finite(epoch: int, name: str, tensor: torch.Tensor) -> None:
    """Raises a TrainingFailure if a tensor that scores are computed from has a NaN or infinite value."""
    if not bool(torch.isfinite(tensor).all()):
        raise TrainingFailure(epoch, name)


def run_epoch(
    model: SeeGera,
    optimizer: torch.optim.Optimizer,
    source: Source,
    seed: int,
    epoch: int,
    warmup: float,
    done: Callable[[int, int | None], None],
) -> dict[str, float]:
    """Takes the steps of an epoch and returns the loss and its terms, each computed before its step: the mean over the
    batches.

    Args:
        done: is called after each step, with the number of batches that are done and of all of them.
    """
    model.train()
    totals: dict[str, float] = {}
    count = 0
    for step in source.steps(seed, epoch):
        optimizer.zero_grad()
        records = _gradients(model, step, warmup)
        for record in records:
            if not math.isfinite(record["loss"]):
                raise TrainingFailure(epoch, next(name for name, number in record.items() if not math.isfinite(number)))
            totals = {name: totals.get(name, 0.0) + number for name, number in record.items()}
        optimizer.step()
        count += len(step)
        done(count, source.count)
    if not count:
        raise ValueError(f"batches: got none in epoch {epoch}, want a loader that can be iterated anew in each epoch")
    return {name: total / count for name, total in totals.items()}


def _gradients(model: SeeGera, step: Step, warmup: float) -> list[dict[str, float]]:
    """Adds the mean of the batches' gradients to those of the weights. Returns the loss and its terms of each batch."""
    found: list[dict[str, torch.Tensor]] = []
    for make in step:
        batch = make()
        output = model(seed=batch.seed, warmup=warmup, **batch.arguments)
        loss = output.loss if len(step) == 1 else output.loss / len(step)
        loss.backward()
        found.append({**output.terms, "loss": output.loss.detach()})
        # Before the next one is made.
        del batch, output, loss
    # All values are read together at the end, so that the host waits for the GPU only once.
    numbers = torch.stack([torch.stack([part.double() for part in parts.values()]) for parts in found]).tolist()
    return [dict(zip(parts, row, strict=True)) for parts, row in zip(found, numbers, strict=True)]
