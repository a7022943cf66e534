"""The scalar that is maximised."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..registry import Operator, once_differentiable


def _fake(log_likelihood, log_prior, log_mixture, warmup):
    return log_likelihood.new_empty(())


def _fake_backward(log_likelihood, log_prior, log_mixture, warmup, gradient):
    return tuple(log_likelihood.new_empty(log_likelihood.shape) for _ in range(3))


def _setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(call: Any, ctx: Any, gradient: torch.Tensor):
    return (*call("importance_bound_backward", *ctx.saved_tensors, gradient), None)


OPERATOR = Operator(
    "importance_bound(Tensor log_likelihood, Tensor log_prior, Tensor log_mixture, Tensor warmup) -> Tensor",
    columns=("cpu", "triton"),
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)
Operator(
    "importance_bound_backward(Tensor log_likelihood, Tensor log_prior, Tensor log_mixture, Tensor warmup,"
    " Tensor gradient) -> (Tensor, Tensor, Tensor)",
    columns=("cpu", "triton"),
    fake=_fake_backward,
    backward=once_differentiable("importance_bound"),
)


def importance_bound(
    log_likelihood: torch.Tensor,
    log_prior: torch.Tensor,
    log_mixture: torch.Tensor,
    *,
    warmup: float | torch.Tensor = 1.0,
) -> torch.Tensor:
    """``logsumexp_j (log_likelihood_j + warmup (log_prior_j - log_mixture_j)) - log J`` (Eq. reweight).

    Args:
        log_likelihood, log_prior, log_mixture: ``[J]``.
        warmup: factor of the regularising terms: a number or a tensor of one element.

    Returns:
        A scalar. Differentiable in the three vectors.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype or device.
    """
    checks.tensor("log_likelihood", log_likelihood, ndim=1)
    checks.positive("log_likelihood's number of samples", log_likelihood.shape[0])
    checks.tensor("log_prior", log_prior, shape=tuple(log_likelihood.shape))
    checks.tensor("log_mixture", log_mixture, shape=tuple(log_likelihood.shape))
    checks.same_kind(log_likelihood=log_likelihood, log_prior=log_prior, log_mixture=log_mixture)
    checks.weight("warmup", warmup)
    backend = backends.choose("importance_bound", log_likelihood.device)
    if backend == "reference":
        return reference.importance_bound(log_likelihood, log_prior, log_mixture, warmup=warmup)
    factor = checks.one_element(warmup, log_likelihood.device)
    return OPERATOR(backend, log_likelihood, log_prior, log_mixture, factor)
