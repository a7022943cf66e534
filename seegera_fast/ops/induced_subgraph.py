"""The subgraph of some nodes."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator
from ..sparse_matrix import SparseMatrix


def _fake(rowptr, col, nodes):
    entries = torch.library.get_ctx().new_dynamic_size()
    return rowptr.new_empty(nodes.shape[0] + 1), col.new_empty(entries), col.new_empty(entries)


OPERATOR = Operator(
    "induced_subgraph(Tensor rowptr, Tensor col, Tensor nodes) -> (Tensor rowptr, Tensor col, Tensor entry)",
    columns=("cpu", "triton"),
    fake=_fake,
)


def induced_subgraph(
    adjacency: SparseMatrix, nodes: torch.Tensor, *, weighted: bool = True
) -> tuple[SparseMatrix, torch.Tensor]:
    """``A[nodes][:, nodes]``: the links among some nodes, which get the numbers 0, 1, ... in the order of ``nodes``.

    The time depends on the degrees of these nodes, and nothing is read but their rows. Of the size of the graph it
    depends only by a bit for each node.

    Args:
        adjacency: ``n x n``, such as ``graph.adjacency``.
        nodes: int64 ``[m]``, different numbers from 0 to ``n - 1``, in any order.
        weighted: False: all values of the result are 1, and those of ``adjacency`` are not read.

    Returns:
        The matrix ``m x m``, known to be symmetric and without a diagonal where ``adjacency`` is; and int64 ``[nnz]``:
        for each of its entries the number of the entry of ``adjacency`` that it is, by which other values follow. The
        numbers of links depend on the values of the arguments, so the device is waited for. Not differentiable.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range, or a node that is there twice.
            On a GPU the numbers of the nodes are not read.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> adjacency = sf.SparseMatrix.from_edge_index(torch.tensor([[0, 1, 1], [1, 2, 3]]))
        >>> part, entry = sf.ops.induced_subgraph(adjacency, torch.tensor([3, 0, 1]))
        >>> part.to_dense()
        tensor([[0., 0., 1.],
                [0., 0., 1.],
                [1., 1., 0.]])
        >>> adjacency.row[entry].tolist()
        [3, 0, 1, 1]
    """
    checks.sparse("adjacency", adjacency)
    num_nodes = adjacency.shape[0]
    if adjacency.shape[1] != num_nodes:
        raise ValueError(f"adjacency: got shape {adjacency.shape}, want a square matrix")
    checks.on_device("adjacency", adjacency)
    checks.numbers("nodes", nodes, adjacency.device, below=num_nodes, different=True)
    weighted = checks.flag("weighted", weighted)
    backend = backends.choose("induced_subgraph", adjacency.device)
    if backend is backends.REFERENCE:
        return reference.induced_subgraph(adjacency, nodes, weighted=weighted)
    rowptr, col, entry = OPERATOR(backend, rowptr=adjacency.rowptr, col=adjacency.col, nodes=nodes.contiguous())
    values = adjacency.values.index_select(0, entry) if weighted else adjacency.values.new_ones(entry.shape)
    kinds = {"symmetric": adjacency.symmetric, "hollow": adjacency.hollow}
    return SparseMatrix(rowptr, col, values, (nodes.shape[0], nodes.shape[0]), **kinds), entry
