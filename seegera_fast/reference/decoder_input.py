"""The decoder's first product: [z | zbar] W."""

import torch

from ..seeds import seed_tensor
from .feature_average import feature_average
from .random import dropout as drop


def decoder_input(features, z_nodes, z_features, weight, *, dropout=0.0, seed=0) -> torch.Tensor:
    seed = seed_tensor(seed, weight.device)
    averaged = feature_average(features, z_features, to="nodes")
    return drop(torch.cat([z_nodes, averaged], dim=2), dropout, seed) @ weight
