"""Standard deviations from log variances."""

import math

import torch

# 1 / sigma is to be a number, and so is its product with a difference, though not the square of that. So a standard
# deviation below exp(-80), in float64 exp(-560), counts as that.
MOST = {torch.float32: 80.0, torch.float64: 560.0}


def inverse_deviation(log_var) -> torch.Tensor:
    return torch.exp((-0.5 * log_var).clamp(max=MOST.get(log_var.dtype, math.inf)))
