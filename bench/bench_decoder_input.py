"""decoder_input, value and gradients, against the concatenation in plain PyTorch, which drops by torch's generator."""

import pytest
import torch
from cases import CONTENDERS, DROPOUT, FEATURES, NODES, WIDTH, compare, cora_sized, csr, leaf, spread, with_gradients
from torch.nn import functional

import seegera_fast as sf

SEED = 3


def contenders(samples, dropout):
    features = cora_sized().features
    z_nodes, z_features = leaf(NODES, samples, WIDTH), leaf(FEATURES, samples, WIDTH, seed=1)
    weight = leaf(2 * WIDTH, WIDTH, scale=WIDTH**-0.5, seed=2)
    matrix = csr(features.row_normalized)
    factors = sf.ops.dropout(torch.ones(NODES, samples, 2 * WIDTH), dropout, SEED)

    def plain(drop):
        return drop(torch.cat([z_nodes, spread(matrix, z_features)], 2)) @ weight

    functions = {
        "seegera_fast": lambda: sf.ops.decoder_input(features, z_nodes, z_features, weight, dropout=dropout, seed=SEED),
        "torch": lambda: plain(lambda joined: functional.dropout(joined, dropout)),
        "torch, same draws": lambda: plain(lambda joined: joined * factors),
    }
    return {name: with_gradients(function, [z_nodes, z_features, weight]) for name, function in functions.items()}


@pytest.mark.parametrize("dropout", [0.0, DROPOUT])
@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_decoder_input(benchmark, contender, samples, dropout):
    benchmark.group = f"decoder_input, J = {samples}, dropout {dropout}"
    compare(benchmark, contender, contenders(samples, dropout))
