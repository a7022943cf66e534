"""The decoder's first product."""

from __future__ import annotations

import torch

from .. import backends, checks, precision, reference
from ..costs import Costs
from ..reference.random import threshold
from ..registry import Operator
from ..seeds import seed_tensor
from ..sparse_matrix import SparseMatrix


def _fake(z_nodes, weight, average_first):
    rows, samples, depth = z_nodes.shape
    return (
        z_nodes.new_empty(rows, samples, weight.shape[1]),
        z_nodes.new_empty(rows if average_first else 0, samples, depth),
    )


def _fake_backward(z_nodes, z_features, weight, z_nodes_wanted, z_features_wanted, weight_wanted):
    return tuple(
        tensor.new_empty(tensor.shape[0] if needed else 0, *tensor.shape[1:])
        for tensor, needed in ((z_nodes, z_nodes_wanted), (z_features, z_features_wanted), (weight, weight_wanted))
    )


# A gradient that is not needed is an empty tensor.
_BACKWARD = Operator(
    "decoder_input_backward(Tensor gradient, Transposed weights, Tensor z_nodes, Tensor z_features, Tensor averaged,"
    " Tensor weight, bool average_first, int threshold, float scale, Tensor seed, int precision, bool z_nodes_wanted,"
    " bool z_features_wanted, bool weight_wanted) -> (Tensor z_nodes, Tensor z_features, Tensor weight)",
    columns=("cpu", "triton"),
    fake=_fake_backward,
)

# The matrix is X with normalised rows. The second result is for backward: the average, [n, J, d], if the average is
# taken before the product with the weight, else an empty tensor.
OPERATOR = Operator(
    "decoder_input(Matrix weights, Tensor z_nodes, Tensor z_features, Tensor weight, bool average_first,"
    " int threshold, float scale, Constant seed, int precision) -> (Tensor output, Constant averaged)",
    columns=("cpu", "triton"),
    fake=_fake,
    backward=_BACKWARD,
)


def average_first(costs: Costs, features: SparseMatrix, depth: int, width: int) -> bool:
    """Whether ``(N zF) W_f`` is cheaper than ``N (zF W_f)``."""
    rows, cols = features.shape
    return (rows - cols) * depth * width < costs.averaging * features.nnz * (width - depth)


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
        weight: W, ``[2 d, h]``: the first d rows multiply z.
        dropout: rate in [0, 1) on ``[z | zbar]``.
        seed: seed of the dropout mask: an int, or an int64 tensor of one element.

    Returns:
        ``[n, J, h]``. Differentiable in ``z_nodes``, ``z_features`` and ``weight``. If an embedding is
        infinite somewhere, the gradient of ``weight`` is NaN, even if the upstream gradient is 0 there.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> z_nodes, z_features = torch.randn(graph.num_nodes, 1, 8), torch.randn(graph.num_features, 1, 8)
        >>> sf.ops.decoder_input(graph.features, z_nodes, z_features, torch.randn(16, 4)).shape
        torch.Size([1797, 1, 4])
    """
    checks.sparse("features", features)
    checks.tensor("z_nodes", z_nodes, shape=(features.shape[0], None, None))
    checks.drawn("z_nodes", z_nodes)
    checks.tensor("z_features", z_features, shape=(features.shape[1], *z_nodes.shape[1:]))
    checks.tensor("weight", weight, shape=(2 * z_nodes.shape[2], None))
    checks.same_kind(z_nodes=z_nodes, z_features=z_features, weight=weight, features=features)
    dropout = checks.probability("dropout", dropout)
    seed = checks.seed(seed, weight.device)
    backend = backends.choose("decoder_input", weight.device)
    if backend is backends.REFERENCE:
        return reference.decoder_input(features, z_nodes, z_features, weight, dropout=dropout, seed=seed)
    out, _ = OPERATOR(
        backend,
        weights=features.row_normalized,
        z_nodes=z_nodes,
        z_features=z_features,
        weight=weight,
        average_first=dropout > 0 or average_first(backend.costs, features, z_nodes.shape[2], weight.shape[1]),
        threshold=threshold(dropout),
        scale=1 / (1 - dropout),
        seed=seed_tensor(seed, weight.device),
        precision=precision.current(backend, weight.device),
    )
    return out
