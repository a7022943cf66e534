"""Log densities of the mixture's components, summed over rows."""

from __future__ import annotations

import torch

from .. import backends, reference
from . import checks


def component_log_density(z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
    """``sum_i log N(z_ij; mu_ik, exp(log_var_ik))`` for the K extra components and sample j's own: the joint mixture.

    Args:
        z: ``[n, J, d]``.
        means: ``[n, K + J, d]``: the K extra draws first, then one for each sample.
        log_var: ``[n, 1 or K + J, d]``.

    Returns:
        ``[J, K + 1]``; column K is the sample's own. Differentiable in all three.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype or device.
    """
    checks.mixture(z, means, log_var)
    backends.choose("component_log_density", z.device)
    return reference.component_log_density(z, means, log_var)
