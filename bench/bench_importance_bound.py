"""importance_bound, value and gradients, against torch.logsumexp. With J numbers each, only the calls take time."""

import math

import torch
from operations import grid, leaf, operation, with_gradients

import seegera_fast as sf

WARMUP = 0.5


@operation(grid(samples=(5, 1)))
def bench_importance_bound(size, samples):
    likelihood, prior, mixture = (leaf(samples, seed=seed) for seed in range(3))
    functions = {
        "seegera_fast": lambda: sf.ops.importance_bound(likelihood, prior, mixture, warmup=WARMUP),
        "torch": lambda: torch.logsumexp(likelihood + WARMUP * (prior - mixture), 0) - math.log(samples),
    }
    return with_gradients(functions, [likelihood, prior, mixture])
