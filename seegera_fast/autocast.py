"""The operations in torch.autocast: they compute in float32, with products of bfloat16."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from . import precision

Given = ParamSpec("Given")
Value = TypeVar("Value")
DEVICES = ("cpu", "cuda")
HALF = (torch.float16, torch.bfloat16)


def without_autocast(function: Callable[Given, Value]) -> Callable[Given, Value]:
    """Decorates a function so that inside of torch.autocast it takes and gives float32, as PyTorch's losses do.

    Tensors of float16 and bfloat16, which autocast has made, are converted. Dense products get the precision "medium",
    one product of bfloat16. Outside of autocast nothing changes.
    """

    @functools.wraps(function)
    def run(*given: Given.args, **named: Given.kwargs) -> Value:
        # One question for all devices, since this is asked in every call.
        if torch._C._is_any_autocast_enabled():
            for device in DEVICES:
                if torch.is_autocast_enabled(device):
                    with torch.autocast(device, enabled=False), precision.of_autocast(device):
                        return run(*map(_single, given), **{name: _single(value) for name, value in named.items()})
        return function(*given, **named)

    return run


def _single(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in HALF else value
