"""Probabilities of links that mean what they say: of pairs with probability p, a share p are links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from .support import arguments
from .support.warning import warn_outside

BINS = 10


@dataclass(frozen=True)
class Calibration:
    """Calibrated probabilities of links, ``sigmoid(slope * asinh(s / scale) + intercept)`` for the inner product s of a
    pair.

    They hold where a pair is as probably a link as not before it is looked at, as in the held-out parts, which have a
    pair without a link for each link. Among all pairs of a graph links are far rarer. This is the method of Platt,
    "Probabilistic outputs for support vector machines", 1999, for the inverse hyperbolic sine of s: some pairs have far
    larger products than most, and without it their probabilities would be too sure.

    Attributes:
        slope: above 0, so that the order of the pairs stays.
        intercept: a finite number.
        scale: above 0; products up to it are counted as they are, and larger ones about by their logarithm.

    Raises:
        TypeError, ValueError: a number of a wrong kind or out of range.
    """

    slope: float
    intercept: float
    scale: float

    def __post_init__(self) -> None:
        for name in ("slope", "intercept", "scale"):
            value = arguments.number(name, getattr(self, name))
            if not np.isfinite(value):
                raise ValueError(f"{name}: got {value}, want a finite number")
            object.__setattr__(self, name, value)
        for name in ("slope", "scale"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, want a number above 0")

    def __call__(self, products: torch.Tensor) -> torch.Tensor:
        """Probabilities of pairs with these inner products, float32 or float64 of any shape, in their dtype."""
        arguments.instance("products", products, torch.Tensor)
        arguments.dense("products", products)
        arguments.dtype("products", products.dtype)
        # In float64, where neither a slope nor a scale is 0 or infinite.
        logits = self.slope * torch.asinh(products.double() / self.scale) + self.intercept
        return torch.sigmoid(logits).to(products.dtype)


class Reliability(NamedTuple):
    """How well probabilities agree with what is so, in bins of equal width from 0 to 1. Empty bins are left out.

    Attributes:
        error: the expected calibration error: the mean over all pairs of ``|predicted - observed|`` of the pair's bin.
            See Guo et al., "On calibration of modern neural networks", 2017.
        predicted: mean probability of each bin.
        observed: share of links of each bin.
        counts: number of pairs of each bin.
    """

    error: float
    predicted: list[float]
    observed: list[float]
    counts: list[int]


def fit_calibration(
    products: torch.Tensor, linked: torch.Tensor, more: torch.Tensor | None = None
) -> Calibration | None:
    """Fits a calibration to pairs that are known to be links or not.

    Returns:
        The calibration; None, with a warning, where larger products are not more probably links, as it happens with
        very few pairs.

    Args:
        products: ``[m]``: inner products of the pairs' embeddings.
        linked: bool ``[m]``: which of the pairs are links; some must be, and some not.
        more: ``[k]``: inner products of further pairs that are no links. They don't make links rarer: all pairs that
            are none have together the weight of those in ``products``.
    """
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    scores, target = products.double().cpu().numpy(), linked.cpu().numpy()
    links = int(target.sum())
    others = len(target) - links
    # A few very large products change it little, unlike the standard deviation.
    scale = 2 * float(np.median(abs(scores))) or float(abs(scores).max()) or 1.0
    further = np.empty(0) if more is None else more.double().cpu().numpy()
    scores, target = np.concatenate([scores, further]), np.append(target, np.zeros(len(further), bool))
    weight = np.where(target, 1.0, others / (others + len(further)))
    # Platt's targets: as if one more pair of each kind had been seen. Then a slope is found even where a threshold
    # separates links from others. A target between 0 and 1 is two rows with weights.
    positive = np.where(target, (links + 1) / (links + 2), 1 / (others + 2))
    compressed = np.arcsinh(scores / scale)[:, None]
    # The solver would stop early with numbers that are large beside their differences.
    mean, deviation = float(compressed.mean()), float(compressed.std()) or 1.0
    compressed = (compressed - mean) / deviation
    model = LogisticRegression(C=1e10, max_iter=1000)
    # In one thread, since sums of several differ in their last bits.
    with threadpool_limits(1):
        model.fit(
            np.concatenate([compressed, compressed]),
            np.repeat([True, False], len(target)),
            sample_weight=np.concatenate([weight * positive, weight * (1 - positive)]),
        )
    slope = float(model.coef_[0, 0]) / deviation
    if slope <= 0:
        warn_outside(
            f"the probabilities are not calibrated: among the {links} links and {others + len(further)} pairs without "
            "one that were held out for validation, larger scores are not more probably links"
        )
        return None
    return Calibration(slope, float(model.intercept_[0]) - slope * mean, scale)


def reliability(probabilities: torch.Tensor, linked: torch.Tensor, bins: int = BINS) -> Reliability:
    """Compares probabilities ``[m]`` with which pairs are links, bool ``[m]``."""
    values, target = probabilities.double().cpu().numpy(), linked.cpu().numpy()
    number = np.minimum((values * bins).astype(np.int64), bins - 1)
    counts = np.bincount(number, minlength=bins)
    present = counts > 0
    predicted, observed = (
        np.bincount(number, weights=weights, minlength=bins)[present] / counts[present] for weights in (values, target)
    )
    counts = counts[present]
    error = float((counts * abs(predicted - observed)).sum() / max(len(values), 1))
    return Reliability(error, predicted.tolist(), observed.tolist(), counts.tolist())
