"""The memory that was in use, and memory that is soon needed again."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

# Numbers of glibc's parameters (malloc.h): from which size on memory is a mapping of its own, and how much of what is
# free at the end of the heap is given back to the system.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
# Settings of the user: variables of the environment, and what is in them.
_CHOSEN = {"MALLOC_MMAP_THRESHOLD_": "", "MALLOC_TRIM_THRESHOLD_": "", "GLIBC_TUNABLES": "glibc.malloc."}
# What glibc itself comes to, once a program has freed large pieces of memory.
_USUAL = {_MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**26}
_lock = threading.Lock()
_blocks = 0


@contextmanager
def keep_memory() -> Iterator[None]:
    """In the block, memory that is freed stays in the process, and is given back to the system at the end.

    A training step needs the memory that the one before has freed. By default glibc, the C library of most Linux
    systems, gives large pieces back, and the system has to clear their pages again for the next step. This changes
    ``mallopt``'s M_MMAP_THRESHOLD and M_TRIM_THRESHOLD for the process; after the block they have the largest values
    that glibc takes by itself. Pieces of 2 GiB and more, or with glibc before 2.35 of 32 MiB and more, are given back
    as before, and so is the memory of threads other than the main one. With another C library, or if a variable of the
    environment sets one of the two, nothing is changed.

    Example:
        >>> import seegera_fast as sf
        >>> with sf.keep_memory():
        ...     pass  # the steps of a training
    """
    library = _glibc()
    if library is None:
        yield
        return
    _count(library, 1)
    try:
        yield
    finally:
        _count(library, -1)


def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc and its thresholds are free to be set."""
    chosen = any(name in os.environ and word in os.environ[name] for name, word in _CHOSEN.items())
    if chosen or sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


def _count(library: ctypes.CDLL, change: int) -> None:
    """Counts the blocks that threads are in, of which the first sets the thresholds, and the last sets them back."""
    global _blocks
    with _lock:
        before, _blocks = _blocks, _blocks + change
        if 0 not in (before, _blocks):
            return
        if _blocks:
            # An older glibc refuses more than 32 MiB. -1: nothing is given back.
            if library.mallopt(_MMAP_THRESHOLD, 2**31 - 1) or library.mallopt(_MMAP_THRESHOLD, 2**25):
                library.mallopt(_TRIM_THRESHOLD, -1)
            return
        for parameter, usual in _USUAL.items():
            library.mallopt(parameter, usual)
        library.malloc_trim(0)


def peak_memory(device: torch.device) -> int | None:
    """The peak memory in bytes; None: the system doesn't report it.

    For a GPU: the peak memory of tensors since the training began. For a CPU: the peak resident memory of the process.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        # Preferred, because the peak of getrusage includes the memory of the process that started this one.
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
