"""Graphs from PyTorch Geometric and networkx, and splits of links.

The first line of each test's docstring is a row of the table in docs/pytorch.md: what somebody has: what happens.
"""

import copy
import pickle
import warnings

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset, TemporalData
from torch_geometric.edge_index import EdgeIndex
from torch_geometric.transforms import RandomLinkSplit

import seegera_fast as sf
from seegera_fast import Graph
from seegera_fast.tasks import LinkSplit, embed, link_prediction, node_classification, split_links

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
EDGES = [[0, 1], [1, 2]]
QUICK = {"epochs": 1, "embedding_dim": 2, "hidden_dim": 3, "progress": False}


@pytest.fixture(autouse=True)
def quiet():
    """A warning that is not expected is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Sparse (CSR|CSC) tensor support is in beta")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        # The graphs here are small, and many of them fall into parts.
        warnings.filterwarnings("ignore", message="the probabilities are not calibrated")
        warnings.filterwarnings("ignore", message="sides: the graph falls into")
        yield


class SparseTensor:
    """What a matrix of torch_sparse offers."""

    def __init__(self, rowptr, col, value, sizes):
        self.parts, self.sizes = (rowptr, col, value), sizes

    def csr(self):
        return self.parts

    def sparse_sizes(self):
        return self.sizes


def ring(nodes, **attributes):
    index = torch.arange(nodes)
    edges = torch.stack([index, (index + 1) % nodes])
    return Data(edge_index=torch.cat([edges, edges.flip(0)], dim=1), num_nodes=nodes, **attributes)


def matrix(*weights):
    """The path of three nodes with these weights of its two edges."""
    first, second = weights or (1.0, 1.0)
    return torch.tensor([[0.0, first, 0.0], [first, 0.0, second], [0.0, second, 0.0]])


def torch_sparse(dense):
    csr = dense.to_sparse_csr()
    return SparseTensor(csr.crow_indices(), csr.col_indices(), csr.values(), tuple(dense.shape))


KINDS = {
    "coo": torch.Tensor.to_sparse_coo,
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
    "torch_sparse": torch_sparse,
    "SciPy": lambda dense: scipy.sparse.csr_array(dense.numpy()),
}


# --- edges and weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_adj_t(kind):
    """`data.adj_t`, a matrix of torch or of torch_sparse: its edges, with `weighted=True` its values as weights"""
    for name in ("adj_t", "edge_index"):
        graph = Graph.from_pyg(Data(**{name: kind(matrix())}))
        assert graph.edges().tolist() == EDGES
        assert graph.num_nodes == 3
        weighted = Graph.from_pyg(Data(**{name: kind(matrix(2.0, 5.0))}), weighted=True)
        assert weighted.weights.tolist() == [2, 2, 5, 5]
    with pytest.warns(UserWarning, match="got edge weights other than 1, which are ignored"):
        Graph.from_pyg(Data(adj_t=kind(matrix(2.0, 5.0))))
    with pytest.raises(ValueError, match=r"^data.adj_t: got shape 2 x 3, want a square matrix$"):
        Graph.from_pyg(Data(adj_t=kind(matrix()[:2])))
    assert Graph.from_pyg(Data(adj=matrix())).edges().tolist() == EDGES


def test_sparse_tensor_without_values_and_damaged():
    """a matrix of torch_sparse: without values all weights are 1; damaged pointers are refused"""
    rowptr, col = torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1])
    graph = Graph.from_pyg(Data(adj_t=SparseTensor(rowptr, col, None, (3, 3))), weighted=True)
    assert graph.weights.tolist() == [1, 1, 1, 1]
    for wrong in (SparseTensor(rowptr + 1, col, None, (3, 3)), SparseTensor(rowptr, col + 5, None, (3, 3))):
        with pytest.raises(ValueError, match=r"^data.adj_t: got ind"):
            Graph.from_pyg(Data(adj_t=wrong))
    features = Graph.from_pyg(Data(edge_index=PATH, x=torch_sparse(2 * torch.eye(3)), num_nodes=3)).features
    assert features.to_dense().tolist() == (2 * torch.eye(3)).tolist()


def test_edge_index_class():
    """`torch_geometric.EdgeIndex`: its edges, and the number of nodes that it knows"""
    for number in (3, 5):
        index = EdgeIndex(PATH, sparse_size=(number, number), sort_order="row", is_undirected=True)
        graph = Graph.from_pyg(Data(edge_index=index))
        assert graph.edges().tolist() == EDGES
        assert graph.num_nodes == number
    with pytest.raises(ValueError, match=r"^data.edge_index: got a matrix of 3 x 4, want as many rows as columns"):
        Graph.from_pyg(Data(edge_index=EdgeIndex(PATH, sparse_size=(3, 4))))


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_edge_attr(shape):
    """`data.edge_attr` with `weighted=True`: one column holds the weights; several are refused"""
    data = Data(edge_index=PATH, edge_attr=torch.tensor([2.0, 2.0, 5.0, 5.0]).reshape(shape), num_nodes=3)
    assert Graph.from_pyg(data, weighted=True).weights.tolist() == [2, 2, 5, 5]
    assert Graph.from_pyg(data).weights is None
    data.edge_weight = torch.tensor([3.0, 3.0, 4.0, 4.0])
    assert Graph.from_pyg(data, weighted=True).weights.tolist() == [3, 3, 4, 4]
    several = Data(edge_index=PATH, edge_attr=torch.ones(4, 2), num_nodes=3)
    assert Graph.from_pyg(several).num_edges == 2
    with pytest.raises(
        ValueError, match=r"^data.edge_attr: got shape \(4, 2\), want one weight per edge: set data.edg"
    ):
        Graph.from_pyg(several, weighted=True)
    with pytest.raises(ValueError, match=r"^data.edge_attr: got a negative weight \(-1.0\)"):
        Graph.from_pyg(Data(edge_index=PATH, edge_attr=-torch.ones(4), num_nodes=3), weighted=True)


def test_directed_data():
    """directed edges: made undirected, with a warning"""
    with pytest.warns(UserWarning, match="got a directed graph, which is made undirected"):
        assert Graph.from_pyg(Data(edge_index=PATH[:, ::2], num_nodes=3)).edges().tolist() == EDGES


DOORS = {
    "SciPy": lambda weighted, folder: Graph(zeros(), weighted=weighted),
    "torch coo": lambda weighted, folder: Graph(torch_zeros(), weighted=weighted),
    "torch csr": lambda weighted, folder: Graph(torch_zeros().coalesce().to_sparse_csr(), weighted=weighted),
    "edge_index": lambda weighted, folder: Graph.from_edge_index(
        PATH, num_nodes=3, edge_weight=[1.0, 1.0, 0.0, 0.0], weighted=weighted
    ),
    "edge_weight": lambda weighted, folder: Graph.from_pyg(
        Data(edge_index=PATH, edge_weight=torch.tensor([1.0, 1, 0, 0]), num_nodes=3), weighted=weighted
    ),
    "adj_t": lambda weighted, folder: Graph.from_pyg(Data(adj_t=torch_zeros()), weighted=weighted),
    "networkx": lambda weighted, folder: Graph.from_networkx(
        networkx.Graph([(0, 1, {"weight": 1}), (1, 2, {"weight": 0})]), weighted=weighted
    ),
    "text": lambda weighted, folder: files(weighted, folder, "edges.txt"),
    "npz": lambda weighted, folder: files(weighted, folder, "edges.npz"),
}


def files(weighted, folder, name):
    """The same graph from files."""
    if name.endswith(".npz"):
        scipy.sparse.save_npz(folder / name, zeros().tocsr())
    else:
        (folder / name).write_text("0 1 1\n1 2 0\n")
    return Graph.from_table(folder / name, weighted=weighted)


def zeros():
    return scipy.sparse.coo_matrix((np.array([1.0, 1.0, 0.0, 0.0]), PATH.numpy()), shape=(3, 3))


def torch_zeros():
    return torch.sparse_coo_tensor(PATH, torch.tensor([1.0, 1.0, 0.0, 0.0]), (3, 3))


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_edges_of_weight_zero(door, tmp_path):
    """an edge of weight 0, also from a file: an edge; with `weighted=True` it vanishes; a warning says so"""
    with pytest.warns(
        UserWarning, match="stored entries of weight 0, which count as edges: 2; weighted=True"
    ) as caught:
        assert door(False, tmp_path).edges().tolist() == EDGES
    assert [each.filename for each in caught if "weight" in str(each.message)] == [__file__]
    with pytest.warns(UserWarning, match=r"edges of weight 0 \(in torch.float32\), which vanish .*: 1; want") as caught:
        assert door(True, tmp_path).edges().tolist() == EDGES[:1]
    assert [each.filename for each in caught if "weight" in str(each.message)] == [__file__]


# --- nodes and features ----------------------------------------------------------------------------------------------


def test_isolated_nodes():
    """isolated nodes, and no `data.num_nodes`: `x`, `y`, the masks or a matrix count the nodes"""
    assert Graph.from_pyg(Data(edge_index=PATH, x=torch.ones(5, 2))).num_nodes == 5
    assert Graph.from_pyg(Data(edge_index=PATH, y=torch.zeros(6).long())).num_nodes == 6
    assert Graph.from_pyg(Data(edge_index=PATH, train_mask=torch.ones(7).bool())).num_nodes == 7
    assert Graph.from_pyg(Data(edge_index=PATH)).num_nodes == 3
    assert Graph.from_pyg(Data(edge_index=PATH, num_nodes=8)).num_nodes == 8
    assert Graph.from_pyg(Data(edge_index=PATH, node_index=torch.arange(9))).num_nodes == 9
    with pytest.raises(ValueError, match="edge_index: got node 2, want numbers from 0 to 1"):
        Graph.from_pyg(Data(edge_index=PATH, x=torch.ones(2, 2)))


def test_features():
    """`data.x`: may be sparse, a column, or absent: the identity; `features="pos"` takes another attribute"""
    assert Graph.from_pyg(ring(4)).features.to_dense().tolist() == torch.eye(4).tolist()
    values = torch.tensor([1.0, 0.0, 2.0, 3.0])
    assert Graph.from_pyg(ring(4, x=torch.diag(values).to_sparse())).features.nnz == 3
    assert Graph.from_pyg(ring(4, x=values)).features.to_dense().tolist() == values[:, None].tolist()
    data = ring(4, x=torch.ones(4, 2), pos=torch.zeros(4, 3))
    assert Graph.from_pyg(data, features="pos").num_features == 3
    assert Graph.from_pyg(data, features=None).num_features == 4
    assert Graph.from_pyg(data, features=torch.ones(4, 5)).num_features == 5
    with pytest.raises(ValueError, match=r"^features: data has no attribute 'z'"):
        Graph.from_pyg(data, features="z")


# --- labels and masks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "reason"),
    [
        (torch.rand(8), r"data.y holds real numbers \(torch.float32\)"),
        (torch.rand(8, 1), r"data.y holds real numbers \(torch.float32\)"),
        (torch.rand(8, 3), r"data.y holds real numbers \(torch.float32\)"),
        (torch.full((8,), torch.inf), r"data.y holds real numbers \(torch.float32\)"),
        (torch.tensor([3]), r"data.y has shape \(1,\), which is not a label for each of 8 nodes"),
        (torch.rand(1, 19), r"data.y has shape \(1, 19\), which is not a label for each of 8 nodes"),
        (torch.tensor(2.5), r"data.y has shape \(\), which is not a label for each of 8 nodes"),
    ],
    ids=["real", "column", "columns", "infinite", "of the graph", "targets of the graph", "scalar"],
)
def test_labels_that_are_no_classes(y, reason):
    """`data.y` of real numbers, or of the whole graph: no labels, with a warning; node classification says why"""
    with pytest.warns(UserWarning, match=rf"^data: {reason}.*, so that the graph has no labels; labels=None") as caught:
        graph = Graph.from_pyg(ring(8, x=torch.eye(8), y=y))
    assert [warning.filename for warning in caught] == [__file__]
    assert graph.labels is None
    assert embed(graph, **QUICK).epochs == 1
    for each in (graph, graph.with_edges(graph.edges()), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        with pytest.raises(ValueError, match=rf"^graph: has no labels \({reason}.*\), want a graph with labels="):
            node_classification(each, **QUICK)


def test_labels_with_gaps():
    """`data.y` with NaN: these nodes have no known label"""
    for y in (torch.tensor([1, torch.nan, 0, 1]), torch.tensor([[1], [torch.nan], [0], [1]])):
        assert Graph.from_pyg(ring(4, y=y)).labels.tolist() == [1, -1, 0, 1]
    assert Graph.from_pyg(ring(4)).labels is None
    with pytest.raises(ValueError, match=r"^graph: has no labels \(data has no y\), want a graph with labels="):
        node_classification(Graph.from_pyg(ring(4)), **QUICK)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
def test_several_classes(dtype):
    """multi-hot `data.y`, or several columns of integers: refused; one-hot rows are classes"""
    y = torch.eye(4)[[2, 0, 1, 3]].to(dtype)
    assert Graph.from_pyg(ring(4, y=y)).labels.tolist() == [2, 0, 1, 3]
    y[1, 2] = 1
    with pytest.raises(ValueError, match=r"^labels: got several classes for node 1 .*, or labels=None"):
        Graph.from_pyg(ring(4, y=y))
    with pytest.raises(ValueError, match=r"^labels: got several classes for node 1 .*"):
        Graph.from_edge_index(PATH, num_nodes=4, labels=y)
    assert Graph.from_pyg(ring(4, y=y), labels=None).labels is None
    with pytest.raises(ValueError, match=r"^data.y: got shape \(4, 2\) of integers, .*: labels=data.y\[:, 0\]"):
        Graph.from_pyg(ring(4, y=torch.tensor([[3, 1], [0, 5], [1, 1], [2, 0]])))


def test_other_labels():
    """`labels=`: None, a tensor or the name of another attribute replaces `data.y`"""
    data = ring(4, y=torch.rand(4), kind=torch.tensor([3, 1, 0, 1]))
    assert Graph.from_pyg(data, labels=None).labels is None
    assert Graph.from_pyg(data, labels="kind").labels.tolist() == [3, 1, 0, 1]
    assert Graph.from_pyg(data, labels=torch.tensor([1, 1, 0, 0])).labels.tolist() == [1, 1, 0, 0]
    assert Graph.from_pyg(data, labels=list("baab")).classes == ("a", "b")
    with pytest.raises(ValueError, match=r"^labels: data has no attribute 'z'"):
        Graph.from_pyg(data, labels="z")
    with pytest.raises(ValueError, match=r"^labels: got shape \(3,\), want one label per node: \[4\]"):
        Graph.from_pyg(data, labels=torch.tensor([1, 1, 0]))
    with pytest.raises(ValueError, match=r"^graph: has no labels \(labels=None\)"):
        node_classification(Graph.from_pyg(data, labels=None), **QUICK)


def test_masks_of_several_splits():
    """masks `[n, 10]`: `split=3` takes one, else they are left out, with a warning"""
    table = torch.rand(4, 10, generator=torch.Generator().manual_seed(0)) < 0.5
    whole = torch.tensor([True, False, False, True])
    data = ring(4, train_mask=table, val_mask=~table, test_mask=whole)
    for split in (0, 3, np.int64(9)):
        masks = Graph.from_pyg(data, split=split).masks
        want = {"train": table[:, split], "valid": ~table[:, split], "test": whole}
        assert {name: mask.tolist() for name, mask in masks.items()} == {k: v.tolist() for k, v in want.items()}
    with pytest.warns(UserWarning, match=r"^data: train_mask, val_mask hold 10 splits .*; split=0 to 9 chooses one"):
        assert list(Graph.from_pyg(data).masks) == ["test"]
    for split, error, message in [
        (10, ValueError, "split: got 10, want 0 to 9"),
        (-1, ValueError, "split: got -1, want 0 to 9"),
        ("3", TypeError, "split: got '3', want an int"),
    ]:
        with pytest.raises(error, match=f"^{message}"):
            Graph.from_pyg(data, split=split)
    with pytest.raises(ValueError, match=r"^split: got 3, want None where masks are given"):
        Graph.from_pyg(data, split=3, masks={})
    with pytest.raises(ValueError, match=r"^split: got 3, want None: data has no masks of several splits"):
        Graph.from_pyg(ring(4, train_mask=whole), split=3)
    column = Graph.from_pyg(ring(4, train_mask=whole[:, None]))
    assert column.masks["train"].tolist() == whole.tolist()


# --- what is not one graph -------------------------------------------------------------------------------------------


class DataSet(InMemoryDataset):
    def __init__(self):
        super().__init__()
        self.data, self.slices = self.collate([ring(4, x=torch.eye(4))])


def hetero():
    data = HeteroData()
    data["user"].x = torch.ones(2, 2)
    data["user", "knows", "user"].edge_index = torch.tensor([[0], [1]])
    return data


OTHERS = {
    "HeteroData": (hetero, TypeError, r"data: got HeteroData, want .*: data.to_homogeneous\(\)"),
    "TemporalData": (
        lambda: TemporalData(src=torch.tensor([0]), dst=torch.tensor([1]), t=torch.tensor([5])),
        TypeError,
        r"data: got TemporalData, want .*: Data\(edge_index=torch.stack\(\[data.src, data.dst\]\)",
    ),
    "list": (lambda: [ring(3), ring(4)], TypeError, r"data: got a list of 2, want .*: Batch.from_data_list\(data\)"),
    "split": (
        lambda: RandomLinkSplit(is_undirected=True)(ring(30)),
        TypeError,
        r"data: got a tuple of 3, .* of a link split, seegera_fast.tasks.LinkSplit.from_pyg\(\*data\)",
    ),
    "part of a split": (
        lambda: RandomLinkSplit(is_undirected=True)(ring(30))[0],
        ValueError,
        r"data: has edge_label_index, .*: seegera_fast.tasks.LinkSplit.from_pyg\(train, valid, test\)",
    ),
    "part of a split in two": (
        lambda: RandomLinkSplit(is_undirected=True, split_labels=True)(ring(30))[0],
        ValueError,
        r"data: has pos_edge_label_index, .*: seegera_fast.tasks.LinkSplit.from_pyg\(train, valid, test\)",
    ),
    "data set": (DataSet, TypeError, r"data: got DataSet, a data set of 1 graphs, want .*: data\[0\]"),
    "points": (lambda: Data(pos=torch.ones(3, 2)), ValueError, "data: has neither edge_index nor adj_t"),
    "networkx": (lambda: networkx.path_graph(3), TypeError, "data: got Graph, want a torch_geometric.data.Data"),
    "truth": (
        lambda: Data(edge_index=torch.ones(2, 4).bool(), num_nodes=2),
        TypeError,
        "edge_index: got values of type bool, want integers",
    ),
}


@pytest.mark.parametrize(("make", "error", "message"), OTHERS.values(), ids=OTHERS)
def test_what_is_not_one_graph(make, error, message):
    """`HeteroData`, `TemporalData`, a list, a data set, a part of a split: refused; the message says what to use"""
    data = make()
    with pytest.raises(error, match=f"^{message}"):
        Graph.from_pyg(data)


def test_homogeneous_and_batch():
    """`data.to_homogeneous()` and a `Batch`: one graph"""
    with pytest.warns(UserWarning, match="got a directed graph"):
        assert Graph.from_pyg(hetero().to_homogeneous()).edges().tolist() == [[0, 1]]
    batch = Batch.from_data_list([ring(3, x=torch.eye(3)), ring(4, x=torch.ones(4, 3))])
    graph = Graph.from_pyg(batch)
    assert (graph.num_nodes, graph.num_edges) == (7, 7)


# --- networkx --------------------------------------------------------------------------------------------------------


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
    assert Graph.from_networkx(g, "age").features.to_dense().tolist() == [[0.5], [1.5], [2.5]]
    assert Graph.from_networkx(g, "vector").num_features == 2
    for arguments, message in [
        ({"labels": "several"}, "labels: got several classes for node 1"),
        ({"features": "ragged"}, "features: got rows of different lengths"),
        ({"labels": "ragged"}, "labels: got list"),
        ({"labels": "town"}, "labels: node 0 has no attribute 'town'"),
    ]:
        with pytest.raises(ValueError, match=f"^{message}"):
            Graph.from_networkx(g, **arguments)


# --- splits of links -------------------------------------------------------------------------------------------------


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
    disjoint = RandomLinkSplit(is_undirected=True, disjoint_train_ratio=0.5)(ring(40))
    with pytest.raises(ValueError, match=r"^train: has pairs in edge_label_index .*, want disjoint_train_ratio=0"):
        LinkSplit.from_pyg(*disjoint)
    with pytest.raises(ValueError, match=r"^valid: has no edge_label_index, want a part from RandomLinkSplit"):
        LinkSplit.from_pyg(disjoint[0], ring(40), disjoint[2])
    with pytest.raises(TypeError, match=r"^test: data: got HeteroData"):
        LinkSplit.from_pyg(*disjoint[:2], hetero())


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
