"""Products of chosen pairs of rows: the scores of links, and entries of the reconstructed features."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .autocast import without_autocast
from .nn import Decoded
from .sparse_matrix import SparseMatrix
from .support.pieces import pieces


def pair_products(embedding: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """``e_i . e_k`` for pairs ``[m, 2]`` of rows of ``[n, d]``, in float64, where float32 numbers do not overflow."""
    products = [embedding[low].double().mul_(embedding[high]).sum(dim=1) for low, high in pieces(embedding, *pairs.t())]
    return torch.cat(products) if products else embedding.new_zeros(0, dtype=torch.float64)


def entries(decoded: Decoded, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
    """The entries (rows, cols) of ``hidden @ weight``, ``[m, J]``."""
    weight = decoded.weight if decoded.weight.ndim == 3 else decoded.weight[None]
    by_feature = weight.permute(2, 0, 1).contiguous()  # [l, 1 or J, h]
    hidden = decoded.hidden
    entries = [(hidden[row] * by_feature[col]).sum(dim=2) for row, col in pieces(hidden, rows, cols)]
    return torch.cat(entries) if entries else hidden.new_zeros(0, hidden.shape[1])


@without_autocast
def largest_entries(
    decoded: Decoded,
    mean: Callable[[torch.Tensor], torch.Tensor],
    features: SparseMatrix,
    nodes: torch.Tensor,
    k: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each node the k largest expected values of entries that are 0 in its features.

    Args:
        mean: from outputs of the decoder to expected values.
        nodes: int64 ``[m]``.

    Returns:
        Node, feature and value of each entry, node by node, the largest value first. A node with fewer than k features
        that are 0 has fewer entries.
    """
    hidden, weight = decoded.hidden, decoded.weight if decoded.weight.ndim == 3 else decoded.weight[None]
    found = []
    # A piece has as many numbers as its nodes have outputs, for one sample at a time.
    for (rows,) in pieces(weight[0, :1], nodes):
        value = sum(mean(hidden[rows, draw] @ weight[draw % len(weight)]) for draw in range(hidden.shape[1]))
        value = value / hidden.shape[1]
        known = _entries_of(features, rows)
        value[known] = -torch.inf
        # A stable sort, because topk takes any of equal values.
        value, feature = (part[:, :k] for part in value.sort(dim=1, descending=True, stable=True))
        missing = (features.shape[1] - (features.rowptr[rows + 1] - features.rowptr[rows]))[:, None]
        kept = torch.arange(k, device=value.device) < missing
        found.append((rows[:, None].expand_as(feature)[kept], feature[kept], value[kept]))
    if not found:
        return nodes, nodes, hidden.new_zeros(0)
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _entries_of(matrix: SparseMatrix, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The entries of some rows: number among the rows given, and column."""
    start, count = matrix.rowptr[rows], matrix.rowptr[rows + 1] - matrix.rowptr[rows]
    row = torch.arange(len(rows), device=rows.device).repeat_interleave(count)
    before = count.cumsum(0) - count
    entry = torch.arange(len(row), device=rows.device) - before[row] + start[row]
    return row, matrix.col[entry]
