"""The adjacency with self-loops."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator
from ..sparse_matrix import SparseMatrix


def _fake(rowptr, col, values):
    entries = col.shape[0] + rowptr.shape[0] - 1
    looped = rowptr.new_empty(rowptr.shape), col.new_empty(entries), values.new_empty(entries)
    return *looped, col.new_empty(entries), col.new_empty(col.shape[0] // 2, 2)


OPERATOR = Operator(
    "add_self_loops(Tensor rowptr, Tensor col, Tensor values)"
    " -> (Tensor rowptr, Tensor col, Tensor values, Tensor edge, Tensor edges)",
    columns=("cpu",),
    fake=_fake,
)


def add_self_loops(adjacency: SparseMatrix) -> tuple[SparseMatrix, torch.Tensor, torch.Tensor]:
    """``A + I``, the edge that each of its entries belongs to, and the edges.

    Args:
        adjacency: ``n x n``, symmetric, without a diagonal, such as ``graph.adjacency``.

    Returns:
        A symmetric matrix ``n x n`` with ``nnz + n`` entries; int64 ``[nnz + n]``: the number of the edge of each
        entry, -1 for a self-loop; and int64 ``[nnz / 2, 2]``: each edge once, ``i < j``, in ascending order. Not
        differentiable.

    Raises:
        TypeError, ValueError: not a matrix, or one that is not known to be symmetric without a diagonal.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> adjacency = sf.SparseMatrix.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> looped, edge, edges = sf.ops.add_self_loops(adjacency)
        >>> looped.to_dense()
        tensor([[1., 1., 0.],
                [1., 1., 1.],
                [0., 1., 1.]])
        >>> edge
        tensor([-1,  0,  0, -1,  1,  1, -1])
        >>> edges
        tensor([[0, 1],
                [1, 2]])
    """
    checks.undirected("adjacency", adjacency)
    checks.on_device("adjacency", adjacency)
    backend = backends.choose("add_self_loops", adjacency.device)
    if backend is backends.REFERENCE:
        return reference.add_self_loops(adjacency)
    *parts, edge, edges = OPERATOR(backend, rowptr=adjacency.rowptr, col=adjacency.col, values=adjacency.values)
    return SparseMatrix(*parts, adjacency.shape, symmetric=True), edge, edges
