"""Splits of links that a user gives, from PyTorch Geometric or by hand, are taken if nothing leaks.

The first line of each test's docstring is a row of the table in docs/pytorch.md: what somebody has: what happens.
"""

import warnings

import numpy as np
import pytest
import torch
from pyg_data import QUICK, hetero, ring
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit

import seegera_fast as sf
from seegera_fast import Graph
from seegera_fast.tasks import FeatureSplit, LinkSplit, link_prediction, split_features, split_links, split_nodes

pytestmark = pytest.mark.usefixtures("strict")


def test_a_split_of_pyg():
    """`RandomLinkSplit(is_undirected=True)`: `LinkSplit.from_pyg(*parts)`, which `link_prediction(split=...)` takes"""
    torch.manual_seed(0)
    data = ring(40, x=torch.eye(40), y=torch.arange(40) % 2)
    graph = Graph.from_pyg(data)
    for options in ({}, {"split_labels": True}, {"add_negative_train_samples": False}, {"num_val": 0.0}):
        parts = RandomLinkSplit(num_test=0.25, is_undirected=True, **options)(data)
        split = LinkSplit.from_pyg(*parts, name="ring")
        assert split.train.name == "ring"
        assert split.train.labels.tolist() == data.y.tolist()
        held_out = torch.cat([split.valid_pos, split.test_pos, split.train.edges()])
        assert sorted(held_out.tolist()) == graph.edges().tolist()
        assert split.test_pos.shape == split.test_neg.shape == (10, 2)
        result = link_prediction(graph, split=split, **QUICK)
        assert torch.equal(result.split.test_neg, split.test_neg)
        assert result.model.graph.edges().tolist() == split.train.edges().tolist()
        assert 0 <= result.auc <= 1
        assert all(hasattr(part, "edge_index") for part in parts)
        assert any(hasattr(parts[0], name) for name in ("edge_label_index", "pos_edge_label_index"))


def test_a_split_of_pyg_that_leaks():
    """`RandomLinkSplit(is_undirected=False)` of undirected edges: refused, since reverse edges leak"""
    torch.manual_seed(0)
    parts = RandomLinkSplit(num_val=0.2, num_test=0.2)(ring(40))
    with (
        pytest.warns(UserWarning, match="got a directed graph"),
        pytest.raises(ValueError, match=r"^valid_pos: the split leaks: .*RandomLinkSplit\(is_undirected=True\) makes"),
    ):
        LinkSplit.from_pyg(*parts)
    none = RandomLinkSplit(is_undirected=True, neg_sampling_ratio=0.0)(ring(40))
    with pytest.raises(
        ValueError, match=r"^valid_neg: got no pairs, .*RandomLinkSplit\(neg_sampling_ratio=1.0\) makes"
    ):
        LinkSplit.from_pyg(*none)
    disjoint = RandomLinkSplit(is_undirected=True, disjoint_train_ratio=0.5)(ring(40))
    with pytest.raises(ValueError, match=r"^train: has pairs in edge_label_index .*, want disjoint_train_ratio=0"):
        LinkSplit.from_pyg(*disjoint)
    with pytest.raises(ValueError, match=r"^valid: has no edge_label_index, want a part from RandomLinkSplit"):
        LinkSplit.from_pyg(disjoint[0], ring(40), disjoint[2])
    with pytest.raises(TypeError, match=r"^test: data: got HeteroData"):
        LinkSplit.from_pyg(*disjoint[:2], hetero())


def test_a_split_of_pyg_without_a_number_of_nodes():
    """parts of `RandomLinkSplit` without `num_nodes` or `x`, with self-loops: all nodes, no self-loops"""
    data = ring(31)
    loops = torch.arange(5).repeat(2, 1)
    # The largest node has one link, which is held out.
    edges = torch.cat([data.edge_index, torch.tensor([[0, 31], [31, 0]]), loops], dim=1)
    seen = set()
    for seed in range(8):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Unable to accurately infer 'num_nodes'")
            parts = RandomLinkSplit(num_val=0.2, num_test=0.3, is_undirected=True)(Data(edge_index=edges))
        split = LinkSplit.from_pyg(*parts)
        assert split.train.num_nodes == 32
        assert (split.valid_pos[:, 0] < split.valid_pos[:, 1]).all()
        assert "num_nodes" not in parts[0]
        seen.add(int(parts[0].edge_index.max()))
    assert min(seen) < 31, "no split has held the last link out"


