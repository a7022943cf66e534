"""feature_likelihood, value and gradients, against the loss of all n x l outputs in plain PyTorch."""

import math

import pytest
import torch
from cases import CONTENDERS, FEATURES, NODES, WIDTH, compare, cora_sized, leaf, with_gradients
from torch.nn import functional

import seegera_fast as sf

POS_WEIGHT = torch.tensor(20.0)


def contenders(likelihood, width):
    features = cora_sized().features
    dense = features.to_dense()
    hidden = leaf(NODES, 1, width, scale=0.1)
    weight, variance = (leaf(width, FEATURES, scale=0.1, seed=seed) for seed in (1, 2))
    leaves = [hidden, weight] + [variance] * (likelihood == "gaussian")

    def ours():
        return sf.ops.feature_likelihood(
            hidden,
            weight,
            features,
            likelihood=likelihood,
            pos_weight=POS_WEIGHT,
            log_var_weight=variance if likelihood == "gaussian" else None,
        )

    def plain():
        outputs = hidden[:, 0] @ weight
        if likelihood == "bernoulli":
            loss = functional.binary_cross_entropy_with_logits(outputs, dense, pos_weight=POS_WEIGHT, reduction="sum")
        elif likelihood == "mse":
            loss = functional.mse_loss(outputs, dense, reduction="sum") + 0.5 * math.log(math.pi) * dense.numel()
        else:
            variances = torch.exp(hidden[:, 0] @ variance)
            loss = functional.gaussian_nll_loss(outputs, dense, variances, full=True, reduction="sum")
        return -loss[None]

    return {name: with_gradients(call, leaves) for name, call in {"seegera_fast": ours, "torch": plain}.items()}


@pytest.mark.parametrize("width", [64, WIDTH])
@pytest.mark.parametrize("likelihood", ["bernoulli", "mse", "gaussian"])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_feature_likelihood(benchmark, contender, likelihood, width):
    benchmark.group = f"feature_likelihood, {likelihood}, width {width}"
    compare(benchmark, contender, contenders(likelihood, width))
