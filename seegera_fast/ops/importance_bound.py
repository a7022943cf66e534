"""The scalar that is maximised."""

from __future__ import annotations

import torch

from .. import backends, reference
from . import checks


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
    backends.choose("importance_bound", log_likelihood.device)
    return reference.importance_bound(log_likelihood, log_prior, log_mixture, warmup=warmup)
