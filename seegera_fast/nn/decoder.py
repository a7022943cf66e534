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
    """A stack of layers over ``[z | zbar]``.

    ``zbar`` of a node is the mean of the feature embeddings, weighted by the node's features.

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
        pairs = itertools.pairwise(widths)
        self.layers = nn.ModuleList(Layer(start, before, after, bias=dense) for before, after in pairs)
        self.last = Layer(start, widths[-1], num_features, bias=dense)
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
                hidden = self._first(layer, used, features, z_nodes, z_features, dropout, layer_seed)
            else:
                hidden = layer(used, hidden, dropout, layer_seed, "relu" if self.kind == "gcn" else "tanh")
        if not self.layers and self.feature_embeddings:
            averaged = ops.feature_average(features, z_features, to="nodes")
            hidden = torch.cat([z_nodes, averaged], dim=2)
        if dropout > 0:
            hidden = ops.dropout(hidden, dropout, derive_seed(seed, len(self.layers)))
        if used is not None:
            # Propagation comes before the last product, so that the product's output, n x l, need not be stored.
            return Decoded(ops.sparse_matmul(used, hidden), self.last.weight, self.log_var_weight)
        # The bias is the last row of the weight, so hidden gets a column of ones.
        with_ones = torch.cat([hidden, hidden.new_ones(*hidden.shape[:2], 1)], dim=2)
        return Decoded(with_ones, torch.cat([self.last.weight, self.last.bias[None]]), self.log_var_weight)

    def _first(
        self,
        layer: Layer,
        propagation: SparseMatrix | None,
        features: SparseMatrix,
        z_nodes: torch.Tensor,
        z_features: torch.Tensor,
        dropout: float,
        seed: Seed,
    ) -> torch.Tensor:
        product = ops.decoder_input(features, z_nodes, z_features, layer.weight, dropout=dropout, seed=seed)
        if propagation is not None:
            return torch.relu(ops.sparse_matmul(propagation, product))
        return torch.tanh(product + layer.bias)
