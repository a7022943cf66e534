"""The decoder's first product."""

from __future__ import annotations

import torch

from .. import backends, reference
from ..graph import SparseMatrix
from . import checks


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
    checks.seed(seed)
    backends.choose("decoder_input", weight.device)
    return reference.decoder_input(features, z_nodes, z_features, weight, dropout=dropout, seed=seed)
