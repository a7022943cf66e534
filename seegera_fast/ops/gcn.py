"""A further layer of an encoder or decoder."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..reference.random import threshold
from ..registry import Operator, once_differentiable
from ..seeds import seed_tensor
from ..sparse_matrix import SparseMatrix
from .sparse_matmul import parts

# Operators take the position; kernels/cpu/common/activation.h has the same order.
ACTIVATIONS = ("relu", "tanh", "none")


def _fake(rowptr, col, values, rowptr_t, col_t, values_t, hidden, weight, bias, threshold, scale, seed, activation):
    return hidden.new_empty(*hidden.shape[:2], weight.shape[1])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    transposed, hidden, weight = inputs[3:6], inputs[6], inputs[7]
    ctx.threshold, ctx.scale, seed, ctx.activation = inputs[9:]
    # A linear layer's gradient doesn't need its output.
    kept = None if ACTIVATIONS[ctx.activation] == "none" else output
    ctx.save_for_backward(kept, *transposed, hidden, weight, seed)


def _backward(call: Any, ctx: Any, gradient: torch.Tensor):
    output, rowptr_t, col_t, values_t, hidden, weight, seed = ctx.saved_tensors
    wanted = [ctx.needs_input_grad[k] for k in (6, 7, 8)]
    drawn = (ctx.threshold, ctx.scale, seed, ctx.activation)
    found = call("gcn_backward", gradient, output, rowptr_t, col_t, values_t, hidden, weight, *drawn, *wanted)
    given = [g if want else None for g, want in zip(found, wanted, strict=True)]
    return (None,) * 6 + tuple(given) + (None,) * 4


OPERATOR = Operator(
    "gcn(Tensor? rowptr, Tensor? col, Tensor? values, Tensor? rowptr_t, Tensor? col_t, Tensor? values_t, Tensor hidden,"
    " Tensor weight, Tensor? bias, int threshold, float scale, Tensor seed, int activation) -> Tensor",
    columns=("cpu", "triton"),
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)


def _fake_backward(
    gradient,
    output,
    rowptr_t,
    col_t,
    values_t,
    hidden,
    weight,
    threshold,
    scale,
    seed,
    activation,
    hidden_wanted,
    weight_wanted,
    bias_wanted,
):
    rows, draws, width = hidden.shape
    out = weight.shape[1]
    return (
        hidden.new_empty(rows if hidden_wanted else 0, draws, width),
        weight.new_empty(width if weight_wanted else 0, out if weight_wanted else 0),
        weight.new_empty(out if bias_wanted else 0),
    )


# The gradients of hidden, weight and bias, each empty where it is not wanted. The propagation comes transposed.
Operator(
    "gcn_backward(Tensor gradient, Tensor? output, Tensor? rowptr_t, Tensor? col_t, Tensor? values_t, Tensor hidden,"
    " Tensor weight, int threshold, float scale, Tensor seed, int activation, bool hidden_wanted, bool weight_wanted,"
    " bool bias_wanted) -> (Tensor, Tensor, Tensor)",
    columns=("cpu", "triton"),
    fake=_fake_backward,
    backward=once_differentiable("gcn"),
)


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
    checks.seed(seed, hidden.device)
    checks.choice("activation", activation, ACTIVATIONS)
    backend = backends.choose("gcn", hidden.device)
    if backend == "reference":
        return reference.gcn(propagation, hidden, weight, bias=bias, dropout=dropout, seed=seed, activation=activation)
    return OPERATOR(
        backend,
        *parts(propagation, backend),
        hidden,
        weight,
        bias,
        threshold(dropout),
        1 / (1 - dropout),
        seed_tensor(seed, hidden.device),
        ACTIVATIONS.index(activation),
    )
