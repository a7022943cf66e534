"""What nodes of a graph have: labels, names and masks."""

import copy
import pickle
import warnings

import networkx
import numpy as np
import pytest
import torch
from matrices import BETA, TRIANGLE

from seegera_fast import Graph

pytestmark = BETA


@pytest.mark.parametrize(
    "labels",
    [
        [2, 0, 1, -1],
        np.array([2, 0, 1, -1], np.int8),
        torch.tensor([2, 0, 1, -1]),
        torch.tensor([2.0, 0.0, 1.0, -1.0]),
        np.array([[2], [0], [1], [-1]]),
        torch.tensor([[2], [0], [1], [-1]]),
    ],
    ids=["list", "int8", "int64", "whole floats", "column", "torch column"],
)
def test_labels(labels):
    graph = Graph(TRIANGLE, labels=labels)
    assert graph.labels.dtype == torch.int64
    assert graph.labels.tolist() == [2, 0, 1, -1]


@pytest.mark.parametrize("kind", [bool, int, float])
def test_one_hot_labels(kind):
    one_hot = np.eye(3)[[2, 0, 1, 1]].astype(kind)
    for given in (one_hot, torch.tensor(one_hot), one_hot.tolist()):
        assert Graph(TRIANGLE, labels=given).labels.tolist() == [2, 0, 1, 1]
    assert Graph(TRIANGLE, labels=np.array([[0.1, 0.9], [0.6, 0.4], [0.2, 0.8], [1, 0]])).labels.tolist() == [
        1,
        0,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([0, 1, 2], ValueError, r"labels: got shape \(3,\), want one label per node: \[4\]"),
        (np.eye(3), ValueError, r"labels: got shape \(3, 3\), want one label per node: \[4\]"),
        (np.zeros((4, 2, 2)), ValueError, r"labels: got shape \(4, 2, 2\), want one label per node: \[4\]"),
        (3, TypeError, r"labels: got 3, want one label per node: \[4\]"),
        (np.zeros((4, 0)), ValueError, r"labels: got shape \(4, 0\), want one label per node: \[4\]"),
        ([0.5, 1, 2, 3], TypeError, r"labels: got values of type float64 that are not whole, want integers or words"),
        (
            [np.inf, 1, 2, 3],
            TypeError,
            r"labels: got values of type float64 that are not whole, want integers or words",
        ),
        ([1j, 1, 2, 3], TypeError, r"labels: got values of type complex128, want integers or words"),
        ([{}, 1, 2, 3], TypeError, r"labels: got values of type dict, int, want integers or words"),
        (["a", 1, "b", "a"], TypeError, r"labels: got values of type int, str, want integers or words"),
        ([b"a", b"b", b"a", b"b"], TypeError, r"labels: got values of type bytes, want integers or words"),
        (["a", "b", "a"], ValueError, r"labels: got shape \(3,\), want one label per node: \[4\]"),
        (np.ma.masked_equal([0, 1, 2, 1], 2), ValueError, r"labels: got 1 masked entries, want none: labels.filled.*"),
        ([["a", "b"]] * 4, ValueError, r"labels: got shape \(4, 2\), want one label per node: \[4\]"),
    ],
)
def test_wrong_labels(labels, error, message):
    with pytest.raises(error) as caught:
        Graph(TRIANGLE, labels=labels)
    assert type(caught.value) is error
    caught.match(f"^{message}$")


def test_labels_that_are_words():
    """Words become numbers in their sorted order, and the graph keeps them; an empty one is unknown."""
    words = ["rain", "ice", None, "rain"]
    missing = [np.array(words, object), ["rain", "ice", float("nan"), "rain"], ["rain", "ice", "", "rain"]]
    for given in (words, *missing, np.array(words, object)[:, None]):
        graph = Graph(TRIANGLE, labels=given)
        assert graph.labels.tolist() == [1, 0, -1, 1]
        assert graph.classes == ("ice", "rain")
    for given in (list("abca"), np.array(list("abca")), np.array(list("abca"), object)):
        graph = Graph(TRIANGLE, labels=given)
        assert graph.labels.tolist() == [0, 1, 2, 0]
        assert graph.classes == ("a", "b", "c")
        assert {type(name) for name in graph.classes} == {str}
    assert Graph(TRIANGLE, labels=[1, 0, 1, 0]).classes is None
    assert Graph(TRIANGLE).classes is None


