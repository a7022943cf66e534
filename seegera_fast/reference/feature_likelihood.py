"""log p(X | H W), entry by entry."""

import math

import torch
from torch.nn.functional import softplus

from .deviation import inverse_deviation
from .factor import factor


def feature_likelihood(
    hidden, weight, features, *, likelihood="bernoulli", pos_weight=1.0, log_var_weight=None, reduction="sum"
) -> torch.Tensor:
    target = features.to_dense()
    pos_weight = factor(pos_weight, hidden)
    per_draw = []
    for j in range(hidden.shape[1]):
        own = weight if weight.ndim == 2 else weight[j]
        outputs = hidden[:, j] @ own
        if likelihood == "bernoulli":
            terms = -(pos_weight * target * softplus(-outputs) + (1 - target) * softplus(outputs))
        elif likelihood == "mse":
            terms = -((target - outputs) ** 2) - 0.5 * math.log(math.pi)
        else:
            log_var = hidden[:, j] @ log_var_weight
            squares = ((target - outputs) * inverse_deviation(log_var)) ** 2
            terms = -0.5 * (squares + log_var + math.log(2 * math.pi))
        per_draw.append(terms.sum())
    total = torch.stack(per_draw)
    return total / (features.shape[0] * features.shape[1]) if reduction == "mean" else total
