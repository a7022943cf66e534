"""mask_entries against plain PyTorch, which removes entries chosen by torch's generator.

Both compute all values that a training step needs: those of X, of X with normalised rows, of X with normalised columns,
and of the transposes of the three.
"""

import torch
from operations import operation

import seegera_fast as sf

SEED = 3


def normalized(values, index, size):
    sums = torch.zeros(size).index_add_(0, index, values.abs())
    return values * torch.where(sums > 0, 1 / sums, 0.0)[index]


@operation(larger=({},))
def bench_mask_entries(size):
    features = size.graph.features
    row, col, order, removed = features.row, features.col, features.order, int(0.3 * features.nnz)

    def ours():
        masked = sf.ops.mask_entries(features, removed, SEED)
        by_row, by_column = masked.row_normalized, masked.transposed.row_normalized.transposed
        return [part for matrix in (masked, by_row, by_column) for part in (matrix.values, matrix.transposed.values)]

    def plain(gone):
        values = features.values.clone()
        values[gone] = 0
        by_row, by_column = normalized(values, row, features.shape[0]), normalized(values, col, features.shape[1])
        return [part for each in (values, by_row, by_column) for part in (each, each[order])]

    subset = sf.ops.draw_subset(SEED, features.nnz, removed, stream="entries", device=features.values.device)
    return {
        "seegera_fast": ours,
        "torch": lambda: plain(torch.randperm(features.nnz)[:removed]),
        "torch, same draws": lambda: plain(subset),
    }
