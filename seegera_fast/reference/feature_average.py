"""Means weighted by the features: over nodes for each feature (Eq. cor), or over features for each node."""

import torch


def feature_average(features, values, *, to="features") -> torch.Tensor:
    weights = features.to_dense()
    if to == "features":
        weights = weights.T
    norms = weights.abs().sum(dim=1)
    means = torch.einsum("ri,isd->rsd", weights, values)
    safe = torch.where(norms > 0, norms, torch.ones_like(norms))
    return means / safe[:, None, None]
