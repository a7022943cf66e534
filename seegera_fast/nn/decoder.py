"""The feature decoder, without its last product, which the likelihood computes."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import nn

from .. import ops
from ..seeds import derive_seed
from ..sparse_matrix import SparseMatrix
from .layers import Layer, Seed, Start, glorot


class Decoded(NamedTuple):
    """The factors of the outputs ``hidden @ weight``: ``[n, J, h]``, and ``[h, l]`` or ``[J, h, l]``.

    The product itself, n x l for each sample, is never stored.
    """

    hidden: torch.Tensor
    weight: torch.Tensor
    log_var_weight: torch.Tensor | None


class MixedLayer(Layer):
    """The first layer of a decoder: a :class:`Layer` over ``[z | zbar]``, which is not formed without dropout.

    ``zbar`` of a node is the mean of the feature embeddings, weighted by the node's features.
    """

    def forward(
        self,
        propagation: SparseMatrix | None,
        features: SparseMatrix,
        z_nodes: torch.Tensor,
        z_features: torch.Tensor,
        dropout: float,
        seed: Seed,
    ) -> torch.Tensor:
        product = ops.decoder_input(features, z_nodes, z_features, self.weight, dropout=dropout, seed=seed)
        if propagation is not None:
            return torch.relu(ops.sparse_matmul(propagation, product))
        return torch.tanh(product + self.bias)


class LastLayer(Layer):
    """The last layer of a decoder, which leaves the product ``A H W + b`` to who needs parts of it."""

    def forward(self, propagation: SparseMatrix | None, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The factors of the product: ``[n, J, h]`` and ``[h, l]``."""
        if propagation is not None:
            return ops.sparse_matmul(propagation, hidden), self.weight
        # The bias is the last row of the weight, so hidden gets a column of ones.
        with_ones = torch.cat([hidden, hidden.new_ones(*hidden.shape[:2], 1)], dim=2)
        return with_ones, torch.cat([self.weight, self.bias[None]])


class InnerProductDecoder(nn.Module):
    """Feature r of node i has the logit ``z_i . zF_r``."""

    def forward(
        self,
        propagation: SparseMatrix,
        features: SparseMatrix,
        z_nodes: torch.Tensor,
        z_features: torch.Tensor,
        dropout: float,
        seed: Seed,
    ) -> Decoded:
        return Decoded(z_nodes, z_features.permute(1, 2, 0), None)


class Decoder(nn.Module):
    """A stack of layers over ``[z | zbar]``; see :class:`MixedLayer`.

    Args:
        kind: "gcn": graph convolutions without bias, ReLU between them; "mlp": dense layers with bias, tanh between
            them.
        feature_embeddings: False: without ``zbar`` (the paper's _nf).
        has_log_var: True: another last layer gives the log variances.
    """

    def __init__(
        self,
        start: Start,
        embedding_dim: int,
        hidden_dim: int,
        num_features: int,
        num_layers: int,
        *,
        kind: str,
        feature_embeddings: bool,
        has_log_var: bool,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.feature_embeddings = feature_embeddings
        dense = kind == "mlp"
        width = 2 * embedding_dim if feature_embeddings else embedding_dim
        widths = [width] + [hidden_dim] * (num_layers - 1)
        kinds = itertools.chain([MixedLayer if feature_embeddings else Layer], itertools.repeat(Layer))
        pairs = zip(kinds, itertools.pairwise(widths), strict=False)
        self.layers = nn.ModuleList(of(start, before, after, bias=dense) for of, (before, after) in pairs)
        self.last = LastLayer(start, widths[-1], num_features, bias=dense)
        self.log_var_weight = glorot(start, widths[-1] + dense, num_features) if has_log_var else None
        if has_log_var and dense:
            # The last row is the bias, which starts at zero.
            nn.init.zeros_(self.log_var_weight[-1])

    def forward(
        self,
        propagation: SparseMatrix,
        features: SparseMatrix,
        z_nodes: torch.Tensor,
        z_features: torch.Tensor,
        dropout: float,
        seed: Seed,
    ) -> Decoded:
        used = propagation if self.kind == "gcn" else None
        hidden = z_nodes
        for index, layer in enumerate(self.layers):
            layer_seed = derive_seed(seed, index)
            if index == 0 and self.feature_embeddings:
                hidden = layer(used, features, z_nodes, z_features, dropout, layer_seed)
            else:
                hidden = layer(used, hidden, dropout, layer_seed, "relu" if self.kind == "gcn" else "tanh")
        if not self.layers and self.feature_embeddings:
            averaged = ops.feature_average(features, z_features, to="nodes")
            hidden = torch.cat([z_nodes, averaged], dim=2)
        if dropout > 0:
            hidden = ops.dropout(hidden, dropout, derive_seed(seed, len(self.layers)))
        # Propagation comes before the last product, so that the product's output, n x l, need not be stored.
        return Decoded(*self.last(used, hidden), self.log_var_weight)
