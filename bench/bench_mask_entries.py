"""mask_entries against plain PyTorch, which removes entries that its own generator chose.

Both give all that a training step needs: the values of X, of its rows and of its columns normalised, and those of the
three transposes.
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
        return [part for own in (values, by_row, by_column) for part in (own, own[order])]

    subset = sf.ops.draw_subset(SEED, features.nnz, removed, stream="entries", device=features.values.device)
    return {
        "seegera_fast": ours,
        "torch": lambda: plain(torch.randperm(features.nnz)[:removed]),
        "torch, same draws": lambda: plain(subset),
    }
