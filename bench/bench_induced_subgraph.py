"""induced_subgraph against plain PyTorch, which looks at every link of the graph.

The nodes ascend, as those of a batch do.
"""

import torch
from operations import grid, operation

import seegera_fast as sf


def plain(row, col, nodes, num_nodes):
    """The counts of the rows, and the columns."""
    place = torch.full((num_nodes,), -1)
    place[nodes] = torch.arange(nodes.shape[0])
    stays = (place[row] >= 0) & (place[col] >= 0)
    row, col = place[row[stays]], place[col[stays]]
    return torch.bincount(row, minlength=nodes.shape[0]), col


@operation(grid(share=(0.5, 0.06)), larger=[{"share": 0.3}])
def bench_induced_subgraph(size, share):
    adjacency = size.graph.adjacency
    generator = torch.Generator().manual_seed(1)
    nodes = torch.randperm(size.nodes, generator=generator, device="cpu")[: max(1, int(share * size.nodes))]
    nodes, row = nodes.sort().values.to(adjacency.device), adjacency.row

    def ours():
        part, _ = sf.ops.induced_subgraph(adjacency, nodes, weighted=False)
        return part.rowptr.diff(), part.col

    return {"seegera_fast": ours, "torch": lambda: plain(row, adjacency.col, nodes, size.nodes)}
