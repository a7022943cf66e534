"""How long the trials that are left will take: from epochs that were measured here, and from trials that ended."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from .. import checkpoint_file
from ..precision import HIGHEST, PRECISIONS
from ..support.report import readable_seconds, table
from .protocols import TASKS
from .trials import MEASURED_EPOCHS, RATES, Record, Setting, Trial

# To measure the epochs of a training that has not many more of them would take too large a part of its time.
SHORTEST = 10 * MEASURED_EPOCHS


class Pace(NamedTuple):
    """Seconds of an epoch, and of a validation on top of it."""

    epoch: float
    validation: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Pace:
        """From the seconds of :func:`~seegera_fast.experiments.trials.epoch_seconds`. The first epoch warms up."""
        plain, *validated = seconds[2], seconds[1], seconds[3]
        return cls(plain, max(0.0, min(validated) - plain))


@dataclass(frozen=True)
class Estimate:
    """What is left of a trial.

    Attributes:
        epochs: number of epochs.
        limit: whether that is the largest number that it can be: no trial of the kind has ended by early stopping.
        seconds: None: its pace is not known.
    """

    epochs: float
    limit: bool
    seconds: float | None


def kind(setting: Setting) -> Setting:
    """The setting on the first split of its task and without masking rates, which hardly change an epoch's time."""
    return _on_first_split(setting).without(*RATES)


def _on_first_split(setting: Setting) -> Setting:
    return replace(setting, split=next(iter(TASKS[setting.task].splits)))


def is_long(setting: Setting) -> bool:
    """Whether its epochs are worth being measured."""
    return setting.training().epochs >= SHORTEST


def estimate(trial: Trial, folder: Path, records: Sequence[Record], pace: Pace | None) -> Estimate:
    """What is left of a trial.

    Args:
        folder: where its checkpoint is, if it has one.
        records: trials that ended, by whose mean the number of epochs is estimated.
        pace: of its epochs; None: not known.
    """
    config = trial.setting.training()
    done, best = 0, None
    path = trial.checkpoint_path(folder)
    if path.exists():
        # The trial itself reports what is wrong with a checkpoint.
        with contextlib.suppress(OSError, ValueError):
            done, best = checkpoint_file.position(path)
    usual = None if config.patience is None else _usual_epochs(trial.setting, records)
    whole = config.epochs if usual is None else usual
    left = whole - done
    if best is not None and config.patience is not None:
        # It goes on for as many epochs at least.
        left = max(left, config.patience + 1 - (done - best))
    left = 0 if done and config.ended(done, best) else min(max(left, 0), config.epochs - done)
    limit = usual is None and config.patience is not None
    if pace is None:
        return Estimate(left, limit, None)
    end = done + round(left)
    validations = max(0, end // config.evaluate_every - max(done, config.evaluate_after) // config.evaluate_every)
    validations += end > done and end == config.epochs and not config.scheduled(end)
    return Estimate(left, limit, left * pace.epoch + validations * pace.validation)


def _usual_epochs(setting: Setting, records: Sequence[Record]) -> float | None:
    """The mean number of epochs of the trials that ended: of the setting, or else on other splits or at a precision.

    None: there are none, or they were cut off.
    """
    ended = [record for record in records if record.failure is None and not record.cut_off]
    same = [record for record in ended if record.trial.setting == setting]
    alike = [record for record in ended if _training_of(record.trial.setting) == _training_of(setting)]
    epochs = [record.content["epochs"] for record in same or alike]
    return statistics.fmean(epochs) if epochs else None


def _training_of(setting: Setting) -> Setting:
    """What decides how many epochs it takes, but for chance."""
    return replace(_on_first_split(setting), precision=PRECISIONS[HIGHEST]).without("epochs")


def outlook(estimates: Mapping[Trial, Estimate], jobs: int) -> str:
    """The rows that are missing, as a table for a reader: their trials, epochs and time, and the time of all.

    The time of a row is that of its trials one after the other.
    """
    by_setting: dict[Setting, list[Estimate]] = {}
    for trial, found in estimates.items():
        by_setting.setdefault(trial.setting, []).append(found)
    lines = [["missing", "trials", "epochs each", "time"]]
    for setting, found in by_setting.items():
        most = "at most " if any(each.limit for each in found) else "about "
        epochs = f"{most}{statistics.fmean(each.epochs for each in found):,.0f}"
        lines.append([setting.label, str(len(found)), epochs, _time([each.seconds for each in found], most)])
    every = list(estimates.values())
    most = "at most " if any(each.limit for each in every) else "about "
    seconds = [None if each.seconds is None else each.seconds / jobs for each in every]
    lines.append(["all" + f", {jobs} at a time" * (jobs > 1), str(len(every)), "", _time(seconds, most)])
    return table(lines).rstrip()


def _time(seconds: Sequence[float | None], words: str) -> str:
    known = [each for each in seconds if each is not None]
    return f"{words}{readable_seconds(sum(known))}" if len(known) == len(seconds) else "not known"


def nearest_first(trials: Sequence[Trial], estimates: Mapping[Trial, Estimate]) -> list[Trial]:
    """The trials by what is left of their row, the shortest first, and in a row those that are nearest to their end."""

    def seconds(trial: Trial) -> float:
        found = estimates[trial].seconds
        # Without a pace: what is too short to be measured comes first, what could not be measured last.
        return found if found is not None else math.inf if is_long(trial.setting) else 0.0

    left: dict[Setting, float] = {}
    for trial in trials:
        left[trial.setting] = left.get(trial.setting, 0.0) + seconds(trial)
    order = {setting: number for number, setting in enumerate(left)}
    return sorted(trials, key=lambda trial: (left[trial.setting], order[trial.setting], seconds(trial)))
