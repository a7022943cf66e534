"""mixture_density, value and gradients, against one component at a time and a logsumexp in plain PyTorch."""

import math

import floors
from operations import grid, leaf, log_densities, operation, with_gradients

import seegera_fast as sf


@operation(
    grid(samples=(1, 5)),
    small=grid(samples=(2,)),
    floor=lambda size, samples: floors.mixture_density(size.nodes, size.width, samples, samples),
)
def bench_mixture_density(size, samples):
    z = leaf(size.nodes, samples, size.width)
    means = leaf(size.nodes, 2 * samples, size.width, seed=1)
    log_var = leaf(size.nodes, 1, size.width, seed=2)

    def plain():
        densities = log_densities(z, means, log_var)
        return (densities.logsumexp(2) - math.log(densities.shape[2])).sum(0)

    functions = {"seegera_fast": lambda: sf.ops.mixture_density(z, means, log_var), "torch": plain}
    return with_gradients(functions, [z, means, log_var])
