"""draw_noise against Bernoulli numbers of torch's own generator, so only the shares of ones are compared."""

import pytest
import torch
from cases import CONTENDERS, NODES

import seegera_fast as sf

NOISE_DIM, PROB = 5, 0.5


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_draw_noise(benchmark, contender, samples):
    shape = (NODES, 2 * samples, NOISE_DIM)
    calls = {
        "seegera_fast": lambda: sf.ops.draw_noise(3, *shape, PROB),
        "torch": lambda: torch.empty(shape).bernoulli_(PROB),
    }
    drawn = calls[contender]()
    assert drawn.shape == shape
    assert bool(((drawn == 0) | (drawn == 1)).all())
    # Five standard deviations of the mean.
    assert abs(float(drawn.mean()) - PROB) < 5 * (PROB * (1 - PROB) / drawn.numel()) ** 0.5
    benchmark.group = f"draw_noise, J = K = {samples}"
    benchmark(calls[contender])
