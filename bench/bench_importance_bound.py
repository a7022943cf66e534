"""importance_bound, value and gradients, against torch.logsumexp: J numbers each, so that only the calls cost."""

import math

import pytest
import torch
from cases import CONTENDERS, compare, leaf, with_gradients

import seegera_fast as sf


def contenders(samples):
    likelihood, prior, mixture = (leaf(samples, seed=seed) for seed in range(3))
    warmup = 0.5

    def plain():
        return torch.logsumexp(likelihood + warmup * (prior - mixture), 0) - math.log(samples)

    functions = {
        "seegera_fast": lambda: sf.ops.importance_bound(likelihood, prior, mixture, warmup=warmup),
        "torch": plain,
    }
    return {name: with_gradients(function, [likelihood, prior, mixture]) for name, function in functions.items()}


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_importance_bound(benchmark, contender, samples):
    benchmark.group = f"importance_bound, J = {samples}"
    compare(benchmark, contender, contenders(samples))
