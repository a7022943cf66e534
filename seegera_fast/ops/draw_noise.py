"""Bernoulli noise of the encoder."""

from __future__ import annotations

from typing import Any

import torch

from .. import reference
from . import checks


def draw_noise(
    seed: int | torch.Tensor,
    num_rows: int,
    num_draws: int,
    noise_dim: int,
    prob: float = 0.5,
    *,
    dtype: torch.dtype = torch.float32,
    device: Any = None,
) -> torch.Tensor:
    """The noise that :func:`noisy_gcn` injects (Eq. psi_1), bit for bit.

    Args:
        seed: an int, or an int64 tensor of one element.
        num_rows, num_draws, noise_dim: sizes n, S and c.
        prob: probability of a one, in [0, 1].
        device: where the noise is made; that of ``seed`` where it is a tensor.

    Returns:
        ``[n, S, c]`` of zeros and ones.

    Raises:
        TypeError, ValueError: a size below 1 (``noise_dim`` may be 0), or a probability outside [0, 1].
    """
    checks.seed(seed)
    checks.positive("num_rows", num_rows)
    checks.positive("num_draws", num_draws)
    if noise_dim != 0:
        checks.positive("noise_dim", noise_dim)
    checks.probability("prob", prob, one=True)
    return reference.draw_noise(seed, num_rows, num_draws, noise_dim, prob, dtype=dtype, device=device)