def test_splits_in_lists_and_sets():
    """splits in lists and sets: compared as objects; a split keeps its own tensors"""
    graph = Graph.from_pyg(ring(12, y=torch.arange(12) % 2))
    for made in (split_links, split_features, split_nodes):
        first, second = (made(graph, 0.2, 0.2) for _ in range(2))
        assert first == first
        assert second not in [first]
        assert len({first, second}) == 2
    given = torch.tensor([[0, 1]])
    split = FeatureSplit(Graph.from_pyg(ring(4)), given, [1.0], [], [], [], [])
    given[0, 1] = 0
    assert split.valid_pos.tolist() == [[0, 1]]


FAULTS = {
    "in the training graph": (
        {"valid_pos": [[4, 3]]},
        r"valid_pos: the split leaks: 1 pairs, of which one is \(3, 4\)",
    ),
    "in two parts": ({"test_pos": [[1, 0]]}, r"test_pos: the split leaks: .* \(0, 1\), are in the training graph or"),
    "twice": ({"valid_pos": [[0, 1], [1, 0]]}, "valid_pos: the split leaks: 2 pairs, .* are held out twice"),
    "negative in train": (
        {"test_neg": [[4, 3]]},
        r"test_neg: the split leaks: .*, are edges, not pairs without a link",
    ),
    "negative held out": ({"valid_neg": [[2, 1]]}, r"valid_neg: the split leaks: .*, are edges, not pairs without"),
    "no negatives": ({"test_neg": []}, "test_neg: got no pairs, want pairs without a link"),
    "loop": ({"valid_neg": [[2, 2]]}, "valid_neg: got a pair of a node with itself"),
    "no node": ({"valid_neg": [[2, 9]]}, "valid_neg: got numbers from 2 to 9, want 0 to 5"),
    "shape": ({"valid_neg": [[0], [2]]}, r"valid_neg: got shape \(2, 1\), want \[number of pairs, 2\]"),
    "reals": ({"valid_neg": torch.ones(1, 2)}, "valid_neg: got torch.float32, want integers"),
    "no graph": ({"train": None}, "train: got None, want a Graph"),
}


def by_hand(**parts):
    """A split of the ring of six nodes: two edges are held out."""
    train = Graph.from_pyg(ring(6)).with_edges([[2, 3], [3, 4], [4, 5], [5, 0]])
    pairs = {"valid_pos": [[0, 1]], "valid_neg": [[2, 0]], "test_pos": [[2, 1]], "test_neg": torch.tensor([[1, 4]])}
    return LinkSplit(**{"train": train, **pairs, **parts})


@pytest.mark.parametrize(("parts", "message"), FAULTS.values(), ids=FAULTS)
def test_a_split_by_hand(parts, message):
    """a `LinkSplit` of your own: checked; one that leaks, in either direction, is refused"""
    assert by_hand().valid_neg.tolist() == [[0, 2]]
    assert by_hand().test_pos.tolist() == [[1, 2]]
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        by_hand(**parts)


def test_a_checkpoint_of_another_split(tmp_path):
    """`link_prediction(graph, split=...)` with the checkpoint of another split: refused"""
    graph = Graph.from_pyg(ring(6))
    checkpoint = sf.Checkpoint(tmp_path / "run.safetensors", every=1)
    twice = {**QUICK, "epochs": 2}
    link_prediction(graph, split=by_hand(), checkpoint=checkpoint, **twice)
    again = sf.Checkpoint(checkpoint.path, every=1, resume=True)
    assert link_prediction(graph, split=by_hand(), checkpoint=again, **twice).epochs == 2
    with pytest.raises(ValueError, match=r"split \(checkpoint: \w+, this run: \w+\)"):
        link_prediction(graph, split=by_hand(valid_neg=[[0, 3]]), checkpoint=again, **twice)


def test_a_split_of_another_graph():
    """`link_prediction(graph, split=...)` with a split of another graph: refused"""
    graph, split = Graph.from_pyg(ring(6)), by_hand()
    assert link_prediction(graph, split=split, **QUICK).fields["split"]
    normalized = link_prediction(graph.with_features(np.eye(6) * 4), split=split, normalize_features=True, **QUICK)
    assert torch.equal(normalized.model.graph.features.to_dense(), torch.eye(6))
    for other, message in [
        (Graph.from_pyg(ring(7)), "split: has 6 nodes, want those of graph: 7"),
        (graph.with_edges([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]), r"split: train has \(0, 5\), which is no edge of"),
        (
            graph.with_edges([[0, 5], [1, 2], [2, 3], [3, 4], [4, 5]]),
            r"split: valid_pos has \(0, 1\), which is no edge",
        ),
        (Graph(np.ones((6, 6))), r"split: valid_neg has \(0, 2\), which is an edge of graph"),
    ]:
        with pytest.raises(ValueError, match=f"^{message}"):
            link_prediction(other, split=split, **QUICK)
    with pytest.raises(ValueError, match=r"^sides: got 'auto', want None where split is given"):
        link_prediction(graph, split=split, sides="auto", **QUICK)
