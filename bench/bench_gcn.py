"""gcn, value and gradients, against torch's dropout and its CSR product over all draws at once."""

import floors
import torch
from operations import DROPOUT, csr, grid, leaf, operation, spread, with_gradients
from torch.nn import functional

import seegera_fast as sf

SEED = 3


def floor(size, samples, dropout):
    draws = 2 * samples
    return floors.total(
        floors.product(draws * size.nodes, size.width, size.width),
        floors.sparse_matmul(size.graph.propagation.nnz, size.nodes, size.nodes, draws * size.width),
    )


@operation(
    grid(samples=(1, 5), dropout=(DROPOUT, 0.0)),
    floor=floor,
)
def bench_gcn(size, samples, dropout):
    propagation = size.graph.propagation
    hidden = leaf(size.nodes, 2 * samples, size.width)
    weight = leaf(size.width, size.width, scale=size.width**-0.5, seed=1)
    matrix = csr(propagation)
    factors = sf.ops.dropout(torch.ones(hidden.shape), dropout, SEED)

    def plain(dropped):
        return torch.relu(spread(matrix, dropped @ weight))

    functions = {
        "seegera_fast": lambda: sf.ops.gcn(propagation, hidden, weight, dropout=dropout, seed=SEED),
        "torch": lambda: plain(functional.dropout(hidden, dropout)),
        "torch, same draws": lambda: plain(hidden * factors),
    }
    return with_gradients(functions, [hidden, weight])