@pytest.mark.parametrize(
    "labels",
    [[2.0, np.nan, 1.0, 0.0], [2, None, 1, 0], np.array([2, None, 1, 0], object), torch.tensor([2, np.nan, 1, 0])],
    ids=["list with NaN", "list with None", "objects", "tensor"],
)
def test_labels_that_are_missing_are_unknown(labels):
    assert Graph(TRIANGLE, labels=labels).labels.tolist() == [2, -1, 1, 0]


@pytest.mark.parametrize("kind", [bool, int, float])
def test_labels_of_several_classes_are_refused(kind):
    several = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 1], [0, 0, 0]]).astype(kind)
    for given in (several, torch.tensor(several), several.tolist()):
        with pytest.raises(
            ValueError, match=r"labels: got several classes for node 1 \(columns 1 and 2\), want one cl"
        ):
            Graph(TRIANGLE, labels=given)
    unknown = np.where(np.arange(4)[:, None] == 1, np.nan, np.eye(4))
    assert Graph(TRIANGLE, labels=unknown).labels.tolist() == [0, -1, 2, 3]
    unknown[2, 0] = np.nan
    with pytest.raises(ValueError, match=r"^labels: got NaN among the scores of node 2, want finite scores"):
        Graph(TRIANGLE, labels=unknown)


@pytest.mark.parametrize(
    "nodes",
    [[7, -3, 2**62, 0], ["a", "é", "漢", "a b"], np.array([3, 2, 1, 0], np.uint8), torch.arange(4), range(4)],
    ids=["ints", "words", "uint8", "tensor", "range"],
)
def test_names_of_nodes(nodes):
    """Each copy of a graph keeps the names of its nodes and of its classes."""
    graph = Graph(TRIANGLE, labels=list("abca"), nodes=nodes)
    copies = [graph, graph.with_edges(graph.edges()[:1]), graph.with_features(np.eye(4)), graph.to(dtype=torch.float64)]
    copies += [pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)]
    for each in copies:
        assert each.nodes.tolist() == list(nodes)
        assert each.nodes.dtype == (object if isinstance(nodes[0], str) else np.int64)
        assert each.classes == ("a", "b", "c")
    assert Graph(TRIANGLE).nodes is None


