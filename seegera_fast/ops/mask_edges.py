"""Structure masking (v3)."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator
from ..seeds import seed_tensor
from ..sparse_matrix import SparseMatrix
from .draw_subset import draw


def _fake(rowptr, col, weight, num_removed):
    left = col.shape[0] - 2 * num_removed
    return rowptr.new_empty(rowptr.shape), col.new_empty(left), weight.new_empty(left)


OPERATOR = Operator(
    "mask_edges(Tensor rowptr, Tensor col, Tensor weight, Tensor edge, Tensor removed, int num_removed)"
    " -> (Tensor rowptr, Tensor col, Tensor values)",
    columns=("cpu", "cuda", "triton"),
    fake=_fake,
)


def mask_edges(looped: SparseMatrix, edge: torch.Tensor, num_removed: int, seed: int | torch.Tensor) -> SparseMatrix:
    """``D^-1/2 (A' + I) D^-1/2``, where A' is A without exactly ``num_removed`` of its edges.

    Args:
        looped: ``A + I``, the first result of :meth:`seegera_fast.Graph.with_self_loops`.
        edge: int64 ``[nnz]``, the edge that each entry belongs to, the second result of that method.
        num_removed: number of undirected edges to remove.
        seed: an int, or an int64 tensor of one element. The removed edges are those of
            ``draw_subset(seed, edges, num_removed, stream="edges")``.

    Returns:
        A symmetric matrix ``n x n`` with ``2 (edges - num_removed) + n`` entries.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size or device, or ``num_removed`` is above the number of
            edges.
        RuntimeError: on a CPU, ``edge`` has the number of an edge that is not there. A GPU does not look.

    Example:
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> masked = sf.ops.mask_edges(*graph.with_self_loops(), num_removed=339, seed=0)
        >>> masked.nnz == 2 * (graph.num_edges - 339) + graph.num_nodes
        True
    """
    checks.sparse("looped", looped)
    num_nodes = looped.shape[0]
    if looped.shape[1] != num_nodes:
        raise ValueError(f"looped: got shape {looped.shape}, want a square matrix")
    if not isinstance(edge, torch.Tensor):
        raise TypeError(f"edge: got {type(edge).__name__}, want a torch.int64 tensor, one number per entry of looped")
    if edge.is_nested or edge.layout != torch.strided:
        checks.dense("edge", edge)
    if edge.dtype != torch.int64 or tuple(edge.shape) != (looped.nnz,):
        raise ValueError(
            f"edge: got {edge.dtype} {tuple(edge.shape)}, want torch.int64 ({looped.nnz},), one per entry of looped"
        )
    if edge.device != looped.device:
        raise ValueError(f"edge: is on {edge.device} and looped on {looped.device}, want one device")
    # No divmod, which torch.compile can't apply to sizes that differ from call to call.
    num_edges = (looped.nnz - num_nodes) // 2
    if num_edges < 0 or (looped.nnz - num_nodes) % 2:
        raise ValueError(
            f"looped: got {looped.nnz} entries in {num_nodes} rows, want a self-loop in each, and each edge twice"
        )
    num_removed = checks.whole("num_removed", num_removed, most=num_edges)
    seed = checks.seed(seed, looped.device)
    seed = seed_tensor(seed, looped.device)
    backend = backends.choose("mask_edges", looped.device)
    if backend is backends.REFERENCE:
        if edge.numel():
            low, high = int(edge.min()), int(edge.max())
            if low < -1 or high >= num_edges:
                raise ValueError(f"edge: got numbers from {low} to {high}, want -1 to {num_edges - 1}")
        return reference.mask_edges(looped, edge, num_removed, seed)
    removed = draw(seed, num_edges, num_removed, "edges")
    parts = OPERATOR(
        backend,
        rowptr=looped.rowptr,
        col=looped.col,
        weight=looped.values,
        edge=edge.contiguous(),
        removed=removed,
        num_removed=num_removed,
    )
    return SparseMatrix(*parts, looped.shape, symmetric=True)
