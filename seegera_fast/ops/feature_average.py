"""Means over nodes or over features, weighted by the features."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Composition
from ..sparse_matrix import SparseMatrix
from .sparse_matmul import sparse_matmul

# The normalised weights are the values of a matrix that is made once. So the mean is a sparse_matmul with this matrix,
# and a kernel could save nothing.
Composition("feature_average", "sparse_matmul")


def feature_average(features: SparseMatrix, values: torch.Tensor, *, to: str = "features") -> torch.Tensor:
    """The weighted mean over nodes (Eq. cor), or over features (the decoder).

    ``to="features"``: ``m_r = sum_i X_ir v_i / sum_i |X_ir|``; ``to="nodes"``: ``m_i = sum_r X_ir v_r / sum_r |X_ir|``.
    A column or row of zeros gives the zero vector.

    Args:
        features: X, ``n x l``.
        values: v, ``[n, S, d]``, or ``[l, S, d]`` with ``to="nodes"``.
        to: "features" or "nodes": what the means belong to.

    Returns:
        ``[l, S, d]``, or ``[n, S, d]`` with ``to="nodes"``. Differentiable in ``values``.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> features = sf.SparseMatrix.from_any(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        >>> values = torch.tensor([[[2.0]], [[4.0]]])  # [n, S, d]: one number for each of two nodes
        >>> sf.ops.feature_average(features, values).flatten()
        tensor([3., 4.])
    """
    checks.sparse("features", features)
    checks.choice("to", to, ("features", "nodes"))
    checks.tensor("values", values, shape=(features.shape[0 if to == "features" else 1], None, None))
    checks.same_kind(values=values, features=features)
    if backends.choose("feature_average", values.device) is backends.REFERENCE:
        return reference.feature_average(features, values, to=to)
    averaged = features.transposed if to == "features" else features
    return sparse_matmul(averaged.row_normalized, values)
