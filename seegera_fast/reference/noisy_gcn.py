"""The first layer, over noisy features (Eq. psi_1): concatenation, dropout, product with the weight, propagation."""

import torch

from ..seeds import seed_tensor
from .activation import ACTIVATIONS
from .random import bernoulli
from .random import dropout as drop
from .sparse_matmul import sparse_matmul


def noisy_gcn(
    propagation,
    features,
    weight,
    noise_weight,
    *,
    num_draws,
    seed,
    bias=None,
    noise_prob=0.5,
    dropout=0.0,
    activation="relu",
) -> torch.Tensor:
    seed = seed_tensor(seed, weight.device)
    noise = bernoulli(seed, features.shape[0], num_draws, noise_weight.shape[0], noise_prob, weight.dtype)
    repeated = features.to_dense()[:, None, :].expand(-1, num_draws, -1)
    hidden = drop(torch.cat([repeated, noise], dim=2), dropout, seed) @ torch.cat([weight, noise_weight])
    if propagation is not None:
        hidden = sparse_matmul(propagation, hidden)
    if bias is not None:
        hidden = hidden + bias
    return ACTIVATIONS[activation](hidden)
