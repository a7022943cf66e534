"""Checks of arguments: numbers, flags, strings, paths, dtypes, devices and tensors.

Each check takes the name of the argument and what was given. It returns the value, as plain Python, or raises a
TypeError (a wrong kind) or ValueError (a wrong value) that names the argument. NumPy's scalars and arrays without
dimensions count as the numbers, flags and strings that they hold.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Collection
from typing import Any

import numpy as np
import torch

from .hints import short

FLOATING = (torch.float32, torch.float64)
# The largest int of a configuration, and the largest number of draws: the position of a random number has 24 bits for
# its draw.
MOST_INT, MOST_DRAWS = 2**31 - 1, 2**24
# Python's types for the kinds of NumPy's.
PLAIN = {"b": bool, "i": int, "u": int, "f": float, "U": str}


def shown(value: Any) -> str:
    """What a message says of a value: plain and short ones themselves, the type of others."""
    if isinstance(value, (str, int)):
        return short(value)
    plain = isinstance(value, (float, torch.dtype, torch.device)) or value is None
    return repr(value) if plain else type(value).__name__


def plain(value: Any) -> Any:
    """The number or flag that a scalar of NumPy, or an array without dimensions, holds; other values as they are."""
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 and value.dtype.kind in PLAIN:
        return PLAIN[value.dtype.kind](value)
    return value


def whole(name: str, value: Any, *, least: int | None = 0, most: int | None = None, wanted: str = "an int") -> int:
    """Checks for an int between ``least`` and ``most`` (None: no limit), or what stands for one as an index does.

    Tensors don't: to read their value would wait for the device.
    """
    if type(value) is not int:
        value = _index(name, value, wanted)
    if (least is not None and value < least) or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"{least} to {most}"
        raise ValueError(f"{name}: got {shown(value)}, want {limits}")
    return value


def is_integer(value: Any) -> bool:
    """Whether a value is an integer of Python or of NumPy; True and False are none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _index(name: str, value: Any, wanted: str) -> int:
    found = plain(value)
    if not isinstance(found, (bool, torch.Tensor)):
        try:
            return int(operator.index(found))
        except TypeError:
            pass
    raise TypeError(f"{name}: got {shown(found)}, want {wanted}")


def number(name: str, value: Any, wanted: str = "a number") -> float:
    """Checks for a real number, and converts it to a float; an int that is too large becomes infinity."""
    if type(value) is float:
        return value
    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise TypeError(f"{name}: got {shown(found)}, want {wanted}")
    try:
        return float(found)
    except OverflowError:
        return math.inf if found > 0 else -math.inf


def probability(name: str, value: Any, *, one: bool = False) -> float:
    """Checks for a number in [0, 1), or in [0, 1] with ``one=True``."""
    found = number(name, value)
    if not (0 <= found < 1 or (one and found == 1)):
        raise ValueError(f"{name}: got {shown(value)}, want a number in [0, 1{']' if one else ')'}")
    return found


def non_negative(name: str, value: Any, wanted: str = "a number") -> float:
    """Checks for a finite number, 0 or above."""
    found = number(name, value, wanted)
    if not 0 <= found < math.inf:
        raise ValueError(f"{name}: got {shown(value)}, want a finite number of 0 or above")
    return found


def flag(name: str, value: Any) -> bool:
    if value is True or value is False:
        return value
    found = plain(value)
    if not isinstance(found, bool):
        raise TypeError(f"{name}: got {shown(found)}, want True or False")
    return found


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: got {shown(value)}, want a string")
    return value


def instance(name: str, value: Any, kind: type, *, optional: bool = False) -> None:
    """Checks for an object of a class, or None where the argument is optional."""
    if not isinstance(value, kind) and not (optional and value is None):
        wanted = f"a {kind.__name__}" + (" or None" if optional else "")
        raise TypeError(f"{name}: got {shown(value)}, want {wanted}")


def choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Checks for one of some strings."""
    if not isinstance(value, str) or value not in choices:
        error = ValueError if isinstance(value, str) else TypeError
        raise error(f"{name}: got {shown(value)}, want one of {', '.join(map(repr, choices))}")
    return value


def path(name: str, value: Any) -> str:
    """Checks for a path: a string, or an object such as a ``pathlib.Path``; "~" at its start is the user's home."""
    found = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(found, str):
        raise TypeError(f"{name}: got {shown(value)}, want a path")
    if "\0" in found:
        raise ValueError(f"{name}: got {shown(found)}, want a path without NUL")
    if not found:
        raise ValueError(f"{name}: got '', want a path")
    return os.path.expanduser(found)


def dtype(name: str, value: Any) -> torch.dtype:
    if not isinstance(value, torch.dtype) or value not in FLOATING:
        raise TypeError(f"{name}: got {shown(value)}, want {' or '.join(map(str, FLOATING))}")
    return value


def device(name: str, value: Any) -> torch.device:
    """Checks for a device of this machine that holds data: a ``torch.device``, its name, or the number of a GPU."""
    wanted = "a device of this machine, such as 'cpu' or 'cuda:0'"
    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, (str, int, torch.device)):
        raise TypeError(f"{name}: got {shown(found)}, want {wanted}")
    try:
        found = torch.device(found)
        if found.type not in ("cpu", "meta"):
            torch.empty(0, device=found)
    except (RuntimeError, ValueError, TypeError, AssertionError, ImportError) as error:
        # torch says on several lines what else there could be.
        reason = str(error).partition("\n")[0][:200]
        raise ValueError(f"{name}: got {shown(value)}, want {wanted} ({reason})") from None
    if found.type == "meta":
        raise ValueError(f"{name}: got {shown(value)}, want {wanted}: tensors on meta hold no numbers")
    return found


