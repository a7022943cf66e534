"""Graph: every way in."""

from decimal import Decimal

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from matrices import BETA, DENSE, TRIANGLE, WRITERS, assert_well_formed, undirected
from tolerances import assert_same_bits
from torch_geometric.data import Data

from seegera_fast import Graph

pytestmark = BETA


@pytest.mark.parametrize("writer", WRITERS)
def test_every_kind_of_adjacency(writer, quiet):
    graph = Graph(WRITERS[writer](TRIANGLE))
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (4, 3, 4)
    assert_well_formed(graph.adjacency)
    assert graph.adjacency.symmetric
    assert graph.adjacency.to_dense().tolist() == TRIANGLE.tolist()
    assert graph.edges().tolist() == [[0, 1], [0, 2], [1, 2]]
    assert graph.features.to_dense().tolist() == np.eye(4).tolist()
    assert graph.labels is None
    assert graph.masks == {}
    assert graph.dtype == torch.float32
    assert graph.device == torch.device("cpu")


@pytest.mark.parametrize("writer", WRITERS)
def test_every_kind_of_features(writer, quiet):
    graph = Graph(undirected((0, 1), n=3), WRITERS[writer](DENSE))
    assert_same_bits(graph.features.to_dense(), torch.tensor(DENSE).float())


