"""dropout, value and gradient, against torch's dropout, which stores its mask for backward."""

import floors
import torch
from operations import DROPOUT, grid, leaf, operation, with_gradients
from torch.nn import functional

import seegera_fast as sf

SEED = 3


@operation(
    grid(samples=(1, 5)),
    small=grid(samples=(2,)),
    # Forward reads d numbers of a row and writes d, and so does backward.
    floor=lambda size, samples: floors.Work(0.0, 32.0 * size.nodes * samples * size.width),
)
def bench_dropout(size, samples):
    values = leaf(size.nodes, samples, 2 * size.width)
    factors = sf.ops.dropout(torch.ones(values.shape), DROPOUT, SEED)
    functions = {
        "seegera_fast": lambda: sf.ops.dropout(values, DROPOUT, SEED),
        "torch": lambda: functional.dropout(values, DROPOUT),
        "torch, same draws": lambda: values * factors,
    }
    return with_gradients(functions, [values])
