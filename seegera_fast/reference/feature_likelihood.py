"""log p(X | H W) and the likelihoods of one entry."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import logsigmoid

from .factors import factor
from .normal_density import normal_log_density
from .weights import term, weighted


@dataclass(frozen=True)
class Likelihood:
    """The distribution of a feature, given the output of the decoder.

    Attributes:
        log_density: ``(target, outputs, log_var=..., pos_weight=...)`` -> the log densities of the entries.
        mean: outputs -> the expected features.
        low, high: features must be in ``[low, high]``.
        has_log_var: whether the decoder has a second output, the log variance.
    """

    log_density: Callable[..., torch.Tensor]
    mean: Callable[[torch.Tensor], torch.Tensor]
    low: float = -math.inf
    high: float = math.inf
    has_log_var: bool = False

    @property
    def takes_any(self) -> bool:
        """Whether a feature may be any number."""
        return (self.low, self.high) == (-math.inf, math.inf)


def bernoulli(target, outputs, *, pos_weight, **_) -> torch.Tensor:
    return weighted(pos_weight * target, logsigmoid(outputs)) + weighted(1 - target, logsigmoid(-outputs))


def mse(target, outputs, **_) -> torch.Tensor:
    return -((target - outputs) ** 2) - 0.5 * math.log(math.pi)


def mse_relu(target, outputs, **parameters) -> torch.Tensor:
    return mse(target, torch.relu(outputs), **parameters)


def gaussian(target, outputs, *, log_var, **_) -> torch.Tensor:
    return normal_log_density(target, outputs, log_var)


def identity(outputs) -> torch.Tensor:
    return outputs


LIKELIHOODS = {
    "bernoulli": Likelihood(bernoulli, torch.sigmoid, low=0.0, high=1.0),
    "mse": Likelihood(mse, identity),
    "gaussian": Likelihood(gaussian, identity, has_log_var=True),
    "mse_relu": Likelihood(mse_relu, torch.relu),
}

# The likelihoods that have kernels, and their numbers in the kernels, which kernels/cpu/feature_likelihood.h repeats.
# Other likelihoods run on the reference.
KERNELS = {"bernoulli": 0, "mse": 1, "gaussian": 2, "mse_relu": 3}


def check_log_var(likelihood: str, given: bool) -> None:
    """Checks that ``log_var_weight`` is given with the likelihoods that have variances, and only with them."""
    if LIKELIHOODS[likelihood].has_log_var != given:
        others = " or ".join(f'"{name}"' for name, other in LIKELIHOODS.items() if other.has_log_var)
        raise ValueError(
            f"log_var_weight: got {'one' if given else 'none'} with likelihood {likelihood!r}; it goes with {others} "
            "and only there"
        )


def feature_likelihood(
    hidden, weight, features, *, likelihood="bernoulli", pos_weight=1.0, log_var_weight=None, reduction="sum"
) -> torch.Tensor:
    check_log_var(likelihood, log_var_weight is not None)
    target = features.to_dense()
    pos_weight = factor(pos_weight, hidden)

    def log_likelihood(hidden, weight, log_var_weight) -> torch.Tensor:
        log_var = None if log_var_weight is None else hidden @ log_var_weight
        density = LIKELIHOODS[likelihood].log_density
        return density(target, hidden @ weight, log_var=log_var, pos_weight=pos_weight).sum()

    per_draw = [
        term(log_likelihood, hidden[:, j], weight if weight.ndim == 2 else weight[j], log_var_weight)
        for j in range(hidden.shape[1])
    ]
    total = torch.stack(per_draw)
    return total / (features.shape[0] * features.shape[1]) if reduction == "mean" else total
