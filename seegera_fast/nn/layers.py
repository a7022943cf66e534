"""Layers and stacks of layers."""

from __future__ import annotations

import itertools
import math

import torch
from torch import nn

from .. import ops
from ..seeds import Site, derive_seed
from ..sparse_matrix import SparseMatrix

Seed = int | torch.Tensor


def glorot(fan_in: int, fan_out: int, rows: int | None = None) -> nn.Parameter:
    """Glorot-uniform weights of a layer ``fan_in -> fan_out``; ``rows``: the rows of this part of them (None: all)."""
    bound = math.sqrt(6.0 / (fan_in + fan_out))
    return nn.Parameter(torch.empty(fan_in if rows is None else rows, fan_out).uniform_(-bound, bound))


class Layer(nn.Module):
    """``activation(A dropout(H) W + b)``: a graph convolution without bias, or a dense layer with one."""

    def __init__(self, in_dim: int, out_dim: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = glorot(in_dim, out_dim)
        self.bias = nn.Parameter(torch.zeros(out_dim)) if bias else None

    def forward(
        self, propagation: SparseMatrix | None, hidden: torch.Tensor, dropout: float, seed: Seed, activation: str
    ) -> torch.Tensor:
        return ops.gcn(
            propagation, hidden, self.weight, bias=self.bias, dropout=dropout, seed=seed, activation=activation
        )


class NoisyLayer(nn.Module):
    """``activation(A dropout([X | eps]) W + b)``: the first layer of an encoder."""

    def __init__(self, in_dim: int, noise_dim: int, out_dim: int, *, bias: bool, noise_prob: float) -> None:
        super().__init__()
        self.noise_prob = noise_prob
        self.weight = glorot(in_dim + noise_dim, out_dim, in_dim)
        self.noise_weight = glorot(in_dim + noise_dim, out_dim, noise_dim)
        self.bias = nn.Parameter(torch.zeros(out_dim)) if bias else None

    def forward(
        self,
        propagation: SparseMatrix | None,
        features: SparseMatrix,
        num_draws: int,
        dropout: float,
        seed: Seed,
        activation: str,
    ) -> torch.Tensor:
        return ops.noisy_gcn(
            propagation,
            features,
            self.weight,
            self.noise_weight,
            num_draws=num_draws,
            seed=seed,
            bias=self.bias,
            noise_prob=self.noise_prob,
            dropout=dropout,
            activation=activation,
        )


class Encoder(nn.Module):
    """A stack of layers over noisy features (Eq. psi_1, psi_2), with output ``[n, S, out_dim]``.

    Args:
        kind: "gcn": graph convolutions without bias, ReLU between them; "mlp": dense layers with bias, tanh between
            them. The last layer is linear, since means and log variances may be negative. (The authors' program
            applies ReLU to a single convolution.)
    """

    def __init__(
        self,
        in_dim: int,
        noise_dim: int,
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        *,
        kind: str,
        noise_prob: float,
    ) -> None:
        super().__init__()
        self.kind = kind
        widths = [hidden_dim] * (num_layers - 1) + [out_dim]
        dense = kind == "mlp"
        self.first = NoisyLayer(in_dim, noise_dim, widths[0], bias=dense, noise_prob=noise_prob)
        pairs = itertools.pairwise(widths)
        self.rest = nn.ModuleList(Layer(before, after, bias=dense) for before, after in pairs)

    def forward(
        self, propagation: SparseMatrix, features: SparseMatrix, num_draws: int, dropout: float, seed: Seed
    ) -> torch.Tensor:
        used = propagation if self.kind == "gcn" else None
        between = "relu" if self.kind == "gcn" else "tanh"
        activation = between if self.rest else "none"
        hidden = self.first(used, features, num_draws, dropout, derive_seed(seed, Site.FIRST_LAYER), activation)
        for index, layer in enumerate(self.rest, start=1):
            activation = "none" if index == len(self.rest) else between
            hidden = layer(used, hidden, dropout, derive_seed(seed, index), activation)
        return hidden


class Head(nn.Module):
    """The two dense layers after the average of Eq. cor, with tanh between them."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int) -> None:
        super().__init__()
        self.inner = Layer(in_dim, hidden_dim, bias=True)
        self.outer = Layer(hidden_dim, out_dim, bias=True)

    def forward(self, averaged: torch.Tensor, dropout: float, seed: Seed) -> torch.Tensor:
        hidden = self.inner(None, averaged, dropout, derive_seed(seed, Site.INNER_LAYER), "tanh")
        return self.outer(None, hidden, dropout, derive_seed(seed, Site.OUTER_LAYER), "none")
