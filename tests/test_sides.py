"""Splits of links in bipartite graphs: pairs without a link are drawn across the two sides.

The first line of each test's docstring is a row of the table in docs/pytorch.md: what somebody has: what happens.
"""

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyg_data import QUICK, ring

import seegera_fast as sf
from seegera_fast import Graph
from seegera_fast.tasks import link_prediction, split_links

pytestmark = pytest.mark.usefixtures("strict")


def users_and_items(seed=0, users=9, items=14):
    """A bipartite graph in several parts, without isolated nodes, and the side of each node in random order."""
    rng = np.random.default_rng(seed)
    joined = rng.random((users, items)) < 0.15
    joined[np.arange(users), rng.integers(items, size=users)] = True
    joined[rng.integers(users, size=items), np.arange(items)] = True
    adjacency = np.block([[np.zeros((users, users)), joined], [joined.T, np.zeros((items, items))]])
    return adjacency, np.arange(users + items) >= users


@pytest.mark.parametrize("seed", range(4))
def test_bipartite(seed):
    """a bipartite graph: `sides="auto"` or `--bipartite` draws pairs without a link across its two sides only"""
    adjacency, side = users_and_items(seed)
    graph = Graph(adjacency)
    split = split_links(graph, sides="auto", seed=seed)
    for pairs in (split.valid_neg, split.test_neg):
        low, high = pairs.T.tolist()
        assert (side[low] != side[high]).all()
        assert (pairs[:, 0] < pairs[:, 1]).all()
        assert not adjacency[low, high].any()
    assert split.valid_neg.unique(dim=0).shape == split.valid_pos.shape
    order = np.random.default_rng(seed).permutation(len(side))
    for sides in (side[order], side[order].astype(int), torch.from_numpy(side[order]), side[order].tolist()):
        shuffled = split_links(Graph(adjacency[order][:, order]), sides=sides, seed=seed)
        low, high = torch.cat([shuffled.valid_neg, shuffled.test_neg]).T.tolist()
        assert (side[order][low] != side[order][high]).all()
        assert not adjacency[order][:, order][low, high].any()
    result = link_prediction(graph, sides="auto", seed=seed, **QUICK)
    assert torch.equal(result.split.test_neg, split.test_neg)
    assert result.fields["sides"] == "auto"
    assert "sides" not in link_prediction(graph, **QUICK).fields


def test_bipartite_draws_all_pairs():
    """pairs across two sides: drawn evenly, and none is left out"""
    joined = np.zeros((3, 4))
    joined[[0, 1, 2, 0, 1, 2, 0], [0, 1, 2, 3, 0, 1, 2]] = 1
    graph = Graph(np.block([[np.zeros((3, 3)), joined], [joined.T, np.zeros((4, 4))]]))
    absent = {(low, high + 3) for low, high in zip(*np.nonzero(joined == 0), strict=True)}
    counts = dict.fromkeys(absent, 0)
    for seed in range(400):
        for pair in map(tuple, split_links(graph, 0.3, 0.3, seed=seed, sides="auto").valid_neg.tolist()):
            counts[pair] += 1
    # Each of 5 pairs is one of 2 in 2 of 5 splits: within 5 standard deviations.
    assert all(abs(count - 160) < 5 * (400 * 0.4 * 0.6) ** 0.5 for count in counts.values())
    with pytest.raises(ValueError, match=r"has 7 edges and 5 non-edges across its sides; want 6"):
        split_links(graph, 0.49, 0.5, sides="auto")


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=14))
def test_two_sides_of_any_graph(pairs):
    """a graph of several parts with `sides="auto"`: the sides of each part are found; an odd cycle is refused"""
    g = networkx.Graph(pairs)
    g.remove_edges_from(list(networkx.selfloop_edges(g)))
    g.add_nodes_from(range(9))
    adjacency = networkx.to_numpy_array(g, nodelist=range(9))
    if not networkx.is_bipartite(g):
        with pytest.raises(ValueError, match="sides: got 'auto', but the graph is not bipartite: node"):
            split_links(Graph(adjacency), sides="auto")
        return
    parts = [part for part in networkx.connected_components(g) if len(part) > 1]
    side = {}
    for part in parts:
        colour = networkx.bipartite.color(g.subgraph(part))
        side |= {node: colour[node] != colour[min(part)] for node in part}
    want = {(a, b) for a in side for b in side if a < b and side[a] != side[b] and not g.has_edge(a, b)}
    graph = Graph(adjacency)
    absent = sf.tasks.splits.NonEdgesAcross(graph, "auto")
    assert absent.count == len(want)
    assert {*map(tuple, absent.pairs(torch.arange(absent.count)).tolist())} == want


@pytest.mark.parametrize(
    ("sides", "error", "message"),
    [
        ("users", ValueError, "sides: got 'users', want one of 'auto'"),
        (
            "auto",
            ValueError,
            "sides: got 'auto', but the graph is not bipartite: node 0 is in a part with an odd cycle",
        ),
        ([0, 1], ValueError, r"sides: got shape \(2,\), want one per node: \[5\]"),
        ([0, 1, 2, 0, 1], ValueError, "sides: got 2, want 0, 1, or -1 for a node on no side"),
        ([0.0, 1.0, 0.0, 1.0, 0.0], TypeError, "sides: got values of type float64, want integers or booleans"),
        ([0, 1, 0, 1, 0], ValueError, "sides: got 0 and 0 for the nodes 0 and 4, which are joined, want each edge"),
        ([0, 1, 0, 1, -1], ValueError, "sides: got 0 and -1 for the nodes 0 and 4, which are joined, want each edge"),
    ],
)
def test_wrong_sides(sides, error, message):
    """`split_links(graph, sides=...)` with an edge within one side: refused"""
    graph = Graph.from_pyg(ring(5))
    with pytest.raises(error, match=f"^{message}"):
        split_links(graph, sides=sides)
