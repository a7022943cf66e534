"""Graphs from networkx: nodes, weights, kinds of graphs and attributes.

The first line of each test's docstring is a row of the table in docs/pytorch.md: what somebody has: what happens.
"""

import networkx
import numpy as np
import pytest
import torch
from pyg_data import EDGES, QUICK

from seegera_fast import Graph
from seegera_fast.tasks import node_classification

pytestmark = pytest.mark.usefixtures("strict")


def test_words_of_networkx():
    """a networkx graph whose labels are words: classes; `graph.classes` has the words, `graph.nodes` the nodes"""
    g = networkx.karate_club_graph()
    graph = Graph.from_networkx(g, labels="club", weighted=True)
    assert graph.classes == ("Mr. Hi", "Officer")
    assert [graph.classes[label] for label in graph.labels] == [g.nodes[node]["club"] for node in g]
    assert graph.nodes.tolist() == list(g)
    result = node_classification(graph, **QUICK, train=0.5, valid=0.2, classifier_epochs=1)
    assert 0 <= result.accuracy <= 1


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        (["b", "a", "漢"], ["b", "a", "漢"]),
        ([7, -2, 0], [7, -2, 0]),
        ([np.int64(7), 1, 0], [7, 1, 0]),
        ([(0, 1), (1, 0), "x"], ["(0, 1)", "(1, 0)", "x"]),
        ([2**70, 1, 2], [str(2**70), "1", "2"]),
        ([1, "1", 2], None),
        ([True, False, 2], ["True", "False", "2"]),
    ],
    ids=["words", "ints", "NumPy's ints", "tuples", "large ints", "the same word", "truth"],
)
def test_names_of_networkx(nodes, names):
    """nodes of networkx: `graph.nodes` has integers or strings as they are, and others as `str` writes them"""
    g = networkx.Graph()
    g.add_nodes_from(nodes)
    g.add_edges_from([nodes[:2], nodes[1:]])
    graph = Graph.from_networkx(g)
    assert (graph.nodes if names is None else graph.nodes.tolist()) == names
    assert graph.edges().tolist() == EDGES
    assert Graph.from_networkx(g, nodes=None).nodes is None
    assert Graph.from_networkx(g, nodes=list("xyz")).nodes.tolist() == list("xyz")


def test_weights_of_networkx():
    """weights of networkx under another name: `weight="cost"`; `weight=None` counts each edge 1"""
    g = networkx.Graph([("a", "b", {"cost": 2.0, "weight": 9.0}), ("b", "c", {"cost": 0.5}), ("c", "d", {})])
    graph = Graph.from_networkx(g, weight="cost", weighted=True)
    assert graph.weights.tolist() == [2, 2, 0.5, 0.5, 1, 1]
    assert Graph.from_networkx(g, weight=None, weighted=True).weights.tolist() == [1] * 6
    assert Graph.from_networkx(g, weight=None).num_edges == 3
    for weight, error, message in [
        ("price", ValueError, "weight: no edge has the attribute 'price', want its name, or None"),
        (3, TypeError, "weight: got 3, want a string"),
    ]:
        with pytest.raises(error, match=f"^{message}"):
            Graph.from_networkx(g, weight=weight)
    for value, error, message in [
        ("dear", TypeError, "weight: got values of type"),
        (None, TypeError, "weight: got values of type object"),
        (float("nan"), ValueError, "weight: got NaN or infinity"),
        (-1, ValueError, r"weight: got a negative weight \(-1.0\)"),
    ]:
        with pytest.raises(error, match=f"^{message}"):
            Graph.from_networkx(networkx.Graph([(0, 1, {"weight": value})]), weighted=True)
    with pytest.raises(ValueError, match="weight=None if the edges have no weights"):
        Graph.from_networkx(networkx.Graph([(0, 1, {"weight": -1})]))


@pytest.mark.parametrize("kind", [networkx.DiGraph, networkx.MultiGraph, networkx.MultiDiGraph])
def test_kinds_of_networkx(kind):
    """`DiGraph`, `MultiGraph`: made undirected, with a warning; weights of parallel edges are added up"""
    g = kind([("a", "b"), ("b", "a"), ("b", "b"), ("b", "c")])
    for _, _, data in g.edges(data=True):
        data["weight"] = 1.5
    if g.is_directed():
        with pytest.warns(UserWarning, match="got a directed graph"):
            graph = Graph.from_networkx(g, weighted=True)
    else:
        graph = Graph.from_networkx(g, weighted=True)
    assert graph.edges().tolist() == EDGES
    twice = g.is_multigraph() and not g.is_directed()
    assert graph.weights.tolist() == [3.0 if twice else 1.5] * 2 + [1.5] * 2


def test_attributes_of_networkx():
    """attributes of networkx as features: a number makes a column, a vector a row"""
    g = networkx.path_graph(3)
    for node in g:
        g.nodes[node].update(age=node + 0.5, vector=[node, 1], several=[1, node % 2], ragged=[0] * (node + 1))
        g.nodes[node].update(tensor=torch.tensor([node, 0.5], dtype=torch.bfloat16), single=torch.tensor(node))
        g.nodes[node].update(learned=torch.ones(2, requires_grad=True), word="a")
    assert Graph.from_networkx(g, "age").features.to_dense().tolist() == [[0.5], [1.5], [2.5]]
    assert Graph.from_networkx(g, "vector").num_features == 2
    assert Graph.from_networkx(g, "tensor").features.to_dense().tolist() == [[0, 0.5], [1, 0.5], [2, 0.5]]
    assert Graph.from_networkx(g, "single").features.to_dense().tolist() == [[0], [1], [2]]
    with pytest.raises(TypeError, match=r"^features: got 'a' as a node's 'word', want a number or a vector"):
        Graph.from_networkx(g, "word")
    with pytest.raises(TypeError, match=r"^labels: got dict, want one label per node: \[3\]"):
        Graph.from_networkx(g, labels=networkx.get_node_attributes(g, "word"))
    for arguments, message in [
        ({"features": "learned"}, "features: got a tensor that requires a gradient"),
        ({"labels": "several"}, "labels: got several classes for node 1"),
        ({"features": "ragged"}, "features: got rows of different lengths"),
        ({"labels": "ragged"}, "labels: got list"),
        ({"labels": "town"}, "labels: node 0 has no attribute 'town'"),
    ]:
        with pytest.raises(ValueError, match=f"^{message}"):
            Graph.from_networkx(g, **arguments)
