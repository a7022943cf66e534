"""The command as one of several processes, which torchrun has started."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..distributed import Processes, by_torchrun, connected, local_rank, of_all

# The commands that several processes share.
SHARED = ("train",)


def require_shared(command: str) -> None:
    """Refuses a command that each of several processes would do alone."""
    size = Processes.launched().size
    if by_torchrun() and size > 1 and command not in SHARED:
        text = f"{command} runs in one process, got {size} of torchrun, want it started without torchrun"
        raise of_all(ValueError(text))


@contextmanager
def processes_of(options: argparse.Namespace) -> Iterator[Processes]:
    """In the block, the processes of the command are connected. All but the first one are quiet.

    Raises:
        ValueError: ``--device`` names one GPU for all processes, or a machine has fewer GPUs than processes.
    """
    launched = Processes.launched()
    if launched.size > 1:
        options.device = own_device(options.device)
        options.quiet |= not launched.first
    with warnings.catch_warnings():
        if not launched.first:
            warnings.simplefilter("ignore")
        with connected(options.device) as processes:
            yield processes


def own_device(device: torch.device) -> torch.device:
    """The device of this process."""
    if device.type != "cuda":
        return device
    if device.index is not None:
        raise ValueError(f"--device: got {device} for each of several processes, want cuda, so that each has its own")
    number, count = local_rank(), torch.cuda.device_count()
    if number >= count:
        raise ValueError(
            f"--device: got cuda for process {number} of this machine, and torch sees {count} NVIDIA GPUs; want as "
            "many processes as GPUs, or cpu"
        )
    return torch.device("cuda", number)
