"""The most probable links that are not there yet."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator
from ..sparse_matrix import SparseMatrix


def _fake(z, col, nodes, k, per_node):
    rows = z.shape[0] if nodes is None else nodes.shape[0]
    if per_node:
        return z.new_empty(rows, k), col.new_empty(rows, k)
    return z.new_empty(k), col.new_empty(k, 2)


OPERATOR = Operator(
    "top_links(Tensor z, Tensor rowptr, Tensor col, Tensor? nodes, Tensor? sides, int k, bool per_node)"
    " -> (Tensor scores, Tensor links)",
    columns=("cpu", "triton"),
    fake=_fake,
)


def top_links(
    z: torch.Tensor,
    adjacency: SparseMatrix,
    k: int,
    *,
    per_node: bool = True,
    nodes: torch.Tensor | None = None,
    sides: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``k`` pairs with the largest scores among those without a link: for each node, or for the whole graph.

    The score of a pair is ``z_i . z_j``, and ``sigmoid`` of it is the probability of the link. It is computed in
    float64 and rounded to the dtype of ``z``. Of equal scores the pair with the smaller numbers comes first. So the
    result does not depend on threads, blocks, backends or the precision that torch uses for products; only in float64
    may the last bits of a score differ between processors. The matrix of all scores is never stored.

    Args:
        z: ``[n, d]``, float32 or float64, such as ``model.embed()``.
        adjacency: the links that are there, ``n x n``, symmetric, without a diagonal, such as ``graph.adjacency``. Its
            values are ignored.
        k: number of pairs, at least 1.
        per_node: True: ``k`` pairs for each node; False: ``k`` pairs ``i < j`` in all.
        nodes: int64 ``[m]``: only these nodes, one row of the result for each; None: all of them. With
            ``per_node=False``, the pairs that have at least one of these nodes.
        sides: int64 or bool ``[n]``: only pairs of nodes with different numbers, for bipartite graphs; None: all pairs.

    Returns:
        The scores ``[m, k]`` in descending order, and the other nodes of these pairs, int64 ``[m, k]``. With
        ``per_node=False``, the scores ``[k]`` and the pairs, int64 ``[k, 2]``. Where there are fewer than ``k`` pairs,
        the rest is minus infinity and -1. A pair whose score is NaN is never among them. Not differentiable.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> adjacency = sf.SparseMatrix.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 4)
        >>> z = torch.tensor([[2.0, 0.0], [1.0, 1.0], [1.0, 2.0], [0.0, 1.0]])
        >>> scores, others = sf.ops.top_links(z, adjacency, k=1)
        >>> others.flatten().tolist()
        [2, 3, 0, 2]
        >>> scores, pairs = sf.ops.top_links(z, adjacency, k=2, per_node=False)
        >>> pairs.tolist()
        [[0, 2], [2, 3]]
        >>> torch.sigmoid(scores)
        tensor([0.8808, 0.8808])
    """
    checks.tensor("z", z, ndim=2)
    num_nodes = z.shape[0]
    checks.undirected("adjacency", adjacency)
    if adjacency.shape != (num_nodes, num_nodes):
        raise ValueError(f"adjacency: got shape {adjacency.shape}, want ({num_nodes}, {num_nodes}), like z")
    checks.same_kind(z=z, adjacency=adjacency)
    k = checks.whole("k", k, least=1, most=checks.MOST_NUMBERS // max(num_nodes, 1))
    per_node = checks.flag("per_node", per_node)
    if nodes is not None:
        checks.numbers("nodes", nodes, z.device, below=num_nodes)
    if sides is not None:
        checks.numbers("sides", sides, z.device, count=num_nodes, dtypes=(torch.int64, torch.bool))
    backend = backends.choose("top_links", z.device)
    if backend is backends.REFERENCE:
        return reference.top_links(z, adjacency, k, per_node=per_node, nodes=nodes, sides=sides)
    return OPERATOR(
        backend,
        z=z.detach(),
        rowptr=adjacency.rowptr,
        col=adjacency.col,
        nodes=nodes,
        sides=None if sides is None else sides.to(torch.int64),
        k=k,
        per_node=per_node,
    )
