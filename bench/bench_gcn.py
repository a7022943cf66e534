"""gcn, value and gradients, against torch's CSR product over all draws at once; torch drops by its own generator."""

import pytest
import torch
from cases import CONTENDERS, DROPOUT, NODES, WIDTH, compare, cora_sized, csr, leaf, spread, with_gradients
from torch.nn import functional

import seegera_fast as sf

SEED = 3


def contenders(draws, dropout):
    propagation = cora_sized().propagation
    hidden, weight = leaf(NODES, draws, WIDTH), leaf(WIDTH, WIDTH, scale=WIDTH**-0.5, seed=1)
    matrix = csr(propagation)
    factors = sf.ops.dropout(torch.ones(hidden.shape), dropout, SEED)

    def plain(dropped):
        return torch.relu(spread(matrix, dropped @ weight))

    functions = {
        "seegera_fast": lambda: sf.ops.gcn(propagation, hidden, weight, dropout=dropout, seed=SEED),
        "torch": lambda: plain(functional.dropout(hidden, dropout)),
        "torch, same draws": lambda: plain(hidden * factors),
    }
    return {name: with_gradients(function, [hidden, weight]) for name, function in functions.items()}


@pytest.mark.parametrize("dropout", [0.0, DROPOUT])
@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_gcn(benchmark, contender, samples, dropout):
    benchmark.group = f"gcn, J = K = {samples}, dropout {dropout}"
    compare(benchmark, contender, contenders(2 * samples, dropout))
