"""The importance-weighted bound (Eq. reweight)."""

import math

import torch

from .factors import factor
from .weights import logsumexp, term, weighted


def importance_bound(log_likelihood, log_prior, log_mixture, *, warmup=1.0) -> torch.Tensor:
    warmup = factor(warmup, log_prior)

    def bound(log_likelihood, log_prior, log_mixture) -> torch.Tensor:
        weights = log_likelihood + weighted(warmup, log_prior - log_mixture)
        # Subtract the largest weight first: likelihoods of graphs are so large that their rounding would blur the
        # gradient.
        largest = weights.detach().amax()
        largest = largest.masked_fill(largest == -math.inf, 0.0)
        return largest + logsumexp(weights - largest, dim=0) - math.log(weights.shape[0])

    return term(bound, log_likelihood, log_prior, log_mixture)
