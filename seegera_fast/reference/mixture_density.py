"""log Omega_j: the log densities of a mixture per row, summed over rows."""

import math

import torch

from .component_log_density import row_log_densities


def mixture_density(z, means, log_var) -> torch.Tensor:
    with torch.no_grad():
        lost = row_log_densities(z, means, log_var) == -math.inf
    per_row = row_log_densities(z, means, log_var, lost)
    return (torch.logsumexp(per_row, dim=2) - math.log(per_row.shape[2])).sum(dim=0)
