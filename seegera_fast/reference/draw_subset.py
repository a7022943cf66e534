"""A random subset of an exact size."""

import torch

from ..seeds import seed_tensor
from .random import STREAMS, words_at


def draw_subset(seed, count, chosen, *, stream="edges", device=None) -> torch.Tensor:
    seed = seed_tensor(seed, device)
    pair = words_at(seed, STREAMS[stream], torch.arange(count, device=seed.device), 0, 0)
    keys = (pair[:, 0] << 30) ^ (pair[:, 1] >> 2)
    drawn = torch.zeros(count, dtype=torch.bool, device=seed.device)
    drawn[torch.argsort(keys, stable=True)[:chosen]] = True
    return drawn
