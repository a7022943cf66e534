"""A further layer of an encoder or decoder."""

from __future__ import annotations

import torch

from .. import backends, reference
from ..graph import SparseMatrix
from . import checks

ACTIVATIONS = ("relu", "tanh", "none")


def gcn(
    propagation: SparseMatrix | None,
    hidden: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int | torch.Tensor = 0,
    activation: str = "relu",
) -> torch.Tensor:
    """``activation(propagation dropout(H) W + bias)`` for S draws.

    Args:
        propagation: ``n x n``, or None for a dense layer.
        hidden: H, ``[n, S, h]``.
        weight: W, ``[h, d]``.
        bias: ``[d]``.
        dropout: rate in [0, 1).
        seed: of the dropout mask: an int, or an int64 tensor of one element.
        activation: "relu", "tanh" or "none".

    Returns:
        ``[n, S, d]``. Differentiable in ``hidden``, ``weight`` and ``bias``.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range.
    """
    checks.tensor("hidden", hidden, ndim=3)
    checks.propagation(propagation, hidden.shape[0])
    checks.tensor("weight", weight, shape=(hidden.shape[2], None))
    if bias is not None:
        checks.tensor("bias", bias, shape=(weight.shape[1],))
    checks.same_kind(hidden=hidden, weight=weight, bias=bias, propagation=propagation)
    checks.probability("dropout", dropout)
    checks.seed(seed)
    checks.choice("activation", activation, ACTIVATIONS)
    backends.choose("gcn", hidden.device)
    return reference.gcn(propagation, hidden, weight, bias=bias, dropout=dropout, seed=seed, activation=activation)
