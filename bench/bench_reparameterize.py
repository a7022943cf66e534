"""reparameterize, value and gradients, against normal numbers of torch's generator, stored for backward."""

import floors
import torch
from operations import grid, leaf, operation, with_gradients

import seegera_fast as sf

SEED = 3


@operation(
    grid(samples=(1, 5)),
    small=grid(samples=(2,)),
    # Forward reads means and variances and writes samples. Backward reads the samples' gradients and writes those of
    # means and variances.
    floor=lambda size, samples: floors.Work(0.0, 8.0 * size.nodes * size.width * (2 * samples + 1)),
)
def bench_reparameterize(size, samples):
    mean, log_var = leaf(size.nodes, samples, size.width), leaf(size.nodes, 1, size.width, seed=1)
    zeros = torch.zeros(mean.shape)
    noise = sf.ops.reparameterize(zeros, zeros, SEED)
    functions = {
        "seegera_fast": lambda: sf.ops.reparameterize(mean, log_var, SEED),
        "torch": lambda: mean + torch.exp(log_var / 2) * torch.randn_like(mean),
        "torch, same draws": lambda: mean + torch.exp(log_var / 2) * noise,
    }
    return with_gradients(functions, [mean, log_var])
