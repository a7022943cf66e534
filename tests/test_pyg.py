"""Graphs from PyTorch Geometric.

The first line of each test's docstring is a row of the table in docs/pytorch.md: what somebody has: what happens.
"""

import copy
import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from pyg_data import EDGES, QUICK, hetero, ring
from torch_geometric.data import Batch, Data, InMemoryDataset, TemporalData
from torch_geometric.edge_index import EdgeIndex
from torch_geometric.transforms import RandomLinkSplit

from seegera_fast import Graph
from seegera_fast.tasks import embed, node_classification

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
pytestmark = pytest.mark.usefixtures("strict")


class SparseTensor:
    """What a matrix of torch_sparse offers."""

    def __init__(self, rowptr, col, value, sizes):
        self.parts, self.sizes = (rowptr, col, value), sizes

    def csr(self):
        return self.parts

    def sparse_sizes(self):
        return self.sizes


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
    """isolated nodes, and no `data.num_nodes`: `x`, `y`, masks or a matrix count them; a `y` per edge does not"""
    assert Graph.from_pyg(Data(edge_index=PATH, x=torch.ones(5, 2))).num_nodes == 5
    assert Graph.from_pyg(Data(edge_index=PATH, y=torch.zeros(6).long())).num_nodes == 6
    assert Graph.from_pyg(Data(edge_index=PATH, train_mask=torch.ones(7).bool())).num_nodes == 7
    assert Graph.from_pyg(Data(edge_index=PATH)).num_nodes == 3
    with pytest.warns(UserWarning, match=r"data.y has shape \(4,\), which is not a label for each of 3 nodes"):
        assert Graph.from_pyg(Data(edge_index=PATH, y=torch.zeros(PATH.shape[1]).long())).num_nodes == 3
    assert Graph.from_pyg(Data(edge_index=PATH, num_nodes=8)).num_nodes == 8
    assert Graph.from_pyg(Data(edge_index=PATH, node_index=torch.arange(9))).num_nodes == 9
    with pytest.raises(ValueError, match="edge_index: got node 2, want numbers from 0 to 1"):
        Graph.from_pyg(Data(edge_index=PATH, x=torch.ones(2, 2)))


def test_data_in_several_threads():
    """`Graph.from_pyg` in several threads: what the process warns of stays as it was"""
    begun, entered, ended = threading.Event(), threading.Event(), threading.Event()

    class First(Data):
        @property
        def num_nodes(self):
            begun.set()
            # Longer than the other thread takes, if nothing keeps it from going on.
            entered.wait(0.5)
            return Data.num_nodes.fget(self)

    class Second(Data):
        @property
        def num_nodes(self):
            entered.set()
            ended.wait(10)
            return Data.num_nodes.fget(self)

    def first():
        Graph.from_pyg(First(edge_index=PATH))
        ended.set()

    def second():
        begun.wait(10)
        Graph.from_pyg(Second(edge_index=PATH))

    filters, shown = [*warnings.filters], warnings.showwarning
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(first), pool.submit(second)]:
            done.result()
    assert warnings.filters == filters
    assert warnings.showwarning is shown


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
