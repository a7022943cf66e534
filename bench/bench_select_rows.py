"""select_rows against the same gathers in plain PyTorch."""

import torch
from operations import operation

import seegera_fast as sf


def plain(matrix, rows):
    """The entries of each row, numbered from where it begins."""
    begin, counts = matrix.rowptr[rows], matrix.rowptr.diff()[rows]
    starts = torch.repeat_interleave(begin - (counts.cumsum(0) - counts), counts)
    entry = starts + torch.arange(starts.shape[0])
    return counts, matrix.col[entry], matrix.values[entry]


@operation()
def bench_select_rows(size):
    features = size.graph.features
    generator = torch.Generator().manual_seed(1)
    rows = torch.randperm(size.nodes, generator=generator, device="cpu")[: size.nodes // 2].to(features.device)

    def ours():
        found = sf.ops.select_rows(features, rows)
        return found.rowptr.diff(), found.col, found.values

    return {"seegera_fast": ours, "torch": lambda: plain(features, rows)}
