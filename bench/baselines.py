"""Two forms of the model in plain PyTorch, with which the library is compared: the contenders.

They implement the correlated model with graph convolutions.

``Dense`` computes like the released program. In each step SciPy makes the masks and dense matrices, the noise of each
draw is concatenated to a copy of the features, and all n x n and n x l logits are stored. Mixture tensors have an axis
for the draws and one for the components.

``Sparse`` is what a careful user would write in plain PyTorch: CSR products, X W computed once for all draws where
dropout allows it, losses fused by torch.compile, and one component of the mixture at a time.

Both take the weights of a SeeGera model. When numbers are compared they also take its draws; otherwise they draw from
torch's generators.
"""

from __future__ import annotations

import math
import random

import numpy as np
import scipy.sparse
import torch
from torch import nn
from torch.nn import functional

import seegera_fast as sf
from seegera_fast.objective import balance
from seegera_fast.reference.random import normals
from seegera_fast.seeds import Site, derive_seed, seed_tensor

BCE = functional.binary_cross_entropy_with_logits


class Contender(nn.Module):
    """What the two contenders share: weights, draws and scales."""

    def __init__(self, model: sf.SeeGera, graph: sf.Graph) -> None:
        super().__init__()
        config = model.config
        if (config.variant, config.encoder, config.decoder) != ("correlated", "gcn", "gcn"):
            raise ValueError("model: want variant 'correlated' with encoder and decoder 'gcn'")
        self.config, self.graph, self.device = config, graph, graph.device
        self.samples, self.extra = config.num_importance_samples, config.num_mixture_samples
        self.weights = nn.ParameterDict(
            {name.replace(".", "/"): value.detach().clone() for name, value in model.named_parameters()}
        )
        self.seed: int | None = None
        # The released program leaves out the constants of the normal densities. These are their negative logarithms:
        # per row of the embeddings, and per feature, whose variance is 1/2.
        self.constant = config.embedding_dim / 2 * math.log(2 * math.pi)
        self.feature_constant = 0.0 if config.likelihood == "bernoulli" else 0.5 * math.log(math.pi)

    def weight(self, name: str) -> torch.Tensor:
        return self.weights[name.replace(".", "/")]

    def stack(self, name: str) -> list[torch.Tensor]:
        layers = self.config.encoder_layers - 1
        return [self.weight(f"{name}.rest.{index}.weight") for index in range(layers)]

    def noise(self, draws: int) -> torch.Tensor:
        size = (self.graph.num_nodes, draws, self.config.noise_dim)
        if self.seed is None:
            return torch.bernoulli(torch.full(size, self.config.noise_prob, device=self.device))
        noise_seed = derive_seed(self.seed, Site.ENCODER, Site.NODES, Site.MEAN, Site.FIRST_LAYER)
        return sf.ops.draw_noise(noise_seed, *size, self.config.noise_prob).to(self.device)

    def normal(self, site: int, like: torch.Tensor) -> torch.Tensor:
        if self.seed is None:
            return torch.randn_like(like)
        return normals(seed_tensor(derive_seed(self.seed, Site.SAMPLES, site), like.device), *like.shape, like.dtype)

    def drop(self, values: torch.Tensor) -> torch.Tensor:
        return functional.dropout(values, self.config.dropout, self.training)

    def head(self, name: str, averaged: torch.Tensor) -> torch.Tensor:
        hidden = self.drop(averaged) @ self.weight(f"{name}.inner.weight") + self.weight(f"{name}.inner.bias")
        return self.drop(torch.tanh(hidden)) @ self.weight(f"{name}.outer.weight") + self.weight(f"{name}.outer.bias")

    def scales(self, present: float, cells: int, binary: bool) -> tuple[float, torch.Tensor]:
        norm, weight = balance(present, cells, binary=binary)
        return float(norm), torch.tensor(float(weight), device=self.device)

    def loss(
        self, link: torch.Tensor, feature: torch.Tensor, prior: torch.Tensor, mixture: torch.Tensor, warmup: float
    ) -> torch.Tensor:
        bound = -link - feature + warmup * (prior - mixture)
        return math.log(self.samples) - torch.logsumexp(bound, 0)


