"""decoder_input, value and gradients, against a concatenation in plain PyTorch with torch's dropout."""

import floors
import torch
from operations import DROPOUT, csr, grid, leaf, operation, spread, with_gradients
from torch.nn import functional

import seegera_fast as sf

SEED = 3


def floor(size, samples, dropout):
    words = size.graph.features.nnz
    return floors.total(
        floors.product(samples * size.nodes, 2 * size.width, size.width),
        floors.sparse_matmul(words, size.nodes, size.features, samples * size.width),
    )


@operation(
    grid(samples=(1, 5), dropout=(DROPOUT, 0.0)),
    small=grid(samples=(2,), dropout=(DROPOUT,)),
    floor=floor,
)
def bench_decoder_input(size, samples, dropout):
    features = size.graph.features
    z_nodes, z_features = leaf(size.nodes, samples, size.width), leaf(size.features, samples, size.width, seed=1)
    weight = leaf(2 * size.width, size.width, scale=size.width**-0.5, seed=2)
    matrix = csr(features.row_normalized)
    factors = sf.ops.dropout(torch.ones(size.nodes, samples, 2 * size.width), dropout, SEED)

    def plain(drop):
        return drop(torch.cat([z_nodes, spread(matrix, z_features)], 2)) @ weight

    functions = {
        "seegera_fast": lambda: sf.ops.decoder_input(features, z_nodes, z_features, weight, dropout=dropout, seed=SEED),
        "torch": lambda: plain(lambda joined: functional.dropout(joined, dropout)),
        "torch, same draws": lambda: plain(lambda joined: joined * factors),
    }
    return with_gradients(functions, [z_nodes, z_features, weight])
