"""A sample of the posterior."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..registry import Operator, once_differentiable
from ..seeds import seed_tensor


def _fake(mean, log_var, seed):
    return mean.new_empty(mean.shape)


def _setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _backward(call: Any, ctx: Any, gradient: torch.Tensor):
    log_var, seed = ctx.saved_tensors
    wanted = ctx.needs_input_grad[1]
    return gradient, call("reparameterize_backward", gradient, log_var, seed) if wanted else None, None


OPERATOR = Operator(
    "reparameterize(Tensor mean, Tensor log_var, Tensor seed) -> Tensor",
    columns=("cpu", "triton"),
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)


def _fake_backward(gradient, log_var, seed):
    return log_var.new_empty(log_var.shape)


# The gradient of log_var; that of mean is the upstream gradient itself.
Operator(
    "reparameterize_backward(Tensor gradient, Tensor log_var, Tensor seed) -> Tensor",
    columns=("cpu", "triton"),
    fake=_fake_backward,
    backward=once_differentiable("reparameterize"),
)


def reparameterize(mean: torch.Tensor, log_var: torch.Tensor, seed: int | torch.Tensor) -> torch.Tensor:
    """``mean + exp(log_var / 2) * N(0, I)``.

    Args:
        mean: ``[n, J, d]``.
        log_var: logarithm of the variance, ``[n, 1 or J, d]``.
        seed: an int, or an int64 tensor of one element.

    Returns:
        ``[n, J, d]``. Differentiable in ``mean`` and ``log_var``; the draws are addressed by the seed, not stored.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype or device.
    """
    checks.tensor("mean", mean, ndim=3)
    checks.positive("mean's number of samples", mean.shape[1])
    checks.draws_of("log_var", log_var, mean)
    checks.same_kind(mean=mean, log_var=log_var)
    checks.seed(seed, mean.device)
    backend = backends.choose("reparameterize", mean.device)
    if backend == "reference":
        return reference.reparameterize(mean, log_var, seed)
    return OPERATOR(backend, mean, log_var, seed_tensor(seed, mean.device))
