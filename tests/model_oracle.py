"""The model, written from its equations: dense matrices in float64, one sample at a time, gradients by autograd.

Only the library's random numbers are used, at positions that are computed here. These positions are a part of the
model's definition, because saved weights and reported scores depend on them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.distributions import Normal
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from seegera_fast import SeeGeraConfig
from seegera_fast.reference import random

# The numbers by which the seed of each site is derived from the seed of the step. A stack of layers has one site, and
# the seed of its layer l is derived from that of the stack by the number l.
SITES = {
    "removed edges": (0,),
    "removed entries": (1,),
    "node mean": (2, 0, 0),
    "node log_var": (2, 0, 1),
    "feature mean": (2, 1, 0),
    "feature log_var": (2, 1, 1),
    "node samples": (3, 0),
    "feature samples": (3, 1),
    "node samples' dropout": (4, 0),
    "feature samples' dropout": (4, 1),
    "decoder": (4, 2),
    "non-edges": (5,),
}

Layers = list[tuple[torch.Tensor, torch.Tensor | float]]


def derived(seed: int, *path: int) -> int:
    """One step of SplitMix64 (Steele, Lea, Flood, OOPSLA '14) for each number of the path: 64 bits without a sign."""
    for number in path:
        seed = (seed + (number + 1) * 0x9E3779B97F4A7C15) % 2**64
        seed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        seed = (seed ^ seed >> 27) * 0x94D049BB133111EB % 2**64
        seed ^= seed >> 31
    return seed


def key(seed: int) -> torch.Tensor:
    """Converts a seed to what the generator takes: a signed number in a tensor."""
    return torch.tensor([(seed + 2**63) % 2**64 - 2**63])


def dropped(values: torch.Tensor, rate: float, seed: int) -> torch.Tensor:
    if rate == 0:
        return values
    kept = random.words(key(seed), random.DROPOUT, *values.shape) >= random.threshold(rate)
    return values * kept / (1 - rate)


def subset(seed: int, stream: int, count: int, chosen: int) -> torch.Tensor:
    """bool ``[count]``: True for the elements with the smallest random 62-bit keys."""
    pairs = random.words_at(key(seed), stream, torch.arange(count), 0, 0)[:, :2].tolist()
    order = sorted(range(count), key=lambda index: (pairs[index][0] * 2**32 + pairs[index][1]) // 4)
    drawn = torch.zeros(count, dtype=torch.bool)
    drawn[order[:chosen]] = True
    return drawn


def propagation_of(weights: torch.Tensor) -> torch.Tensor:
    """``D^-1/2 (A + I) D^-1/2`` of the weights ``[n, n]``."""
    looped = weights + torch.eye(len(weights), dtype=torch.float64)
    scale = looped.sum(dim=1) ** -0.5
    return scale[:, None] * looped * scale[None]


def averaged(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """``sum_i W_ri v_is / sum_i |W_ri|``: ``[r, i]`` and ``[i, S, d]`` -> ``[r, S, d]``; a zero row gives zero."""
    totals = weights.abs().sum(dim=1, keepdim=True)
    return torch.einsum("ri,isd->rsd", torch.where(totals > 0, weights / totals, 0.0), values)


def stack(
    layers: Layers, hidden: torch.Tensor, propagation: torch.Tensor | None, rate: float, seed: int
) -> torch.Tensor:
    """``[n, S, in] -> [n, S, out]``: graph convolutions and ReLU, or without a propagation dense layers and tanh."""
    for index, (weight, bias) in enumerate(layers):
        hidden = dropped(hidden, rate, derived(seed, index)) @ weight
        if propagation is not None:
            hidden = torch.einsum("ik,ksd->isd", propagation, hidden)
        hidden = hidden + bias
        if index + 1 < len(layers):
            hidden = torch.tanh(hidden) if propagation is None else torch.relu(hidden)
    return hidden


class Pass(NamedTuple):
    """The inputs of the encoders and decoders in one call."""

    propagation: torch.Tensor  # [n, n]
    features: torch.Tensor  # [n, l]
    dropout: float
    seed: int

    def seed_at(self, site: str) -> int:
        return derived(self.seed, *SITES[site])


class Psi(NamedTuple):
    """The parameters of the posterior of the nodes or of the features."""

    mean: torch.Tensor  # [rows, S, d]
    log_var: torch.Tensor  # [rows, 1 or S, d]


class ModelOracle:
    """A SeeGera model.

    Args:
        config: the configuration of the model.
        adjacency: ``[n, n]`` weights, symmetric, zero for pairs without an edge.
        features: ``[n, l]``.
        parameters: the parameters, by their names in ``state_dict``.
    """

    def __init__(
        self,
        config: SeeGeraConfig,
        adjacency: torch.Tensor,
        features: torch.Tensor,
        parameters: dict[str, torch.Tensor],
    ) -> None:
        self.config, self.adjacency, self.features, self.parameters = config, adjacency, features, parameters

    def forward(self, seed: int, warmup: float, *, training: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss, and the terms of the bound averaged over samples."""
        config = self.config
        adjacency, features, rate = self.adjacency, self.features, 0.0
        if training:
            adjacency, features, rate = self._masked_adjacency(seed), self._masked_features(seed), config.dropout
        seen = Pass(propagation_of(adjacency), features, rate, seed)
        kinds = self._encode(seen, config.num_mixture_samples + config.num_importance_samples)
        samples = self._sample(seen, kinds)
        # Dropout acts on the samples for the two decoders, not on those for prior and mixture.
        sites = ("node samples' dropout", "feature samples' dropout")
        shown = [dropped(z, rate, seen.seed_at(site)) for z, site in zip(samples, sites, strict=False)]
        terms = {"link": self._link_term(shown[0], int((adjacency != 0).sum()), seed)}
        if config.feature_side:
            terms["feature"] = self._feature_term(*self._decode(seen, *shown), features)
        terms["prior"] = self._prior(samples)
        terms["mixture"] = self._mixture(samples, kinds)
        weights = terms["link"] + terms.get("feature", 0.0) + warmup * (terms["prior"] - terms["mixture"])
        loss = -(torch.logsumexp(weights, dim=0) - math.log(config.num_importance_samples))
        return loss, {name: term.detach().mean() for name, term in terms.items()}

    def embed(self, seed: int) -> torch.Tensor:
        """Mean embeddings ``[n, d]``. Here the seed itself is the seed of the encoder."""
        config = self.config
        propagation = propagation_of(self.adjacency) if config.encoder == "gcn" else None
        draws, noise_dim = config.num_importance_samples, config.noise_dim
        rectified = config.encoder_output == "relu"
        return self._encoder("node_mean", self.features, draws, noise_dim, propagation, 0.0, seed, rectified).mean(
            dim=1
        )

    def link_scores(self, seed: int) -> torch.Tensor:
        """``[n, n]``."""
        embedding = self.embed(seed)
        return torch.sigmoid(embedding @ embedding.T)

    def reconstruct_features(self, seed: int) -> torch.Tensor:
        """``[n, l]``: as many draws of psi as samples, none extra."""
        seen = Pass(propagation_of(self.adjacency), self.features, 0.0, seed)
        samples = self._sample(seen, self._encode(seen, self.config.num_importance_samples))
        output, _ = self._decode(seen, *samples)
        means = {"bernoulli": torch.sigmoid, "mse_relu": torch.relu}
        return means.get(self.config.likelihood, lambda output: output)(output).mean(dim=1)

    # What is drawn before the encoder.

    def _masked_adjacency(self, seed: int) -> torch.Tensor:
        edges = self.adjacency.triu(1).nonzero()
        removed = math.floor(self.config.structure_masking_rate * len(edges))
        low, high = edges[subset(derived(seed, *SITES["removed edges"]), random.EDGES, len(edges), removed)].T
        seen = self.adjacency.clone()
        seen[low, high] = seen[high, low] = 0.0
        return seen

    def _masked_features(self, seed: int) -> torch.Tensor:
        entries = self.features.nonzero()
        removed = math.floor(self.config.feature_masking_rate * len(entries))
        row, col = entries[subset(derived(seed, *SITES["removed entries"]), random.ENTRIES, len(entries), removed)].T
        features = self.features.clone()
        features[row, col] = 0.0
        return features

    # Encoders and samples.

    def _layer(self, name: str) -> tuple[torch.Tensor, torch.Tensor | float]:
        return self.parameters[f"{name}.weight"], self.parameters.get(f"{name}.bias", 0.0)

    def _encoder(
        self,
        name: str,
        inputs: torch.Tensor,
        draws: int,
        noise_dim: int,
        propagation: torch.Tensor | None,
        rate: float,
        seed: int,
        rectified: bool,
    ) -> torch.Tensor:
        """A stack over ``[inputs | noise]``, with a noise of its own for each draw: ``[rows, draws, out]``."""
        noise = random.words(key(derived(seed, 0)), random.NOISE, len(inputs), draws, noise_dim)
        noise = (noise < random.threshold(self.config.noise_prob)).double()
        hidden = torch.cat([inputs[:, None].expand(-1, draws, -1), noise], dim=2)
        weight, bias = self._layer(f"{name}.first")
        layers = [(torch.cat([weight, self.parameters.get(f"{name}.first.noise_weight", weight[:0])]), bias)]
        while f"{name}.rest.{len(layers) - 1}.weight" in self.parameters:
            layers.append(self._layer(f"{name}.rest.{len(layers) - 1}"))
        output = stack(layers, hidden, propagation, rate, seed)
        return torch.relu(output) if rectified else output

    def _psi(self, kind: str, inputs: torch.Tensor, propagation: torch.Tensor | None, seen: Pass, draws: int) -> Psi:
        noise_dim = self.config.noise_dim
        mean_seed, log_var_seed = seen.seed_at(f"{kind} mean"), seen.seed_at(f"{kind} log_var")
        rectified = kind == "node" and self.config.encoder_output == "relu"
        mean = self._encoder(f"{kind}_mean", inputs, draws, noise_dim, propagation, seen.dropout, mean_seed, rectified)
        if self.config.noisy_variance:
            # Both branches see one noisy input: the same noise, dropped alike.
            log_var_seed = mean_seed
        else:
            # Without noise in it, one log variance serves all draws.
            draws, noise_dim = 1, 0
        rest = (draws, noise_dim, propagation, seen.dropout, log_var_seed, rectified)
        log_var = self._encoder(f"{kind}_log_var", inputs, *rest)
        return Psi(mean, log_var)

    def _head(self, kind: str, branch: str, values: torch.Tensor, seen: Pass) -> torch.Tensor:
        """The two layers over the averages of nodes (Eq. cor)."""
        layers = [self._layer(f"{kind}_{branch}.{part}") for part in ("inner", "outer")]
        averages = averaged(seen.features.T, values)
        return stack(layers, averages, None, seen.dropout, seen.seed_at(f"{kind} {branch}"))

    def _encode(self, seen: Pass, draws: int) -> list[Psi]:
        """Psi of the nodes and, with a feature side, of the features."""
        propagation = seen.propagation if self.config.encoder == "gcn" else None
        nodes = self._psi("node", seen.features, propagation, seen, draws)
        if not self.config.feature_side:
            return [nodes]
        if self.config.variant == "independent":
            return [nodes, self._psi("feature", seen.features.T, None, seen, draws)]
        branches = zip(Psi._fields, nodes, strict=True)
        return [nodes, Psi(*(self._head("feature", branch, values, seen) for branch, values in branches))]

    def _sample(self, seen: Pass, kinds: list[Psi]) -> list[torch.Tensor]:
        """``[rows, J, d]`` of each kind: the last J draws of psi are the samples' own."""
        count, samples = self.config.num_importance_samples, []
        for (mean, log_var), site in zip(kinds, ("node samples", "feature samples"), strict=False):
            rows, draws, width = mean.shape
            deviation = torch.exp(log_var.expand_as(mean) / 2)
            normals = random.normals(key(seen.seed_at(site)), rows, count, width, torch.float64)
            own = [draws - count + j for j in range(count)]
            z = [mean[:, s] + deviation[:, s] * normals[:, j] for j, s in enumerate(own)]
            samples.append(torch.stack(z, dim=1))
        return samples

    def _decode(
        self, seen: Pass, z_nodes: torch.Tensor, z_features: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits or means, and for "gaussian" log variances: ``[n, J, l]``."""
        config = self.config
        if config.decoder == "inner_product":
            return torch.einsum("ijd,rjd->ijr", z_nodes, z_features), None
        hidden = z_nodes
        if config.feature_embeddings:
            hidden = torch.cat([z_nodes, averaged(seen.features, z_features)], dim=2)
        inner = [self._layer(f"decoder.layers.{index}") for index in range(config.decoder_layers - 1)]
        used = seen.propagation if config.decoder == "gcn" else None

        def decoded(weight: torch.Tensor, bias: torch.Tensor | float) -> torch.Tensor:
            return stack([*inner, (weight, bias)], hidden, used, seen.dropout, seen.seed_at("decoder"))

        output = decoded(*self._layer("decoder.last"))
        if config.likelihood != "gaussian":
            return output, None
        weight = self.parameters["decoder.log_var_weight"]
        # A dense layer's bias is the last row.
        return output, decoded(weight, 0.0) if config.decoder == "gcn" else decoded(weight[:-1], weight[-1])

    # The bound's terms: ``[J]`` each.

    def _link_term(self, z: torch.Tensor, seen_entries: int, seed: int) -> torch.Tensor:
        """Scores of the unmasked edges and of all pairs, or of drawn non-edges; balanced by the edges that are seen."""
        config, n = self.config, len(z)
        edges = (self.adjacency != 0).double()
        target = edges + torch.eye(n, dtype=torch.float64)
        scale, pos_weight = 1.0, 1.0
        if config.scaling == "mean":
            scale = 1 / (2 * (n**2 - seen_entries))
            pos_weight = (n**2 - seen_entries) / seen_entries
        # How often each pair without a link counts.
        counted = 1 - target
        if config.negatives != "all":
            count = int(edges.sum()) // 2 if config.negatives == "edges" else config.negatives
            absent = (1 - target).triu(1).nonzero()
            drawn = random.integers(key(derived(seed, *SITES["non-edges"])), random.NEGATIVES, count, len(absent))
            counted = torch.zeros(n, n, dtype=torch.float64)
            for low, high in absent[drawn].tolist():
                counted[low, high] += len(absent) / count
                counted[high, low] += len(absent) / count
        scores = torch.einsum("ijd,kjd->jik", z, z)
        terms = pos_weight * target * logsigmoid(scores) + counted * logsigmoid(-scores)
        return scale * terms.sum(dim=(1, 2))

    def _feature_term(self, output: torch.Tensor, log_var: torch.Tensor | None, features: torch.Tensor) -> torch.Tensor:
        """log p(X | Z); with means, balanced by the sum of X, of which large values count half of the cells at most."""
        config, cells = self.config, features.numel()
        scale, pos_weight = 1.0, torch.ones((), dtype=torch.float64)
        if config.scaling == "mean":
            present = features.sum()
            if config.likelihood != "bernoulli":
                present = present.clamp(max=cells / 2)
            scale = 1 / (2 * (cells - present))
            pos_weight = (cells - present) / present
        per_sample = []
        for j in range(output.shape[1]):
            if config.likelihood == "bernoulli":
                term = -binary_cross_entropy_with_logits(output[:, j], features, pos_weight=pos_weight, reduction="sum")
            else:
                # "mse" is a normal density of variance 1/2, whose exponent is minus the squared error.
                deviation = math.sqrt(0.5) if log_var is None else torch.exp(log_var[:, j] / 2)
                mean = torch.relu(output[:, j]) if config.likelihood == "mse_relu" else output[:, j]
                term = Normal(mean, deviation).log_prob(features).sum()
            per_sample.append(scale * term)
        return torch.stack(per_sample)

    def _prior(self, samples: list[torch.Tensor]) -> torch.Tensor:
        """log p(Z); with means, over the rows of a kind, and by their number once more."""
        divide = self.config.scaling == "mean"
        densities = [Normal(0.0, 1.0).log_prob(z).sum(dim=(0, 2)) / (len(z) ** 2 if divide else 1) for z in samples]
        return sum(densities)

    def _mixture(self, samples: list[torch.Tensor], kinds: list[Psi]) -> torch.Tensor:
        """log Omega; with means, over the rows of both kinds, and by their number once more."""
        config = self.config
        extra = config.num_mixture_samples
        per_sample = []
        for j in range(config.num_importance_samples):
            # The extra draws and the sample's own: densities [rows, K + 1] of each kind.
            components = [*range(extra), extra + j]
            densities = []
            for z, (mean, log_var) in zip(samples, kinds, strict=True):
                deviation = torch.exp(log_var.expand_as(mean) / 2)
                posterior = Normal(mean[:, components], deviation[:, components])
                densities.append(posterior.log_prob(z[:, j : j + 1]).sum(dim=2))
            rows = torch.cat(densities)
            if config.mixture == "joint":
                rows = rows.sum(dim=0, keepdim=True)
            per_sample.append((torch.logsumexp(rows, dim=1) - math.log(extra + 1)).sum())
        total = torch.stack(per_sample)
        return total / sum(len(z) for z in samples) ** 2 if config.scaling == "mean" else total
