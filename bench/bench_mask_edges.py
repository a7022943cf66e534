"""mask_edges against the same matrix made with torch's COO format, of edges chosen by torch's generator."""

import torch
from operations import operation

import seegera_fast as sf

SEED = 3


def plain(edges, nodes):
    """``D^-1/2 (A' + I) D^-1/2`` of the remaining edges ``[m, 2]``."""
    loops = torch.arange(nodes)
    row, col = torch.cat([edges[:, 0], edges[:, 1], loops]), torch.cat([edges[:, 1], edges[:, 0], loops])
    scale = torch.bincount(row, minlength=nodes).float().rsqrt()
    matrix = torch.sparse_coo_tensor(torch.stack([row, col]), scale[row] * scale[col], (nodes, nodes)).coalesce()
    matrix = matrix.to_sparse_csr()
    return matrix.crow_indices(), matrix.col_indices(), matrix.values()


@operation(larger=({},))
def bench_mask_edges(size):
    graph = size.graph
    edges, looped = graph.edges(), graph.with_self_loops()
    removed = int(0.3 * graph.num_edges)

    def ours():
        matrix = sf.ops.mask_edges(*looped, removed, SEED)
        return matrix.rowptr, matrix.col, matrix.values

    kept = ~sf.ops.draw_subset(SEED, graph.num_edges, removed, stream="edges", device=edges.device)
    return {
        "seegera_fast": ours,
        "torch": lambda: plain(edges[torch.randperm(graph.num_edges)[removed:]], size.nodes),
        "torch, same draws": lambda: plain(edges[kept], size.nodes),
    }
