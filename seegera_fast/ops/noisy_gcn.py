"""First layer of an encoder, over noisy features."""

from __future__ import annotations

import torch

from .. import backends, reference
from ..graph import SparseMatrix
from . import checks
from .gcn import ACTIVATIONS


def noisy_gcn(
    propagation: SparseMatrix | None,
    features: SparseMatrix,
    weight: torch.Tensor,
    noise_weight: torch.Tensor,
    *,
    num_draws: int,
    seed: int | torch.Tensor,
    bias: torch.Tensor | None = None,
    noise_prob: float = 0.5,
    dropout: float = 0.0,
    activation: str = "relu",
) -> torch.Tensor:
    """``activation(propagation dropout([X | eps_s]) W + bias)`` for S draws of Bernoulli noise (Eq. psi_1).

    Args:
        propagation: ``n x n``, or None: a dense layer over noisy features, as in the mlp encoder and in v1's feature
            encoder (where ``features`` is the transpose, Eq. psi_2).
        features: X, ``n x l``.
        weight: ``[l, h]``, the rows of W that meet X.
        noise_weight: ``[c, h]``, the rows that meet the noise; ``[0, h]`` for a layer without noise.
        num_draws: S.
        seed: an int, or an int64 tensor of one element. The noise is that of ``draw_noise(seed, n, S, c, noise_prob)``.
        bias: ``[h]``.
        noise_prob: probability of a one in the noise, in [0, 1].
        dropout: rate in [0, 1) on ``[X | eps]``, a mask of its own for each draw.
        activation: "relu", "tanh" or "none".

    Returns:
        ``[n, S, h]``. Differentiable in ``weight``, ``noise_weight`` and ``bias``.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range.
    """
    checks.sparse("features", features)
    checks.propagation(propagation, features.shape[0])
    checks.tensor("weight", weight, shape=(features.shape[1], None))
    checks.tensor("noise_weight", noise_weight, shape=(None, weight.shape[1]))
    if bias is not None:
        checks.tensor("bias", bias, shape=(weight.shape[1],))
    checks.same_kind(weight=weight, noise_weight=noise_weight, bias=bias, features=features, propagation=propagation)
    checks.positive("num_draws", num_draws)
    checks.seed(seed)
    checks.probability("noise_prob", noise_prob, one=True)
    checks.probability("dropout", dropout)
    checks.choice("activation", activation, ACTIVATIONS)
    backends.choose("noisy_gcn", weight.device)
    return reference.noisy_gcn(
        propagation,
        features,
        weight,
        noise_weight,
        num_draws=num_draws,
        seed=seed,
        bias=bias,
        noise_prob=noise_prob,
        dropout=dropout,
        activation=activation,
    )
