"""A graph of planted communities, which short runs of the tasks can learn."""

from __future__ import annotations

import functools

import numpy as np
import torch

from seegera_fast import Graph, tasks

TASKS = {
    "link_prediction": tasks.link_prediction,
    "attribute_inference": tasks.attribute_inference,
    "node_classification": tasks.node_classification,
}
VARIANTS = ("v1", "v2", "v3")
SMALL = {"embedding_dim": 12, "hidden_dim": 16, "learning_rate": 1e-2}


@functools.cache
def planted(num_nodes: int = 90, num_features: int = 36) -> Graph:
    """Three communities; links and features are much more likely inside one's own, and the labels tell which it is.

    The last two nodes are isolated, without features, and of unknown label.
    """
    rng = np.random.default_rng(5)
    block = np.arange(num_nodes) % 3
    same = block[:, None] == block[None, :]
    upper = np.triu(rng.random(same.shape) < np.where(same, 0.4, 0.02), 1)
    own = block[:, None] == np.arange(num_features)[None, :] % 3
    x = (rng.random(own.shape) < np.where(own, 0.6, 0.05)).astype(float)
    labels = block.copy()
    upper[-2:], upper[:, -2:], x[-2:], labels[-2:] = False, False, 0, -1
    return Graph(upper + upper.T, x, labels, name="planted")


def with_masks(**masks) -> Graph:
    base = planted()
    return Graph(base.adjacency, base.features, base.labels, masks=masks, name="planted")


def nodes(*numbers: int) -> torch.Tensor:
    mask = torch.zeros(90, dtype=torch.bool)
    mask[list(numbers)] = True
    return mask
