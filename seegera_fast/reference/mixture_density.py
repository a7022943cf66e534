"""log Omega_j: the log densities of a mixture per row, summed over rows."""

import math

import torch

from .component_log_density import row_log_densities
from .weights import logsumexp, term


def mixture_density(z, means, log_var) -> torch.Tensor:
    # A component whose squares overflow has weight 0.
    return term(_mix, row_log_densities(z, means, log_var).transpose(0, 1))


def _mix(densities) -> torch.Tensor:
    return (logsumexp(densities, dim=2) - math.log(densities.shape[2])).sum(dim=1)
