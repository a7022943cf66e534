"""dropout, value and gradient, against torch's, which draws from its own generator and keeps the mask for backward."""

import pytest
import torch
from cases import CONTENDERS, DROPOUT, NODES, WIDTH, compare, leaf, with_gradients
from torch.nn import functional

import seegera_fast as sf

SEED = 3


def contenders(samples):
    values = leaf(NODES, samples, 2 * WIDTH)
    factors = sf.ops.dropout(torch.ones(values.shape), DROPOUT, SEED)
    functions = {
        "seegera_fast": lambda: sf.ops.dropout(values, DROPOUT, SEED),
        "torch": lambda: functional.dropout(values, DROPOUT),
        "torch, same draws": lambda: values * factors,
    }
    return {name: with_gradients(function, [values]) for name, function in functions.items()}


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_dropout(benchmark, contender, samples):
    benchmark.group = f"dropout, J = {samples}"
    compare(benchmark, contender, contenders(samples))
