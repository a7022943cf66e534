"""The memory that was in use."""

from __future__ import annotations

import sys
from pathlib import Path

import torch


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
