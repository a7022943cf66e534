"""noisy_gcn, value and gradients, against plain PyTorch.

The plain form also keeps X sparse and multiplies the noise separately. Without dropout it also computes X W once for
all draws. Its noise and dropout come from torch's generator.
"""

import floors
import torch
from operations import DROPOUT, csr, grid, leaf, operation, spread, with_gradients
from torch.nn import functional

import seegera_fast as sf

SEED, NOISE_DIM, PROB = 3, 5, 0.5


def floor(size, samples, dropout):
    draws = 2 * samples
    products = draws if dropout else 1
    return floors.total(
        floors.sparse_matmul(size.graph.features.nnz, size.nodes, size.features, products * size.width),
        floors.sparse_matmul(size.graph.propagation.nnz, size.nodes, size.nodes, draws * size.width),
    )


@operation(grid(samples=(1, 5), dropout=(DROPOUT, 0.0)), floor=floor)
def bench_noisy_gcn(size, samples, dropout):
    features, propagation, matrix = size.graph.features, size.graph.propagation, csr(size.graph.propagation)
    weight = leaf(size.features, size.width, scale=size.width**-0.5)
    noise_weight = leaf(NOISE_DIM, size.width, scale=size.width**-0.5, seed=1)
    draws = 2 * samples
    distinct = draws if dropout else 1

    def drawn():
        noise = functional.dropout(torch.empty(size.nodes, draws, NOISE_DIM).bernoulli_(PROB), dropout)
        return [functional.dropout(features.values, dropout) for _ in range(distinct)], noise

    def same_draws():
        factors = sf.reference.dropout(torch.ones(size.nodes, draws, size.features + NOISE_DIM), dropout, SEED)
        noise = sf.reference.draw_noise(SEED, size.nodes, draws, NOISE_DIM, PROB, device=factors.device)
        noise = noise * factors[:, :, size.features :]
        return [features.values * factors[features.row, draw, features.col] for draw in range(distinct)], noise

    def plain(values, noise):
        products = torch.stack([csr(features, some) @ weight for some in values], 1)
        return torch.relu(spread(matrix, products) + spread(matrix, noise) @ noise_weight)

    given = {"num_draws": draws, "seed": SEED, "noise_prob": PROB, "dropout": dropout}
    functions = {
        "seegera_fast": lambda: sf.ops.noisy_gcn(propagation, features, weight, noise_weight, **given),
        "torch": lambda: plain(*drawn()),
        "torch, same draws": lambda: plain(*same_draws()),
    }
    return with_gradients(functions, [weight, noise_weight])
