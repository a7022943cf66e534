"""log q(Z_j | psi) for the K extra draws of psi and the draw that sample j comes from."""

import math

import torch

from .deviation import inverse_deviation


def component_log_density(z, means, log_var) -> torch.Tensor:
    return row_log_densities(z, means, log_var).sum(dim=0)


def row_log_densities(z, means, log_var, lost=None) -> torch.Tensor:
    """``[n, J, K + 1]``: the normal log densities of each row of each sample under its components.

    Args:
        lost: bool ``[n, J, K + 1]``: densities whose squares overflow. They get no gradient.
    """
    num_samples, num_extra = z.shape[1], means.shape[1] - z.shape[1]
    log_var = log_var.expand(means.shape)
    per_sample = []
    for j in range(num_samples):
        chosen = [*range(num_extra), num_extra + j]
        mean, log_variance = means[:, chosen], log_var[:, chosen]
        difference = z[:, j : j + 1] - mean
        if lost is not None:
            # Filled before the multiplication: otherwise the deviation's gradient would be 0 times infinity.
            difference = difference.masked_fill(lost[:, j, :, None], 0.0)
        squares = (difference * inverse_deviation(log_variance)) ** 2
        per_sample.append(-0.5 * (squares + log_variance + math.log(2 * math.pi)).sum(dim=2))
    densities = torch.stack(per_sample, dim=1)
    return densities if lost is None else densities.masked_fill(lost, -math.inf)
