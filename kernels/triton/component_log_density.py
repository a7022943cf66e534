"""``sum_i log N(z_ij; mu_ik, exp(log_var_ik))`` for each sample j and component k, and its gradient.

Floors: common/mixture.py.
"""

from __future__ import annotations

import torch

from .common import mixture
from .common.mixture import row_densities, row_gradients
from .common.sums import sum_rows


def component_log_density(z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
    """``[J, K + 1]``; see ``ops.component_log_density``."""
    densities = row_densities(z, means, log_var)
    return sum_rows(densities.flatten(1), z.dtype).reshape(densities.shape[1:])


def component_log_density_backward(
    z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients like the first three; ``gradient`` ``[J, K + 1]``."""
    return row_gradients(z, means, log_var, None, gradient)


def ahead_of_time() -> list[tuple]:
    """What the launchers launch on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    return mixture.ahead_of_time(weighted=False)
