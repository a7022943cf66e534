"""A sample of the posterior."""

from __future__ import annotations

import torch

from .. import backends, reference
from . import checks


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
    checks.draws_of("log_var", log_var, mean)
    checks.same_kind(mean=mean, log_var=log_var)
    checks.seed(seed)
    backends.choose("reparameterize", mean.device)
    return reference.reparameterize(mean, log_var, seed)
