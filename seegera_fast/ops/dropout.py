"""Dropout without a stored mask."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..reference.random import threshold
from ..registry import Operator
from ..seeds import seed_tensor


def _fake(values, threshold, scale, seed):
    return values.new_empty(values.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, ctx.threshold, ctx.scale, seed = inputs
    ctx.save_for_backward(seed)


def _backward(call: Any, ctx: Any, gradient: torch.Tensor):
    # Linear, and the mask is addressed by the seed: the gradient is dropped in the same places.
    return call("dropout", gradient, ctx.threshold, ctx.scale, *ctx.saved_tensors), None, None, None


OPERATOR = Operator(
    "dropout(Tensor values, int threshold, float scale, Tensor seed) -> Tensor",
    columns=("cpu", "triton"),
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)


def dropout(values: torch.Tensor, rate: float, seed: int | torch.Tensor) -> torch.Tensor:
    """Inverted dropout: an element is zero with probability ``rate``, else divided by ``1 - rate``.

    Args:
        values: ``[n, S, d]``.
        rate: in [0, 1); 0 gives ``values`` back.
        seed: an int, or an int64 tensor of one element; the same seed and shape give the same mask on every backend.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size or range.
    """
    checks.tensor("values", values, ndim=3)
    checks.probability("rate", rate)
    checks.seed(seed, values.device)
    backend = backends.choose("dropout", values.device)
    if backend == "reference":
        return reference.dropout(values, rate, seed)
    if rate == 0:
        return values
    return OPERATOR(backend, values, threshold(rate), 1 / (1 - rate), seed_tensor(seed, values.device))
