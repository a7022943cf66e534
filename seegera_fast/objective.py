"""The importance-weighted bound (Eq. reweight) of one step, computed from the draws of the model."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch

from . import ops
from .config import SeeGeraConfig
from .graph import Graph
from .nn import Decoded
from .ops.feature_likelihood import LIKELIHOODS
from .reference.weights import logsumexp
from .sparse_matrix import SparseMatrix


class Posterior(NamedTuple):
    """Draws of psi for the nodes or for the features: K extra draws first, then one per sample."""

    mean: torch.Tensor  # [n, K + J, d]
    log_var: torch.Tensor  # [n, 1 or K + J, d]


@dataclass(frozen=True)
class Targets:
    """The targets of the reconstruction, and how many edges the encoder saw.

    Attributes:
        adjacency: the training adjacency A, unmasked; the link target is A + I.
        features: the feature target (masked in v3, as in the released program).
        features_masked: whether ``features`` was masked, so that its values belong to this step only.
        visible_edges: number of undirected edges that the encoder saw.
        whole: the graph that this one is a part of; None: it is no part.
    """

    adjacency: SparseMatrix
    features: SparseMatrix
    features_masked: bool
    visible_edges: int
    whole: Graph | None = None

    @property
    def feature_sum(self) -> float | torch.Tensor:
        """The sum of the feature target: a float, or for a masked target a float64 scalar tensor."""
        return self.features.values.sum(dtype=torch.float64) if self.features_masked else self.features.value_sum


@dataclass(frozen=True)
class Output:
    """Result of a forward pass.

    Attributes:
        loss: scalar: minus the bound, to be minimised.
        samples: the terms of the bound by name ("link", "feature", "prior", "mixture"), ``[J]`` each, detached.
    """

    loss: torch.Tensor
    samples: dict[str, torch.Tensor]

    @property
    def terms(self) -> dict[str, torch.Tensor]:
        """The means of the terms over the samples, by name; samples that are minus infinity don't count.

        They are computed when they are asked for, so that a step does without these launches.
        """
        # In float64, where the sum of float32 numbers does not overflow.
        values = torch.stack(list(self.samples.values()))
        lost = values == -math.inf
        means = values.double().masked_fill(lost, 0.0).sum(dim=1) / (~lost).sum(dim=1)
        means = means.masked_fill(lost.all(dim=1), -math.inf).to(values.dtype)
        return dict(zip(self.samples, means.unbind(), strict=True))


# What exports a model, and torch.func, look for tensors inside of what a function returns.
torch.export.register_dataclass(Output, serialized_type_name="seegera_fast.Output")


def term_names(config: SeeGeraConfig) -> tuple[str, ...]:
    """The names of the terms of :func:`bound`."""
    return ("link", *["feature"] * config.feature_side, "prior", "mixture")


Number = TypeVar("Number", float, torch.Tensor)


def balance(present: Number, cells: int, *, binary: bool) -> tuple[Number, Number]:
    """The released program's (norm, pos_weight) for a target with sum ``present`` over ``cells`` cells.

    ``norm = cells / (2 (cells - present))``, ``pos_weight = (cells - present) / present``.

    The sum of a binary target is clamped to ``[1, cells - 1]``, so that an empty or full target gives finite numbers.
    The sum of another target is clamped to ``[0, cells / 2]``, so that large values can't make the norm negative.

    Args:
        present: a float, or a float64 tensor, whose value is not read on the host.
        binary: whether the target's values are at most 1.
    """
    lowest, highest = 1.0 if binary else 0.0, max(cells - 1.0 if binary else cells / 2, 1.0)
    if isinstance(present, torch.Tensor):
        present = present.clamp(lowest, highest)
        divisor = present.clamp_min(1.0)
    else:
        present = min(max(present, lowest), highest)
        divisor = max(present, 1.0)
    # With a single cell, cells - present could be 0; it is set to 1.
    absent = cells - present if cells > 1 else 0 * present + 1
    return cells / (2 * absent), absent / divisor


def check_targets(config: SeeGeraConfig, graph: Graph, whole: Graph | None = None) -> None:
    """Raises a ValueError if the likelihood can't take the features, or there are too few non-edges to draw.

    Of a part of a graph, at most as many are drawn as there are.
    """
    likelihood = LIKELIHOODS[config.likelihood]
    if config.feature_side and not likelihood.takes_any:
        low, high = graph.features.value_range
        if low < likelihood.low or high > likelihood.high:
            others = ", ".join(f'"{other}"' for other, entry in LIKELIHOODS.items() if entry.takes_any)
            raise ValueError(
                f'likelihood: got "{config.likelihood}" with features from {low:g} to {high:g}, want values in '
                f"[{likelihood.low:g}, {likelihood.high:g}]; {others} take any"
            )
    negatives, available = config.negatives, graph.adjacency.non_edge_count
    if negatives != "all" and whole is None:
        drawn = graph.num_edges if negatives == "edges" else negatives
        if not 1 <= drawn <= available:
            raise ValueError(f'negatives: got {negatives!r} ({drawn}), want "all" or 1 to {available} non-edges')


class Scales:
    """The factors of the terms, and the weights of the ones in the likelihoods.

    With ``scaling="sum"`` all factors are 1; in a part of a graph they are such that its bound estimates that of the
    whole: N of its n nodes count N / n each, and its links (with the self-loops) and its other pairs as often as the
    whole has more of them. ``scaling="mean"`` is the scaling of the released program. There the
    likelihoods are means over cells, balanced by :func:`balance`, and prior and mixture are divided by the square of
    the number of rows. For the prior these are the rows of nodes and of features separately, for the mixture those of
    both together. So the result is not a bound.
    """

    def __init__(self, config: SeeGeraConfig, targets: Targets) -> None:
        self._mean = config.scaling == "mean"
        num_nodes, num_features = targets.features.shape
        self.link = self.link_weight = self.feature = self.feature_weight = 1.0
        # The factor of a row of nodes; None: 1.
        self.node: float | None = None
        if not self._mean and targets.whole is not None:
            self.node = self.feature = targets.whole.num_nodes / num_nodes
            self.link, self.link_weight = _pairs_of_whole(targets.adjacency, targets.whole.adjacency)
        if self._mean:
            cells = num_nodes**2
            norm, self.link_weight = balance(2.0 * targets.visible_edges, cells, binary=True)
            self.link = norm / cells
        if self._mean and config.feature_side:
            cells = num_nodes * num_features
            binary = LIKELIHOODS[config.likelihood].high == 1
            norm, self.feature_weight = balance(targets.feature_sum, cells, binary=binary)
            self.feature = norm / cells

    def over_rows(self, term: torch.Tensor, rows: int) -> torch.Tensor:
        """Scales a term of the prior or of the mixture that was summed over ``rows`` rows."""
        return term / rows**2 if self._mean else term

    def by_side(self, terms: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Weights what was summed over the rows of nodes, which comes first; the features are those of the whole."""
        for number, term in enumerate(terms):
            yield term if number or self.node is None else self.node * term


