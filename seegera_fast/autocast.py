"""The operations in torch.autocast: they compute in float32."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Value = TypeVar("Value")
DEVICES = ("cpu", "cuda")
HALF = (torch.float16, torch.bfloat16)


def without_autocast(function: Callable[Given, Value]) -> Callable[Given, Value]:
    """Decorates a function so that it computes in float32 inside of torch.autocast, as PyTorch's losses do.

    Tensors of float16 and bfloat16, which autocast has made, are converted. Outside of autocast nothing changes.
    """

    @functools.wraps(function)
    def run(*given: Given.args, **named: Given.kwargs) -> Value:
        # One question for all devices, since this is asked in every call.
        if torch._C._is_any_autocast_enabled():
            for device in DEVICES:
                if torch.is_autocast_enabled(device):
                    with torch.autocast(device, enabled=False):
                        return run(*map(_single, given), **{name: _single(value) for name, value in named.items()})
        return function(*given, **named)

    return run


def _single(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in HALF else value