def test_an_index_in_another_order_is_refused():
    """Rows are taken by their place. An index of other labels, or the one that pandas gives, says nothing of it."""
    pandas = pytest.importorskip("pandas")
    nodes = [2, 0, 1, 3]
    square = pandas.DataFrame(TRIANGLE, nodes, nodes)
    features = pandas.DataFrame({"age": [1.0, 2.0, 3.0, 4.0]}, index=[0, 1, 2, 3][::-1])
    labels = pandas.Series([0, 1, 2, 3], index=features.index)
    graph = Graph(square, features.loc[nodes], labels.loc[nodes], nodes=nodes)
    assert graph.labels.tolist() == [1, 3, 2, 0]
    assert torch.equal(graph.with_features(features.loc[nodes]).features.to_dense(), graph.features.to_dense())
    for other in (features.reset_index(drop=True), features.set_axis(["a", "b", "c", "d"])):
        assert Graph(square, other, nodes=nodes).feature_names.tolist() == ["age"]
    network = networkx.Graph()
    network.add_nodes_from(nodes)
    for name, loc, call in (
        ("features", "names", lambda: Graph(square, features, nodes=nodes)),
        ("labels", "names", lambda: Graph(square, None, labels, nodes=nodes)),
        ("adjacency", "names, names", lambda: Graph(square, nodes=nodes[::-1])),
        ("features", "names", lambda: graph.with_features(features)),
        ("features", "names", lambda: Graph.from_networkx(network, features)),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: got an index with the names .*, want {name}\.loc\[{loc}\]"):
            call()
    for other in (square[nodes[::-1]], square.loc[nodes[::-1]], pandas.DataFrame(TRIANGLE)[nodes]):
        with pytest.raises(ValueError, match=r"^adjacency: got rows and .* adjacency\.loc\[adjacency\.columns\], or"):
            Graph(other)
    counted = features.reset_index(drop=True)
    for other in (counted.iloc[::-1], counted.sort_values("age", ascending=False)):
        with pytest.raises(ValueError, match=r"^features: got an index with the names of the nodes in another order"):
            Graph(TRIANGLE, other, nodes=range(4))
    for index in ([0, 1, 2, 3], pandas.Index([2, pandas.NA, 1, 3])):
        graph = Graph(square, features.set_axis(index), nodes=nodes)
        assert graph.features.to_dense().flatten().tolist() == [1, 2, 3, 4]


def test_integers_among_objects_are_integers():
    """As in a column of a data frame that once had gaps."""
    for names in ([np.int64(7), np.int32(3), 5, np.uint8(1)], [np.uint64(2**63 - 1), -(2**63), 0, 1]):
        graph = Graph(TRIANGLE, nodes=np.array(names, object))
        assert (graph.nodes.dtype, graph.nodes.tolist()) == (np.int64, list(map(int, names)))
    with pytest.raises(TypeError, match="nodes: got values of type bool, int"):
        Graph(TRIANGLE, nodes=np.array([np.int64(7), np.int64(3), 5, True], object))
    with pytest.raises(ValueError, match="nodes: got the number 9223372036854775808, want numbers of 64 bits"):
        Graph(TRIANGLE, nodes=np.array([np.uint64(2**63), 3, 5, 1], object))


def test_changing_names_does_not_change_a_graph():
    for nodes in (np.arange(4), np.array(list("abcd"), object)):
        graph, before = Graph(TRIANGLE, nodes=nodes), nodes.tolist()
        nodes[0] = nodes[1]
        assert graph.nodes.tolist() == before


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        ([0, 1, 2], ValueError, r"nodes: got shape \(3,\), want one name per node: \[4\]"),
        ("abcd", ValueError, r"nodes: got shape \(\), want one name per node: \[4\]"),
        ([[1], [2], [3], [4]], ValueError, r"nodes: got shape \(4, 1\), want one name per node: \[4\]"),
        ([0, 1, 2, 1], ValueError, "nodes: got the name 1 twice, want different names"),
        (list("abcb"), ValueError, "nodes: got the name 'b' twice, want different names"),
        (["a", "b", "c", 4], TypeError, "nodes: got values of type int, str, want names that are all .* all strings"),
        (["a", "b", "c", None], TypeError, "nodes: got values of type NoneType, str, want names that are all .*"),
        ([0.0, 1.0, 2.0, 3.0], TypeError, "nodes: got values of type float64, want names that are all integers .*"),
        ([True, False, True, False], TypeError, "nodes: got values of type bool, want names that are all integers .*"),
        (np.array([2**63, 0, 1, 2], np.uint64), ValueError, "nodes: got the number 9223372036854775808, want .*"),
        ([2**70, 0, 1, 2], ValueError, f"nodes: got the number {2**70}, want numbers of 64 bits"),
        (["a", "", "b", "c"], ValueError, "nodes: got '' as the name of node 1, want names that are not empty"),
    ],
)
def test_wrong_names_of_nodes(nodes, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        Graph(TRIANGLE, nodes=nodes)


def test_masks():
    given = {"train": [True, False, False, True], "test": np.zeros(4, bool), "extra": torch.ones(4).bool()}
    graph = Graph(TRIANGLE, masks=given)
    assert {name: mask.tolist() for name, mask in graph.masks.items()} == {
        "train": [True, False, False, True],
        "test": [False] * 4,
        "extra": [True] * 4,
    }


def test_masks_that_run_backwards_or_are_read_only():
    backwards = np.array([True, False, False, False])[::-1]
    read_only = np.array([True, False, True, False])
    read_only.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = Graph(TRIANGLE, masks={"backwards": backwards, "read-only": read_only})
    assert graph.masks["backwards"].tolist() == [False, False, False, True]
    graph.masks["read-only"][0] = False
    assert read_only.tolist() == [True, False, True, False], "the array itself was changed"


@pytest.mark.parametrize(
    ("mask", "got"),
    [
        ([True, False], r"bool \(2,\)"),
        ([0, 1, 0, 1], r"int64 \(4,\)"),
        (torch.ones(4), r"torch.float32 \(4,\)"),
        (np.ones((4, 1), bool), r"bool \(4, 1\)"),
        (np.ones(4, ">i4"), r">i4 \(4,\)"),
        (np.ones(4, np.longdouble), r"(float128|longdouble|float64) \(4,\)"),
        (["yes", "no", "yes", "no"], r"<U3 \(4,\)"),
    ],
)
def test_wrong_masks(mask, got):
    with pytest.raises(ValueError, match=rf"^masks\['train'\]: got {got}, want torch.bool \(4,\)$"):
        Graph(TRIANGLE, masks={"train": mask})
