"""top_links against products of chunks of rows with all rows, masks and torch.topk."""

import floors
import torch
from operations import grid, leaf, operation

import seegera_fast as sf

ROWS = 1024


def chunks_of_scores(z, adjacency, k):
    """The k largest scores of each row and their columns, without its links and itself."""
    found = []
    for start in range(0, z.shape[0], ROWS):
        stop = min(z.shape[0], start + ROWS)
        scores = z[start:stop] @ z.T
        first, last = adjacency.rowptr[start], adjacency.rowptr[stop]
        scores[adjacency.row[first:last] - start, adjacency.col[first:last]] = -torch.inf
        scores.diagonal(start).fill_(-torch.inf)
        found.append(scores.topk(k))
    return tuple(map(torch.cat, zip(*found, strict=True)))


# The links are not compared: among nearly equal scores torch.mm in float32 gives another order.
@operation(
    grid(k=(10, 100), width=(512, 64)),
    small=[{"k": 3}, {"k": 50}],
    larger=[{"k": 10, "width": 72}],
    floor=lambda size, k: floors.top_links(size.nodes, size.width, k),
)
def bench_top_links(size, k):
    adjacency = size.graph.adjacency
    z, k = leaf(size.nodes, size.width, scale=size.width**-0.25).detach(), min(k, size.nodes - 1)
    return {
        "seegera_fast": lambda: sf.ops.top_links(z, adjacency, k)[:1],
        "torch": lambda: chunks_of_scores(z, adjacency, k)[:1],
    }
