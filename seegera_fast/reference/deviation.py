"""Standard deviations from log variances."""

import torch

# Log variances are kept in [-30, 30], so that a standard deviation is between 3.1e-7 and 3.3e6, 2^-21.6 and 2^21.6.
# float32 has 24 bits: beside numbers near 1, a smaller deviation is lost in their rounding, and a larger one loses them.
# A square grows by at most exp(30) = 1.1e13. So the sum over n l entries is below 3.4e38, the largest float32, as long
# as n l times the mean square of the differences is below 3e25. The range is that of both dtypes, so that a model
# gives the same in both. diffusers, too, keeps the log variances of an encoder above -30; torch.nn.GaussianNLLLoss keeps
# variances above 1e-6, which would cut off more.
MOST_LOG_VAR = 30.0


def bounded(log_var) -> torch.Tensor:
    """The log variance, or the end of the range where it is outside; there it gets no gradient."""
    return log_var.clamp(-MOST_LOG_VAR, MOST_LOG_VAR)
