"""add_self_loops against torch's COO format for A + I, and a search for the edge of each entry."""

import torch
from operations import operation

import seegera_fast as sf


def plain(row, col, nodes):
    """Columns of A + I, and the number of each entry's edge."""
    loops = torch.arange(nodes)
    index = torch.stack([torch.cat([row, loops]), torch.cat([col, loops])])
    looped = torch.sparse_coo_tensor(index, torch.ones(index.shape[1]), (nodes, nodes)).coalesce()
    low, high = looped.indices().amin(0), looped.indices().amax(0)
    keys = low * nodes + high
    edges = torch.stack([row, col], dim=1)[row < col]
    edge = torch.searchsorted(edges[:, 0] * nodes + edges[:, 1], keys)
    return looped.indices()[1], looped.values(), torch.where(low == high, -1, edge), edges


@operation()
def bench_add_self_loops(size):
    adjacency = size.graph.adjacency
    row, col = adjacency.row, adjacency.col

    def ours():
        looped, edge, edges = sf.ops.add_self_loops(adjacency)
        return looped.col, looped.values, edge, edges

    return {"seegera_fast": ours, "torch": lambda: plain(row, col, size.nodes)}
