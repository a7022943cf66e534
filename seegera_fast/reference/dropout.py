"""Dropout whose mask is addressed by (seed, row, draw, column)."""

import torch

from ..seeds import seed_tensor
from . import random


def dropout(values, rate, seed) -> torch.Tensor:
    return random.dropout(values, rate, seed_tensor(seed, values.device))