FRAMES = {
    "pandas": lambda columns: pytest.importorskip("pandas").DataFrame(columns, index=list("xyz")),
    "pandas with a named index": lambda columns: (
        pytest.importorskip("pandas").DataFrame(columns, index=[7, 8, 9]).rename_axis("id")
    ),
    "pandas, nullable": lambda columns: pytest.importorskip("pandas").DataFrame(columns).convert_dtypes(),
    "pandas, sparse": lambda columns: (
        pytest.importorskip("pandas")
        .DataFrame({name: np.array(column, float) for name, column in columns.items()})
        .astype(pytest.importorskip("pandas").SparseDtype(float, 0))
    ),
    "polars": lambda columns: pytest.importorskip("polars").DataFrame(columns),
    "pyarrow": lambda columns: pytest.importorskip("pyarrow").table(columns),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_data_frame(kind, quiet):
    frame = FRAMES[kind]({"age": [1, 0, 3], "grown": [True, False, True], "size": [0.5, 0.0, 2.0]})
    graph = Graph(FRAMES[kind]({"a": [0, 1, 0], "b": [1, 0, 1], "c": [0, 1, 0]}), frame)
    assert graph.edges().tolist() == [[0, 1], [1, 2]]
    assert graph.features.to_dense().tolist() == [[1, 1, 0.5], [0, 0, 0], [3, 1, 2]]
    assert graph.feature_names.tolist() == ["age", "grown", "size"]
    assert Graph(np.eye(3), frame, feature_names=["x", "y", "z"]).feature_names.tolist() == ["x", "y", "z"]
    assert Graph(np.eye(3)).with_features(frame).feature_names.tolist() == ["age", "grown", "size"]
    assert Graph.from_edge_index([[0, 1], [1, 0]], frame).num_nodes == 3


def test_names_of_the_columns_of_a_data_frame(quiet):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    square = np.eye(2)
    assert Graph(square, pandas.DataFrame(square)).feature_names is None
    several = pandas.MultiIndex.from_tuples([("a", "b"), ("a", "c")])
    assert Graph(square, pandas.DataFrame(square, columns=several)).feature_names is None
    column = pyarrow.array([1.0, 2.0])
    for twice in (pandas.DataFrame(square, columns=["a", "a"]), pyarrow.table([column, column], names=["a", "a"])):
        graph = Graph(square, twice)
        assert graph.feature_names is None
        assert graph.num_features == 2
    own = pandas.DataFrame({name: [k, k] for k, name in enumerate(["column_names", "columns", "iloc", "_to_scipy"])})
    assert Graph(square, own).features.to_dense().tolist() == [[0, 1, 2, 3]] * 2
    assert Graph(square, own).feature_names.tolist() == list(own.columns)


def test_what_stands_for_a_number_in_a_data_frame(quiet):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    sparse, decimal = pandas.arrays.SparseArray, polars.DataFrame({"a": [Decimal("0"), Decimal("1")]})
    for frame in (
        pandas.DataFrame({"a": [np.bool_(False), 1.0]}, dtype=object),
        pandas.DataFrame({"a": pandas.Categorical([0, 1])}),
        pandas.DataFrame({"a": sparse([0.0, 1.0], fill_value=1.0)}),
        pandas.DataFrame({"a": sparse([0, 1], fill_value=pandas.NA)}),
        decimal,
        decimal.to_arrow().to_batches()[0],
    ):
        assert Graph(np.eye(2), frame).features.to_dense().tolist() == [[0], [1]]
    frame = pandas.DataFrame({"a": sparse([False, True]), "b": sparse([2, 0])})
    assert Graph(np.eye(2), frame).features.to_dense().tolist() == [[0, 2], [1, 0]]


@pytest.mark.parametrize(
    ("column", "got"),
    [
        (["red", "blue"], r"with 'red' in it, want real numbers \(Graph.from_table makes features of words\)"),
        ([1.0, "2"], r"with '2' in it, want real numbers \(Graph.from_table makes features of words\)"),
        (np.array(["2020", "2021"], "datetime64[s]"), r"of type datetime64.*, want real numbers$"),
        (np.array([1j, 2], object), r"with complex in it, want real numbers$"),
        (np.array([np.complex128(1j), 2], object), r"with complex128 in it, want real numbers$"),
        (np.array([np.timedelta64(1, "s"), 2], object), r"with timedelta64 in it, want real numbers$"),
        ([[1, 2], [3, 4]], r"with list in it, want real numbers$"),
        ([1, 10**400], r"with an int of 1329 bits in it, want numbers that float64 holds$"),
    ],
)
def test_a_data_frame_without_numbers_is_refused(column, got):
    pandas = pytest.importorskip("pandas")
    with pytest.raises((TypeError, ValueError), match=rf"features: got a column 'kind' {got}"):
        Graph(np.eye(2), pandas.DataFrame({"size": [1, 2], "kind": column}))


def test_a_data_frame_with_missing_or_no_numbers_is_refused():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = (pandas.array([1, None], dtype="Int64"), [1.0, None], [True, None])
    frames = [pandas.DataFrame({"size": column}) for column in columns]
    for frame in (*frames, polars.DataFrame({"size": [1, None]})):
        with pytest.raises(ValueError, match=r"features: got 1 values .* nan at row 1, column 0"):
            Graph(np.eye(2), frame)
    with pytest.raises(ValueError, match="features: got no columns"):
        Graph(np.eye(2), pandas.DataFrame(index=[0, 1]))
    with pytest.raises(TypeError, match="features: got a column 'a' that NumPy does not take"):
        Graph(np.eye(2), polars.DataFrame({"a": [1, 2]}, schema={"a": polars.Int128}))
    for other in (pandas.Series([1, 2]), polars.DataFrame({"a": [1, 2]}).lazy()):
        with pytest.raises(TypeError, match=rf"features: got {type(other).__name__}, want .* or a data frame"):
            Graph(np.eye(2), other)


def test_an_edge_index(quiet):
    index = [[0, 1, 1, 2, 2, 2, 3, 0], [1, 0, 2, 1, 1, 2, 3, 1]]
    for given in (index, np.array(index), torch.tensor(index), torch.tensor(index, dtype=torch.int32), np.uint8(index)):
        graph = Graph.from_edge_index(given)
        assert graph.num_nodes == 4
        assert graph.edges().tolist() == [[0, 1], [1, 2]]


def test_the_number_of_nodes_of_an_edge_index():
    index = torch.tensor([[0, 1], [1, 0]])
    assert Graph.from_edge_index(index).num_nodes == 2
    assert Graph.from_edge_index(index, num_nodes=5).num_nodes == 5
    for features in (np.ones((4, 2)), scipy.sparse.eye(4), torch.ones(4, 2), np.ones((4, 2)).tolist()):
        assert Graph.from_edge_index(index, features).num_nodes == 4
    for empty in (torch.empty(2, 0), np.empty((2, 0)), [[], []]):
        graph = Graph.from_edge_index(empty, num_nodes=3)
        assert (graph.num_nodes, graph.num_edges) == (3, 0)


def test_edge_weights_of_an_edge_index():
    index = [[0, 1, 1, 2], [1, 0, 2, 1]]
    for weight in ([2.0, 2.0, 0.5, 0.5], torch.tensor([2.0, 2.0, 0.5, 0.5]), np.array([[2.0], [2.0], [0.5], [0.5]])):
        graph = Graph.from_edge_index(index, edge_weight=weight, weighted=True)
        assert graph.propagation.to_dense()[0, 1] > graph.propagation.to_dense()[1, 2]
        assert graph.adjacency.values.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"edge_index": [[0, 1]]}, ValueError, r"edge_index: got shape \(1, 2\), want \[2, number of edges\]"),
        ({"edge_index": [[0, 1], [1, 2], [2, 0]]}, ValueError, r"edge_index: got shape \(3, 2\), want .*"),
        ({"edge_index": [0, 1]}, ValueError, r"edge_index: got shape \(2,\), want .*"),
        ({"edge_index": [[0.0, 1.0], [1.0, 0.0]]}, TypeError, r"edge_index: got values of type float64, want integers"),
        ({"edge_index": [[True], [False]]}, TypeError, r"edge_index: got values of type bool, want integers"),
        ({"edge_index": [["a"], ["b"]]}, TypeError, r"edge_index: got values of type <U1, want integers"),
        (
            {"edge_index": [[0, -1], [1, 0]]},
            ValueError,
            r"edge_index: got node -1, want numbers from 0 to 1 \(num_nodes is 2\)",
        ),
        (
            {"edge_index": [[0, 10**8 + 1], [1, 0]]},
            ValueError,
            r"edge_index: got node 100000001 in 2 edges, want nodes that are numbered from 0 .*, or num_nodes",
        ),
        ({"edge_index": [[2**63 - 1], [0]]}, ValueError, r"edge_index: got node 9223372036854775807 in 1 edges, .*"),
        ({"edge_index": [[0], [1]], "num_nodes": 2**31}, ValueError, r"num_nodes: got 2147483648, want 1 to .*"),
        (
            {"edge_index": [[0], [1]], "edge_weight": [1j]},
            TypeError,
            r"edge_weight: got values of type complex128, want real numbers",
        ),
        (
            {"edge_index": [[0, 0], [1, 1]], "edge_weight": [-1, 2]},
            ValueError,
            r"edge_weight: got a negative weight \(-1.0\), want weights of 0 and above",
        ),
        (
            {"edge_index": [[0, 7], [1, 0]], "num_nodes": 3},
            ValueError,
            r"edge_index: got node 7, want numbers from 0 to 2 \(num_nodes is 3\)",
        ),
        (
            {"edge_index": [[0, 3], [1, 0]], "features": np.ones((3, 2))},
            ValueError,
            r"edge_index: got node 3, want numbers from 0 to 2 \(num_nodes is 3\)",
        ),
        (
            {"edge_index": [[0, 1], [1, 0]], "features": np.ones((3, 2)), "num_nodes": 2},
            ValueError,
            r"features: got 3 rows, want one per node: the graph has 2 nodes",
        ),
        ({"edge_index": [[], []]}, ValueError, r"edge_index: got a graph without nodes, want at least one"),
        (
            {"edge_index": [[0, 1], [1, 0]], "edge_weight": [1.0]},
            ValueError,
            r"edge_weight: got 1 weights, want one per edge: 2",
        ),
        (
            {"edge_index": [[0, 1], [1, 0]], "edge_weight": [1.0, np.nan]},
            ValueError,
            r"edge_weight: got NaN or infinity, want finite weights",
        ),
        (
            {"edge_index": [[0, 1], [1, 0]], "edge_weight": [[1.0], [2.0, 3.0]]},
            ValueError,
            r"edge_weight: got list, want an array of numbers .*",
        ),
        (
            {"edge_index": np.array([[2**63 + 5], [0]], dtype=np.uint64)},
            ValueError,
            r"edge_index: got node 9223372036854775813 in 1 edges, .*",
        ),
        (
            {"edge_index": [[0, 1], [1, 0]], "edge_weight": [-1.0, -1.0]},
            ValueError,
            r"edge_weight: got a negative weight \(-1.0\), want weights of 0 and above",
        ),
        ({"edge_index": [[0, 1], [1, 0]], "num_nodes": 2.5}, TypeError, r"num_nodes: got 2.5, want an int"),
        ({"edge_index": [[], []], "num_nodes": -1}, ValueError, r"num_nodes: got -1, want 1 to 2147483647"),
    ],
)
def test_a_wrong_edge_index(arguments, error, message):
    with pytest.raises(error) as caught:
        Graph.from_edge_index(**arguments)
    assert type(caught.value) is error
    caught.match(f"^{message}$")


