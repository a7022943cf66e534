"""Lists of edges: what counts and sorts them quickly gives what plain sorting gives."""

import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

import seegera_fast as sf
from seegera_fast import edge_keys

NODES = st.integers(1, 9)


def pairs(nodes):
    node = st.integers(0, nodes - 1)
    return st.lists(st.tuples(node, node), max_size=40).map(lambda found: np.array(found, np.int64).reshape(-1, 2))


@given(st.data(), NODES)
def test_the_pattern_is_that_of_scipy(data, nodes):
    row, col = data.draw(pairs(nodes)).T
    dense = np.zeros((nodes, nodes), bool)
    dense[row, col] = True
    np.fill_diagonal(dense, False)
    wanted = scipy.sparse.csr_matrix(dense | dense.T)
    rowptr, found, stored = edge_keys.symmetric_pattern(row, col, nodes)
    assert rowptr.tolist() == wanted.indptr.tolist()
    assert found.tolist() == wanted.indices.tolist()
    assert stored == dense.sum()
    assert rowptr.dtype == found.dtype == np.int64


@given(st.data(), NODES, st.booleans())
def test_a_list_of_edges_makes_the_graph_of_its_matrix(data, nodes, weighted):
    edges = data.draw(pairs(nodes))
    adjacency = np.zeros((nodes, nodes))
    adjacency[tuple(edges.T)] = 1
    with warnings.catch_warnings(record=True) as one:
        warnings.simplefilter("always")
        wanted = sf.Graph(adjacency, weighted=weighted)
    with warnings.catch_warnings(record=True) as two:
        warnings.simplefilter("always")
        found = sf.Graph.from_edge_index(edges.T, num_nodes=nodes, weighted=weighted)
    # A list may have one direction of each edge.
    apart = edges[edges[:, 0] != edges[:, 1]]
    one_each = not adjacency[tuple(apart.T[::-1])].any()
    messages = [] if one_each else [str(each.message).replace("adjacency: ", "edge_index: ") for each in one]
    assert [str(each.message) for each in two] == messages
    for part in ("rowptr", "col", "values"):
        assert torch.equal(getattr(found.adjacency, part), getattr(wanted.adjacency, part))
    assert torch.equal(found.propagation.values, wanted.propagation.values)


@given(st.data(), NODES)
def test_a_part_of_the_edges_and_the_loops_are_those_of_the_dense_matrix(data, nodes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = sf.Graph.from_edge_index(data.draw(pairs(nodes)).T, num_nodes=nodes)
    weights = torch.arange(1.0, 1 + graph.num_edges)
    dense = torch.zeros(nodes, nodes)
    dense[tuple(graph.edges().T)] = weights
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = sf.Graph(dense + dense.T, weighted=True)
    chosen = torch.tensor(data.draw(st.lists(st.booleans(), min_size=graph.num_edges, max_size=graph.num_edges)))
    chosen = torch.nonzero(chosen).flatten()
    upper = torch.zeros(nodes, nodes)
    upper[tuple(graph.edges()[chosen].T)] = weights[chosen]
    part = graph.with_edges(graph.edges()[chosen].flip(0, 1))
    assert torch.equal(part.adjacency.with_values(part.weights).to_dense(), upper + upper.T)
    assert torch.equal(part.edges(), graph.edges()[chosen])
    looped, edge = part.with_self_loops()
    assert torch.equal(looped.to_dense(), upper + upper.T + torch.eye(nodes))
    low, high = torch.minimum(looped.row, looped.col), torch.maximum(looped.row, looped.col)
    assert torch.equal(edge == -1, low == high)
    assert torch.equal(part.edges()[edge[low < high]], torch.stack([low, high], dim=1)[low < high])


@given(st.lists(st.integers(0, 20), max_size=20), st.lists(st.integers(0, 20), max_size=20))
def test_numbers_are_found_among_others(keys, known):
    keys, known = torch.tensor(keys, dtype=torch.int64), edge_keys.distinct(torch.tensor(known, dtype=torch.int64))
    assert torch.equal(edge_keys.among(keys, known), torch.isin(keys, known))


def test_pairs_of_many_ranks_are_the_non_edges_in_their_order():
    graph = sf.Graph.from_edge_index(torch.tensor([[0, 1, 2, 4], [1, 2, 3, 0]]).repeat(1, 2), num_nodes=7)
    absent = graph.adjacency.non_edges
    order = torch.randperm(absent.count, generator=torch.Generator().manual_seed(3))
    wanted = [[i, k] for i in range(7) for k in range(i + 1, 7) if [i, k] not in graph.edges().tolist()]
    assert absent.pairs(order).tolist() == [wanted[rank] for rank in order]


@pytest.mark.parametrize("valid", [0.2, 0.0])
def test_the_draws_of_a_split(valid):
    graph = sf.datasets.load("digits")
    split, generator = sf.tasks.split_links(graph, valid, 0.1, seed=5), np.random.default_rng(5)
    held = [int(share * graph.num_edges) for share in (valid, 0.1)]
    absent = graph.adjacency.non_edges
    negatives = absent.pairs(torch.from_numpy(generator.choice(absent.count, sum(held), replace=False)))
    order = torch.from_numpy(generator.permutation(graph.num_edges))
    assert torch.equal(torch.cat([split.valid_neg, split.test_neg]), negatives)
    assert torch.equal(torch.cat([split.valid_pos, split.test_pos]), graph.edges()[order[: sum(held)]])
    assert torch.equal(split.train.edges(), graph.edges()[order[sum(held) :].sort().values])