def _pairs_of_whole(part: SparseMatrix, whole: SparseMatrix) -> tuple[float, float]:
    """The factor of all pairs of a part, and the further one of its links, so that they count as those of the whole."""
    ones, whole_ones = (matrix.nnz + matrix.shape[0] for matrix in (part, whole))
    zeros, whole_zeros = (matrix.shape[0] ** 2 - matrix.nnz - matrix.shape[0] for matrix in (part, whole))
    if not zeros or not whole_zeros:
        return whole_ones / ones, 1.0
    return whole_zeros / zeros, whole_ones / ones / (whole_zeros / zeros)


def _drawn(negatives: str | int, targets: Targets) -> str | int:
    """How many non-edges are drawn."""
    count = targets.adjacency.nnz // 2 if negatives == "edges" else negatives
    if targets.whole is None or count == "all":
        return count
    available = targets.adjacency.non_edge_count
    # A batch without links takes one, and not all its pairs, for which the memory may be too small.
    return min(max(count, 1), available) if available else "all"


def bound(
    config: SeeGeraConfig,
    targets: Targets,
    samples: Sequence[tuple[torch.Tensor, Posterior]],
    z_links: torch.Tensor,
    decoded: Decoded | None,
    *,
    warmup: float | torch.Tensor,
    seed: int | torch.Tensor,
) -> Output:
    """``logsumexp_j (log p(A | Z_j) + log p(X | Z_j) + warmup (log p(Z_j) - log Omega_j)) - log J`` (Eq. reweight).

    Args:
        config: its fields likelihood, scaling, mixture and negatives are used.
        samples: the samples of the nodes ``[n, J, d]`` and, with a feature side, of the features ``[l, J, d]``, each
            with the draws of psi that they were drawn from.
        z_links: the node samples for the link decoder, ``[n, J, d]``.
        decoded: the output of the feature decoder; None: no feature side.
        warmup: factor t of the regularising terms, in [0, 1].
        seed: seed of the drawn non-edges.
    """
    scales = Scales(config, targets)
    negatives = _drawn(config.negatives, targets)
    likelihoods = {
        "link": scales.link
        * ops.link_likelihood(z_links, targets.adjacency, pos_weight=scales.link_weight, negatives=negatives, seed=seed)
    }
    if decoded is not None:
        likelihoods["feature"] = scales.feature * ops.feature_likelihood(
            decoded.hidden,
            decoded.weight,
            targets.features,
            likelihood=config.likelihood,
            pos_weight=scales.feature_weight,
            log_var_weight=decoded.log_var_weight,
        )
    densities = scales.by_side(ops.standard_normal_density(z) for z, _ in samples)
    prior = _total(scales.over_rows(term, z.shape[0]) for term, (z, _) in zip(densities, samples, strict=True))
    mixture = log_mixture(config.mixture, samples, scales.by_side)
    mixture = scales.over_rows(mixture, sum(z.shape[0] for z, _ in samples))
    loss = -ops.importance_bound(_total(likelihoods.values()), prior, mixture, warmup=warmup)

    terms = {**likelihoods, "prior": prior, "mixture": mixture}
    return Output(loss, {name: term.detach() for name, term in terms.items()})


def _total(terms: Iterable[torch.Tensor]) -> torch.Tensor:
    """The sum of the terms. ``sum`` would add an unneeded zero first."""
    return functools.reduce(operator.add, terms)


def log_mixture(
    form: str,
    samples: Sequence[tuple[torch.Tensor, Posterior]],
    by_side: Callable[[Iterable[torch.Tensor]], Iterable[torch.Tensor]] = iter,
) -> torch.Tensor:
    """``log Omega_j``. "per_node" sums the log mixtures of the rows; "joint" mixes the densities of all rows together.

    Args:
        samples: see :func:`bound`.
        by_side: weights the sums over the rows of nodes and of features.
    """
    if form == "per_node":
        return _total(by_side(ops.mixture_density(z, *psi) for z, psi in samples))
    components = _total(by_side(ops.component_log_density(z, *psi) for z, psi in samples))
    return logsumexp(components, dim=1) - math.log(components.shape[1])
