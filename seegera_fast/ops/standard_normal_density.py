"""The log density of samples under the prior, summed over rows."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..registry import Operator, once_differentiable


def _fake(z):
    return z.new_empty(z.shape[1])


def _fake_backward(z, gradient):
    return z.new_empty(z.shape)


def _setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(call: Any, ctx: Any, gradient: torch.Tensor):
    return call("standard_normal_density_backward", *ctx.saved_tensors, gradient)


OPERATOR = Operator(
    "standard_normal_density(Tensor z) -> Tensor",
    columns=("cpu", "triton"),
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)
Operator(
    "standard_normal_density_backward(Tensor z, Tensor gradient) -> Tensor",
    columns=("cpu", "triton"),
    fake=_fake_backward,
    backward=once_differentiable("standard_normal_density"),
)


def standard_normal_density(z: torch.Tensor) -> torch.Tensor:
    """``log N(Z_j; 0, I) = -1/2 (sum_i ||z_ij||^2 + n d log(2 pi))``: the log prior of J samples (Eq. reweight).

    Args:
        z: ``[n, J, d]``.

    Returns:
        ``[J]``, normalising constant included. Differentiable in ``z``; the gradient is ``-z``. Where a square is
        beyond the dtype the value is minus infinity.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype or device.

    Example:
        >>> z = torch.zeros(3, 2, 4)
        >>> sf.ops.standard_normal_density(z)  # -0.5 * 3 * 4 * log(2 pi), for each of two samples
        tensor([-11.0273, -11.0273])
    """
    checks.tensor("z", z, ndim=3)
    checks.positive("z's number of samples", z.shape[1])
    backend = backends.choose("standard_normal_density", z.device)
    if backend == "reference":
        return reference.standard_normal_density(z)
    return OPERATOR(backend, z)
