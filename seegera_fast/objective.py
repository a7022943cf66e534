"""The importance-weighted bound (Eq. reweight) of one step, from what the model drew."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch.nn import functional

from . import ops
from .nn import Decoded
from .ops.feature_likelihood import LIKELIHOODS
from .sparse_matrix import SparseMatrix


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
        features_masked: its values are those of this step alone.
        masked_edges: undirected edges of the graph that the encoder saw.
    """

    adjacency: SparseMatrix
    features: SparseMatrix
    features_masked: bool
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
    decoded: Decoded | None,
    nodes: Posterior,
    features: Posterior | None,
    z_nodes: torch.Tensor,
    z_features: torch.Tensor | None,
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
            Without a feature side, decoded, features and z_features are None.
        warmup: t in [0, 1].
        seed: of the drawn non-edges.
    """
    # On a GPU each of these numbers is a launch, so what is known on the host is put into one factor first.
    num_nodes = targets.features.shape[0]
    num_features = 0 if features is None else targets.features.shape[1]
    mean = config.scaling == "mean"
    pairs = num_nodes**2
    link_norm, link_weight = balance(2.0 * targets.masked_edges, pairs, binary=True) if mean else (1.0, 1.0)
    link = (link_norm / pairs if mean else 1.0) * ops.link_likelihood(
        z_links,
        targets.adjacency,
        pos_weight=link_weight,
        negatives=targets.adjacency.nnz // 2 if config.negatives == "edges" else config.negatives,
        seed=seed,
    )
    likelihoods = {"link": link}
    if decoded is not None:
        likelihoods["feature"] = _feature_term(config, targets, decoded)
    # As in the released program: means over rows, divided by the number of rows once more. Its prior counts nodes and
    # features apart, its mixture both together, so that this is not a bound; scaling="sum" is.
    rows = [(z_nodes, nodes)] if features is None else [(z_nodes, nodes), (z_features, features)]
    prior = log_prior([(z, 1 / z.shape[0] ** 2 if mean else 1.0) for z, _ in rows])
    mixture = log_mixture(config.mixture, rows)
    if mean:
        mixture = mixture / (num_nodes + num_features) ** 2
    loss = -ops.importance_bound(_total(likelihoods.values()), prior, mixture, warmup=warmup)
    parts = {**likelihoods, "prior": prior, "mixture": mixture}
    means = torch.stack([part.detach() for part in parts.values()]).mean(dim=1)
    return Output(loss, dict(zip(parts, means.unbind(), strict=True)))


def _total(terms: Iterable[torch.Tensor]) -> torch.Tensor:
    """Their sum, without the zero that ``sum`` begins with."""
    return functools.reduce(operator.add, terms)


def _feature_term(config, targets: Targets, decoded: Decoded) -> torch.Tensor:
    """log p(X given the samples), ``[J]``, balanced as the released program does where means are taken."""
    features = targets.features
    factor = weight = 1.0
    if config.scaling == "mean":
        cells = features.shape[0] * features.shape[1]
        # On the host, unless it is another one at each step.
        total = features.values.sum(dtype=torch.float64) if targets.features_masked else features.value_sum
        norm, weight = balance(total, cells, binary=LIKELIHOODS[config.likelihood].high == 1)
        factor = norm / cells
        if isinstance(factor, torch.Tensor):
            factor = factor.to(features.dtype)
    return factor * ops.feature_likelihood(
        decoded.hidden,
        decoded.weight,
        features,
        likelihood=config.likelihood,
        pos_weight=weight,
        log_var_weight=decoded.log_var_weight,
    )


def log_prior(samples: Sequence[tuple[torch.Tensor, float]]) -> torch.Tensor:
    """log N(Z_j; 0, I), summed over rows and, each times its factor, over kinds of rows: ``[n, J, d]`` -> ``[J]``."""
    constant = math.log(2 * math.pi) * sum(factor * z.shape[0] * z.shape[2] for z, factor in samples)
    zero, total = samples[0][0].new_zeros(()), samples[0][0].new_full((1,), -0.5 * constant)
    for z, factor in samples:
        # As z.square(), whose gradient is made in three passes instead of one.
        squares = functional.mse_loss(z, zero.expand_as(z), reduction="none").sum(dim=(0, 2))
        total = torch.add(total, squares, alpha=-0.5 * factor)
    return total


def log_mixture(form: str, rows: Sequence[tuple[torch.Tensor, Posterior]]) -> torch.Tensor:
    """log Omega_j: "per_node" sums a mixture per row; "joint" mixes the densities of all rows together.

    Args:
        rows: samples and draws of psi: of the nodes, and of the features where they are embedded.
    """
    if form == "per_node":
        return _total(ops.mixture_density(z, *psi) for z, psi in rows)
    components = _total(ops.component_log_density(z, *psi) for z, psi in rows)
    return torch.logsumexp(components, dim=1) - math.log(components.shape[1])