def dense(name: str, value: torch.Tensor) -> None:
    """Checks that a tensor is an array of numbers in memory: not sparse, nested, quantized, mkldnn or on meta."""
    if value.layout != torch.strided or value.is_nested:
        kind = "a nested tensor" if value.is_nested else f"a tensor of layout {value.layout}"
        raise TypeError(f"{name}: got {kind}, want a dense one")
    if value.is_quantized:
        raise TypeError(f"{name}: got {value.dtype}, want numbers that are not quantized")
    on_device(name, value)


def vector(name: str, value: Any, dtypes: tuple[torch.dtype, ...]) -> None:
    """Checks for a dense vector of one of some dtypes."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: got {type(value).__name__}, want {' or '.join(map(str, dtypes))}")
    if value.layout is not torch.strided or value.is_nested:
        dense(name, value)
    if value.dtype not in dtypes:
        raise TypeError(f"{name}: got {value.dtype}, want {' or '.join(map(str, dtypes))}")
    if value.ndim != 1:
        raise ValueError(f"{name}: got shape {tuple(value.shape)}, want one dimension")


def on_device(name: str, value: Any) -> None:
    """Checks that a tensor or matrix holds numbers."""
    if value.is_meta if isinstance(value, torch.Tensor) else value.device.type == "meta":
        raise ValueError(f"{name}: is on meta, where tensors hold no numbers, want another device")


def constant(name: str, value: torch.Tensor) -> None:
    """Checks that a tensor needs no gradient, because a graph would not pass it on."""
    if value.requires_grad:
        raise ValueError(f"{name}: got a tensor that requires a gradient, want a constant: {name}.detach()")


def array(name: str, value: Any) -> np.ndarray:
    """Converts a tensor or anything that NumPy takes to an array."""
    if isinstance(value, torch.Tensor):
        dense(name, value)
        constant(name, value)
        value = value.cpu().resolve_conj().resolve_neg()
        # NumPy has neither bfloat16 nor the dtypes of one byte.
        return (value.to(torch.float64) if value.dtype.is_floating_point else value).numpy()
    unmasked(name, value)
    value = without_tensors(name, value)
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{name}: got {type(value).__name__}, want an array of numbers ({error})") from None


def without_tensors(name: str, value: Any) -> Any:
    """A list with arrays in place of its tensors, of which NumPy does not take every kind; other values as they are."""
    if not isinstance(value, (list, tuple)) or not any(isinstance(part, torch.Tensor) for part in value):
        return value
    return [array(name, part) if isinstance(part, torch.Tensor) else part for part in value]


def unmasked(name: str, value: Any) -> None:
    """Checks that an array has no masked entries, since NumPy would hand on what lies under the mask."""
    if np.ma.is_masked(value):
        raise ValueError(f"{name}: got {int(np.ma.count_masked(value))} masked entries, want none: {name}.filled(...)")


def integers(
    name: str,
    value: Any,
    device: torch.device,
    below: int | None = None,
    *,
    own: bool = False,
    marks: bool = False,
    of_nodes: bool = False,
) -> torch.Tensor:
    """Converts integers to int64 on a device, because torch would take a uint8 or bool tensor for a mask.

    Args:
        below: all must be from 0 to ``below - 1``; None: any.
        own: the result shares no memory with what was given, for an object that keeps it.
        marks: booleans are taken too, as 0 and 1.
        of_nodes: they are numbers of nodes of a graph, and the message for names says where these are.
    """
    want = f"want integers{' or booleans' if marks else ''}"
    if isinstance(value, torch.Tensor):
        dense(name, value)
    else:
        unmasked(name, value)
    try:
        found = torch.as_tensor(_as_torch_takes_it(value), device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        if _are_words(value):
            where = ": node k has the name graph.nodes[k]" if of_nodes else ""
            raise TypeError(f"{name}: got words, {want}{where}") from None
        raise TypeError(f"{name}: got {type(value).__name__} that is no tensor of integers ({error})") from None
    refused = found.is_floating_point() or found.is_complex() or (found.dtype == torch.bool and not marks)
    if found.numel() and refused:
        raise TypeError(f"{name}: got {found.dtype}, {want}")
    found = found.to(torch.int64, copy=own)
    if below is not None and found.numel():
        in_range(name, found, below)
    return found


def _are_words(value: Any) -> bool:
    """Whether there is a string in what should be integers."""
    if isinstance(value, np.ndarray) or hasattr(value, "to_numpy"):
        value = np.asarray(value).ravel().tolist()
    return isinstance(value, str) or (isinstance(value, (list, tuple)) and any(map(_are_words, value)))


def _as_torch_takes_it(value: Any) -> Any:
    """An array of a kind that torch refuses or warns of as one that it takes: other byte orders, backwards, read-only.

    A data frame or a series becomes an array; other values are left to torch.
    """
    if not isinstance(value, np.ndarray) and not (hasattr(value, "to_numpy") and hasattr(value, "__array__")):
        return value
    found = np.asarray(value)
    if found.dtype.kind == "O" and all(is_integer(number) for number in found.flat):
        return found.tolist()
    found = found.astype(found.dtype.newbyteorder("="), copy=False)
    return found if found.flags.writeable and min(found.strides, default=0) >= 0 else found.copy()


def in_range(name: str, numbers: torch.Tensor, below: int) -> None:
    """Checks that integers, at least one, are from 0 to ``below - 1``."""
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= below:
        raise ValueError(f"{name}: got numbers from {low} to {high}, want 0 to {below - 1}")


def all_different(name: str, numbers: torch.Tensor) -> None:
    """Checks that no integer of a vector is there twice."""
    if bool((numbers[1:] > numbers[:-1]).all()):
        return
    ordered = numbers.sort().values
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if again.numel():
        raise ValueError(f"{name}: got {int(again[0])} twice, want different numbers")
