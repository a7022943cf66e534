"""link_likelihood, value and gradient, against plain PyTorch: all pairs and sampled negatives."""

import floors
import torch
from operations import grid, leaf, operation, with_gradients
from torch.nn.functional import logsigmoid

import seegera_fast as sf

WEIGHT = 10.0


def plain(z, adjacency, ranks=None):
    """The likelihood from n x n scores; with ``ranks``, the numbers of drawn non-edges, from gathered pairs of rows."""
    rows, columns, absent = adjacency.row, adjacency.col, adjacency.non_edges
    total = []
    for sample in z.unbind(1):
        if ranks is None:
            scores = sample @ sample.T
            linked = torch.cat([scores[rows, columns], scores.diagonal()])
            apart = logsigmoid(-scores).sum() - logsigmoid(-linked).sum()
        else:
            first, second = absent.pairs(ranks).T
            linked = torch.cat([(sample[rows] * sample[columns]).sum(1), sample.square().sum(1)])
            apart = 2 * absent.count / len(ranks) * logsigmoid(-(sample[first] * sample[second]).sum(1)).sum()
        total.append(WEIGHT * logsigmoid(linked).sum() + apart)
    return torch.stack(total)


def floor(size, negatives, samples):
    if negatives == "all":
        return floors.link_likelihood(size.nodes, size.width, samples)
    edges = size.graph.num_edges
    return floors.sampled_link_likelihood(2 * edges + size.nodes, size.nodes, size.width, samples)


@operation(
    grid(negatives=("all", "edges"), samples=(1, 5), width=(512, 64)),
    # Width 520 is more than a tile takes in one piece.
    small=[*grid(negatives=("all", "edges"), samples=(2,)), {"negatives": "all", "samples": 1, "width": 520}],
    # Here the links of a node are in several pieces, and the nodes are in several groups.
    larger=[
        *grid(negatives=("all", "edges"), samples=(2,), width=(72,)),
        {"negatives": "all", "samples": 2, "width": 72, "dtype": torch.bfloat16},
        {"negatives": "all", "samples": 1, "width": 520},
    ],
    floor=floor,
)
def bench_link_likelihood(size, negatives, samples, dtype=torch.float32):
    adjacency = size.graph.adjacency
    z = leaf(size.nodes, samples, size.width, scale=size.width**-0.25, dtype=dtype)
    edges, absent = size.graph.num_edges, adjacency.non_edges.count
    sampled = negatives == "edges"
    drawn = edges if sampled else "all"
    functions = {
        "seegera_fast": lambda: sf.ops.link_likelihood(z, adjacency, pos_weight=WEIGHT, negatives=drawn),
        "torch": lambda: plain(z, adjacency, torch.randint(absent, (edges,)) if sampled else None),
    }
    if sampled:
        random, seed = sf.reference.random, torch.zeros(1, dtype=torch.int64)
        ranks = random.integers(seed, random.NEGATIVES, edges, absent)
        functions["torch, same draws"] = lambda: plain(z, adjacency, ranks)
    return with_gradients(functions, [z])
