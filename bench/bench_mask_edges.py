"""mask_edges against the same matrix made by torch's COO format, of edges that torch's own generator keeps."""

import pytest
import torch
from cases import CONTENDERS, NODES, compare, cora_sized

import seegera_fast as sf

SEED = 3


def plain(edges):
    """``D^-1/2 (A' + I) D^-1/2`` of the edges ``[m, 2]`` that are left."""
    nodes = torch.arange(NODES)
    row, col = torch.cat([edges[:, 0], edges[:, 1], nodes]), torch.cat([edges[:, 1], edges[:, 0], nodes])
    scale = torch.bincount(row, minlength=NODES).float().rsqrt()
    matrix = torch.sparse_coo_tensor(torch.stack([row, col]), scale[row] * scale[col], (NODES, NODES)).coalesce()
    matrix = matrix.to_sparse_csr()
    return matrix.crow_indices(), matrix.col_indices(), matrix.values()


@pytest.mark.parametrize("contender", CONTENDERS)
def bench_mask_edges(benchmark, contender):
    graph = cora_sized()
    edges, looped = graph.edges(), graph.with_self_loops()
    removed = int(0.3 * graph.num_edges)

    def ours():
        matrix = sf.ops.mask_edges(*looped, removed, SEED)
        return matrix.rowptr, matrix.col, matrix.values

    kept = ~sf.ops.draw_subset(SEED, graph.num_edges, removed, stream="edges")
    calls = {
        "seegera_fast": ours,
        "torch": lambda: plain(edges[torch.randperm(graph.num_edges)[removed:]]),
        "torch, same draws": lambda: plain(edges[kept]),
    }
    benchmark.group = f"mask_edges, {removed} of {graph.num_edges}"
    compare(benchmark, contender, calls)
