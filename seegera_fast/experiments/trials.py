"""One trial of an experiment: its settings, its run, and its record."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import backends, datasets, tasks
from ..checkpoint import Checkpoint
from ..config import SeeGeraConfig
from ..environment import LIBRARIES, machine, versions
from ..precision import HIGHEST, PRECISIONS, in_use
from ..support.atomic import written_aside
from ..support.hints import quoted
from ..support.json_fields import Fields, is_number, parse
from ..support.report import compact_json_text
from ..tasks.common import settle
from ..tasks.task import Task
from ..training import TrainingConfig, TrainingFailure
from ..version import __version__
from .protocols import METHODS, TASKS

FORMAT = "seegera_fast.Trial/3"
# The fields of a grid of masking rates.
RATES = ("structure_masking_rate", "feature_masking_rate")
# Number of epochs between two checkpoints of a trial.
CHECKPOINT_EVERY = 25
# A record has the history of at most about so many epochs, which is enough for pictures.
MOST_EPOCHS_KEPT = 200
# No float32 has such a square. Means, deviations and sums of numbers up to it are finite.
LARGEST = 1e100


@dataclass(frozen=True)
class Setting:
    """Everything about a trial except its seed. A mean is taken over the trials of one setting.

    Attributes:
        task: key of a task in TASKS.
        data: name of a data set.
        method: key of a method in METHODS.
        split: name of one of the task's splits.
        fields: fields that override the paper's settings, as sorted pairs; empty in the paper's protocol.
        precision: of float32 products, by PyTorch's name.
    """

    task: str
    data: str
    method: str
    split: str
    fields: tuple[tuple[str, Any], ...] = ()
    precision: str = PRECISIONS[HIGHEST]

    def __post_init__(self) -> None:
        # 0, 0.0 and -0.0 are the same rate, so they must give the same name.
        known = {
            entry.name: entry.type for kind in (SeeGeraConfig, TrainingConfig) for entry in dataclasses.fields(kind)
        }
        rates = {name for name, kind in known.items() if kind == "float"}
        rates |= {name for name, default in TASKS[self.task].fields.items() if type(default) is float}
        fields = (
            (name, value + 0.0 if type(value) is float or (type(value) is int and name in rates) else value)
            for name, value in self.fields
        )
        object.__setattr__(self, "fields", tuple(fields))

    @property
    def name(self) -> str:
        """A name for files, different for different settings."""
        overrides = ",".join(f"{field}={value}" for field, value in self.fields)
        if re.search(r"[^\w.,=+-]", overrides) or len(overrides) > 100:
            overrides = hashlib.sha256(json.dumps(self.fields).encode()).hexdigest()[:16]
        return "-".join([self.task, self.data, self.method, self.split, *filter(None, [overrides]), *self.rougher])

    @property
    def title(self) -> str:
        """The method's title, with the fields that differ from the paper's settings."""
        overrides = ", ".join(f"{field}={value}" for field, value in self.fields)
        return METHODS[self.method].title + (f" ({overrides})" if overrides else "")

    @property
    def rougher(self) -> list[str]:
        """The precision, where it is not the highest one, for a list of words."""
        return [] if self.precision == PRECISIONS[HIGHEST] else [self.precision]

    def without(self, *names: str) -> Setting:
        """The setting without some of the fields that override the paper's."""
        return dataclasses.replace(self, fields=tuple(pair for pair in self.fields if pair[0] not in names))

    @property
    def rates(self) -> tuple[float, float] | None:
        """Structure and feature masking rate, where both override the paper's; else None."""
        given = dict(self.fields)
        return tuple(given[name] for name in RATES) if all(name in given for name in RATES) else None

    @property
    def label(self) -> str:
        """The setting as one line for a reader."""
        split = f", {self.split} split" if len(TASKS[self.task].splits) > 1 else ""
        return f"{', '.join([self.task, self.data + split, *self.rougher])}: {self.title}"

    def options(self) -> dict[str, Any]:
        """The arguments of the task's function, without the graph and the seed."""
        method = METHODS[self.method]
        return {
            "preset": self.data,
            "variant": method.variant,
            **TASKS[self.task].arguments(self.split),
            **method.fields,
            **dict(self.fields),
        }

    def training(self) -> TrainingConfig:
        """How it is trained.

        Raises:
            TypeError, ValueError: a field that the task doesn't take.
        """
        fields = {**METHODS[self.method].fields, **dict(self.fields)}
        if "variant" in fields:
            raise ValueError(f"variant: got {fields['variant']!r}, want none: the method is {self.method}")
        return settle(TASKS[self.task], self.data, METHODS[self.method].variant, fields).training


