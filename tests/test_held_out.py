"""Splits that the user gives: what they may be, and that every task takes them."""

import re
from dataclasses import fields, replace

import cases
import numpy as np
import pytest
import torch

import seegera_fast as sf

SMALL = {"embedding_dim": 4, "hidden_dim": 5, "epochs": 2, "likelihood": "mse", "progress": False}


@pytest.fixture(scope="module")
def graph():
    plain = cases.large_graph(120, 20)
    labels = torch.arange(120) % 3
    labels[7] = -1
    return sf.Graph(plain.adjacency.to_scipy(), plain.features, labels, dtype=torch.float64)


DRAW = {"link": sf.tasks.split_links, "attribute": sf.tasks.split_features, "node": sf.tasks.split_nodes}
RUN = {
    "link": sf.tasks.link_prediction,
    "attribute": sf.tasks.attribute_inference,
    "node": sf.tasks.node_classification,
}
SCORES = {"link": ("auc", "valid_ap"), "attribute": ("mse", "valid_mse"), "node": ("accuracy", "valid_accuracy")}
SHARES = {"link": (0.2, 0.1), "attribute": (0.1, 0.2), "node": (0.1, 0.1)}


@pytest.mark.parametrize("task", DRAW)
def test_a_given_split_is_used(graph, task):
    drawn = RUN[task](graph, seed=3, **SMALL)
    given = RUN[task](graph, seed=3, split=DRAW[task](graph, *SHARES[task], seed=3), **SMALL)
    for name in SCORES[task]:
        assert getattr(given, name) == getattr(drawn, name)
    assert torch.equal(given.model.embed(), drawn.model.embed())
    other = RUN[task](graph, seed=3, split=DRAW[task](graph, *SHARES[task], seed=4), **SMALL)
    assert other.fields["split"] != given.fields["split"]
    assert [getattr(other, name) for name in SCORES[task]] != [getattr(given, name) for name in SCORES[task]]


@pytest.mark.parametrize("task", DRAW)
def test_a_checkpoint_of_another_split_is_refused(graph, task, tmp_path):
    checkpoint = sf.Checkpoint(tmp_path / "run", every=1, resume=True)
    options = {**SMALL, "epochs": 3, "checkpoint": checkpoint}
    RUN[task](graph, split=DRAW[task](graph, seed=1), **options)
    with pytest.raises(ValueError, match="split"):
        RUN[task](graph, split=DRAW[task](graph, seed=2), **options)


@pytest.mark.parametrize("task", DRAW)
def test_a_split_of_lists_and_arrays(graph, task):
    split = DRAW[task](graph, seed=1)
    lists = {
        entry.name: value.tolist() if isinstance(value, torch.Tensor) else value
        for entry in fields(split)
        for value in [getattr(split, entry.name)]
    }
    made = type(split)(**lists)
    for entry in fields(split):
        if isinstance(getattr(split, entry.name), torch.Tensor):
            assert torch.equal(getattr(made, entry.name), getattr(split, entry.name))


@pytest.mark.parametrize("task", DRAW)
def test_what_a_split_may_be(graph, task):
    with pytest.raises(TypeError, match="split: got 'paper', want a"):
        RUN[task](graph, split="paper", **SMALL)
    other = sf.Graph(cases.large_graph(90, 20).adjacency.to_scipy(), torch.eye(90), np.arange(90) % 2)
    split = DRAW[task](other, seed=1)
    wanted = "split: (has|train has|its features)"
    if task == "node":
        assert RUN[task](graph, split=DRAW[task](graph, seed=1), **SMALL).split is not None
        split = replace(split, test=torch.tensor([500]))
    with pytest.raises(ValueError, match=wanted if task != "node" else "split: test has node 500, want 0 to 119"):
        RUN[task](graph, split=split, **SMALL)


def cell(split, part, number=0):
    return getattr(split, part)[number : number + 1]


def test_further_pairs_without_a_link_are_checked(graph):
    split = sf.tasks.split_links(graph, seed=1)
    for wrong in (cell(split, "valid_pos"), cell(split, "test_pos"), split.train.edges()[:1].flip(1)):
        with pytest.raises(ValueError, match="more_neg: the split leaks: 1 pairs, of which one is"):
            replace(split, more_neg=torch.cat([split.more_neg, wrong]))
    with pytest.raises(ValueError, match=r"more_neg: the split leaks: 2 pairs, .* are in the test part, too"):
        replace(split, more_neg=torch.cat([split.more_neg, split.test_neg[:2]]))
    other = replace(split, test_pos=split.test_pos[1:], more_neg=split.test_pos[:1])
    with pytest.raises(ValueError, match=r"split: more_neg has .*, which is an edge of graph"):
        RUN["link"](graph, split=other, **SMALL)


