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


# Where the first weights of a layer come from: a generator on the CPU. None: the layer gets weights without values, on
# the device "meta", because those of a file will replace them.
Start = torch.Generator | None


def glorot(start: Start, fan_in: int, fan_out: int, rows: int | None = None) -> nn.Parameter:
    """Glorot-uniform weights of a layer ``fan_in -> fan_out``; ``rows``: the rows of this part of them (None: all)."""
    bound = math.sqrt(6.0 / (fan_in + fan_out))
    weights = _empty(start, fan_in if rows is None else rows, fan_out)
    return nn.Parameter(weights if start is None else weights.uniform_(-bound, bound, generator=start))


def zeros(start: Start, size: int) -> nn.Parameter:
    """The first biases of a layer."""
    return nn.Parameter(_empty(start, size).zero_())


def _empty(start: Start, *shape: int) -> torch.Tensor:
    # The same dtype and device whatever torch's defaults are, so that a seed always gives the same weights.
    return torch.empty(shape, dtype=torch.float32, device="meta" if start is None else "cpu")


class Layer(nn.Module):
    """``activation(A dropout(H) W + b)``: a graph convolution without bias, or a dense layer with one."""

    def __init__(self, start: Start, in_dim: int, out_dim: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = glorot(start, in_dim, out_dim)
        self.bias = zeros(start, out_dim) if bias else None

    def forward(
        self, propagation: SparseMatrix | None, hidden: torch.Tensor, dropout: float, seed: Seed, activation: str
    ) -> torch.Tensor:
        return ops.gcn(
            propagation, hidden, self.weight, bias=self.bias, dropout=dropout, seed=seed, activation=activation
        )


class NoisyLayer(nn.Module):
    """``activation(A dropout([X | eps]) W + b)``: the first layer of an encoder."""

    def __init__(
        self, start: Start, in_dim: int, noise_dim: int, out_dim: int, *, bias: bool, noise_prob: float
    ) -> None:
        super().__init__()
        self.noise_prob = noise_prob
        self.weight = glorot(start, in_dim + noise_dim, out_dim, in_dim)
        # Without noise there is none: DistributedDataParallel and some optimisers don't take empty parameters.
        self.noise_weight = glorot(start, in_dim + noise_dim, out_dim, noise_dim) if noise_dim else None
        self.bias = zeros(start, out_dim) if bias else None

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
            self.weight.new_empty(0, self.weight.shape[1]) if self.noise_weight is None else self.noise_weight,
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
            them.
        output: "linear": the last layer is linear, since means and log variances may be negative; "relu": ReLU after
            it, which the authors' program applies to a single convolution.
    """

    def __init__(
        self,
        start: Start,
        in_dim: int,
        noise_dim: int,
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        *,
        kind: str,
        noise_prob: float,
        output: str = "linear",
    ) -> None:
        super().__init__()
        self.kind = kind
        self.output = output
        widths = [hidden_dim] * (num_layers - 1) + [out_dim]
        dense = kind == "mlp"
        self.first = NoisyLayer(start, in_dim, noise_dim, widths[0], bias=dense, noise_prob=noise_prob)
        pairs = itertools.pairwise(widths)
        self.rest = nn.ModuleList(Layer(start, before, after, bias=dense) for before, after in pairs)

    def forward(
        self, propagation: SparseMatrix, features: SparseMatrix, num_draws: int, dropout: float, seed: Seed
    ) -> torch.Tensor:
        used = propagation if self.kind == "gcn" else None
        first_seed = derive_seed(seed, Site.FIRST_LAYER)
        hidden = self.first(used, features, num_draws, dropout, first_seed, self.activation(0))
        for index, layer in enumerate(self.rest, start=1):
            hidden = layer(used, hidden, dropout, derive_seed(seed, index), self.activation(index))
        return hidden

    def activation(self, index: int) -> str:
        """The activation of a layer, by its index from 0."""
        if index == len(self.rest):
            return "relu" if self.output == "relu" else "none"
        return "relu" if self.kind == "gcn" else "tanh"


class Head(nn.Module):
    """The two dense layers after the average of Eq. cor, with tanh between them."""

    def __init__(self, start: Start, in_dim: int, hidden_dim: int, out_dim: int) -> None:
        super().__init__()
        self.inner = Layer(start, in_dim, hidden_dim, bias=True)
        self.outer = Layer(start, hidden_dim, out_dim, bias=True)

    def forward(self, averaged: torch.Tensor, dropout: float, seed: Seed) -> torch.Tensor:
        hidden = self.inner(None, averaged, dropout, derive_seed(seed, Site.INNER_LAYER), "tanh")
        return self.outer(None, hidden, dropout, derive_seed(seed, Site.OUTER_LAYER), "none")
