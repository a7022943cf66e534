"""The Bernoulli noise of the encoder."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..reference.random import threshold
from ..registry import Operator
from ..seeds import seed_tensor

# More would not fit into the memory of any machine, nor their number of bytes into 64 bits.


def _fake(seed, num_rows, num_draws, noise_dim, dtype):
    return seed.new_empty(num_rows, num_draws, noise_dim, dtype=dtype)


OPERATOR = Operator(
    "draw_noise(Tensor seed, int num_rows, int num_draws, int noise_dim, int threshold, ScalarType dtype)"
    " -> Tensor noise",
    columns=("cpu", "triton"),
    fake=_fake,
)


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
    """Draws the noise of :func:`noisy_gcn` (Eq. psi_1): with the same seed, the same bits.

    Args:
        seed: an int, or an int64 tensor of one element.
        num_rows, num_draws, noise_dim: sizes n, S and c.
        prob: probability of a one, in [0, 1].
        dtype: torch.float32 or torch.float64.
        device: the device of the noise; None: that of ``seed`` if it is a tensor, else torch's default device.

    Returns:
        ``[n, S, c]`` of zeros and ones.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, a size below 1 (``noise_dim`` may be 0), or a probability
            outside [0, 1].

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> noise = sf.ops.draw_noise(0, num_rows=4, num_draws=2, noise_dim=3)
        >>> noise.shape, noise.unique()
        (torch.Size([4, 2, 3]), tensor([0., 1.]))
    """
    device = None if device is None else checks.device("device", device)
    seed = checks.seed(seed, device)
    num_rows = checks.positive("num_rows", num_rows)
    num_draws = checks.draws("num_draws", num_draws)
    noise_dim = checks.whole("noise_dim", noise_dim)
    total = num_rows * num_draws * noise_dim
    if total >= checks.MOST_NUMBERS:
        raise ValueError(f"num_rows, num_draws, noise_dim: got {checks.shown(total)} numbers in all, want below 2^60")
    prob = checks.probability("prob", prob, one=True)
    checks.dtype("dtype", dtype)
    seed = seed_tensor(seed, device)
    backend = backends.choose("draw_noise", seed.device)
    if backend is backends.REFERENCE:
        return reference.draw_noise(seed, num_rows, num_draws, noise_dim, prob, dtype=dtype)
    return OPERATOR(
        backend,
        seed=seed,
        num_rows=num_rows,
        num_draws=num_draws,
        noise_dim=noise_dim,
        threshold=threshold(prob),
        dtype=dtype,
    )
