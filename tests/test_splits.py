"""Splits of links, features and nodes: exact, drawn evenly, and of the seed alone."""

from __future__ import annotations

import math
import re
import warnings

import cases
import numpy as np
import pytest
import torch
from communities import nodes, planted, with_masks
from hypothesis import given
from hypothesis import strategies as st
from tolerances import assert_same_bits

from seegera_fast import Graph
from seegera_fast.masking import mask_structure
from seegera_fast.sampling import share
from seegera_fast.tasks import public_split, split_features, split_links, split_nodes


def graph_of(num_nodes: int, pairs) -> Graph:
    index = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Graph.from_edge_index(np.concatenate([index, index[:, ::-1]]).T, None, num_nodes)


def as_set(pairs: torch.Tensor) -> set[tuple[int, int]]:
    """The rows of a table, which must be different from each other."""
    assert pairs.dtype == torch.int64
    assert pairs.ndim == 2
    assert pairs.shape[1] == 2
    rows = {tuple(row) for row in pairs.tolist()}
    assert len(rows) == pairs.shape[0]
    return rows


def assert_exact_links(graph: Graph, split, valid: float, test: float) -> None:
    """All that a split of links promises, from sets of pairs."""
    train, edges = as_set(split.train.edges()), as_set(graph.edges())
    positive = [as_set(split.valid_pos), as_set(split.test_pos)]
    negative = [as_set(split.valid_neg), as_set(split.test_neg)]
    for part, ratio in zip(range(2), (valid, test), strict=True):
        assert len(positive[part]) == len(negative[part]) == math.floor(ratio * graph.num_edges)
    assert train | positive[0] | positive[1] == edges
    assert len(train) + len(positive[0]) + len(positive[1]) == len(edges)
    absent = negative[0] | negative[1]
    assert len(absent) == len(negative[0]) + len(negative[1])
    # Rows of all parts are i < k, so that a pair that is not there is not there in the other direction either.
    assert all(0 <= low < high < graph.num_nodes for low, high in absent | positive[0] | positive[1])
    assert not absent & edges
    held_out = math.floor(valid * graph.num_edges)
    assert (split.more_neg is None) == (held_out == 0)
    if held_out:
        more = as_set(split.more_neg)
        asked = min(20 * held_out, graph.num_nodes * (graph.num_nodes - 1) // 2 - graph.num_edges)
        assert asked - len(absent) <= len(more) == len(split.more_neg) <= asked
        assert not more & (absent | edges)
    dense = split.train.adjacency.to_dense()
    assert (dense == dense.T).all()


@pytest.mark.parametrize(("valid", "test"), [(0.2, 0.1), (0.05, 0.1), (0, 0), (0.0, 0.3), (0.4, 0.0), (0.5, 0.49)])
def test_link_split_is_exact(valid, test):
    graph = planted()
    split = split_links(graph, valid, test, seed=4)
    assert_exact_links(graph, split, valid, test)
    assert split.train.features is graph.features
    assert split.train.num_nodes == graph.num_nodes


@given(
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.sampled_from(all_pairs(n) or [(0, 0)])))),
    st.floats(0, 0.99),
    st.floats(0, 0.99),
    st.integers(-(2**63), 2**63 - 1),
)
def test_link_split_of_any_graph(nodes_and_pairs, valid, test, seed):
    num_nodes, pairs = nodes_and_pairs
    graph = graph_of(num_nodes, [pair for pair in pairs if pair[0] < pair[1]])
    wanted = math.floor(valid * graph.num_edges) + math.floor(test * graph.num_edges)
    absent = num_nodes * (num_nodes - 1) // 2 - graph.num_edges
    if valid + test >= 1 or wanted > absent:
        with pytest.raises(ValueError, match="want"):
            split_links(graph, valid, test, seed)
    else:
        assert_exact_links(graph, split_links(graph, valid, test, seed), valid, test)


def all_pairs(num_nodes: int) -> list[tuple[int, int]]:
    return [(low, high) for low in range(num_nodes) for high in range(low + 1, num_nodes)]


def test_link_split_may_use_up_the_non_edges():
    pairs = all_pairs(6)
    absent = {(0, 3), (1, 2), (1, 5), (2, 5), (3, 4)}
    graph = graph_of(6, [pair for pair in pairs if pair not in absent])
    split = split_links(graph, valid=0.3, test=0.2)
    assert as_set(split.valid_neg) | as_set(split.test_neg) == absent
    with pytest.raises(ValueError, match=r"graph: has 10 edges and 5 non-edges; want 6 non-edges"):
        split_links(graph, valid=0.3, test=0.3)


