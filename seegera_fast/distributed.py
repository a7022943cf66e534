"""The processes that work on one run: those of torch.distributed, or this one alone.

Nothing else imports torch.distributed. What is exchanged goes through the default process group: gloo for CPUs, NCCL
for GPUs. Every process has to call the same methods in the same order.
"""

from __future__ import annotations

import functools
import itertools
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist

from .support import arguments
from .support.hints import cut
from .support.pieces import even_ranges

T = TypeVar("T")
# How long a process waits for the others: the first one cuts a large graph into parts, or scores it, meanwhile.
TIMEOUT = timedelta(minutes=30)


class ProcessLost(RuntimeError):
    """Another process of the run has ended, or did not answer in time."""


@dataclass(frozen=True)
class Processes:
    """The processes of a run, and this one's place among them.

    With one process every method returns what it was given.

    Attributes:
        rank: the number of this process, from 0. The process 0 writes files and shows progress.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Processes:
        """Those of torch.distributed, if its default process group is initialised, else this process alone."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @classmethod
    def launched(cls) -> Processes:
        """Those that torchrun or a batch system has started, by the environment, whether they are connected or not."""
        rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
        return cls(int(rank), int(size)) if rank.isdecimal() and size.isdecimal() else cls()

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and shows progress."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """This process's part of ``count`` rows. The parts are in the order of the ranks and of about one length."""
        return self._share(arguments.whole("count", count), self.rank)

    def _share(self, count: int, rank: int) -> range:
        return range(rank * count // self.size, (rank + 1) * count // self.size)

    def exchange_rows(self, own: torch.Tensor, count: int, at_once: int) -> Iterator[tuple[range, torch.Tensor]]:
        """Yields all ``count`` rows in their order, some at a time, in every process.

        Args:
            own: ``[len(share(count)), ...]``: the rows of this process.
            at_once: the largest number of rows at a time.
        """
        for rank in range(self.size):
            share = self._share(count, rank)
            for piece in even_ranges(len(share), at_once):
                if rank == self.rank:
                    rows = own[piece.start : piece.stop].contiguous()
                else:
                    rows = own.new_empty((len(piece), *own.shape[1:]))
                if self.size > 1:
                    sent = rows.to(_exchanged_on(rows.device))
                    _exchange(dist.broadcast, sent, src=rank)
                    rows = sent.to(rows.device)
                yield range(share.start + piece.start, share.start + piece.stop), rows

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Adds up each of the numbers over all processes, in float64."""
        if self.size == 1:
            return [float(number) for number in numbers]
        total = torch.tensor(numbers, dtype=torch.float64, device=_exchanged_on(torch.device("cpu")))
        _exchange(dist.all_reduce, total)
        return total.tolist()

    def any(self, flag: bool) -> bool:
        """Whether the flag of some process is set."""
        return self.sum([float(flag)])[0] > 0

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank. They are pickled."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        _exchange(dist.all_gather_object, found, value)
        return found

    def broadcast(self, make: Callable[[], T]) -> T:
        """Calls a function in the process 0, and gives what it returns to all of them, pickled.

        An error of the function is raised by all of them.
        """
        if self.size == 1:
            return make()
        made: list[Any] = [None]
        with self.together():
            if self.first:
                made[0] = make()
        _exchange(dist.broadcast_object_list, made, src=0)
        return made[0]

    def copy_first(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copies the values of the process 0 into tensors of the same shapes in the others."""
        if self.size == 1:
            return
        with torch.no_grad():
            for tensor in tensors:
                sent = tensor.detach().to(_exchanged_on(tensor.device))
                _exchange(dist.broadcast, sent, src=0)
                tensor.copy_(sent)

    @contextmanager
    def together(self) -> Iterator[None]:
        """If the block raises an error in some process, all raise it at its end: that of the lowest rank.

        The block itself has to exchange nothing.
        """
        error = None
        try:
            yield
        except Exception as found:
            if self.size == 1:
                raise
            error = found
        if self.any(error is not None):
            self._raise_first(error)

    @contextmanager
    def adding_gradients(self, parameters: Iterable[torch.Tensor]) -> Iterator[None]:
        """After the block, the gradients are the sums of those that all processes have computed in it.

        A process that has computed none adds zeros. An error is raised by all processes, as by :meth:`together`.
        """
        error = None
        try:
            yield
        except Exception as found:
            if self.size == 1:
                raise
            error = found
        if self.size > 1 and self._add_gradients([one for one in parameters if one.requires_grad], error is not None):
            self._raise_first(error)

    def _add_gradients(self, parameters: list[torch.Tensor], failed: bool) -> bool:
        """Adds the gradients up. Returns whether a process has failed, which travels with them."""
        some = parameters[0]
        parts = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
        flat = torch.cat([*(part.reshape(-1) for part in parts), some.new_full((1,), float(failed))])
        flat = flat.to(_exchanged_on(some.device))
        _exchange(dist.all_reduce, flat)
        sums = flat[:-1].to(some.device).split([one.numel() for one in parameters])
        for parameter, part in zip(parameters, sums, strict=True):
            if parameter.grad is None:
                parameter.grad = part.reshape(parameter.shape).clone()
            else:
                parameter.grad.copy_(part.reshape(parameter.shape))
        return bool(flat[-1] > 0)

    def _raise_first(self, error: Exception | None) -> None:
        """Raises the error of the lowest rank that has one."""
        for rank, message in enumerate(self.gather(None if error is None else _packed(error))):
            if message is None:
                continue
            if rank == self.rank and error is not None:
                first = error
                cause = error.__cause__
            else:
                first = pickle.loads(message)
                cause = error or RuntimeError(f"process {rank} of {self.size} ended with this error")
            raise of_all(first, rank) from cause

    def require_same(self, facts: Mapping[str, Any]) -> None:
        """Refuses processes that are about to do different things.

        Args:
            facts: what has to be the same in all processes, by name.

        Raises:
            ValueError: something is not; the message names it. All processes raise it.
        """
        found = self.gather(dict(facts))
        for rank, other in enumerate(found):
            differing = [
                f"{name} (process 0: {_shown(found[0], name)}, process {rank}: {_shown(other, name)})"
                for name in {**found[0], **other}
                if name not in found[0] or name not in other or found[0][name] != other[name]
            ]
            if differing:
                error = ValueError(
                    f"process {rank} is about to do another run, which differs in {', '.join(differing)}"
                )
                error.of_rank = 0
                raise error


def of_all(error: Exception, rank: int = 0) -> Exception:
    """Marks an error that all processes raise, and that came up in one of them."""
    error.of_rank = rank
    return error


def rank_of_error(error: BaseException) -> int | None:
    """The process in which an error came up that all processes have raised; None: only this one has it."""
    return getattr(error, "of_rank", None)


def by_torchrun() -> bool:
    """Whether torchrun has started this process."""
    return bool(os.environ.get("TORCHELASTIC_RUN_ID"))


def local_rank() -> int:
    """The number of this process among those of its machine."""
    found = os.environ.get("LOCAL_RANK", "")
    return int(found) if found.isdecimal() else Processes.launched().rank


@contextmanager
def connected(device: torch.device) -> Iterator[Processes]:
    """In the block, the processes that were launched are connected, if there are several.

    Args:
        device: the device of this process; NCCL serves a GPU, gloo the CPU.

    Raises:
        ProcessLost: they did not find each other.
    """
    if Processes.launched().size == 1 or Processes.current().size > 1:
        yield Processes.current()
        return
    if not dist.is_available():
        raise ProcessLost("torch.distributed: this build of torch lacks it; want one process")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        meeting = _meeting(*(os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")))
        # It keeps the addresses of earlier connections of these processes, which nobody answers any more.
        store = dist.PrefixStore(f"seegera_fast/{next(meeting.numbers)}", meeting.store)
        dist.init_process_group(backend, store=store, rank=meeting.rank, world_size=meeting.size, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise ProcessLost(f"the processes of the run did not find each other ({_reason(error)})") from error
    try:
        yield Processes.current()
    except BaseException:
        # NCCL would wait for the others. The process is about to end.
        if device.type != "cuda":
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


class _Meeting(NamedTuple):
    """Where the processes find each other, and the numbers of their connections, which are the same in all of them."""

    store: Any
    rank: int
    size: int
    numbers: Iterator[int]


@functools.cache
def _meeting(*environment: str | None) -> _Meeting:
    """The meeting of the processes with this environment. It outlives their connections.

    Without torchrun the process 0 hosts the store. It leaves a connection after the others, which may be about to make
    the next one.
    """
    return _Meeting(*next(dist.rendezvous("env://", timeout=TIMEOUT)), itertools.count())


def _exchange(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    try:
        function(*arguments, **options)
    except RuntimeError as error:
        raise ProcessLost(
            f"another process of the run has ended or does not answer; its own message says why ({_reason(error)})"
        ) from error


def _reason(error: Exception) -> str:
    """The first sentence of torch's message, without the place in torch's sources before it."""
    return cut(str(error).partition("\n")[0].rpartition("] ")[2].partition(". ")[0])


def _exchanged_on(device: torch.device) -> torch.device:
    """The device on which the process group exchanges a tensor of a device."""
    served = dict(pair.split(":") for pair in dist.get_backend_config().split(","))
    if device.type == "cuda" and served.get("cuda") in (None, "gloo"):
        return torch.device("cpu")
    if device.type == "cpu" and "cpu" not in served:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _packed(error: Exception) -> bytes:
    """An error as others can unpack it: itself, or, where it can't be pickled, one that says the same."""
    try:
        packed = pickle.dumps(error)
        pickle.loads(packed)
        return packed
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))


def _shown(facts: Mapping[str, Any], name: str) -> str:
    return cut(str(facts.get(name, "absent")))
