"""First layer of an encoder, over noisy features."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..reference.random import threshold
from ..registry import Operator, once_differentiable
from ..seeds import seed_tensor
from ..sparse_matrix import SparseMatrix
from .gcn import ACTIVATIONS
from .sparse_matmul import parts


def _fake(
    rowptr,
    col,
    values,
    rowptr_t,
    col_t,
    values_t,
    x_rowptr,
    x_col,
    x_values,
    x_rowptr_t,
    x_col_t,
    x_values_t,
    weight,
    noise_weight,
    bias,
    num_draws,
    seed,
    noise_threshold,
    threshold,
    scale,
    activation,
):
    return weight.new_empty(x_rowptr.shape[0] - 1, num_draws, weight.shape[1])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    matrices, noise_weight, seed = inputs[:12], inputs[13], inputs[16]
    ctx.noise_dim = noise_weight.shape[0]
    ctx.noise_threshold, ctx.threshold, ctx.scale, ctx.activation = inputs[17:]
    # A linear layer's gradient doesn't need its output; no layer's needs the weights, as X and the noise are constants.
    kept = None if ACTIVATIONS[ctx.activation] == "none" else output
    ctx.save_for_backward(kept, seed, *matrices)


def _backward(call: Any, ctx: Any, gradient: torch.Tensor):
    output, seed, *matrices = ctx.saved_tensors
    wanted = [ctx.needs_input_grad[k] for k in (12, 13, 14)]
    drawn = (ctx.noise_dim, seed, ctx.noise_threshold, ctx.threshold, ctx.scale, ctx.activation)
    found = call("noisy_gcn_backward", gradient, output, *matrices, *drawn, wanted[0], wanted[2])
    given = [g if want else None for g, want in zip(found, wanted, strict=True)]
    return (None,) * 12 + tuple(given) + (None,) * 6


_MATRICES = (
    "Tensor? rowptr, Tensor? col, Tensor? values, Tensor? rowptr_t, Tensor? col_t, Tensor? values_t, "
    "Tensor x_rowptr, Tensor x_col, Tensor x_values, Tensor x_rowptr_t, Tensor x_col_t, Tensor x_values_t"
)

OPERATOR = Operator(
    f"noisy_gcn({_MATRICES}, Tensor weight, Tensor noise_weight, Tensor? bias, int num_draws, Tensor seed,"
    " int noise_threshold, int threshold, float scale, int activation) -> Tensor",
    columns=("cpu", "cuda", "triton"),
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)


def _fake_backward(
    gradient,
    output,
    rowptr,
    col,
    values,
    rowptr_t,
    col_t,
    values_t,
    x_rowptr,
    x_col,
    x_values,
    x_rowptr_t,
    x_col_t,
    x_values_t,
    noise_dim,
    seed,
    noise_threshold,
    threshold,
    scale,
    activation,
    weight_wanted,
    bias_wanted,
):
    width = gradient.shape[2]
    return (
        gradient.new_empty(x_rowptr_t.shape[0] - 1 if weight_wanted else 0, width),
        gradient.new_empty(noise_dim, width),
        gradient.new_empty(width if bias_wanted else 0),
    )


# The gradients of weight, noise_weight and bias; the first and the last are empty where they are not wanted.
Operator(
    f"noisy_gcn_backward(Tensor gradient, Tensor? output, {_MATRICES}, int noise_dim, Tensor seed,"
    " int noise_threshold, int threshold, float scale, int activation, bool weight_wanted, bool bias_wanted)"
    " -> (Tensor, Tensor, Tensor)",
    columns=("cpu", "cuda", "triton"),
    fake=_fake_backward,
    backward=once_differentiable("noisy_gcn"),
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
    checks.seed(seed, weight.device)
    checks.probability("noise_prob", noise_prob, one=True)
    checks.probability("dropout", dropout)
    checks.choice("activation", activation, ACTIVATIONS)
    backend = backends.choose("noisy_gcn", weight.device)
    if backend == "reference":
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
        *parts(propagation, backend),
        *parts(features, backend),
        weight,
        noise_weight,
        bias,
        num_draws,
        seed_tensor(seed, weight.device),
        threshold(noise_prob),
        threshold(dropout),
        1 / (1 - dropout),
        ACTIVATIONS.index(activation),
    )
