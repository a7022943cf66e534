"""Samples of the posterior: mean + exp(log_var / 2) * N(0, I)."""

import torch

from ..seeds import seed_tensor
from .normal_density import bounded
from .random import normals
from .weights import term


def reparameterize(mean, log_var, seed) -> torch.Tensor:
    drawn = normals(seed_tensor(seed, mean.device), *mean.shape, mean.dtype)
    return term(lambda m, v: m + torch.exp(bounded(v) / 2) * drawn, mean, log_var.expand(mean.shape))
