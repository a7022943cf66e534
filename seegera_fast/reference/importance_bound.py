"""The importance-weighted bound (Eq. reweight)."""

import math

import torch


def importance_bound(log_likelihood, log_prior, log_mixture, *, warmup=1.0) -> torch.Tensor:
    weights = log_likelihood + warmup * (log_prior - log_mixture)
    return torch.logsumexp(weights, dim=0) - math.log(weights.shape[0])
