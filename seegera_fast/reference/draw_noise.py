"""The Bernoulli noise of the encoder."""

import torch

from ..seeds import seed_tensor
from .random import bernoulli


def draw_noise(seed, num_rows, num_draws, noise_dim, prob=0.5, *, dtype=torch.float32, device=None) -> torch.Tensor:
    return bernoulli(seed_tensor(seed, device), num_rows, num_draws, noise_dim, prob, dtype)
