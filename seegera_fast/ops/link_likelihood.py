"""log p(A | Z)."""

from __future__ import annotations

import torch

from .. import backends, reference
from ..graph import SparseMatrix
from . import checks


def link_likelihood(
    z: torch.Tensor,
    adjacency: SparseMatrix,
    *,
    pos_weight: float | torch.Tensor = 1.0,
    self_loops: bool = True,
    negatives: int | str = "all",
    seed: int | torch.Tensor = 0,
    reduction: str = "sum",
) -> torch.Tensor:
    """The log likelihood of all links under ``p_ik = sigmoid(z_i . z_k)``, for J samples.

    ``sum_ik pos_weight T_ik log p_ik + (1 - T_ik) log(1 - p_ik)`` over ordered pairs, ``T = A + I``.

    Args:
        z: ``[n, J, d]``.
        adjacency: A, ``n x n``: ``graph.adjacency`` (symmetric, without a diagonal; the values are not looked at).
        pos_weight: factor on the terms of links: a number or a tensor of one element.
        self_loops: count the pairs (i, i), with target 1. Otherwise they are left out.
        negatives: "all", or how many non-edges to draw (uniformly, with replacement, the same for all samples). Drawn
            terms weigh (number of non-edges) / (number drawn), so that the sum is unbiased.
        seed: of the drawn non-edges: an int, or an int64 tensor of one element.
        reduction: "sum", or "mean": divided by the number of ordered pairs, n² (n (n - 1) without self-loops).

    Returns:
        ``[J]``. Differentiable in ``z``.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range; more negatives than there are
            non-edges, or none to draw.
    """
    checks.tensor("z", z, ndim=3)
    checks.positive("z's number of samples", z.shape[1])
    checks.sparse("adjacency", adjacency)
    if adjacency.shape != (z.shape[0], z.shape[0]):
        raise ValueError(f"adjacency: got shape {adjacency.shape}, want ({z.shape[0]}, {z.shape[0]}), like z")
    if not adjacency.symmetric:
        raise ValueError("adjacency: is not known to be symmetric, want graph.adjacency")
    checks.same_kind(z=z, adjacency=adjacency)
    checks.weight("pos_weight", pos_weight)
    checks.choice("reduction", reduction, ("sum", "mean"))
    checks.seed(seed)
    checks.negatives(negatives, adjacency.non_edge_count)
    backends.choose("link_likelihood", z.device)
    return reference.link_likelihood(
        z,
        adjacency,
        pos_weight=pos_weight,
        self_loops=self_loops,
        negatives=negatives,
        seed=seed,
        reduction=reduction,
    )
