"""log p(A | Z)."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..registry import Operator, once_differentiable
from ..seeds import seed_tensor
from ..sparse_matrix import SparseMatrix


def _fake(z, rowptr, col, gaps, pos_weight, seed, self_loops, negatives, with_gradient):
    num_nodes, num_samples, width = z.shape
    dtype = torch.promote_types(z.dtype, torch.float32)
    size = (num_samples, num_nodes if with_gradient else 0, width)
    return z.new_empty(num_samples, dtype=dtype), z.new_empty(size, dtype=dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.dtype = inputs[0].dtype
    ctx.set_materialize_grads(False)


def _backward(call: Any, ctx: Any, upstream: torch.Tensor | None, _: None):
    if upstream is None:
        return (None,) * 9
    (gradient,) = ctx.saved_tensors
    return (call("link_likelihood_backward", gradient, upstream).to(ctx.dtype), *(None,) * 8)


# The gradient is linear in the upstream scalar: the kernel makes it for an upstream of one, [J, n, d], while it has the
# scores at hand, and backward scales it. Value and gradient of a float16 or bfloat16 z are float32, so that a sum over
# many nodes neither overflows nor is rounded before it is scaled. negatives = 0 stands for all pairs; gaps is empty
# then.
OPERATOR = Operator(
    "link_likelihood(Tensor z, Tensor rowptr, Tensor col, Tensor gaps, Tensor pos_weight, Tensor seed, bool self_loops,"
    " int negatives, bool with_gradient) -> (Tensor, Tensor)",
    columns=("cpu", "triton"),
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)

Operator(
    "link_likelihood_backward(Tensor gradient, Tensor upstream) -> Tensor",
    columns=("cpu", "triton"),
    fake=lambda gradient, upstream: gradient.new_empty(gradient.shape[1], gradient.shape[0], gradient.shape[2]),
    backward=once_differentiable("link_likelihood"),
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

    ``sum_ik pos_weight T_ik log p_ik + (1 - T_ik) log(1 - p_ik)`` over ordered pairs, ``T = A + I``.

    Args:
        z: ``[n, J, d]``, float32 or float64; with the Triton kernels float16 or bfloat16 too, whose sums are float32.
        adjacency: A, ``n x n``: ``graph.adjacency`` (symmetric, without a diagonal; the values are not looked at).
        pos_weight: factor on the terms of links: a number or a tensor of one element.
        self_loops: count the pairs (i, i), with target 1. Otherwise they are left out.
        negatives: "all", or how many non-edges to draw (uniformly, with replacement, the same for all samples). Drawn
            terms weigh (number of non-edges) / (number drawn), so that the sum is unbiased.
        seed: of the drawn non-edges: an int, or an int64 tensor of one element.
        reduction: "sum", or "mean": divided by the number of ordered pairs, n² (n (n - 1) without self-loops).

    Returns:
        ``[J]``, float32 where z is float16 or bfloat16. Differentiable in ``z``.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range; more negatives than there are
            non-edges, or none to draw.
    """
    checks.tensor("z", z, ndim=3, half="link_likelihood")
    checks.positive("z's number of samples", z.shape[1])
    checks.sparse("adjacency", adjacency)
    if adjacency.shape != (z.shape[0], z.shape[0]):
        raise ValueError(f"adjacency: got shape {adjacency.shape}, want ({z.shape[0]}, {z.shape[0]}), like z")
    if not (adjacency.symmetric and adjacency.hollow):
        raise ValueError("adjacency: is not known to be symmetric without a diagonal, want graph.adjacency")
    checks.same_kind(z=z, adjacency=adjacency)
    checks.weight("pos_weight", pos_weight)
    checks.choice("reduction", reduction, ("sum", "mean"))
    checks.seed(seed, z.device)
    checks.negatives(negatives, adjacency.non_edge_count)
    backend = backends.choose("link_likelihood", z.device)
    if backend == "reference":
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
        z,
        adjacency.rowptr,
        adjacency.col,
        adjacency.non_edges.gaps if drawn else adjacency.col.new_empty(0),
        checks.one_element(pos_weight, z.device),
        seed_tensor(seed, z.device),
        self_loops,
        negatives if drawn else 0,
        z.requires_grad and torch.is_grad_enabled(),
    )
    if reduction == "sum":
        return total
    num_nodes = z.shape[0]
    return total / max(num_nodes * num_nodes if self_loops else num_nodes * (num_nodes - 1), 1)
