"""Graph: what is made of the edges, what is derived, and what is refused."""

import copy
import warnings

import cases
import hypothesis
import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import strategies as st
from matrices import BETA, TRIANGLE, assert_well_formed, undirected
from tolerances import assert_close, assert_same_bits

from seegera_fast import Graph, SparseMatrix
from seegera_fast.propagation import propagation_matrix

pytestmark = BETA


# --- Graph: made simple and symmetric --------------------------------------------------------------------------------


def test_duplicates_count_once_and_loops_are_dropped(quiet):
    row, col = [0, 1, 0, 1, 2, 2, 3, 3], [1, 0, 1, 0, 2, 3, 2, 3]
    graph = Graph(scipy.sparse.coo_matrix((np.ones(8), (row, col)), shape=(4, 4)))
    assert graph.edges().tolist() == [[0, 1], [2, 3]]
    assert graph.adjacency.values.tolist() == [1, 1, 1, 1]


def test_zeros_that_fill_blocks_are_no_edges(quiet):
    given = scipy.sparse.coo_matrix(([1.0, 1.0], ([0, 1], [1, 0])), shape=(4, 4))
    for blocks in (given.tobsr((2, 2)), torch.tensor(given.toarray()).to_sparse_bsr((2, 2)), given.todia()):
        for weighted in (False, True):
            assert Graph(blocks, weighted=weighted).edges().tolist() == [[0, 1]]


def test_an_edge_of_weight_zero_in_one_direction(quiet):
    """The larger weight counts, and duplicates are added up, so that no edge vanishes."""
    given = scipy.sparse.coo_matrix(([0.0, 2.0, 0.0, 3.0, 3.0], ([0, 1, 1, 1, 2], [1, 0, 2, 2, 1])), shape=(3, 3))
    with pytest.warns(UserWarning, match="got a directed graph") as caught:
        graph = Graph(given, weighted=True)
    assert len(caught) == 1
    assert graph.weights.tolist() == [2, 2, 3, 3]


def test_a_directed_graph_becomes_undirected_with_a_warning():
    with pytest.warns(UserWarning, match="adjacency: got a directed graph, which is made undirected") as caught:
        graph = Graph([[0, 1, 0], [0, 0, 0], [0, 1, 0]])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert graph.edges().tolist() == [[0, 1], [1, 2]]
    assert torch.equal(graph.adjacency.to_dense(), graph.adjacency.to_dense().T)


def test_sums_that_differ_in_their_rounding_are_no_direction(quiet):
    row, col, data = [0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0.1, 0.2, 0.3, 0.3, 0.2, 0.1]
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    graph = Graph(scipy.sparse.coo_array((data, (row, col)), shape=(2, 2)), weighted=True, dtype=torch.float64)
    assert graph.weights.tolist() == [max(0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1)] * 2


def test_weights_are_ignored_with_a_warning():
    with pytest.warns(
        UserWarning, match="adjacency: got edge weights other than 1, which are ignored; weighted=True"
    ) as caught:
        graph = Graph(3 * TRIANGLE)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert_same_bits(graph.propagation.to_dense(), Graph(TRIANGLE).propagation.to_dense())


def test_weights_are_kept_in_the_propagation_matrix_only(quiet):
    weights = np.array([[0, 2, 0.5], [2, 0, 0], [0.5, 0, 0]])
    graph = Graph(weights, weighted=True, dtype=torch.float64)
    assert graph.adjacency.values.tolist() == [1, 1, 1, 1]
    looped = weights + np.eye(3)
    scale = np.diag(looped.sum(axis=1) ** -0.5)
    assert_close(graph.propagation.to_dense(), torch.tensor(scale @ looped @ scale), terms=3, name="propagation")


def test_repeated_edges_of_an_edge_index(quiet):
    """The largest weight counts, in whichever direction and order."""
    index = np.array([[0, 0, 0, 1, 1, 1, 2, 1], [1, 1, 1, 0, 0, 2, 1, 1]])
    weight = [2.0, 5.0, 3.0, 5.0, 1.0, 0.0, 0.0, 9.0]
    want = Graph(np.array([[0, 5.0, 0], [5.0, 0, 0], [0, 0, 0]]), weighted=True)
    for order in (np.arange(8), np.arange(8)[::-1].copy()):
        for given in (np.array(weight)[order], torch.tensor(weight, dtype=torch.bfloat16)[order]):
            with pytest.warns(UserWarning, match=r"got edges of weight 0 .*, which vanish with weighted=True: 1;"):
                graph = Graph.from_edge_index(index[:, order], num_nodes=3, edge_weight=given, weighted=True)
            assert graph.edges().tolist() == [[0, 1]]
            assert_same_bits(graph.propagation.to_dense(), want.propagation.to_dense())
    again = Graph.from_edge_index(index[:, :5], num_nodes=3, weighted=True)
    assert_same_bits(again.weights, torch.ones(2))


