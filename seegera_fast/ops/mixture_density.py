"""log Omega, one mixture per row."""

from __future__ import annotations

import torch

from .. import backends, reference
from . import checks


def mixture_density(z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
    """``log Omega_j = sum_i log 1/(K + 1) sum_k N(z_ij; mu_ik, exp(log_var_ik))`` (Eq. reweight), for J samples.

    Sample j's components are the K extra draws ``means[:, :K]`` and its own, ``means[:, K + j]``.

    Args:
        z: ``[n, J, d]``.
        means: ``[n, K + J, d]``.
        log_var: ``[n, 1 or K + J, d]``.

    Returns:
        ``[J]``, normalising constants included, by a true logsumexp: finite at any d. Differentiable in all three.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype or device.
    """
    checks.mixture(z, means, log_var)
    backends.choose("mixture_density", z.device)
    return reference.mixture_density(z, means, log_var)
