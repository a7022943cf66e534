"""Checkpoints: a stopped training run can be resumed, with the same bits on the same device and backend."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from .graph import Graph
from .support import arguments
from .support.atomic import remove_unfinished, written_aside

FORMAT = "seegera_fast.Checkpoint/1"
# Groups of tensors in the file. Each tensor is stored under the name GROUP/NAME.
WEIGHTS, BEST, ADAM = "weights", "best", "adam"
HEADER = ("format", "identity", "epoch", "best", "seconds", "peak_memory", "history")


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
        history: one record per epoch.
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
class Checkpoint:
    """The file in which a training run saves its state, and how often it does.

    The file is replaced in one step, so that it is complete even if the process is killed; at most ``every`` epochs are
    lost then. It is not removed when the run ends.

    Attributes:
        path: a safetensors file with the weights, the best weights and Adam's state; the rest is JSON in its header.
        every: number of epochs between two writes, at least 1. A run ended by SIGINT (Ctrl-C) or SIGTERM writes too.
        resume: True: continue from the file if it exists. False: start from the first epoch and replace the file.

    Raises:
        TypeError, ValueError: an attribute is of a wrong kind or out of range.

    Example:
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> checkpoint = sf.Checkpoint("run.safetensors", every=10, resume=True)
        >>> result = sf.tasks.link_prediction(graph, epochs=2, embedding_dim=16, checkpoint=checkpoint)
    """

    path: str | os.PathLike[str]
    every: int = 50
    resume: bool = False

    def __post_init__(self) -> None:
        arguments.path("path", self.path)
        object.__setattr__(self, "every", arguments.whole("every", self.every, least=1))
        object.__setattr__(self, "resume", arguments.flag("resume", self.resume))

    def begin(self, identity: Mapping[str, Any]) -> State | None:
        """Returns the state to continue from; None: the run starts at its first epoch.

        Args:
            identity: facts about the run, by name. Those in the checkpoint must be the same.

        Raises:
            OSError: the file can't be written.
            TypeError: ``identity`` is not a mapping.
            ValueError: the file is not a checkpoint, or it belongs to another run; the message says what differs.
        """
        _check_identity_kind(identity)
        path = Path(self.path)
        if path.is_dir():
            raise OSError(f"the checkpoint {path} can't be written: it is a folder")
        try:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise OSError(f"the checkpoint {path} can't be written: {error.strerror}") from error
        remove_unfinished(path)
        return read(path, identity) if self.resume and path.exists() else None

    def save(self, state: State, identity: Mapping[str, Any]) -> None:
        """Replaces the file. If that fails (a full disk), the earlier file is kept and a warning is given."""
        if not isinstance(state, State):
            raise TypeError(f"state: got {type(state).__name__}, want a State")
        _check_identity_kind(identity)
        try:
            write(Path(self.path), state, identity)
        except OSError as error:
            warnings.warn(
                f"epoch {state.epoch}: no checkpoint was written, the training goes on ({error})", stacklevel=3
            )


def _check_identity_kind(identity: Any) -> None:
    if not isinstance(identity, Mapping):
        raise TypeError(f"identity: got {type(identity).__name__}, want a mapping of names to facts")


def write(path: Path, state: State, identity: Mapping[str, Any]) -> None:
    """Writes a state to a temporary file, then renames that file to ``path``."""
    groups = {WEIGHTS: state.weights, ADAM: state.adam, BEST: state.best.weights if state.best else {}}
    tensors = {
        f"{group}/{name}": tensor.detach().cpu().contiguous()
        for group, members in groups.items()
        for name, tensor in members.items()
    }
    content = {
        "format": FORMAT,
        "identity": dict(identity),
        "epoch": state.epoch,
        "best": None if state.best is None else {"epoch": state.best.epoch, "scores": state.best.scores},
        "seconds": state.seconds,
        "peak_memory": state.peak_memory,
        "history": state.history,
    }
    header = {key: json.dumps(value) for key, value in content.items()}
    with written_aside(path) as file:
        try:
            safetensors.torch.save_file(tensors, file.name, header)
        except safetensors.SafetensorError as error:
            raise OSError(f"{path} can't be written: {error}") from error


def read(path: Path, identity: Mapping[str, Any]) -> State:
    """Reads a state; its tensors are on the CPU.

    Raises:
        ValueError: the file is not a checkpoint, or it belongs to another run; the message says what differs.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = {key: json.loads(value) for key, value in (file.metadata() or {}).items()}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"checkpoint: {path} is not one ({error})") from error
    if header.get("format") != FORMAT:
        raise ValueError(f"checkpoint: {path} has format {header.get('format')!r}, want {FORMAT!r}")
    missing = [key for key in HEADER if key not in header]
    if missing:
        raise ValueError(f"checkpoint: {path} lacks {', '.join(missing)} in its header")
    _check_identity(path, header["identity"], json.loads(json.dumps(dict(identity))))
    groups: dict[str, dict[str, torch.Tensor]] = {WEIGHTS: {}, ADAM: {}, BEST: {}}
    for key, tensor in tensors.items():
        group, _, name = key.partition("/")
        groups[group][name] = tensor
    best = header["best"]
    return State(
        epoch=header["epoch"],
        history=header["history"],
        best=None if best is None else Best(best["epoch"], best["scores"], groups[BEST]),
        weights=groups[WEIGHTS],
        adam=groups[ADAM],
        seconds=header["seconds"],
        peak_memory=header["peak_memory"],
    )


def _check_identity(path: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    differing = [
        f"{name} (checkpoint: {found.get(name, 'absent')}, this run: {expected.get(name, 'absent')})"
        for name in {**expected, **found}
        if found.get(name, "absent") != expected.get(name, "absent")
    ]
    if differing:
        raise ValueError(f"checkpoint: {path} is of another run, which differs in {', '.join(differing)}")


def fingerprint(graph: Graph) -> dict[str, Any]:
    """Facts that identify a graph, by name: its sizes, and digests of its tensors."""
    parts = {}
    for name, matrix in (("adjacency", graph.adjacency), ("features", graph.features)):
        parts[name] = (matrix.rowptr, matrix.col, matrix.values)
    if graph.weights is not None:
        parts["weights"] = (graph.weights,)
    if graph.labels is not None:
        parts["labels"] = (graph.labels,)
    for name, mask in graph.masks.items():
        parts[f"mask {name}"] = (mask,)
    return {
        "number of nodes": graph.num_nodes,
        "number of edges": graph.num_edges,
        "number of features": graph.num_features,
        "dtype": str(graph.dtype),
        **{name: _digest(tensors) for name, tensors in parts.items()},
    }


def _digest(tensors: tuple[torch.Tensor, ...]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy())
    return digest.hexdigest()[:16]


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