def test_weights_of_a_directed_graph_and_of_repeated_edges():
    """Repeated entries of a SciPy matrix add their weights; of two directions the larger weight counts."""
    given = scipy.sparse.coo_matrix(([1.0, 2.0, 5.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    with pytest.warns(UserWarning, match="got a directed graph"):
        graph = Graph(given, weighted=True)
    assert graph.propagation.to_dense()[0, 1] == pytest.approx(5 / 6)


@hypothesis.given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_any_list_of_pairs_becomes_a_simple_graph(n, pairs):
    pairs = [(i % n, k % n) for i, k in pairs]
    index = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = Graph.from_edge_index(index, num_nodes=n)
    want = sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]})
    assert [tuple(edge) for edge in graph.edges().tolist()] == want
    assert graph.num_edges == len(want)
    assert_well_formed(graph.adjacency)
    assert_well_formed(graph.propagation)
    own = networkx.Graph(want)
    own.add_nodes_from(range(n))
    looped = networkx.to_numpy_array(own, nodelist=range(n)) + np.eye(n)
    scale = np.diag(looped.sum(axis=1) ** -0.5)
    assert_close(graph.propagation.to_dense(), torch.tensor(scale @ looped @ scale), terms=n, name="propagation")


# --- Graph: derived --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases.GRAPHS)
def test_propagation_against_scipy(name):
    graph = cases.graph(name)
    looped = graph.adjacency.to_scipy() + scipy.sparse.identity(graph.num_nodes)
    scale = scipy.sparse.diags(np.asarray(looped.sum(axis=1)).ravel() ** -0.5)
    matrix = graph.propagation
    assert_well_formed(matrix)
    assert_close(matrix.to_dense(), torch.tensor((scale @ looped @ scale).toarray()), terms=17, name="propagation")
    assert_same_bits(matrix.to_dense().T, matrix.to_dense())
    assert graph.propagation is matrix


@pytest.mark.parametrize("name", cases.GRAPHS)
@pytest.mark.parametrize("weighted", [True, False])
def test_parts_of_the_edges(name, weighted):
    """propagation_matrix, which masking goes by, and with_edges say the same, for none, some and all of the edges."""
    adjacency = cases.graph(name).adjacency.to_scipy()
    if weighted:
        adjacency.data = (
            1.0 + (adjacency.indices * np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr))) % 5
        )
    graph = Graph(adjacency, weighted=weighted, labels=range(adjacency.shape[0]), dtype=torch.float64)
    masks = [
        torch.arange(graph.num_edges) % 3 != 0,
        torch.zeros(graph.num_edges).bool(),
        torch.ones(graph.num_edges).bool(),
    ]
    for kept in masks:
        part = graph.with_edges(graph.edges()[kept])
        assert torch.equal(part.edges(), graph.edges()[kept])
        assert_well_formed(part.adjacency)
        dense = np.zeros(adjacency.shape)
        for i, k in graph.edges()[kept].tolist():
            dense[i, k] = dense[k, i] = adjacency[i, k]
        looped = dense + np.eye(len(dense))
        scale = np.diag(looped.sum(axis=1) ** -0.5)
        want = torch.tensor(scale @ looped @ scale)
        assert_close(part.propagation.to_dense(), want, terms=17, name="propagation of the part")
        masked = propagation_matrix(*graph.with_self_loops(), kept)
        assert_same_bits(masked.to_dense(), part.propagation.to_dense())
        assert masked.symmetric
        assert part.features is graph.features
        assert part.labels is graph.labels
    assert graph.num_edges == adjacency.nnz // 2, "the graph itself was changed"


def test_edges_may_be_given_in_any_order_direction_and_library():
    graph = Graph(TRIANGLE)
    for given in ([[2, 1], [0, 1]], np.array([[1, 0], [1, 2], [0, 1]]), torch.tensor([[0, 1], [1, 2]])):
        assert graph.with_edges(given).edges().tolist() == [[0, 1], [1, 2]]
    for empty in ([], np.empty((0, 2), np.int64), torch.empty(0, 2, dtype=torch.int64)):
        assert graph.with_edges(empty).num_edges == 0


def test_edges_of_another_shape():
    with pytest.raises(ValueError, match=r"^edges: got shape \(3,\), want \[m, 2\]$"):
        Graph(TRIANGLE).with_edges([0, 1, 2])


def test_edges_in_32_bits_of_many_nodes():
    graph = Graph.from_edge_index([[99_998, 99_999], [99_999, 99_998]], num_nodes=100_000)
    assert graph.with_edges(torch.tensor([[99_998, 99_999]], dtype=torch.int32)).num_edges == 1


