"""noisy_gcn, value and gradients, against a plain form that also keeps X sparse and the noise apart.

Without dropout the plain form too makes X W once for all draws. Noise and dropout come from torch's generator.
"""

import pytest
import torch
from cases import CONTENDERS, DROPOUT, FEATURES, NODES, WIDTH, compare, cora_sized, csr, leaf, spread, with_gradients
from torch.nn import functional

import seegera_fast as sf

SEED, NOISE_DIM, PROB = 3, 5, 0.5


def contenders(draws, dropout):
    graph = cora_sized()
    features, propagation, matrix = graph.features, graph.propagation, csr(graph.propagation)
    weight = leaf(FEATURES, WIDTH, scale=WIDTH**-0.5)
    noise_weight = leaf(NOISE_DIM, WIDTH, scale=WIDTH**-0.5, seed=1)
    distinct = draws if dropout else 1

    def drawn():
        noise = functional.dropout(torch.empty(NODES, draws, NOISE_DIM).bernoulli_(PROB), dropout)
        return [functional.dropout(features.values, dropout) for _ in range(distinct)], noise

    def same_draws():
        factors = sf.reference.dropout(torch.ones(NODES, draws, FEATURES + NOISE_DIM), dropout, SEED)
        noise = sf.reference.draw_noise(SEED, NODES, draws, NOISE_DIM, PROB) * factors[:, :, FEATURES:]
        return [features.values * factors[features.row, draw, features.col] for draw in range(distinct)], noise

    def plain(values, noise):
        products = torch.stack([csr(features, some) @ weight for some in values], 1)
        return torch.relu(spread(matrix, products) + spread(matrix, noise) @ noise_weight)

    functions = {
        "seegera_fast": lambda: sf.ops.noisy_gcn(
            propagation, features, weight, noise_weight, num_draws=draws, seed=SEED, noise_prob=PROB, dropout=dropout
        ),
        "torch": lambda: plain(*drawn()),
        "torch, same draws": lambda: plain(*same_draws()),
    }
    return {name: with_gradients(function, [weight, noise_weight]) for name, function in functions.items()}


@pytest.mark.parametrize("dropout", [0.0, DROPOUT])
@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_noisy_gcn(benchmark, contender, samples, dropout):
    benchmark.group = f"noisy_gcn, J = K = {samples}, dropout {dropout}"
    compare(benchmark, contender, contenders(2 * samples, dropout))
