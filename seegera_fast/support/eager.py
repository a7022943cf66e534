"""Calls that torch.compile leaves as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Value = TypeVar("Value")


# As torch.compiler.disable, but without importing torch._dynamo, which takes as long as importing torch.
@torch._disable_dynamo
def eagerly(function: Callable[Given, Value], *given: Given.args, **named: Given.kwargs) -> Value:
    """What a function gives, which torch.compile neither traces nor compiles, nor what the function calls."""
    return function(*given, **named)
