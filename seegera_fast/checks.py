"""Checks that several operations share. They look at types, shapes and devices, and never read values on a device."""

from __future__ import annotations

from typing import Any

import torch

from . import backends, transforms
from .autocast import HALF as HALF
from .sampling import UNDIRECTED, require_undirected
from .seeds import SlotSeed
from .sparse_matrix import SparseMatrix
from .support.arguments import FLOATING as FLOATING
from .support.arguments import MOST_DRAWS, all_different, in_range, non_negative
from .support.arguments import choice as choice
from .support.arguments import constant as constant
from .support.arguments import dense as dense
from .support.arguments import device as device
from .support.arguments import dtype as dtype
from .support.arguments import flag as flag
from .support.arguments import on_device as on_device
from .support.arguments import probability as probability
from .support.arguments import shown as shown
from .support.arguments import whole as whole

REDUCTIONS = ("sum", "mean")
# The largest number of elements of a tensor, and of a count of them, that an operation takes.
MOST_NUMBERS = 2**60
INSTEAD_OF_HALF = 'torch.set_float32_matmul_precision("medium") multiplies float32 in bfloat16'


def tensor(
    name: str,
    value: Any,
    *,
    ndim: int | None = None,
    shape: tuple[int | None, ...] | None = None,
    half: str | None = None,
) -> None:
    """Checks for a floating-point tensor with the given number of dimensions or shape (None: any size).

    Args:
        half: the operation has Triton kernels that take float16 and bfloat16 too.
    """
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: got {type(value).__name__}, want a torch.Tensor")
    if value.layout != torch.strided or value.is_nested:
        dense(name, value)
    if value.dtype in HALF and half is not None:
        backend = backends.choose(half, value.device)
        if backend.name != "triton":
            raise TypeError(
                f"{name}: got {value.dtype} on {value.device}, want torch.float32 or torch.float64 with backend "
                f"{backend.name!r}; float16 and bfloat16 run with 'triton'; {INSTEAD_OF_HALF}"
            )
    elif value.dtype not in FLOATING:
        instead = f"; {INSTEAD_OF_HALF}" if value.dtype in HALF else ""
        raise TypeError(f"{name}: got {value.dtype} on {value.device}, want {' or '.join(map(str, FLOATING))}{instead}")
    if ndim is not None and value.ndim != ndim:
        raise ValueError(f"{name}: got shape {tuple(value.shape)}, want {ndim} dimensions")
    if shape is not None and (
        value.ndim != len(shape) or any(w is not None and w != g for g, w in zip(value.shape, shape, strict=True))
    ):
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name}: got shape {tuple(value.shape)}, want [{sizes}]")


def sparse(name: str, value: Any) -> None:
    if not isinstance(value, SparseMatrix):
        raise TypeError(f"{name}: got {type(value).__name__}, want a SparseMatrix (SparseMatrix.from_any makes one)")


def undirected(name: str, value: Any) -> None:
    """Checks for a sparse matrix that is known to be symmetric without a diagonal."""
    if not isinstance(value, SparseMatrix):
        raise TypeError(f"{name}: got {type(value).__name__}, want a SparseMatrix: {UNDIRECTED}")
    require_undirected(name, value)


def propagation(value: Any, rows: int) -> None:
    """Checks for None or a square sparse matrix with ``rows`` rows."""
    if value is None:
        return
    sparse("propagation", value)
    if value.shape != (rows, rows):
        raise ValueError(f"propagation: got shape {value.shape}, want ({rows}, {rows})")


def same_kind(**operands: torch.Tensor | SparseMatrix | None) -> None:
    """Checks that all operands but None share one dtype and device. A matrix is float32 next to float16 or bfloat16."""
    first = None
    for name, value in operands.items():
        if value is None:
            continue
        if first is None:
            first_name, first, device, dtype = name, value, value.device, value.dtype
            continue
        if value.device != device:
            raise ValueError(f"{name}: is on {value.device} and {first_name} on {device}, want one device")
        if isinstance(value, SparseMatrix) and dtype in HALF:
            if value.dtype != torch.float32:
                raise TypeError(f"{name}: got {value.dtype} where {first_name} is {dtype}, want torch.float32")
        elif value.dtype != dtype:
            raise TypeError(f"{name}: got {value.dtype} where {first_name} is {dtype}, want one dtype")
    on_device(first_name, first)


def positive(name: str, value: Any) -> int:
    return whole(name, value, least=1)


def draws(name: str, value: Any) -> int:
    return whole(name, value, least=1, most=MOST_DRAWS)


def drawn(name: str, value: Any) -> None:
    """Checks for a tensor ``[n, S, d]`` with no more draws than the numbers of a seed tell apart."""
    tensor(name, value, ndim=3)
    # A program that is exported may leave the size open.
    if not torch.compiler.is_compiling() and value.shape[1] > MOST_DRAWS:
        raise ValueError(f"{name}: got shape {tuple(value.shape)}, want at most {MOST_DRAWS} draws")