@pytest.mark.parametrize("pair", [[0, 3], [1, 1], [0, 4], [0, 5], [-1, 2], [1, -2], [3, 0]])
def test_edges_that_are_not_there(pair):
    """Also numbers beyond the nodes, which must not be taken for another pair: 0 * 4 + 6 is 1 * 4 + 2."""
    for given in ([pair], [[0, 1], pair], [[0, 6]]):
        with pytest.raises(ValueError, match=r"^edges: got pairs that are not edges of this graph, want rows of graph"):
            Graph(TRIANGLE).with_edges(given)


def test_edges_of_fractions():
    with pytest.raises(TypeError, match=r"^edges: got torch.float32, want integers"):
        Graph(TRIANGLE).with_edges(torch.tensor([[0.0, 1.0]]))


def test_with_features():
    graph = Graph(TRIANGLE, labels=[0, 1, 2, 3], dtype=torch.float64)
    other = graph.with_features(np.ones((4, 2)))
    assert other.num_features == 2
    assert other.dtype == other.features.dtype == torch.float64
    assert other.adjacency is graph.adjacency
    assert other.labels is graph.labels
    assert graph.num_features == 4
    with pytest.raises(ValueError, match=r"^features: got 3 rows, want one per node: the graph has 4"):
        graph.with_features(np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"^features: got no columns, want at least one"):
        graph.with_features(np.ones((4, 0)))
    with pytest.raises(TypeError, match=r"^features: got str"):
        graph.with_features("identity")


@pytest.mark.parametrize("weighted", [True, False])
def test_graph_to_another_dtype(weighted):
    mask = np.array([True, False, True, False])
    graph = (
        Graph(TRIANGLE * 2, labels=[0, 1, 2, 3], masks={"train": mask}, weighted=True) if weighted else Graph(TRIANGLE)
    )
    double = graph.to(dtype=torch.float64)
    assert double.dtype == double.features.dtype == double.propagation.dtype == torch.float64
    want = Graph(TRIANGLE * (2 if weighted else 1), weighted=weighted, dtype=torch.float64)
    assert_same_bits(double.propagation.to_dense(), want.propagation.to_dense())
    assert graph.dtype == graph.propagation.dtype == torch.float32
    assert torch.equal(double.edges(), graph.edges())
    assert double.to("cpu").dtype == torch.float64
    if weighted:
        assert double.labels.tolist() == [0, 1, 2, 3]
        assert double.masks["train"].tolist() == mask.tolist()


def test_graph_to_a_dtype_that_holds_not_every_weight():
    weights = np.array([[0, 1e-50, 3], [1e-50, 0, 1], [3, 1, 0]])
    features = np.array([[1e-40, 0], [1e-50, 1], [1, 1]])
    double = Graph(weights, features, weighted=True, dtype=torch.float64)
    double.edge_times = torch.tensor([7.0, 8.0, 9.0], dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"edges of weight 0 \(in torch\.float32\), which vanish .*: 1;"):
        single = double.to(dtype=torch.float32)
    with pytest.warns(UserWarning, match="vanish"):
        want = Graph(weights, features, weighted=True)
    assert single.edges().tolist() == want.edges().tolist() == [[0, 2], [1, 2]]
    assert single.weights.tolist() == want.weights.tolist()
    assert single.edge_times.tolist() == [8.0, 9.0]
    assert_same_bits(single.propagation.to_dense(), want.propagation.to_dense())
    assert_same_bits(single.features.to_dense(), want.features.to_dense())
    assert double.num_edges == 3


