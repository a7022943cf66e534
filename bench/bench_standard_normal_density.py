"""standard_normal_density, value and gradient, against the sum of squares in plain PyTorch."""

import math

import floors
from operations import grid, leaf, operation, with_gradients

import seegera_fast as sf


@operation(
    grid(samples=(1, 5)),
    small=grid(samples=(2,)),
    # Forward reads the samples, backward reads them and writes their gradient.
    floor=lambda size, samples: floors.Work(0.0, 12.0 * size.nodes * samples * size.width),
)
def bench_standard_normal_density(size, samples):
    z = leaf(size.nodes, samples, size.width)
    constant = size.nodes * size.width * math.log(2 * math.pi)
    functions = {
        "seegera_fast": lambda: sf.ops.standard_normal_density(z),
        "torch": lambda: -0.5 * (z.square().sum((0, 2)) + constant),
    }
    return with_gradients(functions, [z])
