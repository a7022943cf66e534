"""log q(Z_j | psi) for the K extra draws of psi and sample j's own."""

import math

import torch

from .deviation import inverse_deviation


def component_log_density(z, means, log_var) -> torch.Tensor:
    return row_log_densities(z, means, log_var).sum(dim=0)


def row_log_densities(z, means, log_var) -> torch.Tensor:
    """``[n, J, K + 1]``: the normal log densities of each row of each sample under its components."""
    num_samples, num_extra = z.shape[1], means.shape[1] - z.shape[1]
    log_var = log_var.expand(means.shape)
    per_sample = []
    for j in range(num_samples):
        chosen = [*range(num_extra), num_extra + j]
        mean, log_variance = means[:, chosen], log_var[:, chosen]
        squares = ((z[:, j : j + 1] - mean) * inverse_deviation(log_variance)) ** 2
        per_sample.append(-0.5 * (squares + log_variance + math.log(2 * math.pi)).sum(dim=2))
    return torch.stack(per_sample, dim=1)
