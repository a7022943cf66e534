"""The first layer of an encoder, over noisy features."""

from __future__ import annotations

import torch

from .. import backends, checks, precision, reference
from ..reference.random import threshold
from ..registry import Operator
from ..seeds import seed_tensor
from ..sparse_matrix import SparseMatrix
from .gcn import ACTIVATIONS, output_unless_linear


def _fake(features, weight, num_draws):
    return weight.new_empty(features.rowptr.shape[0] - 1, num_draws, weight.shape[1])


def _fake_backward(gradient, features, noise_dim, weight_wanted, bias_wanted):
    width = gradient.shape[2]
    return (
        gradient.new_empty(features.rowptr_t.shape[0] - 1 if weight_wanted else 0, width),
        gradient.new_empty(noise_dim, width),
        gradient.new_empty(width if bias_wanted else 0),
    )


# A gradient that is not needed is an empty tensor. The gradients don't depend on the weights: X and the noise are
# constants.
_BACKWARD = Operator(
    "noisy_gcn_backward(Tensor gradient, Tensor? output, Matrix? propagation, Matrix features, int noise_dim,"
    " Tensor seed, int noise_threshold, int threshold, float scale, int activation, int precision,"
    " bool weight_wanted, bool bias_wanted) -> (Tensor weight, Tensor noise_weight, Tensor bias)",
    columns=("cpu", "cuda", "triton"),
    fake=_fake_backward,
)

OPERATOR = Operator(
    "noisy_gcn(Matrix? propagation, Matrix features, Tensor weight, Tensor noise_weight, Tensor? bias, int num_draws,"
    " Constant seed, int noise_threshold, int threshold, float scale, int activation, int precision)"
    " -> Tensor output",
    columns=("cpu", "cuda", "triton"),
    fake=_fake,
    backward=_BACKWARD,
    saved={"output": output_unless_linear, "noise_dim": lambda noise_weight: noise_weight.shape[0]},
    by_rows=True,
)


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
        propagation: ``n x n``; None: a dense layer, as in the mlp encoder and in v1's feature encoder (where
            ``features`` is the transpose, Eq. psi_2).
        features: X, ``n x l``.
        weight: ``[l, h]``, the rows of W that multiply X.
        noise_weight: ``[c, h]``, the rows of W that multiply the noise; ``[0, h]``: no noise.
        num_draws: S.
        seed: an int, or an int64 tensor of one element. The noise is that of ``draw_noise(seed, n, S, c, noise_prob)``.
        bias: ``[h]``; None: no bias.
        noise_prob: probability of a one in the noise, in [0, 1].
        dropout: rate in [0, 1) on ``[X | eps]``, with a different mask for each draw.
        activation: "relu", "tanh" or "none".

    Returns:
        ``[n, S, h]``. Differentiable in ``weight``, ``noise_weight`` and ``bias``.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> weight, noise_weight = torch.randn(graph.num_features, 4), torch.randn(5, 4)
        >>> sf.ops.noisy_gcn(graph.propagation, graph.features, weight, noise_weight, num_draws=2, seed=0).shape
        torch.Size([1797, 2, 4])
    """
    checks.sparse("features", features)
    checks.propagation(propagation, features.shape[0])
    checks.tensor("weight", weight, shape=(features.shape[1], None))
    checks.tensor("noise_weight", noise_weight, shape=(None, weight.shape[1]))
    if bias is not None:
        checks.tensor("bias", bias, shape=(weight.shape[1],))
    checks.same_kind(weight=weight, noise_weight=noise_weight, bias=bias, features=features, propagation=propagation)
    num_draws = checks.draws("num_draws", num_draws)
    seed = checks.seed(seed, weight.device)
    noise_prob = checks.probability("noise_prob", noise_prob, one=True)
    dropout = checks.probability("dropout", dropout)
    checks.choice("activation", activation, ACTIVATIONS)
    backend = backends.choose("noisy_gcn", weight.device)
    if backend is backends.REFERENCE:
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
    return OPERATOR(
        backend,
        propagation=propagation,
        features=features,
        weight=weight,
        noise_weight=noise_weight,
        bias=bias,
        num_draws=num_draws,
        seed=seed_tensor(seed, weight.device),
        noise_threshold=threshold(noise_prob),
        threshold=threshold(dropout),
        scale=1 / (1 - dropout),
        activation=ACTIVATIONS.index(activation),
        precision=precision.current(backend, weight.device),
    )
