"""log p(X | H W)."""

from __future__ import annotations

import torch

from .. import backends, reference
from ..graph import SparseMatrix
from . import checks

LIKELIHOODS = ("bernoulli", "mse", "gaussian")


def feature_likelihood(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    features: SparseMatrix,
    *,
    likelihood: str = "bernoulli",
    pos_weight: float | torch.Tensor = 1.0,
    log_var_weight: torch.Tensor | None = None,
    reduction: str = "sum",
) -> torch.Tensor:
    """The log likelihood of all features given the decoder's last layer ``O = H W``, for J samples.

    - "bernoulli": ``pos_weight x log sigmoid(o) + (1 - x) log(1 - sigmoid(o))``, for x in [0, 1];
    - "mse": ``-(x - o)² - log(pi) / 2``: normal with variance 1/2, so that the squared error has factor 1;
    - "gaussian": normal with mean o and log variance ``H V``, V = ``log_var_weight``.

    Args:
        hidden: H, ``[n, J, h]``.
        weight: W, ``[h, l]``, or one for each sample, ``[J, h, l]``.
        features: X, ``n x l``.
        pos_weight: factor on the terms of ones ("bernoulli" only): a number or a tensor of one element.
        log_var_weight: V, ``[h, l]``; goes with "gaussian".
        reduction: "sum", or "mean": divided by n l.

    Returns:
        ``[J]``. Differentiable in ``hidden``, ``weight`` and ``log_var_weight``.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range.
    """
    checks.tensor("hidden", hidden, ndim=3)
    checks.positive("hidden's number of samples", hidden.shape[1])
    checks.sparse("features", features)
    if features.shape[0] != hidden.shape[0]:
        raise ValueError(f"features: got {features.shape[0]} rows, want {hidden.shape[0]}, one per row of hidden")
    leading = (hidden.shape[1],) if isinstance(weight, torch.Tensor) and weight.ndim == 3 else ()
    checks.tensor("weight", weight, shape=(*leading, hidden.shape[2], features.shape[1]))
    checks.choice("likelihood", likelihood, LIKELIHOODS)
    if (likelihood == "gaussian") != (log_var_weight is not None):
        raise ValueError(
            f"log_var_weight: got {'none' if log_var_weight is None else 'one'} with likelihood {likelihood!r}; it "
            'goes with "gaussian" and only there'
        )
    if log_var_weight is not None:
        checks.tensor("log_var_weight", log_var_weight, shape=(hidden.shape[2], features.shape[1]))
    checks.same_kind(hidden=hidden, weight=weight, log_var_weight=log_var_weight, features=features)
    checks.weight("pos_weight", pos_weight)
    checks.choice("reduction", reduction, ("sum", "mean"))
    backends.choose("feature_likelihood", hidden.device)
    return reference.feature_likelihood(
        hidden,
        weight,
        features,
        likelihood=likelihood,
        pos_weight=pos_weight,
        log_var_weight=log_var_weight,
        reduction=reduction,
    )
