"""The kinds of the arguments of the definitions, by the names of the arguments, which mean the same in all of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from .. import checks
from .activation import ACTIVATIONS
from .feature_likelihood import LIKELIHOODS
from .random import STREAMS

DIRECTIONS = ("features", "nodes")


def _tensor(name: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: got {type(value).__name__}, want a torch.Tensor")
    checks.dense(name, value)
    if value.dtype not in (*checks.FLOATING, *checks.HALF):
        raise TypeError(f"{name}: got {value.dtype}, want a floating-point dtype of 16 bits or more")
    return value


def _edge(name: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.int64:
        got = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise TypeError(f"{name}: got {got}, want a torch.int64 tensor")
    checks.dense(name, value)
    return value


def _integers(*dtypes: torch.dtype) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        checks.numbers(name, value, getattr(value, "device", None), dtypes=dtypes)
        return value

    return check


def _matrix(name: str, value: Any) -> Any:
    checks.sparse(name, value)
    return value


def _optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


def _choice(*choices: str) -> Callable[[str, Any], Any]:
    return lambda name, value: checks.choice(name, value, choices)


def _count(name: str, value: Any) -> int:
    return checks.whole(name, value, most=checks.MOST_NUMBERS)


# The names of tensors.
TENSORS = (
    *("dense", "values", "hidden", "weight", "noise_weight", "z_nodes", "z_features", "mean", "log_var", "z", "means"),
    *("log_likelihood", "log_prior", "log_mixture"),
)
KINDS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(TENSORS, _tensor),
    **dict.fromkeys(("matrix", "features", "adjacency", "looped"), _matrix),
    "propagation": _optional(_matrix),
    **dict.fromkeys(("bias", "log_var_weight"), _optional(_tensor)),
    **dict.fromkeys(("num_rows", "noise_dim", "count", "chosen", "num_removed"), _count),
    "num_draws": checks.draws,
    "k": functools.partial(checks.whole, least=1, most=checks.MOST_NUMBERS),
    **dict.fromkeys(("dropout", "rate"), checks.probability),
    **dict.fromkeys(("noise_prob", "prob"), functools.partial(checks.probability, one=True)),
    **dict.fromkeys(("pos_weight", "warmup"), checks.weight),
    "seed": lambda name, value: checks.seed(value, None),
    "negatives": lambda name, value: checks.negatives(value, checks.MOST_NUMBERS),
    **dict.fromkeys(("self_loops", "per_node", "weighted"), checks.flag),
    **dict.fromkeys(("nodes", "rows"), _integers(torch.int64)),
    "sides": _integers(torch.int64, torch.bool),
    "edge": _edge,
    "dtype": checks.dtype,
    "device": _optional(checks.device),
    "activation": _choice(*ACTIVATIONS),
    "reduction": _choice(*checks.REDUCTIONS),
    "stream": _choice(*STREAMS),
    "to": _choice(*DIRECTIONS),
    "likelihood": lambda name, value: checks.choice(name, value, LIKELIHOODS),
}


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a check of the kinds of its arguments that KINDS names. A default of None is valid."""
    parameters = inspect.signature(function).parameters
    names = tuple(parameters)
    kinds = {
        name: _optional(KINDS[name]) if parameter.default is None else KINDS[name]
        for name, parameter in parameters.items()
        if name in KINDS
    }

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        values = [kinds[name](name, value) if name in kinds else value for name, value in zip(names, given)]  # noqa: B905
        more = {name: kinds[name](name, value) if name in kinds else value for name, value in named.items()}
        return function(*values, *given[len(names) :], **more)

    return call
