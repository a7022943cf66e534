"""The log likelihood of the links, log p(A | Z)."""

from __future__ import annotations

import torch

from .. import backends, checks, precision, reference
from ..registry import Operator
from ..seeds import seed_tensor
from ..sparse_matrix import SparseMatrix
from ..transforms import wants_gradient


def _fake(z, with_gradient):
    num_nodes, num_samples, width = z.shape
    dtype = torch.promote_types(z.dtype, torch.float32)
    size = (num_samples, num_nodes if with_gradient else 0, width)
    return z.new_empty(num_samples, dtype=dtype), z.new_empty(size, dtype=dtype)


def _fake_backward(unit):
    num_samples, num_nodes, width = unit.shape
    return unit.new_empty(num_nodes, num_samples, width)


_BACKWARD = Operator(
    "link_likelihood_backward(Tensor unit, Tensor gradient) -> Tensor z",
    columns=("cpu", "triton"),
    fake=_fake_backward,
    draws=({"unit": 0, "gradient": 0}, (1,)),
)

# The gradient is linear in the upstream scalar. So the forward kernel computes it along with the scores, for an
# upstream of one, [J, n, d], and backward scales it. Value and gradient of a float16 or bfloat16 z are float32, so that
# a sum over many nodes neither overflows nor is rounded before it is scaled.
# negatives = 0 means all pairs; gaps is empty then.
OPERATOR = Operator(
    "link_likelihood(Tensor z, Constant rowptr, Constant col, Constant gaps, Constant pos_weight, Constant seed,"
    " bool self_loops, int negatives, int precision, bool with_gradient) -> (Tensor total, Constant unit)",
    columns=("cpu", "triton"),
    fake=_fake,
    backward=_BACKWARD,
    draws=({"z": 1}, (0, 0)),
)


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

    ``sum_ik pos_weight T_ik log p_ik + (1 - T_ik) log(1 - p_ik)`` over ordered pairs (i, k), with ``T = A + I``.

    On a GPU, with all pairs, the term that a link would have as a non-edge is first added and then taken away. A
    rounding error of that sum is left, also where links are certain and their exact terms are 0; and a link whose score
    is infinite makes the value minus infinity. A CPU leaves those terms out.

    Args:
        z: ``[n, J, d]``, float32 or float64. The Triton kernels take float16 and bfloat16 too, and compute sums in
            float32.
        adjacency: A, ``n x n``, symmetric, without a diagonal, such as ``graph.adjacency``. Its values are ignored.
        pos_weight: factor on the terms of links: a number or a tensor of one element.
        self_loops: include the pairs (i, i), with target 1.
        negatives: "all", or how many non-edges to draw (uniformly, with replacement, the same ones for all samples).
            Drawn terms are multiplied by (number of non-edges) / (number drawn), so that the sum is unbiased.
        seed: seed of the drawn non-edges: an int, or an int64 tensor of one element.
        reduction: "sum", or "mean": the sum divided by the number of ordered pairs, n² (without self-loops n (n - 1)).

    Returns:
        ``[J]``, float32 if ``z`` is float16 or bfloat16. Differentiable in ``z``. A sample whose upstream gradient is 0
        gets a gradient of 0, even where it is infinite or NaN.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range; more negatives than the graph
            has non-edges.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> adjacency = sf.SparseMatrix.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> z = torch.zeros(3, 1, 2, requires_grad=True)  # one sample
        >>> log_p = sf.ops.link_likelihood(z, adjacency)
        >>> log_p.shape
        torch.Size([1])
        >>> (-log_p.sum()).backward()
    """
    checks.tensor("z", z, ndim=3, half="link_likelihood")
    checks.positive("z's number of samples", z.shape[1])
    checks.undirected("adjacency", adjacency)
    if adjacency.shape != (z.shape[0], z.shape[0]):
        raise ValueError(f"adjacency: got shape {adjacency.shape}, want ({z.shape[0]}, {z.shape[0]}), like z")
    checks.same_kind(z=z, adjacency=adjacency)
    pos_weight = checks.weight("pos_weight", pos_weight)
    self_loops = checks.flag("self_loops", self_loops)
    checks.choice("reduction", reduction, checks.REDUCTIONS)
    seed = checks.seed(seed, z.device)
    negatives = checks.negatives(negatives, adjacency.non_edge_count)
    backend = backends.choose("link_likelihood", z.device)
    if backend is backends.REFERENCE:
        return reference.link_likelihood(
            z,
            adjacency,
            pos_weight=pos_weight,
            self_loops=self_loops,
            negatives=negatives,
            seed=seed,
            reduction=reduction,
        )
    drawn = negatives != "all"
    total, _ = OPERATOR(
        backend,
        z=z,
        rowptr=adjacency.rowptr,
        col=adjacency.col,
        gaps=adjacency.non_edges.gaps if drawn else adjacency.col.new_empty(0),
        pos_weight=checks.one_element(pos_weight, z.device),
        seed=seed_tensor(seed, z.device),
        self_loops=self_loops,
        negatives=negatives if drawn else 0,
        precision=precision.current(backend, z.device),
        with_gradient=wants_gradient(z),
    )
    if reduction == "sum":
        return total
    num_nodes = z.shape[0]
    return total / max(num_nodes * num_nodes if self_loops else num_nodes * (num_nodes - 1), 1)
