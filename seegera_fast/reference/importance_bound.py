"""The importance-weighted bound (Eq. reweight)."""

import math

import torch

from .factors import factor


def importance_bound(log_likelihood, log_prior, log_mixture, *, warmup=1.0) -> torch.Tensor:
    weights = log_likelihood + factor(warmup, log_prior) * (log_prior - log_mixture)
    # Subtract the largest weight first: likelihoods of graphs are so large that their rounding would blur the gradient.
    largest = weights.detach().amax()
    return largest + torch.logsumexp(weights - largest, dim=0) - math.log(weights.shape[0])