def test_complete_graph_has_no_links_to_split():
    graph = cases.graph("complete")
    with pytest.raises(ValueError, match=r"has 21 edges and 0 non-edges; want 6 non-edges"):
        split_links(graph)
    split = split_links(graph, valid=0, test=0)
    assert split.train.num_edges == 21


def test_link_split_draws_non_edges_evenly():
    """Each of the 10 non-edges is drawn in about 3 of 10 splits: within 5 standard deviations."""
    graph = graph_of(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)])
    counts = dict.fromkeys(set(all_pairs(6)) - as_set(graph.edges()), 0)
    draws = 600
    for seed in range(draws):
        for pair in as_set(split_links(graph, valid=0.4, test=0.2, seed=seed).valid_neg):
            counts[pair] += 1
    assert sum(counts.values()) == 2 * draws
    deviation = math.sqrt(draws * 0.2 * 0.8)
    assert all(abs(count - 0.2 * draws) < 5 * deviation for count in counts.values())


@pytest.mark.parametrize("split", [split_links, split_features, split_nodes])
def test_splits_depend_on_the_seed_alone(split):
    def tensors(seed):
        parts = split(planted(), 0.2, 0.1, seed=seed)
        return [value for value in vars(parts).values() if getattr(value, "dtype", None) == torch.int64]

    first, again, other, negative = (tensors(seed) for seed in (7, 7, 8, -1))
    for a, b in zip(first, again, strict=True):
        assert_same_bits(a, b)
    assert all(not torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(first, negative, strict=True))


@pytest.mark.parametrize("split", [split_links, split_features, split_nodes])
@pytest.mark.parametrize(
    ("ratios", "error", "message"),
    [
        ((-0.1, 0.1), ValueError, r"got -0.1, want a number in \[0, 1\)"),
        ((0.1, 1.0), ValueError, r"got 1.0, want a number in \[0, 1\)"),
        ((math.nan, 0.1), ValueError, "got nan"),
        ((0.6, 0.4), ValueError, "0.6 and .* 0.4, want ratios with a sum below 1"),
        ((0.7, 0.9), ValueError, "0.7 and .* 0.9, want ratios with a sum below 1"),
        (("0.1", 0.1), TypeError, "got '0.1', want a number"),
        ((True, 0.1), TypeError, "got True, want a number"),
    ],
)
def test_impossible_ratios(split, ratios, error, message):
    with pytest.raises(error, match=message):
        split(planted(), *ratios)


@pytest.mark.parametrize("split", [split_links, split_features, split_nodes, public_split])
def test_splits_want_a_graph(split):
    with pytest.raises(TypeError, match="graph: got ndarray"):
        split(np.eye(3))


@pytest.mark.parametrize("seed", [0.5, "1", None, True])
def test_seed_must_be_an_int(seed):
    with pytest.raises(TypeError, match="seed: got"):
        split_links(planted(), seed=seed)


@pytest.mark.parametrize(("valid", "test"), [(0.1, 0.2), (0, 0), (0.3, 0), (0.0, 0.4)])
@pytest.mark.parametrize("kind", ["binary", "counts", "negative", "sparse"])
def test_feature_split_is_exact(kind, valid, test):
    graph = cases.graph("random", kind)
    split = split_features(graph, valid, test, seed=2)
    dense, train = graph.features.to_dense(), split.train.features.to_dense()
    present = as_set(dense.nonzero())
    hidden = [as_set(split.valid_pos), as_set(split.test_pos)]
    zero = [as_set(split.valid_neg), as_set(split.test_neg)]
    for part, ratio in zip(range(2), (valid, test), strict=True):
        assert len(hidden[part]) == len(zero[part]) == math.floor(ratio * len(present))
    assert not hidden[0] & hidden[1]
    assert hidden[0] | hidden[1] <= present
    assert not zero[0] & zero[1]
    assert not (zero[0] | zero[1]) & present
    assert as_set(train.nonzero()) == present - hidden[0] - hidden[1]
    kept = train != 0
    assert_same_bits(train[kept], dense[kept])
    for cells, values in ((split.valid_pos, split.valid_values), (split.test_pos, split.test_values)):
        assert_same_bits(values, dense[cells[:, 0], cells[:, 1]])
    assert split.train.adjacency is graph.adjacency


def test_feature_split_may_use_up_the_zeros():
    dense = np.ones((4, 5))
    dense[1, 2] = dense[3, 0] = dense[0, 4] = 0
    graph = Graph(np.ones((4, 4)), dense)
    split = split_features(graph, valid=0.12, test=0.06)
    assert as_set(split.valid_neg) | as_set(split.test_neg) == {(1, 2), (3, 0), (0, 4)}
    with pytest.raises(ValueError, match=r"have 17 non-zero entries and 3 zero entries; want 4 zero entries"):
        split_features(graph)


