"""draw_noise against Bernoulli numbers of torch's generator."""

import torch
from operations import grid, operation

import seegera_fast as sf

SEED, NOISE_DIM, PROB = 3, 5, 0.5


@operation(grid(samples=(1, 5)))
def bench_draw_noise(size, samples):
    shape, device = (size.nodes, 2 * samples, NOISE_DIM), torch.get_default_device()
    return {
        "seegera_fast": lambda: [sf.ops.draw_noise(SEED, *shape, PROB, device=device)],
        "torch": lambda: [torch.empty(shape).bernoulli_(PROB)],
        "torch, same draws": lambda: [sf.reference.draw_noise(SEED, *shape, PROB, device=device)],
    }