@dataclass(frozen=True)
class Trial:
    """A setting with a seed."""

    setting: Setting
    seed: int

    @property
    def name(self) -> str:
        return f"{self.setting.name}-seed{self.seed}"

    def as_json(self) -> dict[str, Any]:
        """The trial as values that JSON can hold."""
        return {"setting": {**vars(self.setting), "fields": dict(self.setting.fields)}, "seed": self.seed}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Trial:
        """Makes a trial from the values of :meth:`as_json`; other keys are ignored."""
        given = content["setting"]
        return cls(Setting(**{**given, "fields": tuple(sorted(given["fields"].items()))}), content["seed"])

    def record_path(self, folder: Path) -> Path:
        """The file of its record, which exists once the trial is finished."""
        return folder / f"{self.name}.json"

    def checkpoint_path(self, folder: Path) -> Path:
        """The file of its checkpoint, which exists until the trial is finished."""
        return folder / f"{self.name}.checkpoint.safetensors"


def run_trial(trial: Trial, folder: Path, root: str | None, device: str) -> bool:
    """Runs a trial, from its checkpoint if there is one, and writes its record.

    The precision of products is that which PyTorch is set to: see :func:`seegera_fast.precision.at`. A trial in which a
    number becomes NaN or infinite has failed, but is finished: its record says so.

    Returns:
        True: the trial is finished. False: a signal stopped it, and its checkpoint was written.

    Raises:
        ValueError: products on the device do not have the precision of the setting.
    """
    setting = trial.setting
    used = in_use(torch.device(device))
    if used != setting.precision:
        raise ValueError(f"precision: got {setting.precision!r}, want {used!r}, which products on {device} have here")
    task = TASKS[setting.task]
    graph = datasets.load(setting.data, root, progress=False).to(device)
    checkpoint = Checkpoint(trial.checkpoint_path(folder), CHECKPOINT_EVERY, resume=True)
    record: dict[str, Any] = {
        "format": FORMAT,
        **trial.as_json(),
        "machine": {**machine(torch.device(device)), "backends": backends.chosen(torch.device(device))},
        "versions": versions(),
    }
    try:
        result = getattr(tasks, task.name)(
            graph, seed=trial.seed, progress=False, checkpoint=checkpoint, **setting.options()
        )
    except TrainingFailure as failure:
        record["failure"] = str(failure)
    else:
        if result.interrupted:
            return False
        record.update(
            failure=None,
            scores={score.name: getattr(result, score.name) for score in task.scores},
            validation={score.name: getattr(result, f"valid_{score.name}") for score in task.scores},
            epochs=result.epochs,
            best_epoch=result.best_epoch,
            seconds=result.seconds,
            peak_memory_bytes=result.peak_memory,
            configuration=result.fields,
            history=_columns(result.history),
        )
    with written_aside(trial.record_path(folder)) as file:
        file.write(compact_json_text(record).encode())
    Path(checkpoint.path).unlink(missing_ok=True)
    return True


# The epochs that epoch_seconds trains for.
MEASURED_EPOCHS = 4


def epoch_seconds(setting: Setting, root: str | None, device: str) -> list[float]:
    """Seconds of the first four epochs of a training, of which every second one is validated."""
    task = TASKS[setting.task]
    graph = datasets.load(setting.data, root, progress=False).to(device)
    short = {"epochs": MEASURED_EPOCHS, "evaluate_every": 2, "evaluate_after": 0, "patience": None}
    result = getattr(tasks, task.name)(graph, seed=0, progress=False, **{**setting.options(), **short})
    return [entry["seconds"] for entry in result.history]


