"""The file of a checkpoint: what it holds, and the checks that nothing else is taken for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .model_file import FORMAT as MODEL_FORMAT
from .support import tensor_file
from .support.atomic import written_aside
from .support.hints import cut, quoted
from .support.json_fields import Fields, parse
from .support.tensor_file import TensorFile

FORMAT = "seegera_fast.Checkpoint/2"
# Groups of tensors in the file. Each tensor is stored under the name GROUP/NAME.
WEIGHTS, BEST, ADAM = "weights", "best", "adam"
HEADER = ("format", "identity", "epoch", "best", "seconds", "peak_memory", "history")
# A field of the names of weights that Adam has nothing for: buffers, and parameters that are frozen or that no gradient
# reaches. Most models have none, and no such field.
UNTRAINED = "untrained"
# What Adam keeps for each parameter: a number, and two tensors of the parameter's shape.
STEP, MEANS, SQUARES = "step", "exp_avg", "exp_avg_sq"


@dataclass(frozen=True)
class Best:
    """The epoch with the best validation scores so far, with those scores and its weights."""

    epoch: int
    scores: dict[str, float]
    weights: dict[str, torch.Tensor] = field(repr=False)


@dataclass(frozen=True)
class State:
    """The state of a training run at the end of an epoch.

    All draws follow from the seed and the epoch's number, so no generator state is stored.

    Attributes:
        epoch: number of epochs done.
        history: one record per epoch. An epoch that is validated only because it is the last one has no scores here.
        best: the best epoch; None: nothing was validated yet.
        weights: the model's weights, by name.
        adam: the optimiser's tensors, by ``PARAMETER/KEY``.
        seconds: wall time so far.
        peak_memory: bytes; None: not known.
    """

    epoch: int
    history: list[dict[str, Any]] = field(repr=False)
    best: Best | None
    weights: dict[str, torch.Tensor] = field(repr=False)
    adam: dict[str, torch.Tensor] = field(repr=False)
    seconds: float
    peak_memory: int | None


@dataclass(frozen=True)
class Course:
    """What a run knows about its states before it trains. A state that it can't have is refused.

    Attributes:
        identity: facts about the run, by name. Those in the file must be the same.
        weights: tensors with the names, shapes and dtypes of the model's weights.
        terms: the names of the numbers in every record of the history.
        scores: the names of the validation scores; empty: the run does not validate.
        evaluates: epoch -> whether it has validation scores; not of an epoch that has them because it is the last one.
        improves: ``(scores, best)`` -> whether the scores are better than those of the best epoch so far.
        ended: ``(epoch, best epoch or None)`` -> whether no epoch follows this one.
        steps_per_epoch: number of steps of Adam in an epoch; None: not known, as of a loader without a length.
    """

    identity: Mapping[str, Any]
    weights: Mapping[str, torch.Tensor] = field(repr=False)
    terms: tuple[str, ...]
    scores: tuple[str, ...]
    evaluates: Callable[[int], bool]
    improves: Callable[[dict[str, float], dict[str, float]], bool]
    ended: Callable[[int, int | None], bool]
    steps_per_epoch: int | None = 1


def write(path: Path, state: State, identity: Mapping[str, Any]) -> None:
    """Writes a state to a temporary file, then renames that file to ``path``.

    Raises:
        OSError: the file can't be written; the message names it.
    """
    groups = {WEIGHTS: state.weights, ADAM: state.adam, BEST: state.best.weights if state.best else {}}
    tensors = {f"{group}/{name}": tensor for group, members in groups.items() for name, tensor in members.items()}
    untrained = [name for name in state.weights if f"{name}/{STEP}" not in state.adam]
    content = {
        "format": FORMAT,
        "identity": dict(identity),
        "epoch": state.epoch,
        "best": None if state.best is None else {"epoch": state.best.epoch, "scores": state.best.scores},
        "seconds": state.seconds,
        "peak_memory": state.peak_memory,
        "history": state.history,
        **({UNTRAINED: untrained} if untrained else {}),
    }
    with written_aside(path) as file:
        tensor_file.write(file, tensors, {key: json.dumps(value, allow_nan=False) for key, value in content.items()})


def read(path: Path, course: Course) -> State:
    """Reads a state; its tensors are on the CPU.

    Raises:
        ValueError: the file is not a checkpoint, belongs to another run, or holds what this run can't have written. The
            message names the file and the field.
    """
    try:
        return _read(tensor_file.read(path), course)
    except ValueError as error:
        raise ValueError(f"checkpoint: {error}") from error


def position(path: Path) -> tuple[int, int | None]:
    """The number of epochs that a checkpoint has done, and its best epoch. Nothing else of it is checked.

    Raises:
        OSError, ValueError: it can't be read, or is no checkpoint.
    """
    file = tensor_file.read(path)
    header = Fields(str(path), {key: parse(file.texts.get(key, "null")) for key in ("epoch", "best")})
    best = None if header.take("best") is None else header.fields("best").whole("epoch", 1)
    return header.whole("epoch", 1), best


def _read(file: TensorFile, course: Course) -> State:
    header = _read_header(str(file.path), file.texts, course.identity)
    seconds, peak_memory = header.number("seconds", 0), header.whole("peak_memory", none=True)
    epoch = header.whole("epoch", 1)
    history, best = _read_history(header, epoch, course)
    groups: dict[str, dict[str, torch.Tensor]] = {WEIGHTS: {}, ADAM: {}, BEST: {}}
    for key in _checked_entries(file, course.weights, _untrained(header, course.weights), best is not None):
        group, _, name = key.partition("/")
        groups[group][name] = file.tensor(key, finite=not name.endswith(f"/{SQUARES}"))
    _check_adam(file.path, groups[ADAM], epoch, course.steps_per_epoch)
    return State(
        epoch=epoch,
        history=history,
        best=None if best is None else Best(*best, groups[BEST]),
        weights=groups[WEIGHTS],
        adam=groups[ADAM],
        seconds=seconds,
        peak_memory=peak_memory,
    )


def _read_header(where: str, texts: Mapping[str, str], identity: Mapping[str, Any]) -> Fields:
    """The header of a checkpoint of this format and this run."""
    if texts.get("format") == MODEL_FORMAT:
        raise ValueError(f"{where} is a model, want a checkpoint")
    content = {}
    for key, text in texts.items():
        try:
            content[key] = parse(text)
        except ValueError as error:
            raise ValueError(f"{where}: {quoted(key)} is not JSON ({error})") from error
    header = Fields(where, content)
    if content.get("format") != FORMAT:
        raise ValueError(f"{where} has format {quoted(content.get('format'))}, want {FORMAT!r}")
    header.have(HEADER, [UNTRAINED])
    _check_identity(where, header.fields("identity"), json.loads(json.dumps(dict(identity))))
    return header


def _check_identity(where: str, found: Fields, expected: Mapping[str, Any]) -> None:
    facts = {name: found.take(name) for name in found}
    differing = [
        f"{name} (checkpoint: {_shown(facts, name)}, this run: {_shown(expected, name)})"
        for name in {**expected, **facts}
        if name not in facts or name not in expected or facts[name] != expected[name]
    ]
    if differing:
        raise ValueError(f"{where} is of another run, which differs in {', '.join(differing)}")


def _shown(facts: Mapping[str, Any], name: str) -> str:
    return cut(str(facts.get(name, "absent")))


def _read_history(header: Fields, epoch: int, course: Course) -> tuple[list[Any], tuple[int, dict[str, float]] | None]:
    """The history of ``epoch`` epochs, and the best epoch with its scores, which must be those that follow from it."""
    history = header.items("history", epoch)
    best: tuple[int, dict[str, float]] | None = None
    for number, content in enumerate(history, start=1):
        record = header.item("history", number - 1)
        scores = course.scores if course.evaluates(number) else ()
        record.have(("epoch", *course.terms, *scores, "seconds"))
        if record.whole("epoch") != number:
            raise record.wrong("epoch", str(number))
        record.number("seconds", 0)
        for name in (*course.terms, *scores):
            record.number(name)
        found = {name: content[name] for name in scores}
        if found and (best is None or course.improves(found, best[1])):
            best = number, found
        if number < epoch and course.ended(number, best and best[0]):
            raise header.wrong("epoch", f"{number}, the last epoch of this run")
    given = header.take("best")
    if (None if best is None else {"epoch": best[0], "scores": best[1]}) != given:
        want = "null: nothing was validated" if best is None else f"epoch {best[0]} with its scores, by the history"
        raise header.wrong("best", want)
    return history, best


def _untrained(header: Fields, weights: Mapping[str, torch.Tensor]) -> list[str]:
    if UNTRAINED not in header:
        return []
    names = header.items(UNTRAINED)
    if not all(isinstance(name, str) for name in names) or not set(names) < set(weights):
        raise header.wrong(UNTRAINED, "names of weights, but not of all")
    return names


def _checked_entries(
    file: TensorFile, weights: Mapping[str, torch.Tensor], untrained: list[str], has_best: bool
) -> list[str]:
    """The names of the tensors, after a check that the file has those of a checkpoint and no others."""
    expected: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    for name, tensor in weights.items():
        kind = tensor.dtype, tuple(tensor.shape)
        groups = (WEIGHTS, BEST) if has_best else (WEIGHTS,)
        expected |= {f"{group}/{name}": kind for group in groups}
        if name not in untrained:
            expected |= {f"{ADAM}/{name}/{STEP}": (torch.float32, ())}
            expected |= {f"{ADAM}/{name}/{key}": kind for key in (MEANS, SQUARES)}
    for name in {**expected, **file.entries}:
        if name not in file.entries:
            raise ValueError(f"{file.path} lacks the tensor {name}")
        if name not in expected:
            raise ValueError(f"{file.path} has a tensor {quoted(name)}, which does not belong there")
        entry, (dtype, shape) = file.entries[name], expected[name]
        if (entry.dtype, entry.shape) != (dtype, shape):
            raise ValueError(f"{file.path} has {name} as {entry}, want {dtype} {shape}")
    return list(expected)


def _check_adam(path: Path, adam: Mapping[str, torch.Tensor], epoch: int, steps_per_epoch: int | None) -> None:
    """Checks what Adam's numbers must be after so many epochs of so many steps each; None: at least one."""
    steps = [tensor.item() for name, tensor in adam.items() if name.endswith(f"/{STEP}")]
    want = epoch * steps_per_epoch if steps_per_epoch else max(steps[0], epoch)
    which = "the number of epochs" if steps_per_epoch == 1 else "the number of steps"
    for name, tensor in adam.items():
        if name.endswith(f"/{STEP}") and tensor.item() != want:
            raise ValueError(f"{path} has {tensor.item():g} in {ADAM}/{name}, want {want:g}, {which}")
        # A square of a finite gradient may be infinite, but not NaN.
        if name.endswith(f"/{SQUARES}") and not bool((tensor >= 0).all()):
            raise ValueError(f"{path} has NaN or negative numbers in {ADAM}/{name}, want means of squares")


def adam_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimiser's tensors, by ``PARAMETER/KEY``."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def restore_adam(model: torch.nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor]) -> None:
    """Loads the tensors that :func:`adam_state` returned into an optimiser."""
    numbers = {name: number for number, (name, _) in enumerate(model.named_parameters())}
    state: dict[int, dict[str, torch.Tensor]] = {}
    for path, tensor in tensors.items():
        name, _, key = path.rpartition("/")
        state.setdefault(numbers[name], {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
