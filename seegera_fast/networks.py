"""What a graph of networkx holds: edges with weights, attributes and names of the nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from .convert import edge_weights
from .support.arguments import array, is_integer, shown, text

# The name under which networkx looks for weights.
WEIGHT = "weight"


def adjacency_of_network(g: Any, weight: str | None) -> scipy.sparse.coo_matrix:
    """The edges with their weights, in both directions unless the graph is directed; parallel edges as duplicates.

    Args:
        g: a networkx graph.
        weight: name of the edge attribute; an edge without it counts 1. None: all edges count 1.
    """
    if weight is not None:
        text("weight", weight)
    place = {node: number for number, node in enumerate(g.nodes)}
    edges = list(g.edges(data=True))
    weights = np.ones(len(edges))
    if weight is not None:
        if weight != WEIGHT and edges and not any(weight in data for _, _, data in edges):
            raise ValueError(f"weight: no edge has the attribute {shown(weight)}, want its name, or None")
        try:
            weights = edge_weights("weight", [data.get(weight, 1) for _, _, data in edges], len(edges))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}; weight=None if the edges have no weights") from None
    row = np.array([place[start] for start, _, _ in edges], np.int64)
    col = np.array([place[end] for _, end, _ in edges], np.int64)
    if not g.is_directed():
        row, col, weights = np.concatenate([row, col]), np.concatenate([col, row]), np.tile(weights, 2)
    return scipy.sparse.coo_matrix((weights, (row, col)), shape=(len(place), len(place)))


def node_attribute(g: Any, key: str, argument: str) -> list[Any]:
    """An attribute of each node."""
    for node, data in g.nodes(data=True):
        if key not in data:
            raise ValueError(f"{argument}: node {shown(node)} has no attribute {shown(key)}")
    return [data[key] for _, data in g.nodes(data=True)]


def rows(values: list[Any], key: str) -> list[Any]:
    """The rows of the features: the vector, or the one number, of each node."""
    for value in values:
        if isinstance(value, (str, bytes)):
            raise TypeError(f"features: got {shown(value)} as a node's {shown(key)}, want a number or a vector")
    numbers = all(isinstance(value, (int, float)) or getattr(value, "ndim", None) == 0 for value in values)
    return [[value] for value in array("features", values).tolist()] if numbers else values


def names_of_nodes(g: Any) -> list[Any] | None:
    """The nodes, if all are integers or all are strings, else what ``str`` writes of them; None: that is not unique."""
    names = list(g.nodes)
    integers = all(is_integer(name) and -(2**63) <= name < 2**63 for name in names)
    if integers or all(isinstance(name, str) for name in names):
        return names
    written = [str(name) for name in names]
    return written if len({*written}) == len(names) else None
