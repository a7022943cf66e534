"""A graph convolution, or a dense layer, after the first layer of an encoder or decoder."""

from __future__ import annotations

import torch

from .. import backends, checks, precision, reference
from ..reference import activation as activations
from ..reference.random import threshold
from ..registry import Operator
from ..seeds import seed_tensor
from ..sparse_matrix import SparseMatrix

# The operators take the index of an activation.
ACTIVATIONS = tuple(activations.ACTIVATIONS)


def _fake(hidden, weight):
    return hidden.new_empty(*hidden.shape[:2], weight.shape[1])


def output_unless_linear(output, activation):
    """The output of a layer, or None for a linear layer, whose gradient does not need it."""
    return None if ACTIVATIONS[activation] == "none" else output


def _fake_backward(hidden, weight, hidden_wanted, weight_wanted, bias_wanted):
    rows, draws, width = hidden.shape
    out = weight.shape[1]
    return (
        hidden.new_empty(rows if hidden_wanted else 0, draws, width),
        weight.new_empty(width if weight_wanted else 0, out if weight_wanted else 0),
        weight.new_empty(out if bias_wanted else 0),
    )


# A gradient that is not needed is an empty tensor.
_BACKWARD = Operator(
    "gcn_backward(Tensor gradient, Tensor? output, Transposed? propagation, Tensor hidden, Tensor weight,"
    " int threshold, float scale, Tensor seed, int activation, int precision, bool hidden_wanted,"
    " bool weight_wanted, bool bias_wanted) -> (Tensor hidden, Tensor weight, Tensor bias)",
    columns=("cpu", "triton"),
    fake=_fake_backward,
)

OPERATOR = Operator(
    "gcn(Matrix? propagation, Tensor hidden, Tensor weight, Tensor? bias, int threshold, float scale, Constant seed,"
    " int activation, int precision) -> Tensor output",
    columns=("cpu", "triton"),
    fake=_fake,
    backward=_BACKWARD,
    saved={"output": output_unless_linear},
    by_rows=True,
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
        propagation: ``n x n``; None: a dense layer.
        hidden: H, ``[n, S, h]``.
        weight: W, ``[h, d]``.
        bias: ``[d]``; None: no bias.
        dropout: rate in [0, 1).
        seed: seed of the dropout mask: an int, or an int64 tensor of one element.
        activation: "relu", "tanh" or "none".

    Returns:
        ``[n, S, d]``. Differentiable in ``hidden``, ``weight`` and ``bias``. If ``hidden`` is infinite
        somewhere, the gradient of ``weight`` is NaN, even if the upstream gradient is 0 there.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> hidden, weight = torch.randn(graph.num_nodes, 2, 8), torch.randn(8, 4)  # two draws
        >>> sf.ops.gcn(graph.propagation, hidden, weight, dropout=0.5, seed=0).shape
        torch.Size([1797, 2, 4])
    """
    checks.drawn("hidden", hidden)
    checks.propagation(propagation, hidden.shape[0])
    checks.tensor("weight", weight, shape=(hidden.shape[2], None))
    if bias is not None:
        checks.tensor("bias", bias, shape=(weight.shape[1],))
    checks.same_kind(hidden=hidden, weight=weight, bias=bias, propagation=propagation)
    dropout = checks.probability("dropout", dropout)
    seed = checks.seed(seed, hidden.device)
    checks.choice("activation", activation, ACTIVATIONS)
    backend = backends.choose("gcn", hidden.device)
    if backend is backends.REFERENCE:
        return reference.gcn(propagation, hidden, weight, bias=bias, dropout=dropout, seed=seed, activation=activation)
    return OPERATOR(
        backend,
        propagation=propagation,
        hidden=hidden,
        weight=weight,
        bias=bias,
        threshold=threshold(dropout),
        scale=1 / (1 - dropout),
        seed=seed_tensor(seed, hidden.device),
        activation=ACTIVATIONS.index(activation),
        precision=precision.current(backend, hidden.device),
    )
