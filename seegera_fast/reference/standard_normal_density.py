"""log N(Z_j; 0, I)."""

import math

import torch

from .weights import term


def standard_normal_density(z) -> torch.Tensor:
    return term(_log_density, z.transpose(0, 1))


def _log_density(z) -> torch.Tensor:
    return -0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=(1, 2))
