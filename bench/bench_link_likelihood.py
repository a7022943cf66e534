"""Link likelihood, value and gradient, against plain PyTorch: all pairs and sampled negatives, on the size of Cora."""

import pytest
import torch
from cases import random_graph
from torch.nn.functional import logsigmoid

import seegera_fast as sf

NODES, WEIGHT = 2708, 10.0


def plain(z, adjacency, negatives):
    """As a careful user writes it: n x n scores with the links picked out of them, or rows gathered for the pairs."""
    rows, columns = adjacency.row, adjacency.col
    total = []
    for j in range(z.shape[1]):
        own = z[:, j]
        if negatives == "all":
            scores = own @ own.T
            linked = torch.cat([scores[rows, columns], scores.diagonal()])
            apart = logsigmoid(-scores).sum() - logsigmoid(-linked).sum()
        else:
            ranks = sf.reference.random.integers(
                torch.zeros(1, dtype=torch.int64), sf.reference.random.NEGATIVES, negatives, adjacency.non_edges.count
            )
            first, second = adjacency.non_edges.pairs(ranks).T
            linked = torch.cat([(own[rows] * own[columns]).sum(dim=1), own.square().sum(dim=1)])
            apart = logsigmoid(-(own[first] * own[second]).sum(dim=1)).sum()
            apart = 2 * adjacency.non_edges.count / negatives * apart
        total.append(WEIGHT * logsigmoid(linked).sum() + apart)
    return torch.stack(total)


def contenders(adjacency, negatives):
    """Name -> function of z."""
    return {
        "seegera_fast": lambda z: sf.ops.link_likelihood(z, adjacency, pos_weight=WEIGHT, negatives=negatives),
        "plain PyTorch": lambda z: plain(z, adjacency, negatives),
    }


def with_gradient(function, z):
    z = z.detach().requires_grad_()
    value = function(z)
    value.sum().backward()
    return value.detach(), z.grad


@pytest.mark.parametrize("dim", [64, 512])
@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("sampled", [False, True], ids=["all pairs", "sampled"])
@pytest.mark.parametrize("which", ["seegera_fast", "plain PyTorch"])
def bench_link_likelihood(benchmark, which, sampled, samples, dim):
    adjacency = random_graph(NODES, degree=4).adjacency
    z = torch.randn(NODES, samples, dim) / dim**0.25
    functions = contenders(adjacency, adjacency.nnz // 2 if sampled else "all")
    for got, want in zip(with_gradient(functions[which], z), with_gradient(functions["seegera_fast"], z), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))
    benchmark.group = f"{'sampled' if sampled else 'all pairs'}, {samples} samples, d = {dim}"
    benchmark(with_gradient, functions[which], z)
