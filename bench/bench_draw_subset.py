"""draw_subset against a permutation of torch's own generator, so only the numbers of chosen ones are compared."""

import pytest
import torch
from cases import CONTENDERS, cora_sized

import seegera_fast as sf


def permuted(count, chosen):
    drawn = torch.zeros(count, dtype=torch.bool)
    drawn[torch.randperm(count)[:chosen]] = True
    return drawn


@pytest.mark.parametrize("stream", ["edges", "entries"])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_draw_subset(benchmark, contender, stream):
    count = cora_sized().num_edges if stream == "edges" else cora_sized().features.nnz
    chosen = int(0.3 * count)
    calls = {
        "seegera_fast": lambda: sf.ops.draw_subset(3, count, chosen, stream=stream),
        "torch": lambda: permuted(count, chosen),
    }
    drawn = calls[contender]()
    assert drawn.shape == (count,)
    assert int(drawn.sum()) == chosen
    benchmark.group = f"draw_subset, {count} {stream}"
    benchmark(calls[contender])
