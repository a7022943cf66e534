"""mixture_density, value and gradients, against one component at a time and a logsumexp in plain PyTorch."""

import math

import pytest
from cases import CONTENDERS, NODES, WIDTH, compare, leaf, log_densities, with_gradients

import seegera_fast as sf


def contenders(samples):
    z, means, log_var = (
        leaf(NODES, samples, WIDTH),
        leaf(NODES, 2 * samples, WIDTH, seed=1),
        leaf(NODES, 1, WIDTH, seed=2),
    )

    def plain():
        densities = log_densities(z, means, log_var)
        return (densities.logsumexp(2) - math.log(densities.shape[2])).sum(0)

    functions = {"seegera_fast": lambda: sf.ops.mixture_density(z, means, log_var), "torch": plain}
    return {name: with_gradients(function, [z, means, log_var]) for name, function in functions.items()}


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_mixture_density(benchmark, contender, samples):
    benchmark.group = f"mixture_density, J = K = {samples}"
    compare(benchmark, contender, contenders(samples))
