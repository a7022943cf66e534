"""Dropout without a stored mask."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..reference.random import threshold
from ..registry import Operator
from ..seeds import seed_tensor


def _fake(values):
    return values.new_empty(values.shape)


def _values_gradient(call, gradient, threshold, scale, seed):
    # Dropout is linear, and the seed gives the same mask again: the same elements of the gradient are dropped.
    return call("dropout", values=gradient, threshold=threshold, scale=scale, seed=seed)


OPERATOR = Operator(
    "dropout(Tensor values, int threshold, float scale, Constant seed) -> Tensor dropped",
    columns=("cpu", "triton"),
    fake=_fake,
    backward={"values": _values_gradient},
)


def dropout(values: torch.Tensor, rate: float, seed: int | torch.Tensor) -> torch.Tensor:
    """Inverted dropout: an element is zero with probability ``rate``, else divided by ``1 - rate``.

    Args:
        values: ``[n, S, d]``.
        rate: in [0, 1); with 0, ``values`` is returned.
        seed: an int, or an int64 tensor of one element. The same seed and shape give the same mask on every backend.

    Returns:
        ``[n, S, d]``. Differentiable in ``values``.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size or range.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> sf.ops.dropout(torch.ones(4, 1, 8), rate=0.5, seed=0).unique()
        tensor([0., 2.])
    """
    checks.drawn("values", values)
    checks.on_device("values", values)
    rate = checks.probability("rate", rate)
    seed = checks.seed(seed, values.device)
    backend = backends.choose("dropout", values.device)
    if backend is backends.REFERENCE:
        return reference.dropout(values, rate, seed)
    if rate == 0:
        return values
    return OPERATOR(
        backend,
        values=values,
        threshold=threshold(rate),
        scale=1 / (1 - rate),
        seed=seed_tensor(seed, values.device),
    )
