"""component_log_density, value and gradients, against one component at a time in plain PyTorch."""

import floors
from operations import grid, leaf, log_densities, operation, with_gradients

import seegera_fast as sf


@operation(
    grid(samples=(1, 5)),
    small=grid(samples=(2,)),
    floor=lambda size, samples: floors.mixture_density(size.nodes, size.width, samples, samples),
)
def bench_component_log_density(size, samples):
    z = leaf(size.nodes, samples, size.width)
    means = leaf(size.nodes, 2 * samples, size.width, seed=1)
    log_var = leaf(size.nodes, 1, size.width, seed=2)
    functions = {
        "seegera_fast": lambda: sf.ops.component_log_density(z, means, log_var),
        "torch": lambda: log_densities(z, means, log_var).sum(0),
    }
    return with_gradients(functions, [z, means, log_var])
