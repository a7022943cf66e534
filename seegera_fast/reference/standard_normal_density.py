"""log N(Z_j; 0, I)."""

import math

import torch


def standard_normal_density(z) -> torch.Tensor:
    return -0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=(0, 2))
