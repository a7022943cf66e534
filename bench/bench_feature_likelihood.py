"""feature_likelihood on Cora, value and gradients, against the loss of all n x l outputs in plain PyTorch."""

import math

import pytest
import torch
from cases import load
from torch.nn import functional

import seegera_fast as sf


def contenders(likelihood, features, width):
    """Name -> call without arguments, each giving the value and the gradients of H and of the weights."""
    generator = torch.Generator().manual_seed(0)
    num_nodes, num_features = features.shape
    hidden = 0.1 * torch.randn(num_nodes, 1, width, generator=generator)
    weight, variance = 0.1 * torch.randn(2, width, num_features, generator=generator)
    pos_weight = torch.tensor(20.0)
    dense = features.to_dense()
    leaves = [hidden.requires_grad_(), weight.requires_grad_()]
    if likelihood == "gaussian":
        leaves.append(variance.requires_grad_())

    def ours():
        return sf.ops.feature_likelihood(
            hidden,
            weight,
            features,
            likelihood=likelihood,
            pos_weight=pos_weight,
            log_var_weight=variance if likelihood == "gaussian" else None,
        )

    def plain():
        outputs = hidden[:, 0] @ weight
        if likelihood == "bernoulli":
            return -functional.binary_cross_entropy_with_logits(outputs, dense, pos_weight=pos_weight, reduction="sum")
        if likelihood == "mse":
            return -functional.mse_loss(outputs, dense, reduction="sum") - 0.5 * math.log(math.pi) * dense.numel()
        variances = torch.exp(hidden[:, 0] @ variance)
        loss = functional.gaussian_nll_loss(outputs, dense, variances, full=True, reduction="sum")
        return -loss

    def with_gradients(function):
        def call():
            value = function().sum()
            return value, *torch.autograd.grad(value, leaves)

        return call

    return {"seegera_fast": with_gradients(ours), "torch": with_gradients(plain)}


@pytest.mark.parametrize("width", [64, 512])
@pytest.mark.parametrize("likelihood", ["bernoulli", "mse", "gaussian"])
@pytest.mark.parametrize("which", ["seegera_fast", "torch"])
def bench_cora(benchmark, which, likelihood, width):
    calls = contenders(likelihood, load("cora").features, width)
    for found, want in zip(calls[which](), calls["seegera_fast"](), strict=True):
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5 * float(want.detach().abs().max()))
    benchmark.group = f"{likelihood}, width {width}"
    benchmark(calls[which])
