"""A graph convolution or dense layer: dropout, product with the weight, propagation."""

import torch

from ..seeds import seed_tensor
from .activation import ACTIVATIONS
from .random import dropout as drop
from .sparse_matmul import sparse_matmul


def gcn(propagation, hidden, weight, *, bias=None, dropout=0.0, seed=0, activation="relu") -> torch.Tensor:
    seed = seed_tensor(seed, weight.device)
    hidden = drop(hidden, dropout, seed) @ weight
    if propagation is not None:
        hidden = sparse_matmul(propagation, hidden)
    if bias is not None:
        hidden = hidden + bias
    return ACTIVATIONS[activation](hidden)
