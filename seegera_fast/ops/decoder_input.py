"""The decoder's first product."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..reference.random import threshold
from ..registry import Operator, once_differentiable
from ..seeds import seed_tensor
from ..sparse_matrix import SparseMatrix
from .sparse_matmul import parts


def _fake(
    rowptr,
    col,
    values,
    rowptr_t,
    col_t,
    values_t,
    z_nodes,
    z_features,
    weight,
    average_first,
    threshold,
    scale,
    seed,
):
    rows, samples, depth = z_nodes.shape
    return (
        z_nodes.new_empty(rows, samples, weight.shape[1]),
        z_nodes.new_empty(rows if average_first else 0, samples, depth),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    transposed, (z_nodes, z_features, weight) = inputs[3:6], inputs[6:9]
    ctx.average_first, ctx.threshold, ctx.scale, seed = inputs[9:]
    ctx.mark_non_differentiable(output[1])
    # No zeros for the second result, which has no gradient; where the first has none either, there is nothing to do.
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*transposed, z_nodes, z_features, output[1], weight, seed)


def _backward(call: Any, ctx: Any, gradient: torch.Tensor | None, _: None):
    if gradient is None:
        return (None,) * 13
    *operands, seed = ctx.saved_tensors
    wanted = [ctx.needs_input_grad[k] for k in (6, 7, 8)]
    drawn = (ctx.average_first, ctx.threshold, ctx.scale, seed)
    found = call("decoder_input_backward", gradient, *operands, *drawn, *wanted)
    given = [g if want else None for g, want in zip(found, wanted, strict=True)]
    return (None,) * 6 + tuple(given) + (None,) * 4


# The matrix is X with normalised rows. The second result is the average, [n, J, d], where it comes before the product
# with the weight; empty otherwise. It is for backward.
OPERATOR = Operator(
    "decoder_input(Tensor rowptr, Tensor col, Tensor values, Tensor rowptr_t, Tensor col_t, Tensor values_t,"
    " Tensor z_nodes, Tensor z_features, Tensor weight, bool average_first, int threshold, float scale, Tensor seed)"
    " -> (Tensor, Tensor)",
    columns=("cpu", "triton"),
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)


def _fake_backward(
    gradient,
    rowptr_t,
    col_t,
    values_t,
    z_nodes,
    z_features,
    averaged,
    weight,
    average_first,
    threshold,
    scale,
    seed,
    nodes_wanted,
    features_wanted,
    weight_wanted,
):
    return tuple(
        tensor.new_empty(tensor.shape[0] if wanted else 0, *tensor.shape[1:])
        for tensor, wanted in ((z_nodes, nodes_wanted), (z_features, features_wanted), (weight, weight_wanted))
    )


# The gradients of z_nodes, z_features and weight, each empty where it is not wanted.
Operator(
    "decoder_input_backward(Tensor gradient, Tensor rowptr_t, Tensor col_t, Tensor values_t, Tensor z_nodes,"
    " Tensor z_features, Tensor averaged, Tensor weight, bool average_first, int threshold, float scale, Tensor seed,"
    " bool nodes_wanted, bool features_wanted, bool weight_wanted) -> (Tensor, Tensor, Tensor)",
    columns=("cpu", "triton"),
    fake=_fake_backward,
    backward=once_differentiable("decoder_input"),
)

# Operations of a dense product in the time that a sparse one takes for one.
_DENSE_RATE = 8


def _average_first(features: SparseMatrix, depth: int, width: int) -> bool:
    """Whether ``(N zF) W_f`` is cheaper than ``N (zF W_f)``."""
    rows, cols = features.shape
    return (rows - cols) * depth * width < _DENSE_RATE * features.nnz * (width - depth)


def decoder_input(
    features: SparseMatrix,
    z_nodes: torch.Tensor,
    z_features: torch.Tensor,
    weight: torch.Tensor,
    *,
    dropout: float = 0.0,
    seed: int | torch.Tensor = 0,
) -> torch.Tensor:
    """``dropout([z | zbar]) W`` with ``zbar_i = sum_r X_ir zF_r / sum_r |X_ir|``.

    Args:
        features: X, ``n x l``.
        z_nodes: z, ``[n, J, d]``.
        z_features: zF, ``[l, J, d]``.
        weight: W, ``[2 d, h]``: the first d rows meet z.
        dropout: rate in [0, 1) on ``[z | zbar]``.
        seed: of the dropout mask: an int, or an int64 tensor of one element.

    Returns:
        ``[n, J, h]``. Differentiable in ``z_nodes``, ``z_features`` and ``weight``.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range.
    """
    checks.sparse("features", features)
    checks.tensor("z_nodes", z_nodes, shape=(features.shape[0], None, None))
    checks.tensor("z_features", z_features, shape=(features.shape[1], *z_nodes.shape[1:]))
    checks.tensor("weight", weight, shape=(2 * z_nodes.shape[2], None))
    checks.same_kind(z_nodes=z_nodes, z_features=z_features, weight=weight, features=features)
    checks.probability("dropout", dropout)
    checks.seed(seed, weight.device)
    backend = backends.choose("decoder_input", weight.device)
    if backend == "reference":
        return reference.decoder_input(features, z_nodes, z_features, weight, dropout=dropout, seed=seed)
    out, _ = OPERATOR(
        backend,
        *parts(features.row_normalized, backend),
        z_nodes,
        z_features,
        weight,
        dropout > 0 or _average_first(features, z_nodes.shape[2], weight.shape[1]),
        threshold(dropout),
        1 / (1 - dropout),
        seed_tensor(seed, weight.device),
    )
    return out
