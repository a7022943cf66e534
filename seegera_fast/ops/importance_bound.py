"""The importance-weighted bound, which training maximises."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator


def _fake(log_likelihood):
    return log_likelihood.new_empty(())


def _fake_backward(log_likelihood):
    return tuple(log_likelihood.new_empty(log_likelihood.shape) for _ in range(3))


_BACKWARD = Operator(
    "importance_bound_backward(Tensor log_likelihood, Tensor log_prior, Tensor log_mixture, Tensor warmup,"
    " Tensor gradient) -> (Tensor log_likelihood, Tensor log_prior, Tensor log_mixture)",
    columns=("cpu", "triton"),
    fake=_fake_backward,
)

OPERATOR = Operator(
    "importance_bound(Tensor log_likelihood, Tensor log_prior, Tensor log_mixture, Constant warmup) -> Tensor bound",
    columns=("cpu", "triton"),
    fake=_fake,
    backward=_BACKWARD,
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
        warmup: factor t of the regularising terms: a number or a tensor of one element.

    Returns:
        A scalar tensor. Differentiable in the three vectors.

        A sample with a term of minus infinity has weight 0, and gets no gradient. If all samples are minus infinity, so
        is the bound, with gradients of 0. If a sample is plus infinity or NaN, bound and gradients are NaN. With a
        warm-up of 0 the prior and the mixture count nothing, even where they are infinite or NaN.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype or device.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> log_likelihood, log_prior, log_mixture = torch.tensor([-3.0, -3.0]), torch.zeros(2), torch.zeros(2)
        >>> sf.ops.importance_bound(log_likelihood, log_prior, log_mixture)
        tensor(-3.)
    """
    checks.tensor("log_likelihood", log_likelihood, ndim=1)
    checks.positive("log_likelihood's number of samples", log_likelihood.shape[0])
    checks.tensor("log_prior", log_prior, shape=tuple(log_likelihood.shape))
    checks.tensor("log_mixture", log_mixture, shape=tuple(log_likelihood.shape))
    checks.same_kind(log_likelihood=log_likelihood, log_prior=log_prior, log_mixture=log_mixture)
    warmup = checks.weight("warmup", warmup)
    backend = backends.choose("importance_bound", log_likelihood.device)
    if backend is backends.REFERENCE:
        return reference.importance_bound(log_likelihood, log_prior, log_mixture, warmup=warmup)
    return OPERATOR(
        backend,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        log_mixture=log_mixture,
        warmup=checks.one_element(warmup, log_likelihood.device),
    )