def _columns(history: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """The loss, its terms and the validation scores: name -> a list with one value for each epoch under "epoch".

    These are every epoch of a short training, of a longer one every second, third and so on, and the last one; where
    only some epochs have validation scores, the same of these as well. Values are rounded to five digits. An epoch
    without a score has None.
    """
    names = dict.fromkeys(name for entry in history for name in entry if name != "seconds")
    validated = [entry for entry in history if any(name.startswith("valid_") for name in entry)]
    chosen = _thinned(history) + (_thinned(validated) if len(validated) < len(history) else [])
    kept = list({entry["epoch"]: entry for entry in sorted(chosen, key=lambda entry: entry["epoch"])}.values())
    return {
        name: [entry["epoch"] if name == "epoch" else _rounded(entry.get(name)) for entry in kept] for name in names
    }


def _thinned(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Every k-th entry and the last one, some 200 of them at most."""
    step = max(1, -(-len(entries) // MOST_EPOCHS_KEPT))
    return [*entries[step - 1 : -1 : step], *entries[-1:]]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


@dataclass(frozen=True)
class Record:
    """The record of a finished trial. ``content`` is what :func:`run_trial` wrote."""

    trial: Trial
    content: dict[str, Any]

    @property
    def failure(self) -> str | None:
        return self.content["failure"]

    @property
    def cut_off(self) -> bool:
        """Whether the training ended because the setting allows fewer epochs than the paper's."""
        setting = self.trial.setting
        most = dict(setting.fields).get("epochs")
        if most is None or self.failure is not None or self.content["epochs"] < most:
            return False
        return most < setting.without("epochs").training().epochs


def read_record(path: Path) -> Record:
    """Reads a record.

    Raises:
        ValueError: the file is not the record of a trial, a field of it is wrong, it is from another version of this
            package, or its name is not that of its trial. The message names the file and the field.
    """
    try:
        content = parse(path.read_bytes())
        fields = Fields("the record", content)
        if fields.take("format") != FORMAT:
            got = quoted(content["format"])
            raise ValueError(f"format {got}, want {FORMAT!r}: of another version of this package?")
        trial = _read_trial(fields)
        version = _read_machine(fields, trial.setting.precision)
        if fields.take("failure") is None:
            _check_outcome(fields, TASKS[trial.setting.task])
        else:
            fields.text("failure")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: is not the record of a trial ({error})") from error
    if version != __version__:
        raise ValueError(f"{path}: is from version {version}, this is {__version__}; want a folder of its own")
    # So that no trial has two records, which would count twice.
    name = trial.record_path(path.parent).name
    if path.name != name:
        raise ValueError(f"{path}: is the record of the trial {trial.name}, want the name {name}")
    return Record(trial, content)


def _read_trial(record: Fields) -> Trial:
    setting = record.fields("setting")
    overrides = setting.fields("fields")
    task = setting.text("task", TASKS)
    found = Setting(
        task=task,
        data=setting.text("data", datasets.names()),
        method=setting.text("method", METHODS),
        split=setting.text("split", TASKS[task].splits),
        precision=setting.text("precision", PRECISIONS),
        fields=tuple(sorted((name, overrides.take(name)) for name in overrides)),
    )
    found.training()
    return Trial(found, record.whole("seed"))


def _read_machine(record: Fields, precision: str) -> str:
    """Checks what a record says about the machine, and returns the version of this package.

    Args:
        precision: that of the trial's setting.
    """
    machine, libraries = record.fields("machine"), record.fields("versions")
    machine.whole("threads", 1)
    machine.text("system")
    if machine.text("precision", PRECISIONS) != precision:
        raise machine.wrong("precision", f"{precision!r} as in setting.precision")
    for name in ("gpu", "instruction_set", "processor"):
        if machine.take(name) is not None:
            machine.text(name)
    if not all(isinstance(name, str) for name in machine.items("backends")):
        raise machine.wrong("backends", "a list of names")
    for name in LIBRARIES:
        libraries.text(name)
    return libraries.text("seegera-fast")


def _check_outcome(record: Fields, task: Task) -> None:
    """Checks the fields of a trial that did not fail."""
    scores, validation = record.fields("scores"), record.fields("validation")
    for part, none in ((scores, False), (validation, True)):
        part.have([score.name for score in task.scores])
        for name, _, error in task.scores:
            part.number(name, 0, LARGEST if error else 1, none=none)
    epochs = record.whole("epochs", 1)
    record.whole("best_epoch", 1, epochs)
    record.number("seconds", 0, LARGEST)
    record.whole("peak_memory_bytes", none=True)
    record.fields("configuration")
    history = record.fields("history")
    kept = history.items("epoch")
    if not all(type(epoch) is int and 1 <= epoch <= epochs for epoch in kept) or kept != sorted({*kept}):
        raise history.wrong("epoch", f"ascending numbers from 1 to {epochs}")
    for name in history:
        values = history.items(name, len(kept))
        if not all(value is None or is_number(value) for value in values):
            raise history.wrong(name, "numbers or null")


def read_records(folder: Path) -> list[Record]:
    """Reads the records in a folder, in the order of their names.

    Raises:
        ValueError: as :func:`read_record`.
    """
    return [read_record(path) for path in sorted(folder.glob("*.json"))]