def test_a_list_of_edges_may_have_one_direction_of_each(recwarn):
    for weighted in (False, True):
        graph = Graph.from_edge_index([[0, 2, 1], [1, 1, 1]], weighted=weighted)
        assert graph.edges().tolist() == [[0, 1], [1, 2]]
    weights = Graph.from_edge_index([[0, 2], [1, 1]], edge_weight=[2, 3], weighted=True).weights
    assert weights.tolist() == [2, 2, 3, 3]
    assert not recwarn
    for weighted in (False, True):
        with pytest.warns(UserWarning, match="^edge_index: got a directed graph"):
            Graph.from_edge_index([[0, 1, 1], [1, 0, 2]], weighted=weighted)


def test_warnings_name_the_argument():
    with pytest.warns(UserWarning, match="^edge_index: got edge weights other than 1"):
        Graph.from_edge_index([[0], [1]], edge_weight=[2])
    with pytest.warns(UserWarning, match="^edge_index: got edges of weight 0 "):
        Graph.from_edge_index([[0], [1]], edge_weight=[0], weighted=True)
    with pytest.warns(UserWarning, match="^edges: got edge weights other than 1"):
        Graph.from_table({"from": ["a"], "to": ["b"], "weight": [2]})


def test_a_pyg_data_set(quiet):
    mask = torch.tensor([True, False, False])
    data = Data(
        x=torch.eye(3),
        edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        y=torch.tensor([1, 0, 2]),
        train_mask=mask,
        val_mask=~mask,
    )
    graph = Graph.from_pyg(data, name="pyg")
    assert graph.edges().tolist() == [[0, 1], [1, 2]]
    assert graph.labels.tolist() == [1, 0, 2]
    assert {name: given.tolist() for name, given in graph.masks.items()} == {
        "train": [True, False, False],
        "valid": [False, True, True],
    }
    assert graph.name == "pyg"
    assert Graph.from_pyg(data, masks={}).masks == {}


