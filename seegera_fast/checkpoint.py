"""Checkpoints: a stopped training run can be resumed, with the same bits on the same device and backend."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from . import precision
from .checkpoint_file import Course, State, read, write
from .graph import Graph
from .model import SeeGera
from .support import arguments
from .support.atomic import Lock, alone, remove_unfinished, require_file, require_writable
from .support.warning import warn_outside
from .version import __version__


@dataclass(frozen=True)
class Checkpoint:
    """The file in which a training run saves its state, and how often it does.

    The file is replaced in one step, so that it is complete even if the process is killed; at most ``every`` epochs are
    lost then. When the run ends, the file has its last epoch, and a run with more epochs can continue from it, to the
    bits of one long run. One run at a time has it; another one is refused.

    Attributes:
        path: a safetensors file with the weights, the best weights and Adam's state; the rest is JSON in its header.
        every: number of epochs between two writes, at least 1. A run that is ended by a signal writes too: SIGINT
            (Ctrl-C), SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2.
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
        object.__setattr__(self, "path", arguments.path("path", self.path))
        object.__setattr__(self, "every", arguments.whole("every", self.every, least=1))
        object.__setattr__(self, "resume", arguments.flag("resume", self.resume))

    @contextmanager
    def kept(self) -> Iterator[Lock]:
        """In the block, the file belongs to one run, which has the lock.

        Raises:
            OSError: the file can't be written, or another run has it; the message names the file and the run.
        """
        path = Path(self.path)
        name = f"the checkpoint {path}"
        require_file(path, name)
        require_writable(name, path.parent)
        with alone(path.with_name(f".{path.name}.lock"), name) as lock:
            remove_unfinished(path)
            yield lock

    def begin(self, course: Course) -> State | None:
        """Returns the state to continue from; None: the run starts at its first epoch.

        Raises:
            TypeError: ``course`` is not one.
            ValueError: the file is not a checkpoint of this run, or is damaged; the message says what is wrong.
        """
        arguments.instance("course", course, Course)
        path = Path(self.path)
        return read(path, course) if self.resume and path.exists() else None

    def save(self, state: State, course: Course, lock: Lock | None = None) -> None:
        """Replaces the file. If that fails (a full disk), the earlier file is kept and a warning is given.

        Args:
            lock: what :meth:`kept` gave; the file of another run, which has the path now, is not replaced.
        """
        arguments.instance("state", state, State)
        arguments.instance("course", course, Course)
        arguments.instance("lock", lock, Lock, optional=True)
        try:
            if lock is not None:
                lock.require_kept()
            write(Path(self.path), state, course.identity)
        except OSError as error:
            warn_outside(f"epoch {state.epoch}: no checkpoint was written, the training goes on ({error})")


def fingerprint(graph: Graph) -> dict[str, Any]:
    """Facts that identify a graph, by name: its sizes, and digests of its tensors."""
    parts = {}
    for name, matrix in (("adjacency", graph.adjacency), ("features", graph.features)):
        parts[name] = (matrix.rowptr, matrix.col, matrix.values)
    if graph.weights is not None:
        parts["weights"] = (graph.weights,)
    if graph.labels is not None:
        parts["labels"] = (graph.labels,)
    if graph.sides is not None:
        parts["sides"] = (torch.tensor(graph.sides, device="cpu"),)
    for name, mask in graph.masks.items():
        parts[f"mask {name}"] = (mask,)
    return {
        "number of nodes": graph.num_nodes,
        "number of edges": graph.num_edges,
        "number of features": graph.num_features,
        "dtype": str(graph.dtype),
        **{name: digest(tensors) for name, tensors in parts.items()},
    }


def digest(tensors: tuple[torch.Tensor, ...]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy())
    return digest.hexdigest()[:16]


def identity(
    model: SeeGera, settings: Mapping[str, Any], seed: int, data: Graph | None, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that determines the bits of a run's epochs, by name; not how many there are.

    Args:
        settings: the fields of the run's TrainingConfig, by name.
    """
    try:
        json.dumps(dict(fields))
    except (TypeError, ValueError) as error:
        raise TypeError(f"fields: got what JSON can't hold ({error}), want texts, numbers, and lists of them") from None
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    facts = {
        "version": __version__,
        "precision": precision.in_use(next(model.parameters()).device),
        **asdict(model.config),
        **settings,
        "seed": seed,
        "seed of the weights": model.seed,
        **({"frozen": frozen} if frozen else {}),
        **fields,
        **fingerprint(model.graph if data is None else data),
    }
    del facts["epochs"]
    return facts


def more_facts(
    model: SeeGera, settings: Mapping[str, Any], checkpoint: Checkpoint | None, data: Graph | None
) -> dict[str, Any]:
    """What has to be the same in all processes besides the identity of the run."""
    facts: dict[str, Any] = {"epochs": settings["epochs"], "torch": torch.__version__}
    facts["checkpoint every"] = None if checkpoint is None else checkpoint.every
    if data is not None and data is not model.graph:
        facts |= {f"{name} that is trained on": value for name, value in fingerprint(model.graph).items()}
    return facts
