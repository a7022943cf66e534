"""How exactly products of float32 matrices are computed: PyTorch's setting, and what a processor makes of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from . import backends
from .support.warning import warn_outside

# PyTorch's names, from the most exact one on. An operator takes the index.
PRECISIONS = ("highest", "high", "medium")
HIGHEST, MEDIUM = PRECISIONS.index("highest"), PRECISIONS.index("medium")
# What a processor can multiply faster than float32, by the name that the CPU library gives to its way.
_CPU = {"none": (), "kernel": ("medium",), "mkl": ("high", "medium")}

_local = threading.local()
_told: set[tuple[str, str]] = set()


def current(backend: backends.Backend, device: torch.device) -> int:
    """The precision of an operation that is called now, as its operator takes it.

    A precision that the device does not compute faster than float32 counts as "highest".
    """
    return _current(backend.name, str(device), getattr(_local, device.type, False))


def _current(backend: str, device: str, autocast: bool) -> int:
    name = "medium" if autocast else _setting(torch.device(device).type)
    return PRECISIONS.index(name) if name in fast(backend, torch.device(device)) else HIGHEST


# torch.compile can't look at settings: a compiled function keeps those that it was compiled with. This is what
# torch.compiler.assume_constant_result does after it has imported torch._dynamo, which takes as long as torch itself.
_current._dynamo_marked_constant = True


def asked(device_type: str) -> str:
    """The precision that PyTorch is set to.

    That of torch.autocast, "medium", comes first, then ``torch.backends.mkldnn.matmul.fp32_precision`` (on a GPU that
    of ``torch.backends.cuda``), then ``torch.get_float32_matmul_precision()``.
    """
    return "medium" if _in_autocast(device_type) else _setting(device_type)


def _in_autocast(device_type: str) -> bool:
    """Whether the code is inside of torch.autocast, or in an operation that is."""
    return getattr(_local, device_type, False) or torch.is_autocast_enabled(device_type)


def _setting(device_type: str) -> str:
    library = torch.backends.cuda if device_type == "cuda" else torch.backends.mkldnn
    own = library.matmul.fp32_precision
    if own in ("ieee", "bf16"):
        return "highest" if own == "ieee" else "medium"
    try:
        general = torch.get_float32_matmul_precision()
    except RuntimeError:
        # PyTorch does not answer where only some of its newer settings were made.
        general = "highest" if own == "none" else "high"
    # "medium" is TF32 in the newer settings of a GPU, as "high" is.
    return "high" if own == "tf32" and general == "highest" else general


def fast(backend: str, device: torch.device) -> tuple[str, ...]:
    """The precisions besides "highest" that a backend, given by its name, computes faster than it on a device."""
    if backend == backends.REFERENCE.name:
        return ()
    if backend == backends.CPU.name:
        return _CPU[backends.bfloat16_products() or "none"]
    # In Triton's interpreter nothing is fast, and all of them can be tried.
    return PRECISIONS[1:]


def backend_of(device: torch.device) -> backends.Backend:
    """The backend that computes the dense products of a model on a device; the reference where none can."""
    try:
        return backends.choose("gcn", device)
    except RuntimeError:
        return backends.REFERENCE


def in_use(device: torch.device) -> str:
    """The precision that operations on float32 have on a device now."""
    backend = backend_of(device)
    # The reference multiplies as PyTorch does.
    if backend is backends.REFERENCE:
        return asked(device.type)
    return PRECISIONS[_current(backend.name, str(device), _in_autocast(device.type))]


@contextmanager
def at(name: str | None) -> Iterator[None]:
    """In the block, PyTorch is set to a precision; None: as it is."""
    if name is None:
        yield
        return
    libraries = torch.backends.mkldnn, torch.backends.cuda
    own = [library.matmul.fp32_precision for library in libraries]
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:
        # PyTorch does not answer where only some of its newer settings were made.
        before = "highest"
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        for library, setting in zip(libraries, own, strict=True):
            library.matmul.fp32_precision = setting


def say_if_slow(device: torch.device, dtype: torch.dtype) -> None:
    """Warns, once for each precision, if the precision that PyTorch is set to is none that a device computes faster."""
    name, used = asked(device.type), in_use(device)
    if dtype != torch.float32 or name == used or (name, device.type) in _told:
        return
    _told.add((name, device.type))
    offered = ", ".join(("highest", *fast(backend_of(device).name, device)))
    warn_outside(
        f'float32 precision "{name}": products on {device.type} are computed as "{used}", since this processor does '
        f"not compute the other faster ({offered} can be had)"
    )


@contextmanager
def of_autocast(device_type: str) -> Iterator[None]:
    """In the block, operations of this thread on a kind of device have the precision of torch.autocast."""
    before = getattr(_local, device_type, False)
    setattr(_local, device_type, True)
    try:
        yield
    finally:
        setattr(_local, device_type, before)