@pytest.mark.parametrize(("train", "valid"), [(0.1, 0.1), (0.5, 0.0), (0.0, 0.3)])
def test_node_split_is_exact(train, valid):
    graph = planted()
    split = split_nodes(graph, train, valid, seed=1)
    # Two of the 90 labels are unknown.
    sizes = [math.floor(train * 88), math.floor(valid * 88)]
    assert [split.train.shape[0], split.valid.shape[0]] == sizes
    together = torch.cat([split.train, split.valid, split.test])
    assert together.sort().values.tolist() == list(range(88))
    for part in (split.train, split.valid, split.test):
        assert (part.diff() > 0).all()


def test_parts_are_those_of_the_ratio_as_written():
    """0.29 * 100 and 0.57 * 100 are below 29 and 57 in floating point."""
    complete = Graph(np.ones((15, 15)) - np.eye(15), np.ones((4, 25))[:1].repeat(15, 0))
    graph = complete.with_edges(complete.edges()[:100])
    with pytest.raises(ValueError, match="want 29 non-edges"):
        split_links(graph, valid=0.29, test=0.0)
    masked, left = mask_structure(graph, 0.57, 1)
    assert left == 43
    assert masked.nnz == 2 * 43 + 15
    # Of a rate below 1 something stays.
    assert share(1 - 1e-9, 100) == 99
    assert [share(0.3, count) for count in (0, 9, 10, 11)] == [0, 2, 3, 3]
    labelled = Graph(np.zeros((100, 100)), labels=np.arange(100) % 2)
    assert split_nodes(labelled, 0.29, 0.57).test.shape[0] == 14


@pytest.mark.parametrize(
    ("split", "ratios", "message"),
    [
        (split_links, {"valid": 0.2, "test": 0.0}, r"too few edges \(4\) for valid=0\.2: that part is empty"),
        (split_links, {"valid": 0.2, "test": 0.1}, r"too few edges \(4\) for valid=0\.2 and test=0\.1: these parts"),
        (split_features, {"valid": 0.0, "test": 0.1}, r"too few features that are not 0 \(5\) for test=0\.1:"),
        (split_nodes, {"train": 0.5, "valid": 0.1}, r"too few nodes with a known label \(5\) for valid=0\.1:"),
    ],
)
def test_parts_that_get_nothing_are_said_once(split, ratios, message):
    path = Graph(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1), labels=[0, 1, 0, 1, 0])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        split(path, **ratios)
    (only,) = seen
    assert re.match("graph: has " + message, str(only.message))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split(path, **dict.fromkeys(ratios, 0.4))
        split(path, **dict.fromkeys(ratios, 0.0))


def test_public_split():
    split = public_split(with_masks(train=nodes(3, 1, 89), valid=nodes(4), test=nodes(60, 61, 88)))
    assert split.train.tolist() == [1, 3]
    assert split.valid.tolist() == [4]
    assert split.test.tolist() == [60, 61]
    without = public_split(with_masks(train=nodes(3, 1), test=nodes(60)))
    assert (without.train.tolist(), without.valid.tolist(), without.test.tolist()) == ([1, 3], [], [60])


@pytest.mark.parametrize("split", [split_links, split_features, split_nodes, public_split])
def test_splits_that_are_made_in_inference_mode_can_be_trained_on(split):
    whole = with_masks(train=nodes(3, 1), test=nodes(60))
    with torch.inference_mode():
        made = split(whole)
    tensors = [value for value in vars(made).values() if isinstance(value, torch.Tensor)]
    if hasattr(made.train, "features"):
        tensors += [made.train.features.values, made.train.adjacency.values]
    assert not any(tensor.is_inference() for tensor in tensors)


def test_public_split_errors():
    with pytest.raises(ValueError, match=r"has no mask 'valid', .*; its masks are 'train', 'val', 'test'$"):
        public_split(with_masks(train=nodes(3, 1), val=nodes(5), test=nodes(60)))
    with pytest.raises(ValueError, match="has no mask 'train' or 'test'"):
        public_split(planted())
    with pytest.raises(ValueError, match="2 nodes are in more than one of the masks"):
        public_split(with_masks(train=nodes(1, 2), valid=nodes(2, 3), test=nodes(3, 4)))


def test_nodes_without_labels():
    for split in (split_nodes, public_split):
        with pytest.raises(ValueError, match="graph: has no labels"):
            split(cases.graph("path"))
