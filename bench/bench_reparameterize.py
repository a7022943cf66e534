"""reparameterize, value and gradients, against normal numbers of torch's own generator, which backward needs kept."""

import pytest
import torch
from cases import CONTENDERS, NODES, WIDTH, compare, leaf, with_gradients

import seegera_fast as sf

SEED = 3


def contenders(samples):
    mean, log_var = leaf(NODES, samples, WIDTH), leaf(NODES, 1, WIDTH, seed=1)
    zeros = torch.zeros(mean.shape)
    own = sf.ops.reparameterize(zeros, zeros, SEED)
    functions = {
        "seegera_fast": lambda: sf.ops.reparameterize(mean, log_var, SEED),
        "torch": lambda: mean + torch.exp(log_var / 2) * torch.randn_like(mean),
        "torch, same draws": lambda: mean + torch.exp(log_var / 2) * own,
    }
    return {name: with_gradients(function, [mean, log_var]) for name, function in functions.items()}


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_reparameterize(benchmark, contender, samples):
    benchmark.group = f"reparameterize, J = {samples}"
    compare(benchmark, contender, contenders(samples))
