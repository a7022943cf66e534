"""Small graphs as PyTorch Geometric has them, and the shortest run of a task."""

import torch
from torch_geometric.data import Data, HeteroData

# Of a path of three nodes.
EDGES = [[0, 1], [1, 2]]
QUICK = {"epochs": 1, "embedding_dim": 2, "hidden_dim": 3, "progress": False}


def ring(nodes, **attributes):
    index = torch.arange(nodes)
    edges = torch.stack([index, (index + 1) % nodes])
    return Data(edge_index=torch.cat([edges, edges.flip(0)], dim=1), num_nodes=nodes, **attributes)


def hetero():
    data = HeteroData()
    data["user"].x = torch.ones(2, 2)
    data["user", "knows", "user"].edge_index = torch.tensor([[0], [1]])
    return data