def test_what_users_change_later(quiet):
    """A graph has its own masks and parts, and so has each graph that is made from it."""
    parts = np.array([0, 0, 1, 1])
    graph = Graph(TRIANGLE, masks={"train": np.ones(4, bool)})
    # The fourth node has no link.
    other = graph.with_edges([[0, 1], [1, 2]]).with_parts(np.zeros(4, int))
    cut = Graph(np.ones((4, 4))).with_parts(parts)
    parts[:] = 7
    assert cut.parts.tolist() == [0, 0, 1, 1]
    for made in (other, copy.copy(graph), graph.with_features(np.eye(4))):
        made.masks["valid"] = made.masks.pop("train")
    assert [*graph.masks] == ["train"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_graph_to_a_gpu_and_back():
    graph = Graph(TRIANGLE, labels=[0, 1, 2, 3], masks={"train": np.array([True, False, True, False])})
    there = graph.to("cuda")
    parts = (there.adjacency, there.propagation, there.features, there.features.transposed, there.adjacency.non_edges)
    assert all(part.device.type == "cuda" for part in parts[:-1])
    assert there.labels.device.type == there.masks["train"].device.type == there.edges().device.type == "cuda"
    assert_close(there.propagation.to_dense(), graph.propagation.to_dense().double(), terms=4, name="propagation")
    assert there.adjacency.non_edges.pairs(torch.arange(3, device="cuda")).tolist() == [[0, 3], [1, 3], [2, 3]]
    assert torch.equal(there.to("cpu").adjacency.to_dense(), graph.adjacency.to_dense())
    assert Graph(torch.tensor(TRIANGLE), torch.eye(4, device="cuda")).device.type == "cuda"


# --- Graph: refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.ones((2, 3)),), ValueError, r"adjacency: got shape 2 x 3, want a square matrix"),
        ((np.ones((0, 0)),), ValueError, r"adjacency: got a graph without nodes, want at least one"),
        ((np.ones(4),), ValueError, r"adjacency: got 1 dimensions \(shape \(4,\)\), want 2"),
        (
            ([[0, -2], [-2, 0]],),
            ValueError,
            r"adjacency: got a negative edge weight \(-2.0\), want weights of 0 and above",
        ),
        (([[0, np.inf], [np.inf, 0]],), ValueError, r"adjacency: got 2 values that are NaN or infinite .*"),
        ((None,), TypeError, r"adjacency: got NoneType, want .*"),
        ((np.eye(2).astype(complex),), TypeError, r"adjacency: got values of type complex128, want real numbers"),
        ((np.eye(2).astype(object),), TypeError, r"adjacency: got values of type object, want real numbers"),
        ((np.eye(2), np.ones((3, 2))), ValueError, r"features: got 3 rows, want one per node: the graph has 2 nodes"),
        ((np.eye(2), np.ones(2)), ValueError, r"features: got 1 dimensions \(shape \(2,\)\), want 2"),
        ((np.eye(2), np.ones((2, 0))), ValueError, r"features: got no columns, want at least one feature .*"),
        ((np.eye(2), [[np.nan], [1]]), ValueError, r"features: got 1 values that are NaN or infinite .*"),
        ((np.eye(2), [["a"], ["b"]]), TypeError, r"features: got values of type <U1, want real numbers"),
        (
            (np.eye(2), np.array([[1e39], [1]])),
            ValueError,
            r"features: got 1e\+39 at row 0, column 0, .* torch.float32 .*",
        ),
    ],
)
def test_refused_graphs(arguments, error, message):
    with pytest.raises(error) as caught:
        Graph(*arguments)
    assert type(caught.value) is error
    caught.match(f"^{message}$")


def test_weights_whose_sums_float32_cannot_hold():
    heavy = 3e38 * (np.ones((3, 3)) - np.eye(3))
    with pytest.raises(ValueError, match=r"^adjacency: got absolute values that add up to 6e\+38 in row 0, which"):
        Graph(heavy, weighted=True)
    double = Graph(heavy, weighted=True, dtype=torch.float64)
    assert double.propagation.to_dense()[0, 1] == pytest.approx(0.5)
    with pytest.raises(ValueError, match=r"^values: got absolute values that add up to 6e\+38 in row 0, which"):
        double.to(dtype=torch.float32)


def test_a_weight_that_float32_cannot_hold():
    with pytest.raises(ValueError, match=r"^adjacency: got 1e\+39 at row 0, column 1, .* torch.float32"):
        Graph([[0, 1e39], [1e39, 0]], weighted=True)


def test_negative_features_are_welcome():
    assert Graph(np.eye(2), [[-1.0], [2.0]]).features.to_dense().tolist() == [[-1], [2]]


def test_a_graph_of_one_node():
    graph = Graph(np.ones((1, 1)))
    assert (graph.num_nodes, graph.num_edges) == (1, 0)
    assert graph.propagation.to_dense().tolist() == [[1.0]]
    assert graph.edges().shape == (0, 2)
    assert graph.adjacency.non_edges.count == 0


def test_isolated_nodes_propagate_to_themselves():
    matrix = Graph(undirected((0, 1), n=4)).propagation.to_dense()
    assert matrix[2:].tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]]
    assert matrix[:2, :2].flatten().tolist() == pytest.approx([0.5] * 4)


def test_a_one_hot_row_without_a_one_has_no_label():
    assert Graph(np.zeros((3, 3)), labels=[[0, 1], [0, 0], [1, 0]]).labels.tolist() == [1, -1, 0]


def test_explicit_zeros_of_a_sparse_matrix_are_dropped():
    matrix = SparseMatrix.from_any(np.eye(3))
    matrix.values = torch.tensor([1.0, 0.0, 1.0])
    assert Graph(np.zeros((3, 3)), matrix).features.nnz == 2