@pytest.mark.parametrize("part", ["valid_pos", "test_pos", "valid_neg", "test_neg"])
def test_features_that_leak_are_refused(graph, part):
    split = sf.tasks.split_features(graph, seed=1)
    features = split.train.features
    seen = torch.stack([features.row, features.col], dim=1)[:1]
    leaks = {"training": seen, "other": cell(split, "valid_pos" if part != "valid_pos" else "test_pos")}
    for where in leaks.values():
        name = "test_pos" if part == "valid_pos" and where is leaks["other"] else part
        changed = {part: torch.cat([getattr(split, part), where])}
        if part.endswith("pos"):
            values = part.replace("pos", "values")
            changed[values] = torch.cat([getattr(split, values), torch.ones(1, dtype=torch.float64)])
        with pytest.raises(ValueError, match=f"{name}: the split leaks: 1 entries, of which one is"):
            replace(split, **changed)


def test_hidden_features_must_be_those_of_the_graph(graph):
    split = sf.tasks.split_features(graph, seed=1)
    with pytest.raises(ValueError, match="split: its values are not those of the features of graph; with normalize"):
        RUN["attribute"](graph, split=replace(split, valid_values=2 * split.valid_values), **SMALL)
    with pytest.raises(ValueError, match=r"with normalize_features=True.* want a split of graph\.with_features"):
        RUN["attribute"](graph, "cora", split=split, **SMALL)
    with pytest.raises(ValueError, match="together are not the features of graph"):
        RUN["attribute"](
            graph, split=replace(split, test_pos=split.test_pos[1:], test_values=split.test_values[1:]), **SMALL
        )
    normalized = graph.with_features(graph.features.row_normalized)
    split = sf.tasks.split_features(normalized, seed=1)
    assert RUN["attribute"](graph, split=split, normalize_features=True, **SMALL).mse > 0


@pytest.mark.parametrize("zeros", [0, 1, 7])
def test_other_numbers_of_zeros_than_of_hidden_entries(graph, zeros):
    """The error is the mean over all entries of a part, whether they are hidden or zero."""
    split = sf.tasks.split_features(graph, seed=1)
    split = replace(
        split, test_pos=split.test_pos[:3], test_values=split.test_values[:3], test_neg=split.test_neg[:zeros]
    )
    # The entries that are hidden no longer are seen in training.
    whole = sf.tasks.split_features(graph, seed=1)
    features = graph.features.to_dense()
    for row, col in whole.test_pos[3:].tolist():
        features[row, col] = 0
    found = RUN["attribute"](sf.Graph(graph.adjacency.to_scipy(), features, dtype=graph.dtype), split=split, **SMALL)
    entries = torch.cat([split.test_pos, split.test_neg])
    expected = torch.cat([split.test_values, torch.zeros(zeros, dtype=torch.float64)])
    predicted = found.model.reconstruct_features(*entries.T)
    assert found.mse == pytest.approx(float((predicted - expected).square().mean()), rel=1e-9)


@pytest.mark.parametrize("task", DRAW)
def test_shares_that_would_not_be_used_are_refused(graph, task):
    split = DRAW[task](graph, seed=1)
    first, second = ("train", "valid") if task == "node" else ("valid", "test")
    for name, value in ((first, 0.3), (second, np.float32(0.3)), (first, "x"), (second, -3.0)):
        with pytest.raises(ValueError, match=f"^{name}: got .*, want nothing where split is given"):
            RUN[task](graph, split=split, **{name: value}, **SMALL)
    given = dict(zip((first, second), SHARES[task], strict=True))
    assert RUN[task](graph, split=split, **given, **SMALL).split is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"valid_pos": [[0, 20]], "valid_values": [1.0]}, "valid_pos: got row 0, column 20, want an entry"),
        ({"valid_pos": [0, 2, 3]}, "valid_pos: got shape (3,), want [number of entries, 2]"),
        ({"valid_values": [1.0]}, "valid_values: got shape (1,), want one value per row of valid_pos"),
        ({"test_values": [True]}, "test_values: got values of type bool, want real numbers"),
        ({"train": None}, "train: got None, want a Graph"),
    ],
)
def test_wrong_parts_of_features(graph, change, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        replace(sf.tasks.split_features(graph, seed=1), **change)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([0, 1], [1], [2]), "train, valid, test: the split leaks: node 1 is there twice"),
        (([0, 0], [1], [2]), "the split leaks: node 0 is there twice"),
        (([0, -1], [1], [2]), "train: got -1, want node numbers of 0 and above"),
        (([0.5], [1], [2]), "train: got torch.float32, want integers"),
        (([[0]], [1], [2]), "train: got shape (1, 1), want node numbers [k]"),
    ],
)
def test_wrong_parts_of_nodes(parts, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        sf.tasks.NodeSplit(*parts)


def test_nodes_of_a_split_have_labels(graph):
    with pytest.raises(ValueError, match="split: valid has node 7, whose label is not known"):
        RUN["node"](graph, split=sf.tasks.NodeSplit([0, 1, 2], [7], [5]), **SMALL)
    with pytest.raises(ValueError, match=r"train: got no node to train on, want at least one \(split\)"):
        RUN["node"](graph, split=sf.tasks.NodeSplit([], [1], [5]), **SMALL)
    with pytest.raises(ValueError, match="public: got True, want None where split is given"):
        RUN["node"](graph, split=sf.tasks.NodeSplit([0], [1], [5]), public=True, **SMALL)
    assert sf.tasks.NodeSplit([5, 3], np.array([1]), torch.tensor([2])).train.tolist() == [3, 5]
