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
# Settings of the user that name one of them.
_CHOSEN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
_LARGEST = 2**31 - 1
# What glibc itself comes to, once a program has freed large pieces of memory.
_USUAL = {_MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**26}
_lock = threading.Lock()
_blocks = 0


@contextmanager
def keep_memory() -> Iterator[None]:
    """In the block, memory that is freed stays in the process, and is given back to the system at the end.

    A training step needs the memory that the one before has freed. By default glibc gives large pieces back, and the
    system has to clear their pages again for the next step. Elsewhere, and where the user has set glibc's thresholds,
    nothing is changed.

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
    if sys.platform != "linux" or any(name in os.environ for name in _CHOSEN):
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
        for parameter, usual in _USUAL.items():
            library.mallopt(parameter, _LARGEST if _blocks else usual)
        if not _blocks:
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
