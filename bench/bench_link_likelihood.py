"""link_likelihood, value and gradient, against plain PyTorch: all pairs and sampled negatives."""

import pytest
import torch
from cases import CONTENDERS, NODES, WIDTH, compare, cora_sized, leaf, with_gradients
from torch.nn.functional import logsigmoid

import seegera_fast as sf

WEIGHT = 10.0


def plain(z, adjacency, ranks=None):
    """n x n scores with the links picked out of them; with ranks of drawn non-edges, rows gathered for the pairs."""
    rows, columns, absent = adjacency.row, adjacency.col, adjacency.non_edges
    total = []
    for own in z.unbind(1):
        if ranks is None:
            scores = own @ own.T
            linked = torch.cat([scores[rows, columns], scores.diagonal()])
            apart = logsigmoid(-scores).sum() - logsigmoid(-linked).sum()
        else:
            first, second = absent.pairs(ranks).T
            linked = torch.cat([(own[rows] * own[columns]).sum(1), own.square().sum(1)])
            apart = 2 * absent.count / len(ranks) * logsigmoid(-(own[first] * own[second]).sum(1)).sum()
        total.append(WEIGHT * logsigmoid(linked).sum() + apart)
    return torch.stack(total)


def contenders(sampled, samples, width):
    adjacency = cora_sized().adjacency
    z = leaf(NODES, samples, width, scale=width**-0.25)
    count, absent = adjacency.nnz // 2, adjacency.non_edges.count
    negatives = count if sampled else "all"
    functions = {
        "seegera_fast": lambda: sf.ops.link_likelihood(z, adjacency, pos_weight=WEIGHT, negatives=negatives),
        "torch": lambda: plain(z, adjacency, torch.randint(absent, (count,)) if sampled else None),
    }
    if sampled:
        random, seed = sf.reference.random, torch.zeros(1, dtype=torch.int64)
        ranks = random.integers(seed, random.NEGATIVES, count, absent)
        functions["torch, same draws"] = lambda: plain(z, adjacency, ranks)
    return {name: with_gradients(function, [z]) for name, function in functions.items()}


@pytest.mark.parametrize("width", [64, WIDTH])
@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("sampled", [False, True], ids=["all pairs", "sampled"])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_link_likelihood(benchmark, contender, sampled, samples, width):
    benchmark.group = f"link_likelihood, {'sampled' if sampled else 'all pairs'}, J = {samples}, d = {width}"
    compare(benchmark, contender, contenders(sampled, samples, width))
