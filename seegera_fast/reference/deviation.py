"""Standard deviations from log variances."""

import math

import torch

# 1 / sigma must not overflow, nor its product with a difference, though the square of that product may. So a standard
# deviation below exp(-80) (float64: exp(-560)) is replaced by that bound.
MOST = {torch.float32: 80.0, torch.float64: 560.0}


def inverse_deviation(log_var) -> torch.Tensor:
    return torch.exp((-0.5 * log_var).clamp(max=MOST.get(log_var.dtype, math.inf)))