def seed(value: Any, device: torch.device | None) -> int | torch.Tensor | SlotSeed:
    """Checks for a 64-bit int, the seed of a slot, or an int64 tensor of one element on the device (None: any)."""
    if isinstance(value, SlotSeed):
        return value
    if not isinstance(value, torch.Tensor):
        value = whole("seed", value, least=None, wanted="an int or one torch.int64 element")
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"seed: got {shown(value)}, want a number of 64 bits (-2^63 to 2^63 - 1)")
        return value
    if value.dtype != torch.int64 or value.is_nested or value.numel() != 1:
        got = "a nested tensor" if value.is_nested else f"{value.dtype} {tuple(value.shape)}"
        raise TypeError(f"seed: got {got}, want an int or one torch.int64 element")
    # The device "cuda" without an index stands for any GPU.
    if device is not None and (
        value.device.type != device.type or (device.index is not None and (value.device.index or 0) != device.index)
    ):
        raise ValueError(f"seed: is on {value.device}, want {device} or an int")
    dense("seed", value)
    return value


def weight(name: str, value: Any) -> float | torch.Tensor:
    """Checks for a non-negative constant: a number, or a tensor of one element, whose value is not read."""
    if not isinstance(value, torch.Tensor):
        return non_negative(name, value, "a number or a tensor of one element")
    dense(name, value)
    if value.numel() != 1:
        raise ValueError(f"{name}: got shape {tuple(value.shape)}, want a number or one element")
    constant(name, value)
    if value.dtype == torch.bool or value.is_complex():
        raise TypeError(f"{name}: got {value.dtype}, want a real number")
    return value


def rate(name: str, value: Any) -> float | torch.Tensor:
    """Checks for a number in [0, 1], or a tensor of one element, whose value is not read."""
    return weight(name, value) if isinstance(value, torch.Tensor) else probability(name, value, one=True)


def draws_of(name: str, value: Any, like: torch.Tensor) -> None:
    """Checks for a tensor ``[n, 1 or S, d]`` where ``like`` is ``[n, S, d]``."""
    tensor(name, value, shape=(like.shape[0], None, like.shape[2]))
    if value.shape[1] not in (1, like.shape[1]):
        raise ValueError(f"{name}: got shape {tuple(value.shape)}, want 1 or {like.shape[1]} draws")


def numbers(
    name: str,
    value: Any,
    device: torch.device,
    *,
    count: int | None = None,
    below: int | None = None,
    different: bool = False,
    dtypes: tuple[torch.dtype, ...] = (torch.int64,),
) -> None:
    """Checks for a vector of integers on a device, of ``count`` elements (None: any number).

    Args:
        below: all must be from 0 to ``below - 1`` (None: any).
        different: no number may be there twice.

    The numbers are read only where that waits for no device.
    """
    wanted = f"a tensor of {' or '.join(map(str, dtypes))}"
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: got {shown(value)}, want {wanted}")
    dense(name, value)
    if value.dtype not in dtypes:
        raise TypeError(f"{name}: got {value.dtype}, want {wanted}")
    if value.ndim != 1 or (count is not None and value.shape[0] != count):
        size = "any" if count is None else count
        raise ValueError(f"{name}: got shape {tuple(value.shape)}, want [{size}]")
    if value.device != device:
        raise ValueError(f"{name}: is on {value.device}, want {device}")
    if value.numel() and (below is not None or different) and _readable(value):
        if below is not None:
            in_range(name, value, below)
        if different:
            all_different(name, value)


def _readable(value: torch.Tensor) -> bool:
    """Whether the elements of a tensor are numbers that this thread can read at once."""
    traced = torch.compiler.is_compiling() or transforms.active() or type(value) is not torch.Tensor
    return value.device.type == "cpu" and not traced


def one_element(value: float | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Converts a factor to what the operators take: float64 ``[1]`` on a device."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device=device, dtype=torch.float64).reshape(1)
    if torch.compiler.is_compiling():
        # torch.full would make the number a constant, and the function be compiled again for each other one.
        return torch.ones(1, dtype=torch.float64, device=device) * value
    return torch.full((1,), value, dtype=torch.float64, device=device)


def negatives(value: Any, available: int) -> int | str:
    """Checks for "all" or a number of non-edges to draw."""
    if isinstance(value, str) and value == "all":
        return value
    found = whole("negatives", value, least=None, wanted='"all" or an int')
    if not 1 <= found <= available:
        raise ValueError(f'negatives: got {shown(found)}, want "all" or 1 to {available}, the number of non-edges')
    return found


def mixture(z: Any, means: Any, log_var: Any) -> None:
    """Checks the operands of a mixture: ``[n, J, d]``, ``[n, K + J, d]``, ``[n, 1 or K + J, d]``."""
    tensor("z", z, ndim=3)
    positive("z's number of samples", z.shape[1])
    tensor("means", means, shape=(z.shape[0], None, z.shape[2]))
    if means.shape[1] < z.shape[1]:
        raise ValueError(f"means: got {means.shape[1]} draws, want at least the {z.shape[1]} of z")
    draws_of("log_var", log_var, means)
    same_kind(z=z, means=means, log_var=log_var)
