"""Normal log densities, and the range of their log variances."""

import math

import torch

# In this range a standard deviation is between 3.1e-7 and 3.3e6, that is 2^-21.6 and 2^21.6. float32 has 24 bits:
# beside numbers near 1, a smaller deviation would be lost in their rounding, and a larger one would lose them. A square
# grows by at most exp(30) = 1.1e13. So a sum of n l terms stays below 3.4e38, the largest float32, as long as n l times
# the mean square of the differences is below 3e25. float64 has the same range, so that a model gives the same in both.
# The variances of diffusers' encoders end at exp(-30), too; torch.nn.GaussianNLLLoss ends at 1e-6, about exp(-14).
MOST_LOG_VAR = 30.0


def bounded(log_var) -> torch.Tensor:
    """The log variance, or the nearer end of the range; outside of it the gradient is 0."""
    return log_var.clamp(-MOST_LOG_VAR, MOST_LOG_VAR)


def normal_log_density(values, mean, log_var) -> torch.Tensor:
    log_var = bounded(log_var)
    # 1 / sigma is not squared alone: less overflows.
    squares = ((values - mean) * torch.exp(-0.5 * log_var)) ** 2
    return -0.5 * (squares + log_var + math.log(2 * math.pi))
