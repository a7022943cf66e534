"""What the numbers of a run depend on besides its settings: the machine and the versions of libraries."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from . import precision
from .backends import instruction_set
from .version import __version__

# The libraries that the numbers of a run depend on.
LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn")


def versions() -> dict[str, str]:
    """Versions of this package, of Python, and of the libraries that the numbers depend on."""
    found = {"seegera-fast": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        found[name] = torch.__version__ if name == "torch" else metadata.version(name)
    return found


def processor() -> str | None:
    """The name of the processor; None: not known."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        if name := next(line.partition(":")[2].strip() for line in lines if line.startswith("model name")):
            return name
    return platform.processor() or None


def machine(device: torch.device | None = None) -> dict[str, Any]:
    """A device and the system around it. None: the GPU if there is one, else the CPU."""
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        "device": str(device),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "cuda": torch.version.cuda,
        "processor": processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "instruction_set": instruction_set(),
        "threads": torch.get_num_threads(),
        "precision": precision.in_use(device),
        "fast_precisions": ["highest", *precision.fast(precision.backend_of(device).name, device)],
    }
