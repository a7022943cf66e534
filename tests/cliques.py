"""A ring of cliques, batches of it, and loaders."""

from __future__ import annotations

import functools

import numpy as np
import torch

import seegera_fast as sf

SMALL = {"embedding_dim": 4, "hidden_dim": 5, "encoder_layers": 1, "decoder_layers": 1}


def ring_of_cliques(cliques: int, size: int, lonely: int = 0, dtype=torch.float32) -> sf.Graph:
    """Cliques with a link from each to the next, whose nodes have scattered numbers, and nodes without links."""
    n = cliques * size + lonely
    rng = np.random.default_rng(3)
    place = rng.permutation(n)
    pairs = [(c * size + i, c * size + k) for c in range(cliques) for i in range(size) for k in range(i)]
    pairs += [(c * size, (c + 1) % cliques * size + 1) for c in range(cliques)]
    edges = place[np.array(pairs)].T
    clique = np.full(n, -1)
    clique[place[: cliques * size]] = np.repeat(np.arange(cliques), size)
    features = (rng.random((n, 7)) < np.where(np.arange(7) % 3 == clique[:, None] % 3, 0.8, 0.1)).astype(float)
    both = np.concatenate([edges, edges[::-1]], axis=1)
    made = sf.Graph.from_edge_index(both, features, n, clique % 3, dtype=dtype)
    made.cliques = torch.from_numpy(clique)
    return made


@functools.cache
def graph(dtype=torch.float32) -> sf.Graph:
    return ring_of_cliques(8, 6, dtype=dtype)


def parts_of(graph: sf.Graph) -> torch.Tensor:
    return graph.cliques


def made(source, epoch, seed=1):
    return [[make() for make in step] for step in source.steps(seed, epoch)]


class Loader:
    """Data with the nodes of some lists, as the loaders of PyTorch Geometric give them."""

    def __init__(self, whole, numbers, numbered=True):
        from torch_geometric.data import Data

        edge_index = torch.stack([whole.adjacency.row, whole.adjacency.col])
        self.data = Data(edge_index=edge_index, x=whole.features.to_dense(), num_nodes=whole.num_nodes)
        if numbered:
            self.data.n_id = torch.arange(whole.num_nodes)
        self.numbers = numbers

    def __iter__(self):
        for numbers in self.numbers:
            yield self.data.subgraph(torch.as_tensor(numbers))


def halves():
    return [range(24), range(24, 48)]
