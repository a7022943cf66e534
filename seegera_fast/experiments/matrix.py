"""Runs a matrix of trials, each in its own process. Finished trials are skipped, stopped ones are resumed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .. import datasets
from ..precision import HIGHEST, PRECISIONS
from ..support.atomic import alone, make_folder
from ..support.progress import Steps
from ..support.report import readable_seconds
from ..support.signals import stop_on_signals
from ..support.warning import warn_outside
from .estimates import Pace, estimate, is_long, kind, nearest_first, outlook
from .protocols import BASELINES, SCORES, TASKS
from .summary import readable_value
from .trials import Record, Setting, Trial, read_record, read_records
from .worker import IN_USE, STOPPED, Conditions, Worker

PAPER_DATA = ("cora", "citeseer", "pubmed", "photo", "computers", "cs", "physics")
# Seconds between two looks at the running trials.
POLL_SECONDS = 0.2
# Seconds until a trial whose checkpoint is in use is tried again: twice as many each time, up to the second number.
RETRY_SECONDS, MOST_RETRY_SECONDS = 10.0, 300.0
# The longest time for measuring; of a budget it is a tenth at most.
MEASURING_SECONDS = 600.0


def plan(
    tasks: Iterable[str],
    data: Iterable[str],
    methods: Iterable[str],
    splits: Iterable[str],
    seeds: Iterable[int],
    overrides: Iterable[dict[str, Any]] = ({},),
    precision: str = PRECISIONS[HIGHEST],
) -> list[Trial]:
    """Lists the trials of a matrix: all settings with the first seed, then all with the second, and so on.

    Attribute inference is left out for methods that model links only. If a task doesn't have a split, its first split
    is taken instead.

    Args:
        tasks, data, methods, splits, seeds: as in Setting and Trial.
        overrides: fields that override the paper's settings; each mapping makes a setting.
        precision: of float32 products.

    Raises:
        TypeError, ValueError: a task doesn't take one of the fields, or there is nothing to run.
    """
    settings = [
        Setting(task, name, method, split, tuple(sorted(fields.items())), precision)
        for fields in overrides
        for task in tasks
        for name in data
        for split in dict.fromkeys(map(TASKS[task].split_named, splits))
        for method in methods
        if not (TASKS[task].needs_features and method in BASELINES)
    ]
    if not settings:
        raise ValueError(f"there is nothing to run: {', '.join(BASELINES)} know links only, and predict no attributes")
    for setting in settings:
        setting.training()
    return [Trial(setting, seed) for seed in seeds for setting in settings]


@dataclass
class Outcome:
    """What became of the trials of a matrix.

    Attributes:
        finished: trials with a record, including those of earlier runs.
        failed: the finished trials in which a number became NaN or infinite.
        crashed: trial -> error message. Such a trial has no record, and the next run tries it again.
        left: trials that did not start or did not finish, because time ran out or a signal came.
        missing: data set -> why it can't be read. Its trials are left out.
        interrupted: whether a signal ended the run.
    """

    finished: list[Trial] = field(default_factory=list)
    failed: list[Trial] = field(default_factory=list)
    crashed: dict[Trial, str] = field(default_factory=dict)
    left: list[Trial] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def run_matrix(
    trials: Sequence[Trial],
    conditions: Conditions,
    *,
    jobs: int = 1,
    budget: float = math.inf,
    quiet: bool = False,
) -> Outcome:
    """Runs the trials that have no record yet.

    First an epoch of each kind is measured, and a table on stderr says how long each row will take. With a budget the
    rows come first that are nearest to their end.

    Args:
        trials: in the order in which they start.
        jobs: number of trials that run at once; they share the threads.
        budget: seconds after which no further trial is started, and those that run are stopped after their epoch. The
            next run goes on with them.
        quiet: print nothing on stderr, and measure nothing unless there is a budget.

    On a file system without locks a warning says that another run would not be noticed.

    Raises:
        OSError: the folder can't be written, or another run is using it.
        ValueError: a file is not a record, has not the name of its trial, or is from another version of this package.
    """
    make_folder(conditions.folder)
    with alone(conditions.folder / ".lock", f"the folder {conditions.folder}") as lock:
        if not lock.works:
            warn_outside(f"{lock.name} is on a file system without locks: make sure that no other run uses it")
        return _run(trials, conditions, jobs, budget, quiet)


def _run(trials: Sequence[Trial], conditions: Conditions, jobs: int, budget: float, quiet: bool) -> Outcome:
    end = time.monotonic() + budget
    outcome, waiting = Outcome(), []
    # A damaged record is an error now, not after hours of training.
    records = {record.trial: record for record in read_records(conditions.folder)}
    for trial in trials:
        if trial in records:
            _note(outcome, records[trial])
        else:
            waiting.append(trial)
    names = {trial.setting.data for trial in waiting} if budget > 0 else set()
    outcome.missing = _missing(names, conditions.root, progress=not quiet)
    waiting = [trial for trial in waiting if trial.setting.data not in outcome.missing]
    done = len(outcome.finished)
    running: dict[Trial, Worker] = {}
    threads = max(1, torch.get_num_threads() // jobs)
    try:
        with (
            stop_on_signals() as stop,
            Steps(len(waiting) + done, "trial", show=not quiet, done=done) as steps,
        ):

            def over() -> bool:
                return stop.requested or time.monotonic() >= end

            if not over() and (budget < math.inf or not quiet):
                enough = time.monotonic() + min(budget / 10, MEASURING_SECONDS)
                paces = _paces(waiting, conditions, threads, steps, lambda: over() or time.monotonic() >= enough)
                estimates = {
                    trial: estimate(trial, conditions.folder, [*records.values()], paces.get(kind(trial.setting)))
                    for trial in waiting
                }
                if not stop.requested and any(each.seconds is not None for each in estimates.values()):
                    steps.note(outlook(estimates, jobs))
                if budget < math.inf:
                    waiting = nearest_first(waiting, estimates)
            begin: dict[Trial, float] = {}
            pauses: dict[Trial, float] = {}
            while running or (waiting and not over()):
                now = time.monotonic()
                ready = [trial for trial in waiting if begin.get(trial, now) <= now]
                for trial in ready[: 0 if over() else jobs - len(running)]:
                    waiting.remove(trial)
                    running[trial] = Worker(trial, conditions, threads)
                steps.wait(", ".join(trial.name for trial in running or waiting))
                if over():
                    for worker in running.values():
                        worker.stop()
                ended = [trial for trial, worker in running.items() if worker.ended()]
                for trial in ended:
                    # Removed only after its outcome was read, so that an exception in between still ends its process.
                    code, message = running[trial].end()
                    if code == IN_USE:
                        if trial not in pauses:
                            steps.note(f"{trial.name}: {message}; it is tried again until that has ended")
                        waiting.append(trial)
                        pauses[trial] = min(2 * pauses.get(trial, RETRY_SECONDS / 2), MOST_RETRY_SECONDS)
                        begin[trial] = time.monotonic() + pauses[trial]
                    else:
                        _collect(outcome, trial, code, message, conditions.folder, steps)
                    del running[trial]
                if not ended:
                    time.sleep(POLL_SECONDS)
            outcome.interrupted = stop.requested
    finally:
        for worker in running.values():
            worker.kill()
    outcome.left += waiting
    return outcome


def _paces(
    trials: Sequence[Trial], conditions: Conditions, threads: int, steps: Steps, over: Callable[[], bool]
) -> dict[Setting, Pace | None]:
    """The paces of the kinds of trials. Epochs of each are measured, in a process of its own, until that is over."""
    paces: dict[Setting, Pace | None] = {}
    for trial in trials:
        like = kind(trial.setting)
        if like not in paces and is_long(like) and not over():
            steps.wait(f"some epochs of {trial.setting.label} to measure them")
            seconds = _measured(Worker(trial, conditions, threads, pace=True), over)
            paces[like] = None if seconds is None else Pace.of(seconds)
    return paces


def _measured(worker: Worker, over: Callable[[], bool]) -> list[float] | None:
    """The seconds of some epochs; None: it was stopped, or it failed as the trial itself will."""
    try:
        while not worker.ended():
            if over():
                worker.stop()
            time.sleep(POLL_SECONDS)
    except BaseException:
        worker.kill()
        raise
    code, message = worker.end()
    try:
        return json.loads(message) if code == 0 else None
    except ValueError:
        # A library wrote to the same pipe.
        return None


def _missing(names: Iterable[str], root: str | None, *, progress: bool) -> dict[str, str]:
    """Downloads missing data sets, once for all trials. Returns why others can't be read, by name."""
    missing = {}
    for name in sorted(names):
        try:
            datasets.load(name, root, progress=progress)
        except (OSError, ValueError) as error:
            missing[name] = str(error)
    return missing


def _note(outcome: Outcome, record: Record) -> None:
    outcome.finished.append(record.trial)
    if record.failure is not None:
        outcome.failed.append(record.trial)


def _collect(outcome: Outcome, trial: Trial, code: int, message: str, folder: Path, steps: Steps) -> None:
    """Notes in the outcome how a process ended, by its exit status and its message."""
    if code == 0:
        record = read_record(trial.record_path(folder))
        _note(outcome, record)
        steps.advance()
        line = _line(record)
    elif code == STOPPED:
        outcome.left.append(trial)
        line = "stopped; the next run goes on"
    else:
        outcome.crashed[trial] = message or (f"ended by signal {-code}" if code < 0 else f"ended with status {code}")
        line = f"error: {outcome.crashed[trial]}"
    steps.note(f"{trial.name}: {line}")


def _line(record: Record) -> str:
    if record.failure is not None:
        return f"failed: {record.failure}"
    content = record.content
    scores = ", ".join(
        f"{SCORES[name].title} {readable_value(name, value)}" for name, value in content["scores"].items()
    )
    return f"{scores}; {content['epochs']} epochs, {readable_seconds(content['seconds'])}"
