"""The backends: which ones this machine has, why others are missing, and which one runs an operation."""

from __future__ import annotations

import ctypes
import errno
import functools
import importlib.util
import os
import pathlib
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

import torch

from .costs import Costs
from .sparse_matrix import SparseMatrix
from .support.arguments import choice
from .support.atomic import Unwritable
from .support.hints import quoted
from .support.warning import warn_outside

# Of an OSError: a folder is not there to be written to, or its disk is full.
UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOSPC, errno.EDQUOT)


@dataclass(eq=False)
class Backend:
    """One way to run the operations: C++, CUDA, Triton or plain PyTorch.

    Attributes:
        name: the name that users give to :func:`use_backend`.
        overload: the overload of the torch operators that its kernels implement; None: it has no operators.
        devices: device types of the tensors that it accepts; None: any.
        keys: dispatch keys that its kernels are registered for.
        library: file name, without suffix, of the compiled library that holds its kernels.
        package: the Python package that holds the launchers of its kernels, if they are not in a library.
        needs: the module that the launchers import and that may not be installed.
        cache: the environment variable that names the folder where that module keeps what it compiles.
        steps: the backend whose operators its launchers call, if that is another backend.
        parts: gives a matrix and its transpose in the layout that its operators take; None: always by rows.
        layout: the layout of a matrix, "sparse" or "dense", that its operators choose; None: they have only one.
        costs: costs of its kernels, by which an operation with two forms chooses one.
        missing: why the backend can't be used; None: it can.
        operators: the operators that it has a kernel for, by name; the registry fills it in.
        others: operations that it runs by calling other operators.
    """

    name: str
    overload: str | None
    devices: tuple[str, ...] | None = None
    keys: tuple[str, ...] = ()
    library: str | None = None
    package: str | None = None
    needs: str | None = None
    cache: str | None = None
    steps: Backend | None = None
    parts: Callable[[SparseMatrix, SparseMatrix], tuple[torch.Tensor, ...]] | None = None
    layout: Callable[[SparseMatrix], str] | None = None
    costs: Costs | None = None
    missing: str | None = None
    operators: dict[str, Any] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    @property
    def operations(self) -> list[str]:
        """The names of the operations that it runs, without those of their gradients."""
        return [name for name in (*self.operators, *self.others) if not name.endswith("_backward")]

    def has(self, operation: str) -> bool:
        return operation in self.operators or operation in self.others

    def takes(self, device: torch.device) -> bool:
        if self.devices is None:
            return True
        return device.type in self.devices and (device.type != "cuda" or unfit(str(device)) is None)

    def load(self) -> None:
        """Makes the kernels known to torch, or finds out why they are missing."""
        if self.library is not None:
            self.missing = self._load_library(self.library)
        elif self.package is not None:
            for key in self.keys:
                for row in self.operators.values():
                    row.implement(self, key)
            if self.needs is not None and importlib.util.find_spec(self.needs) is None:
                self.missing = f"{self.needs.capitalize()} is not installed"
        if self.missing is None and self.devices == ("cuda",) and not torch.cuda.is_available():
            self.missing = "no usable NVIDIA GPU (torch.cuda.is_available() is False)"
        if self.missing is None and self.steps is not None:
            self.missing = self.steps.missing

    def explain(self, error: OSError) -> None:
        """Raises an :class:`Unwritable` that names :attr:`cache` if a launcher's error is that its folder is."""
        if self.cache is not None and error.errno in UNWRITABLE:
            name = f"{error.filename}, in the folder of what {self.needs.capitalize()} has compiled,"
            raise Unwritable(name, f"{error.strerror}; set {self.cache} to a folder that can be written") from error

    def _load_library(self, stem: str) -> str | None:
        path = _library(stem)
        if path is None:
            return f"the {self.name} library was not built"
        try:
            torch.ops.load_library(str(path))
        except OSError as error:
            # The message of torch's error leaves out what the loader said; its cause has it.
            return f"{path.name} does not load: {error.__cause__ or error}"
        if stem == "_C" and not all(hasattr(ctypes.CDLL(str(path)), name) for name in TOLD):
            return f"the {self.name} library is an older build"
        without = [name for name in self.operators if not self._has_kernel(name)]
        if without:
            return f"the {self.name} library has no kernel for {', '.join(without)}: it is an older build"
        return None

    def _has_kernel(self, operator: str) -> bool:
        suffix = "" if self.overload == "default" else f".{self.overload}"
        qualified = f"seegera_fast::{operator}{suffix}"
        return all(torch._C._dispatch_has_kernel_for_dispatch_key(qualified, key) for key in self.keys)


