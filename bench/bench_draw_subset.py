"""draw_subset against torch.randperm."""

import torch
from operations import grid, operation

import seegera_fast as sf

SEED = 3


def permuted(count, chosen):
    drawn = torch.zeros(count, dtype=torch.bool)
    drawn[torch.randperm(count)[:chosen]] = True
    return drawn


@operation(grid(stream=("edges", "entries")))
def bench_draw_subset(size, stream):
    count = size.graph.num_edges if stream == "edges" else size.graph.features.nnz
    chosen, given = int(0.3 * count), {"stream": stream, "device": torch.get_default_device()}
    return {
        "seegera_fast": lambda: [sf.ops.draw_subset(SEED, count, chosen, **given)],
        "torch": lambda: [permuted(count, chosen)],
        "torch, same draws": lambda: [sf.reference.draw_subset(SEED, count, chosen, **given)],
    }