class Dense(Contender):
    """The form of the released program. :meth:`prepare` makes both masks and both dense matrices on the host."""

    def __init__(self, model: sf.SeeGera, graph: sf.Graph) -> None:
        super().__init__(model, graph)
        self.adjacency, self.features = graph.adjacency.to_scipy(), graph.features.to_scipy().tolil()
        self.target = graph.adjacency.to_dense() + torch.eye(graph.num_nodes, device=self.device)

    def prepare(self) -> tuple[torch.Tensor, int, torch.Tensor]:
        adjacency = self.adjacency.copy()
        row, col = adjacency.nonzero()
        row, col = row[row > col], col[row > col]
        gone = random.sample(range(len(row)), int(len(row) * self.config.structure_masking_rate))
        adjacency[row[gone], col[gone]] = 0
        adjacency[col[gone], row[gone]] = 0
        adjacency.eliminate_zeros()
        looped = adjacency + scipy.sparse.identity(adjacency.shape[0])
        scale = scipy.sparse.diags(np.asarray(looped.sum(1)).ravel() ** -0.5)
        propagation = self.uploaded(scale @ looped @ scale)
        features = self.features.copy()
        row, col = features.nonzero()
        gone = random.sample(range(len(row)), int(len(row) * self.config.feature_masking_rate))
        features[row[gone], col[gone]] = 0
        return propagation, adjacency.nnz // 2, self.uploaded(features)

    def uploaded(self, matrix: scipy.sparse.spmatrix) -> torch.Tensor:
        return torch.from_numpy(matrix.toarray()).float().to(self.device)

    def forward(self, propagation: torch.Tensor, edges: int, x: torch.Tensor, warmup: float = 1.0) -> torch.Tensor:
        n, l = x.shape
        draws = self.samples + self.extra
        noisy = torch.cat([x[:, None].expand(-1, draws, -1), self.noise(draws)], 2)
        mean = self.convolve("node_mean", propagation, noisy)
        log_var = self.convolve("node_log_var", propagation, x[:, None])
        share = functional.normalize(x.T, p=1, dim=1)
        averaged = torch.matmul(share.expand(draws, -1, -1), mean.transpose(0, 1)).transpose(0, 1)
        feature_mean = self.head("feature_mean", averaged)
        feature_log_var = self.head("feature_log_var", (share @ log_var[:, 0])[:, None])
        z, merged = [], []
        for site, mu, spread in ((Site.NODES, mean, log_var), (Site.FEATURES, feature_mean, feature_log_var)):
            center, spread = mu[:, self.extra :], spread.expand(-1, self.samples, -1)
            sigma = torch.exp(0.5 * spread)
            sample = center + sigma * self.normal(site, center)
            z.append(sample)
            extra = mu[:, None, : self.extra].expand(-1, self.samples, -1, -1)
            components = (-1, -1, self.extra + 1, -1)
            wide = (sample[:, :, None].expand(components), sigma[:, :, None].expand(components))
            merged.append((*wide, torch.cat([extra, center[:, :, None]], 2), spread))
        merged_z, merged_sigma, merged_mu, spread = (torch.cat(pair, 0) for pair in zip(*merged, strict=True))
        squares = torch.square(merged_z - merged_mu) / torch.square(merged_sigma + 1e-10)
        # The released program takes exp and log here, which underflow at this width.
        kernel = torch.logsumexp(-0.5 * torch.sum(squares, 3), 2) - math.log(self.extra + 1)
        mixture = (kernel - 0.5 * torch.sum(spread, 2)).sum(0)
        prior = [-0.5 * torch.square(sample).sum(2).sum(0) for sample in z]
        logits, outputs = x.new_empty(n, n, 0), x.new_empty(n, l, 0)
        for j in range(self.samples):
            nodes, words = self.drop(z[0][:, j]), self.drop(z[1][:, j])
            logits = torch.cat([logits, (nodes @ nodes.T)[:, :, None]], 2)
            hidden = torch.cat([nodes, functional.normalize(x, p=1, dim=1) @ words], 1)
            for layer in range(self.config.decoder_layers - 1):
                weight = self.weight(f"decoder.layers.{layer}.weight")
                hidden = torch.relu(propagation @ (self.drop(hidden) @ weight))
            last = propagation @ (self.drop(hidden) @ self.weight("decoder.last.weight"))
            outputs = torch.cat([outputs, last[:, :, None]], 2)
        norm, pos_weight = self.scales(2.0 * edges, n * n, True)
        target = self.target[:, :, None].expand(-1, -1, self.samples)
        link = norm * BCE(logits, target, pos_weight=pos_weight, reduction="none").mean((0, 1))
        expected = x[:, :, None].expand(-1, -1, self.samples)
        binary = self.config.likelihood == "bernoulli"
        norm, pos_weight = self.scales(float(x.sum()), n * l, binary)
        if binary:
            terms = BCE(outputs, expected, pos_weight=pos_weight, reduction="none")
        else:
            terms = functional.mse_loss(outputs, expected, reduction="none")
        scaled = (prior[0] - n * self.constant) / n**2 + (prior[1] - l * self.constant) / l**2
        mixture = (mixture - (n + l) * self.constant) / (n + l) ** 2
        feature = norm * (terms.mean((0, 1)) + self.feature_constant)
        return self.loss(link, feature, scaled, mixture, warmup)

    def convolve(self, name: str, propagation: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        first = self.weight(f"{name}.first.weight")
        if inputs.shape[2] > first.shape[0]:
            first = torch.cat([first, self.weight(f"{name}.first.noise_weight")])
        outputs = inputs.new_empty(inputs.shape[0], 0, self.config.embedding_dim)
        for s in range(inputs.shape[1]):
            hidden = propagation @ (self.drop(inputs[:, s]) @ first)
            for weight in self.stack(name):
                hidden = propagation @ (self.drop(torch.relu(hidden)) @ weight)
            outputs = torch.cat([outputs, hidden[:, None]], 1)
        return outputs


class Sparse(Contender):
    """The form of a careful user. :meth:`prepare` makes the masks with torch."""

    def __init__(self, model: sf.SeeGera, graph: sf.Graph, *, compiled: bool = True) -> None:
        super().__init__(model, graph)
        features = graph.features
        self.x = _csr(features)
        self.x_t = _csr(features.transposed)
        self.by_row, self.by_column = _csr(features.row_normalized), _csr(features.transposed.row_normalized)
        self.by_row_t, self.by_column_t = (
            _csr(matrix.transposed) for matrix in (features.row_normalized, features.transposed.row_normalized)
        )
        self.x_dense = features.to_dense()
        self.target = graph.adjacency.to_dense() + torch.eye(graph.num_nodes, device=self.device)
        wrap = torch.compile if compiled else lambda function: function
        self.cross_entropy, self.square = wrap(_cross_entropy), wrap(_square)
        self.density = wrap(_density)

    def prepare(self) -> tuple[torch.Tensor, int]:
        edges = self.graph.edges()
        removed = int(self.config.structure_masking_rate * edges.shape[0])
        kept = edges[torch.randperm(edges.shape[0], device=self.device)[removed:]]
        nodes = torch.arange(self.graph.num_nodes, device=self.device)
        row = torch.cat([kept[:, 0], kept[:, 1], nodes])
        col = torch.cat([kept[:, 1], kept[:, 0], nodes])
        scale = torch.bincount(row, minlength=self.graph.num_nodes).float().rsqrt()
        matrix = torch.sparse_coo_tensor(torch.stack([row, col]), scale[row] * scale[col], (len(nodes), len(nodes)))
        return matrix.coalesce().to_sparse_csr(), kept.shape[0]

    def forward(self, propagation: torch.Tensor, edges: int, warmup: float = 1.0) -> torch.Tensor:
        n, l = self.graph.num_nodes, self.graph.num_features
        draws = self.samples + self.extra
        mean = self.convolve("node_mean", propagation, self.noise(draws))
        log_var = self.convolve("node_log_var", propagation, None)
        feature_mean = self.head("feature_mean", _spread(self.by_column, self.by_column_t, mean))
        feature_log_var = self.head("feature_log_var", _spread(self.by_column, self.by_column_t, log_var))
        z, mixture, prior = [], 0.0, []
        for site, mu, spread in ((Site.NODES, mean, log_var), (Site.FEATURES, feature_mean, feature_log_var)):
            center = mu[:, self.extra :]
            sample = center + torch.exp(spread / 2) * self.normal(site, center)
            precision, constant = torch.exp(-spread[:, 0]), 0.5 * spread.sum(2)
            per_sample = []
            for j in range(self.samples):
                chosen = [*range(self.extra), self.extra + j]
                densities = torch.stack([self.density(sample[:, j], mu[:, k], precision) for k in chosen], 1)
                per_sample.append((torch.logsumexp(densities - constant, 1) - math.log(len(chosen))).sum())
            mixture = mixture + torch.stack(per_sample)
            prior.append(-0.5 * sample.square().sum((0, 2)))
            z.append(sample)
        nodes, words = self.drop(z[0]), self.drop(z[1])
        averaged = _spread(self.by_row, self.by_row_t, words)
        hidden = torch.cat([nodes, averaged], 2)
        for layer in range(self.config.decoder_layers - 1):
            product = self.drop(hidden) @ self.weight(f"decoder.layers.{layer}.weight")
            hidden = torch.relu(_spread(propagation, propagation, product))
        hidden = _spread(propagation, propagation, self.drop(hidden))
        link_norm, link_weight = self.scales(2.0 * edges, n * n, True)
        binary = self.config.likelihood == "bernoulli"
        norm, weight = self.scales(float(self.graph.features.values.sum()), n * l, binary)
        links, features = [], []
        for j in range(self.samples):
            sample = nodes[:, j]
            links.append(link_norm * self.cross_entropy(sample @ sample.T, self.target, link_weight))
            outputs = hidden[:, j] @ self.weight("decoder.last.weight")
            term = self.cross_entropy(outputs, self.x_dense, weight) if binary else self.square(outputs, self.x_dense)
            features.append(norm * (term + self.feature_constant))
        scaled = (prior[0] - n * self.constant) / n**2 + (prior[1] - l * self.constant) / l**2
        mixture = (mixture - (n + l) * self.constant) / (n + l) ** 2
        return self.loss(torch.stack(links), torch.stack(features), scaled, mixture, warmup)

    def convolve(self, name: str, propagation: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
        draws = 1 if noise is None else noise.shape[1]
        weight = self.weight(f"{name}.first.weight")
        if self.config.dropout == 0 or not self.training:
            shared = _product(propagation, propagation, _product(self.x, self.x_t, weight))
            hidden = shared[:, None].expand(-1, draws, -1)
        else:
            # Each draw drops different entries; the structure stays.
            products = [_product(*_dropped(self.x, self.graph, self.config.dropout), weight) for _ in range(draws)]
            hidden = _spread(propagation, propagation, torch.stack(products, 1))
        if noise is not None:
            hidden = hidden + _spread(propagation, propagation, self.drop(noise)) @ self.weight(
                f"{name}.first.noise_weight"
            )
        for further in self.stack(name):
            hidden = _spread(propagation, propagation, self.drop(torch.relu(hidden)) @ further)
        return hidden


def _csr(matrix: sf.SparseMatrix) -> torch.Tensor:
    return torch.sparse_csr_tensor(matrix.rowptr, matrix.col, matrix.values, matrix.shape)


class _Product(torch.autograd.Function):
    """A CSR product whose backward is a CSR product with a given transpose."""

    @staticmethod
    def forward(ctx, matrix, transpose, dense):
        ctx.transpose = transpose
        return matrix @ dense

    @staticmethod
    def backward(ctx, gradient):
        return None, None, ctx.transpose @ gradient


def _product(matrix: torch.Tensor, transpose: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    return _Product.apply(matrix, transpose, dense)


def _spread(matrix: torch.Tensor, transpose: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return _product(matrix, transpose, values.flatten(1)).unflatten(1, values.shape[1:])


def _dropped(x: torch.Tensor, graph: sf.Graph, rate: float) -> tuple[torch.Tensor, torch.Tensor]:
    values = functional.dropout(x.values(), rate)
    flipped = graph.features.transposed
    matrix = torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape)
    transpose = torch.sparse_csr_tensor(flipped.rowptr, flipped.col, values[graph.features.order], flipped.shape)
    return matrix, transpose


def _cross_entropy(logits: torch.Tensor, target: torch.Tensor, pos_weight: torch.Tensor) -> torch.Tensor:
    return BCE(logits, target, pos_weight=pos_weight)


def _square(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (outputs - target).square().mean()


def _density(sample: torch.Tensor, mean: torch.Tensor, precision: torch.Tensor) -> torch.Tensor:
    return -0.5 * ((sample - mean).square() * precision).sum(1)
