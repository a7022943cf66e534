"""Dropout without a stored mask."""

from __future__ import annotations

import torch

from .. import backends, reference
from . import checks


def dropout(values: torch.Tensor, rate: float, seed: int | torch.Tensor) -> torch.Tensor:
    """Inverted dropout: an element is zero with probability ``rate``, else divided by ``1 - rate``.

    Args:
        values: ``[n, S, d]``.
        rate: in [0, 1); 0 gives ``values`` back.
        seed: an int, or an int64 tensor of one element; the same seed and shape give the same mask on every backend.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size or range.
    """
    checks.tensor("values", values, ndim=3)
    checks.probability("rate", rate)
    checks.seed(seed)
    backends.choose("dropout", values.device)
    return reference.dropout(values, rate, seed)
