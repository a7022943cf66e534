"""Products of chosen pairs of rows: the scores of links, and entries of the reconstructed features."""

from __future__ import annotations

import torch

from .nn import Decoded
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
