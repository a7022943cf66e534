"""Which kernels there are on this machine, why others are missing, and which one an operation takes."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .registry import OPERATORS, Operator

BACKENDS = ("cpu", "cuda", "triton", "reference")

# Backend -> why it can't be used; a backend that can be used is not in it.
_missing: dict[str, str] = {}
_libraries: dict[str, pathlib.Path] = {}
_forced: str | None = None
_warned = False


def load() -> None:
    """Loads the compiled libraries beside the package and registers the Triton launchers. Called once, at import."""
    folder = pathlib.Path(__file__).parent
    for backend, stem in (("cpu", "_C"), ("cuda", "_C_cuda")):
        found = sorted(path for path in folder.glob(f"{stem}.*") if path.suffix in (".so", ".pyd", ".dylib"))
        if not found:
            _missing[backend] = f"the {backend} library was not built"
            continue
        try:
            torch.ops.load_library(str(found[0]))
            _libraries[backend] = found[0]
        except OSError as error:
            # torch's own error leaves out what the loader said.
            _missing[backend] = f"{found[0].name} does not load: {error.__cause__ or error}"
    for backend in _libraries:
        rows = [row for row in OPERATORS.values() if isinstance(row, Operator) and backend in row.columns]
        without = [row.name for row in rows if not row.has_kernel(backend)]
        if without:
            _missing[backend] = f"the {backend} library has no kernel for {', '.join(without)}: it is an older build"
    if "cuda" not in _missing and not torch.cuda.is_available():
        _missing["cuda"] = "no usable NVIDIA GPU (torch.cuda.is_available() is False)"
    if importlib.util.find_spec("triton") is None:
        _missing["triton"] = "Triton is not installed"
    elif interpreted():
        _register_triton("CPU")
    elif not torch.cuda.is_available():
        _missing["triton"] = "no usable NVIDIA GPU (torch.cuda.is_available() is False)"
    _register_triton("CUDA")


def _register_triton(key: str) -> None:
    for operator in OPERATORS.values():
        if "triton" in operator.columns and isinstance(operator, Operator):
            operator.implement_in_triton(key)


def interpreted() -> bool:
    """Whether Triton kernels run in the interpreter, on the CPU (``TRITON_INTERPRET=1``)."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def instruction_set() -> str | None:
    """The instruction set that the CPU kernels use: "base", "avx2" or "avx512"; None where they were not built."""
    if "cpu" not in _libraries:
        return None
    function = ctypes.CDLL(str(_libraries["cpu"])).seegera_isa
    function.restype = ctypes.c_char_p
    return function().decode()


def info() -> dict[str, dict[str, Any]]:
    """What each backend can do.

    Returns:
        For "cpu", "cuda", "triton" and "reference": ``available``, ``reason`` (None, or why it is not available) and
        ``operations`` (the names of the operations that have a kernel there).
    """
    table = {}
    for backend in BACKENDS:
        if backend == "reference":
            names = list(_all_operations())
        else:
            names = [name for name, operator in OPERATORS.items() if backend in operator.columns]
        table[backend] = {
            "available": backend not in _missing,
            "reason": _missing.get(backend),
            "operations": [name for name in names if not name.endswith("_backward")],
        }
    return table


def _all_operations() -> list[str]:
    from . import ops

    return ops.__all__


@contextmanager
def use_backend(backend: str) -> Iterator[None]:
    """Makes every operation inside take one backend, in the whole process.

    Args:
        backend: "cpu", "cuda", "triton" or "reference". Inside, an operation that this backend can't run raises a
            RuntimeError that says why; nothing falls back.

    Raises:
        ValueError: an unknown name.
        RuntimeError: the backend is not available, with the reason.
    """
    global _forced
    if backend not in BACKENDS:
        raise ValueError(f"backend: got {backend!r}, want one of {', '.join(map(repr, BACKENDS))}")
    if backend in _missing:
        raise RuntimeError(f"backend {backend!r} is not available: {_missing[backend]}")
    before, _forced = _forced, backend
    try:
        yield
    finally:
        _forced = before


def choose(operation: str, device: torch.device) -> str:
    """The backend that runs an operation on tensors of a device.

    A forced backend runs or raises. Otherwise a CPU tensor takes the compiled kernel, or the reference where none is
    written or built; a CUDA tensor takes the CUDA kernel, or the Triton one, or the reference where neither is written.

    Raises:
        RuntimeError: the forced backend can't run it, or no kernel that is written for a GPU can be used.
    """
    operator = OPERATORS.get(operation)
    columns = () if operator is None else operator.columns
    if _forced is not None:
        if _forced != "reference":
            _check_forced(_forced, operation, columns, device)
        return _forced
    if device.type == "cpu":
        if "cpu" not in columns:
            return "reference"
        if "cpu" in _missing:
            _warn_once()
            return "reference"
        return "cpu"
    if device.type != "cuda":
        return "reference"
    wanted = [backend for backend in ("cuda", "triton") if backend in columns]
    for backend in wanted:
        if backend not in _missing:
            return backend
    if wanted:
        reasons = "; ".join(f"{backend}: {_missing[backend]}" for backend in wanted)
        raise RuntimeError(
            f"{operation}: no kernel for a tensor on {device} ({reasons}). Reinstall seegera_fast where nvcc and a "
            'CUDA build of torch are found, install Triton, or use seegera_fast.use_backend("reference")'
        )
    return "reference"


def beside_triton(operation: str, device: torch.device) -> str:
    """The backend from which a launcher in Triton takes another operation: "cuda", or "triton" where that is forced or
    there is no other. Never raises: a gradient may be asked for where another backend is forced."""
    ours = device.type != "cuda" or _forced == "triton" or "cuda" not in OPERATORS[operation].columns
    return "triton" if ours or "cuda" in _missing else "cuda"


def chosen(device: torch.device) -> list[str]:
    """The backends that run operations on tensors of a device: one where all have a kernel there, or one is forced."""
    return sorted({choose(operation, device) for operation in _all_operations()})


def _check_forced(backend: str, operation: str, columns: tuple[str, ...], device: torch.device) -> None:
    if backend not in columns:
        raise RuntimeError(f"{operation}: backend {backend!r} is forced and has no kernel for it")
    wanted = "cpu" if backend == "cpu" or (backend == "triton" and interpreted()) else "cuda"
    if device.type != wanted:
        raise RuntimeError(f"{operation}: backend {backend!r} is forced and runs on {wanted} tensors, got {device}")


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"seegera_fast runs without its compiled kernels ({_missing['cpu']}): plain PyTorch does their work, "
            "slowly. Reinstall it where a C++ compiler is found",
            stacklevel=4,
        )
