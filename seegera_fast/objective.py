"""The importance-weighted bound (Eq. reweight) of one step, from what the model drew."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch

from . import ops
from .graph import SparseMatrix
from .nn import Decoded


class Posterior(NamedTuple):
    """Draws of psi for the rows of one kind, nodes or features: K extra ones first, then one per sample."""

    mean: torch.Tensor  # [n, K + J, d]
    log_var: torch.Tensor  # [n, 1 or K + J, d]


@dataclass(frozen=True)
class Targets:
    """What is reconstructed, and how the terms are balanced.

    Attributes:
        adjacency: unmasked training adjacency; the link target is A + I.
        features: the feature target (masked in v3, as in the released program).
        masked_edges: undirected edges of the graph that the encoder saw.
    """

    adjacency: SparseMatrix
    features: SparseMatrix
    masked_edges: int


@dataclass(frozen=True)
class Output:
    """Result of a forward pass.

    Attributes:
        loss: minus the bound: the scalar that is minimised.
        terms: parts of the bound, means over samples, detached, in the order of computation: "link", "feature",
            "prior", "mixture".
    """

    loss: torch.Tensor
    terms: dict[str, torch.Tensor]


Number = TypeVar("Number", float, torch.Tensor)


def balance(present: Number, cells: int, *, binary: bool) -> tuple[Number, Number]:
    """The released program's (norm, pos_weight) for a target with sum ``present`` over ``cells`` cells.

    ``norm = cells / (2 (cells - present))``, ``pos_weight = (cells - present) / present``. The sum is kept at least
    one away from both ends, so that an empty or full target gives finite numbers; where values may exceed 1, at most
    half of the cells, so that large values cannot turn the norm over.

    Args:
        present: a float, or a tensor in float64, which is not read.
    """
    lowest, highest = 1.0 if binary else 0.0, max(cells - 1.0 if binary else cells / 2, 1.0)
    if isinstance(present, torch.Tensor):
        present = present.clamp(lowest, highest)
        divisor = present.clamp_min(1.0)
    else:
        present = min(max(present, lowest), highest)
        divisor = max(present, 1.0)
    # One cell has no other: what is absent counts as one.
    absent = cells - present if cells > 1 else 0 * present + 1
    return cells / (2 * absent), absent / divisor


def bound(
    config,
    targets: Targets,
    z_links: torch.Tensor,
    decoded: Decoded,
    nodes: Posterior,
    features: Posterior,
    z_nodes: torch.Tensor,
    z_features: torch.Tensor,
    *,
    warmup: float | torch.Tensor,
    seed: int | torch.Tensor,
) -> Output:
    """One importance-weighted bound.

    Args:
        config: a ``SeeGeraConfig``: likelihood, scaling, mixture, negatives.
        z_links: node samples as the link decoder sees them, ``[n, J, d]``.
        decoded: the feature decoder's output.
        nodes, features: the draws of psi.
        z_nodes, z_features: the samples, ``[n, J, d]`` and ``[l, J, d]``.
        warmup: t in [0, 1].
        seed: of the drawn non-edges.
    """
    num_nodes, num_features = targets.features.shape
    mean = config.scaling == "mean"
    reduction = "mean" if mean else "sum"
    link_norm = feature_norm = link_weight = feature_weight = 1.0
    if mean:
        dtype = z_nodes.dtype
        link_norm, link_weight = balance(2.0 * targets.masked_edges, num_nodes**2, binary=True)
        feature_norm, feature_weight = balance(
            targets.features.values.sum(dtype=torch.float64),
            num_nodes * num_features,
            binary=config.likelihood == "bernoulli",
        )
        feature_norm, feature_weight = feature_norm.to(dtype), feature_weight.to(dtype)
    link = link_norm * ops.link_likelihood(
        z_links,
        targets.adjacency,
        pos_weight=link_weight,
        negatives=targets.adjacency.nnz // 2 if config.negatives == "edges" else config.negatives,
        seed=seed,
        reduction=reduction,
    )
    feature = feature_norm * ops.feature_likelihood(
        decoded.hidden,
        decoded.weight,
        targets.features,
        likelihood=config.likelihood,
        pos_weight=feature_weight,
        log_var_weight=decoded.log_var_weight,
        reduction=reduction,
    )
    # As in the released program: means over rows, divided by the number of rows once more. Its prior counts nodes and
    # features apart, its mixture both together, so that this is not a bound; scaling="sum" is.
    node_scale = 1 / num_nodes**2 if mean else 1.0
    feature_scale = 1 / num_features**2 if mean else 1.0
    prior = node_scale * standard_normal(z_nodes) + feature_scale * standard_normal(z_features)
    mixture = log_mixture(config.mixture, (z_nodes, nodes), (z_features, features))
    if mean:
        mixture = mixture / (num_nodes + num_features) ** 2
    loss = -ops.importance_bound(link + feature, prior, mixture, warmup=warmup)
    parts = {"link": link, "feature": feature, "prior": prior, "mixture": mixture}
    return Output(loss, {name: part.detach().mean() for name, part in parts.items()})


def standard_normal(z: torch.Tensor) -> torch.Tensor:
    """log N(Z_j; 0, I), summed over rows: ``[n, J, d]`` -> ``[J]``."""
    size = z.shape[0] * z.shape[2]
    return -0.5 * (z.square().sum(dim=(0, 2)) + size * math.log(2 * math.pi))


def log_mixture(form: str, nodes: tuple[torch.Tensor, Posterior], features: tuple[torch.Tensor, Posterior]):
    """log Omega_j: "per_node" sums a mixture per row; "joint" mixes the densities of all rows together."""
    (z_nodes, node_psi), (z_features, feature_psi) = nodes, features
    if form == "per_node":
        return ops.mixture_density(z_nodes, *node_psi) + ops.mixture_density(z_features, *feature_psi)
    components = ops.component_log_density(z_nodes, *node_psi) + ops.component_log_density(z_features, *feature_psi)
    return torch.logsumexp(components, dim=1) - math.log(components.shape[1])