def test_a_bare_pyg_data_set():
    data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=4)
    graph = Graph.from_pyg(data)
    assert graph.num_nodes == 4
    assert graph.features.to_dense().tolist() == np.eye(4).tolist()
    assert graph.labels is None
    assert graph.masks == {}


def test_pyg_weights_and_tables_of_masks():
    data = Data(
        x=torch.eye(2),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        edge_weight=torch.tensor([3.0, 3.0]),
        train_mask=torch.ones(2, 10, dtype=torch.bool),
    )
    graph = Graph.from_pyg(data, weighted=True, split=9)
    assert graph.propagation.to_dense().tolist() == torch.tensor([[0.25, 0.75], [0.75, 0.25]]).tolist()
    assert graph.masks["train"].tolist() == [True, True]
    with pytest.warns(UserWarning, match="^data: got edge weights .* weighted=True keeps them"):
        Graph.from_pyg(data)


def test_a_networkx_graph(quiet):
    g = networkx.Graph()
    g.add_nodes_from(["c", "a", "b"])
    g.add_edges_from([("a", "b"), ("c", "a"), ("b", "b")])
    graph = Graph.from_networkx(g, np.diag([1.0, 2.0, 3.0]), [0, 1, 1])
    assert graph.edges().tolist() == [[0, 1], [1, 2]]
    assert graph.features.to_dense().diagonal().tolist() == [1, 2, 3]
    assert graph.labels.tolist() == [0, 1, 1]
    assert Graph.from_networkx(g).num_features == 3


def test_networkx_attributes():
    g = networkx.path_graph(3)
    for node in g:
        g.nodes[node].update(vector=[node, 1.0], group=node % 2)
    graph = Graph.from_networkx(g, "vector", "group")
    assert graph.features.to_dense().tolist() == [[0, 1], [1, 1], [2, 1]]
    assert graph.labels.tolist() == [0, 1, 0]
    del g.nodes[1]["group"], g.nodes[2]["vector"]
    with pytest.raises(ValueError, match=r"^labels: node 1 has no attribute 'group'"):
        Graph.from_networkx(g, None, "group")
    with pytest.raises(ValueError, match=r"^features: node 2 has no attribute 'vector'"):
        Graph.from_networkx(g, "vector")


def test_networkx_kinds():
    directed = networkx.DiGraph([(0, 1), (1, 2)])
    with pytest.warns(UserWarning, match="^g: got a directed graph"):
        assert Graph.from_networkx(directed).num_edges == 2
    weighted = networkx.Graph()
    weighted.add_edge(0, 1, weight=4.0)
    with pytest.warns(UserWarning, match="^g: got edge weights .* weighted=True keeps them"):
        assert Graph.from_networkx(weighted).num_edges == 1
    assert Graph.from_networkx(weighted, weighted=True).propagation.to_dense()[0, 1] > 0.7
    with pytest.raises(ValueError, match=r"^g: got a graph without nodes"):
        Graph.from_networkx(networkx.Graph())
