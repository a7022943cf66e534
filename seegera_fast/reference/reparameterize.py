"""Samples of the posterior: mean + exp(log_var / 2) * N(0, I)."""

import torch

from ..seeds import seed_tensor
from .random import normals


def reparameterize(mean, log_var, seed) -> torch.Tensor:
    seed = seed_tensor(seed, mean.device)
    return mean + torch.exp(log_var / 2) * normals(seed, *mean.shape, mean.dtype)
