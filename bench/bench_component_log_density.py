"""component_log_density, value and gradients, against one component at a time in plain PyTorch."""

import pytest
from cases import CONTENDERS, NODES, WIDTH, compare, leaf, log_densities, with_gradients

import seegera_fast as sf


def contenders(samples):
    z, means, log_var = (
        leaf(NODES, samples, WIDTH),
        leaf(NODES, 2 * samples, WIDTH, seed=1),
        leaf(NODES, 1, WIDTH, seed=2),
    )
    functions = {
        "seegera_fast": lambda: sf.ops.component_log_density(z, means, log_var),
        "torch": lambda: log_densities(z, means, log_var).sum(0),
    }
    return {name: with_gradients(function, [z, means, log_var]) for name, function in functions.items()}


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_component_log_density(benchmark, contender, samples):
    benchmark.group = f"component_log_density, J = K = {samples}"
    compare(benchmark, contender, contenders(samples))