def _library(stem: str) -> pathlib.Path | None:
    # The one that was built for this Python comes before that of the stable ABI, which another may have left here.
    paths = (pathlib.Path(__file__).with_name(f"{stem}{suffix}") for suffix in EXTENSION_SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def interpreted() -> bool:
    """Whether Triton kernels run in the interpreter, on the CPU (``TRITON_INTERPRET=1``)."""
    return os.environ.get("TRITON_INTERPRET") == "1"


TRITON_PACKAGE = "seegera_fast.kernels.triton"
CPU = Backend("cpu", "default", ("cpu",), ("CPU",), library="_C")
CUDA = Backend("cuda", "default", ("cuda",), ("CUDA",), library="_C_cuda")
TRITON = Backend(
    "triton",
    "triton",
    ("cpu",) if interpreted() else ("cuda",),
    ("CPU", "CUDA") if interpreted() else ("CUDA",),
    package=TRITON_PACKAGE,
    needs="triton",
    cache="TRITON_CACHE_DIR",
)
# Unless Triton is forced, its launchers call operators of the CUDA library.
TRITON_WITH_CUDA = Backend(
    "triton",
    "triton_with_cuda",
    ("cuda",),
    ("CUDA",),
    package=TRITON_PACKAGE,
    needs=TRITON.needs,
    cache=TRITON.cache,
    steps=CUDA,
)
REFERENCE = Backend("reference", None)

# The backends that have kernels. An operation takes the first one that can run it. Triton's interpreter is slow, so
# that it runs only where it is asked for.
BACKENDS = (CPU, CUDA, TRITON_WITH_CUDA, TRITON)
AUTOMATIC = tuple(backend for backend in BACKENDS if not (backend is TRITON and interpreted()))
# The backends that users can name.
NAMED = {backend.name: backend for backend in (CPU, CUDA, TRITON, REFERENCE)}

# Functions of the CPU library that Python calls.
TOLD = ("seegera_isa", "seegera_bfloat16", "seegera_release_memory", "seegera_kept_memory")
# The variables that the CPU library reads, and the words that it knows; another word counts as none.
WORDS = {"SEEGERA_ISA": ("base", "avx2", "avx512"), "SEEGERA_BFLOAT16": ("none", "kernel", "mkl")}

_loaded = False
_warned = False


def load() -> None:
    """Loads the compiled libraries beside the package and registers the Triton launchers, at the first import."""
    global _loaded
    if _loaded:  # importlib.reload
        return
    _loaded = True
    from .kernels.cpu import costs, layout
    from .kernels.triton import costs as costs_of_triton

    CPU.parts, CPU.layout, CPU.costs = layout.parts, layout.layout, costs.COSTS
    TRITON.costs = TRITON_WITH_CUDA.costs = costs_of_triton.COSTS
    for backend in BACKENDS:
        backend.load()
    _warn_of_unknown_words()


def _warn_of_unknown_words() -> None:
    for variable, words in WORDS.items():
        word = os.environ.get(variable)
        if word and word not in words:
            warn_outside(
                f"{variable}: got {quoted(word)}, want one of {', '.join(words)}, or no such variable; it is ignored"
            )


def instruction_set() -> str | None:
    """The instruction set that the CPU kernels use: "base", "avx2" or "avx512"; None where they were not built."""
    return _told_by_library("seegera_isa")


@functools.lru_cache
def bfloat16_products() -> str | None:
    """What multiplies bfloat16 faster than float32 on this CPU: "kernel", "mkl" or "none"; None: no library."""
    return _told_by_library("seegera_bfloat16")


def release_memory() -> None:
    """Gives back to the system the memory that the CPU kernels keep for their next results.

    They keep at most one and a half times what was in use at a time. It is given back by itself when a training ends,
    and when a model is deleted.
    """
    library = _native()
    if library is not None:
        library.seegera_release_memory()


class Lease:
    """Belongs to something that large results are made with, such as a model; their memory is given back after it."""

    def __init__(self) -> None:
        weakref.finalize(self, release_memory).atexit = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Lease:
        return Lease()

    def __reduce__(self) -> tuple[type[Lease], tuple[()]]:
        return Lease, ()


def kept_memory() -> int:
    """Bytes that the CPU kernels keep for their next results."""
    library = _native()
    if library is None:
        return 0
    library.seegera_kept_memory.restype = ctypes.c_int64
    return library.seegera_kept_memory()


def _told_by_library(name: str) -> str | None:
    library = _native()
    if library is None:
        return None
    function = getattr(library, name)
    function.restype = ctypes.c_char_p
    return function().decode()


@functools.lru_cache
def _native() -> ctypes.CDLL | None:
    """The CPU library; None: it was not built, or does not load."""
    path = _library("_C")
    if path is None or (CPU.missing is not None and "does not load" in CPU.missing):
        return None
    return ctypes.CDLL(str(path))


def info() -> dict[str, dict[str, Any]]:
    """What each backend can do.

    Returns:
        For each of "cpu", "cuda", "triton" and "reference": ``available``, ``reason`` (why it is not available, or
        None) and ``operations`` (the names of the operations that it can run).

    Example:
        >>> import seegera_fast as sf
        >>> sf.backends.info()["reference"]["available"]
        True
    """
    return {
        name: {
            "available": backend.missing is None,
            "reason": backend.missing,
            "operations": backend.operations,
        }
        for name, backend in NAMED.items()
    }


class _Forcing:
    """One ``use_backend`` block."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.active = True


# The blocks that this thread or task is in, the innermost last. A context that was copied before a block ended still
# lists that block. It is skipped, because it is no longer active. So blocks may end in any order.
_blocks: ContextVar[tuple[_Forcing, ...]] = ContextVar("seegera_fast.use_backend", default=())
# torch.compile can't read a context variable. It uses the last active block of the process instead.
_active_blocks: list[_Forcing] = []
_lock = threading.Lock()
_forced_when_compiling: str | None = None


@contextmanager
def use_backend(backend: str) -> Iterator[None]:
    """Makes every operation inside the ``with`` block run on one backend.

    The block affects only the thread or asyncio task that enters it. Blocks can be nested, and can end in any order.
    The backward pass uses the backend of the forward pass, whether it runs inside or outside the block. A function made
    by ``torch.compile`` uses the block that was entered last in the process.

    Args:
        backend: "cpu", "cuda", "triton" or "reference". Inside the block, an operation that this backend can't run
            raises a RuntimeError that says why. No other backend is tried.

    Raises:
        TypeError, ValueError: not a string, or an unknown name.
        RuntimeError: the backend is not available, with the reason.

    Example:
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> with sf.use_backend("reference"):
        ...     embedding = sf.SeeGera(graph, embedding_dim=8, hidden_dim=8).embed()
    """
    choice("backend", backend, NAMED)
    if NAMED[backend].missing is not None:
        raise RuntimeError(f"backend {backend!r} is not available: {NAMED[backend].missing}")
    block = _Forcing(NAMED[backend])
    _blocks.set((*(other for other in _blocks.get() if other.active), block))
    _note(block)
    try:
        yield
    finally:
        block.active = False
        _blocks.set(tuple(other for other in _blocks.get() if other.active))
        _note(block)


@contextmanager
def unforced() -> Iterator[None]:
    """Makes operations choose their backends as outside of all :func:`use_backend` blocks.

    This is for what a graph keeps: whole numbers, which are the same on every backend.
    """
    token = _blocks.set(())
    try:
        yield
    finally:
        _blocks.reset(token)


def _note(block: _Forcing) -> None:
    """Records for torch.compile that a block was entered or left."""
    global _forced_when_compiling
    with _lock:
        if block.active:
            _active_blocks.append(block)
        else:
            _active_blocks.remove(block)
        _forced_when_compiling = _active_blocks[-1].backend.name if _active_blocks else None


def forced() -> Backend | None:
    """The backend of the innermost ``use_backend`` block; None: not in a block."""
    if torch.compiler.is_dynamo_compiling():
        return None if _forced_when_compiling is None else NAMED[_forced_when_compiling]
    blocks = _blocks.get()
    return next((block.backend for block in reversed(blocks) if block.active), None) if blocks else None


def choose(operation: str, device: torch.device) -> Backend:
    """The backend that runs an operation on tensors of a device.

    A forced backend runs the operation or raises. Otherwise a CPU tensor takes the compiled kernel, or the reference
    if that kernel does not exist or was not built. A CUDA tensor takes the CUDA kernel, else the Triton kernel, or the
    reference if neither exists.

    Raises:
        RuntimeError: the forced backend can't run the operation, or it has GPU kernels and none of them can be used.
    """
    backend = forced()
    if backend is not None:
        if backend is not REFERENCE:
            _check_forced(backend, operation, device)
        return backend
    for backend in AUTOMATIC:
        if backend.missing is None and backend.has(operation) and backend.takes(device):
            return backend
    written = [backend for backend in AUTOMATIC if backend.has(operation) and backend.takes(device)]
    if written and device.type == "cpu":
        _warn_once(
            f"seegera_fast runs without its compiled kernels ({CPU.missing}): plain PyTorch does their work, "
            "slowly. Reinstall it where a C++ compiler is found (GCC 12 or later, or Clang)"
        )
    elif device.type == "cuda" and (reason := unfit(str(device))) is not None:
        _warn_once(f"seegera_fast has no kernels for {device}, {reason}: plain PyTorch does their work, slowly")
    elif written:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in {b.name: b.missing for b in written}.items())
        raise RuntimeError(
            f"{operation}: no kernel for a tensor on {device} ({reasons}). Reinstall seegera_fast where nvcc and a "
            'CUDA build of torch are found, install Triton, or use seegera_fast.use_backend("reference")'
        )
    return REFERENCE


def chosen(device: torch.device) -> list[str]:
    """The names of the backends that run the operations on tensors of a device, each once."""
    return sorted({choose(operation, device).name for operation in REFERENCE.operations})


def _check_forced(backend: Backend, operation: str, device: torch.device) -> None:
    if not backend.has(operation):
        raise RuntimeError(f"{operation}: backend {backend.name!r} is forced and has no kernel for it")
    if not backend.takes(device):
        want = f"backend {backend.name!r} is forced and runs on {backend.devices[0]} tensors"
        reason = unfit(str(device)) if device.type == "cuda" else None
        raise RuntimeError(f"{operation}: {want}, got {device}" + (f", {reason}" if reason else ""))


def _warn_once(message: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warn_outside(message)


def unfit(device: str) -> str | None:
    """What a GPU is, if the GPU kernels can't run on it; None: they can."""
    return _unfit(device)


# torch.compile can't ask a device, which stays what it is.
unfit._dynamo_marked_constant = True


@functools.lru_cache
def _unfit(device: str) -> str | None:
    if not torch.cuda.is_available():
        return None
    if torch.version.hip is not None:
        return "a GPU of AMD, on which they were never tested"
    # The kernels' products of bfloat16 and their shared memory are those of Ampere.
    if (capability := torch.cuda.get_device_capability(device)) < (8, 0):
        name = f"a {torch.cuda.get_device_name(device)} of compute capability {capability[0]}.{capability[1]}"
        return f"{name}, and they want 8.0 (Ampere) or later"
    return None
