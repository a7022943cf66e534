"""log q(Z_j | psi) for the K extra draws of psi and the draw that sample j comes from."""

import torch

from .normal_density import normal_log_density
from .weights import term


def component_log_density(z, means, log_var) -> torch.Tensor:
    return row_log_densities(z, means, log_var).sum(dim=0)


def row_log_densities(z, means, log_var) -> torch.Tensor:
    """``[n, J, K + 1]``: the normal log densities of each row of each sample under its components."""
    num_samples, num_extra = z.shape[1], means.shape[1] - z.shape[1]
    log_var = log_var.expand(means.shape)
    per_sample = []
    for j in range(num_samples):
        chosen = [*range(num_extra), num_extra + j]
        mean = means[:, chosen]
        per_sample.append(term(_log_density, z[:, j : j + 1].expand(mean.shape), mean, log_var[:, chosen]))
    return torch.stack(per_sample, dim=1)


def _log_density(z, mean, log_var) -> torch.Tensor:
    return normal_log_density(z, mean, log_var).sum(dim=2)
