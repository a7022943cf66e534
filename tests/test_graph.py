"""SparseMatrix and Graph: every way in, what is derived, and what is refused."""

import copy
import pickle
import warnings

import cases
import hypothesis
import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tolerances import assert_close, assert_same_bits
from torch_geometric.data import Data

from seegera_fast import Graph, SparseMatrix, entries
from seegera_fast.propagation import propagation_matrix

# A 3 x 4 matrix with an empty row and an empty column.
DENSE = np.array([[0.0, 2.0, 0.0, -1.5], [0.0, 0.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.25]])

SCIPY_FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")

# Ways to write a dense NumPy matrix down.
WRITERS = {
    **{
        f"scipy {name} matrix": lambda x, name=name: scipy.sparse.csr_matrix(x).asformat(name) for name in SCIPY_FORMATS
    },
    **{f"scipy {name} array": lambda x, name=name: scipy.sparse.csr_array(x).asformat(name) for name in SCIPY_FORMATS},
    "numpy array": np.array,
    "numpy matrix": np.matrix,
    "numpy in columns": np.asfortranarray,
    "numpy float32": lambda x: x.astype(np.float32),
    "numpy float16": lambda x: x.astype(np.float16),
    "nested lists": lambda x: x.tolist(),
    "torch dense": torch.tensor,
    "torch float32": lambda x: torch.tensor(x).float(),
    "torch bfloat16": lambda x: torch.tensor(x).bfloat16(),
    "torch transposed twice": lambda x: torch.tensor(x.T.copy()).T,
    "torch coo": lambda x: torch.tensor(x).to_sparse_coo(),
    "torch csr": lambda x: torch.tensor(x).to_sparse_csr(),
    "torch csc": lambda x: torch.tensor(x).to_sparse_csc(),
    "torch bsr": lambda x: torch.tensor(x).to_sparse_bsr((x.shape[0], 1)),
    "sparse matrix": lambda x: SparseMatrix.from_any(x, dtype=torch.float64),
}
# torch warns that its CSR support is in beta, NumPy that its matrix class is of the past.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR) tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:the matrix subclass is not the recommended way"),
]


@pytest.fixture
def quiet():
    """No warning may pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # NumPy's, of its matrix class.
        warnings.filterwarnings("ignore", message="Sparse (CSR|CSC|BSR) tensor support is in beta")
        yield


def undirected(*edges, n):
    dense = np.zeros((n, n))
    for i, k in edges:
        dense[i, k] = dense[k, i] = 1
    return dense


def assert_well_formed(matrix):
    """The promises of the attributes: types, sizes, ascending columns without duplicates."""
    rows, columns = matrix.shape
    assert matrix.rowptr.dtype == matrix.col.dtype == torch.int64
    assert matrix.values.dtype in (torch.float32, torch.float64)
    assert matrix.rowptr.shape == (rows + 1,)
    assert matrix.col.shape == matrix.values.shape == (matrix.nnz,)
    assert matrix.rowptr[0] == 0
    assert matrix.rowptr[-1] == matrix.nnz
    for begin, end in zip(matrix.rowptr[:-1].tolist(), matrix.rowptr[1:].tolist(), strict=True):
        own = matrix.col[begin:end].tolist()
        assert own == sorted(set(own))
        assert all(0 <= column < columns for column in own)


# --- SparseMatrix: in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITERS)
def test_every_kind_of_matrix(writer, quiet):
    matrix = SparseMatrix.from_any(WRITERS[writer](DENSE))
    assert_well_formed(matrix)
    assert matrix.shape == (3, 4)
    assert matrix.nnz == 4
    assert matrix.dtype == torch.float32
    assert matrix.device == torch.device("cpu")
    assert not matrix.symmetric
    assert not matrix.values.requires_grad
    assert_same_bits(matrix.to_dense(), torch.tensor(DENSE).float())


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "int64", "uint64"])
@pytest.mark.parametrize("library", ["numpy", "torch", "scipy"])
def test_whole_numbers_and_booleans(kind, library):
    dense = np.array([[0, 1], [1, 0], [1, 1]]).astype(kind)
    given = {
        "numpy": lambda: dense,
        "torch": lambda: torch.tensor(dense),
        "scipy": lambda: scipy.sparse.coo_matrix(dense),
    }
    assert SparseMatrix.from_any(given[library]()).to_dense().tolist() == dense.astype(float).tolist()


def test_duplicates_are_added_and_zeros_dropped():
    row, col, data = [0, 0, 1, 1, 2], [1, 1, 0, 0, 2], [1.0, 2.5, 1.0, -1.0, 0.0]
    for given in (
        scipy.sparse.coo_matrix((data, (row, col)), shape=(3, 3)),
        torch.sparse_coo_tensor([row, col], data, (3, 3), check_invariants=True),
    ):
        matrix = SparseMatrix.from_any(given)
        assert_well_formed(matrix)
        assert matrix.nnz == 1
        assert matrix.to_dense().tolist() == [[0, 3.5, 0], [0, 0, 0], [0, 0, 0]]


def test_a_csr_matrix_out_of_order():
    given = scipy.sparse.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    matrix = SparseMatrix.from_any(given)
    assert matrix.col.tolist() == [0, 2]
    assert matrix.values.tolist() == [2.0, 4.0]
    assert given.indices.tolist() == [2, 0, 2], "the input was changed"


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (3, 2)])
def test_nothing_in_it(shape):
    matrix = SparseMatrix.from_any(np.zeros(shape))
    assert_well_formed(matrix)
    assert matrix.nnz == 0
    assert matrix.to_dense().shape == shape
    assert_well_formed(matrix.transposed)
    assert matrix.transposed.shape == shape[::-1]
    assert matrix.row_normalized.nnz == 0
    assert matrix.to_scipy().shape == shape


@hypothesis.given(
    npst.arrays(
        np.float64,
        npst.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=7),
        elements=st.sampled_from([0.0, 0.0, 1.0, -2.5, 1e-30, 3e30]),
    ),
    st.sampled_from([name for name in WRITERS if not any(t in name for t in ("float16", "float32", "sparse matrix"))]),
)
def test_round_trips(dense, writer):
    if writer == "torch bfloat16":
        dense = torch.tensor(dense).bfloat16().double().numpy()
    matrix = SparseMatrix.from_any(WRITERS[writer](dense), dtype=torch.float64)
    assert_well_formed(matrix)
    assert np.array_equal(matrix.to_dense().numpy(), dense)
    assert np.array_equal(matrix.to_scipy().toarray(), dense)
    assert np.array_equal(matrix.transposed.to_dense().numpy(), dense.T)
    assert np.array_equal(SparseMatrix.from_any(matrix.to_scipy(), dtype=torch.float64).to_dense().numpy(), dense)


# --- SparseMatrix: derived -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", cases.FEATURES)
def test_transposed(kind):
    matrix = cases.features(kind, 11, 9)
    flipped = matrix.transposed
    assert_well_formed(flipped)
    assert torch.equal(flipped.to_dense(), matrix.to_dense().T)
    assert flipped.transposed is matrix
    assert matrix.transposed is flipped
    assert torch.equal(matrix.values[matrix.order], flipped.values)


def test_a_symmetric_matrix_is_its_own_transpose():
    for matrix in (cases.graph("random").adjacency, cases.graph("random").propagation):
        assert matrix.symmetric
        assert matrix.transposed is matrix
        dense = matrix.to_dense()
        assert_same_bits(dense.T, dense)


def test_rows_of_the_entries():
    matrix = cases.features("sparse", 11, 9)
    assert torch.equal(torch.stack([matrix.row, matrix.col], dim=1), (matrix.to_dense() != 0).nonzero())
    assert SparseMatrix.from_any(np.zeros((3, 2))).row.shape == (0,)


@pytest.mark.parametrize("kind", cases.FEATURES)
def test_row_normalized(kind):
    matrix = cases.features(kind, 11, 9)
    dense = matrix.to_dense().numpy()
    total = np.abs(dense).sum(axis=1, keepdims=True)
    want = np.divide(dense, total, out=np.zeros_like(dense), where=total > 0)
    normalized = matrix.row_normalized
    assert_close(normalized.to_dense(), torch.tensor(want), terms=9, name="normalized")
    assert normalized is matrix.row_normalized
    assert torch.equal(matrix.to_dense(), torch.tensor(dense)), "the matrix itself was changed"


def test_row_normalized_by_columns():
    """Eq. cor's weights: of the transpose, where a column that cancels still sums to 1 in magnitude."""
    normalized = cases.features("negative", 11, 9).transposed.row_normalized
    sums = normalized.to_dense().abs().sum(dim=1)
    assert set(sums.round(decimals=12).tolist()) <= {0.0, 1.0}
    assert sums[0] == 1


@pytest.mark.parametrize("transposed_first", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
def test_with_values(transposed_first, symmetric):
    matrix = cases.graph("random").propagation if symmetric else cases.features("sparse", 11, 9)
    if transposed_first:
        matrix.transposed.transposed.row  # noqa: B018
    before = matrix.values.clone()
    values = torch.arange(1.0, matrix.nnz + 1, dtype=torch.float64)
    other = matrix.with_values(values)
    assert_well_formed(other)
    assert other.values is values
    assert other.col is matrix.col
    dense = torch.zeros(matrix.shape, dtype=torch.float64)
    dense[matrix.row, matrix.col] = values
    assert torch.equal(other.to_dense(), dense)
    assert torch.equal(other.transposed.to_dense(), dense.T)
    assert other.transposed.transposed is other
    assert not other.symmetric
    assert torch.equal(matrix.values, before)


def test_values_in_any_layout():
    matrix = cases.features("sparse", 11, 9)
    apart = torch.randn(matrix.nnz, 2, dtype=torch.float64)[:, 0]
    assert matrix.with_values(apart).values.is_contiguous()
    assert torch.equal(matrix.with_values(apart).values, apart)
    assert matrix.with_values(torch.tensor(2.0).expand(matrix.nnz)).values.is_contiguous()


def test_values_that_do_not_fit():
    matrix = cases.features("sparse", 11, 9)
    with pytest.raises(TypeError, match=r"values: got ndarray, want torch.float32 or torch.float64"):
        matrix.with_values(matrix.values.numpy())
    with pytest.raises(TypeError, match=r"values: got torch.int64, want torch.float32 or torch.float64"):
        matrix.with_values(matrix.values.long())
    with pytest.raises(ValueError, match=rf"values: got shape \(3,\) on cpu, want \({matrix.nnz},\) on cpu"):
        matrix.with_values(matrix.values[:3])
    with pytest.raises(ValueError, match=r"values: got shape .* on meta, want .* on cpu"):
        matrix.with_values(matrix.values.to("meta"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_subnormal_values_are_zero(dtype):
    """A row of them would have a sum without a reciprocal."""
    tiny = torch.finfo(dtype).tiny
    dense = np.array([[tiny / 8, 0.0], [1.0, -tiny / 2], [tiny, 0.0]])
    for matrix in (dense, SparseMatrix.from_any(dense, dtype=torch.float64)):
        got = SparseMatrix.from_any(matrix, dtype=dtype)
        assert got.col.tolist() == [0, 0]
        assert got.values.tolist() == [1.0, tiny]
        assert torch.equal(got.row_normalized.values, torch.ones(2, dtype=dtype))
    with pytest.warns(UserWarning, match=rf"edges of weight 0 \(in {dtype}\), which vanish with weighted=True: 1;"):
        graph = Graph(np.array([[0, tiny / 2, 1], [tiny / 2, 0, 1], [1, 1, 0]]), weighted=True, dtype=dtype)
    assert graph.num_edges == 2


def test_what_is_known_to_be_hollow():
    """Symmetric, and without a diagonal: what the link likelihood takes."""
    graph = cases.graph("random")
    for matrix in (graph.adjacency, graph.with_edges(graph.edges()[:3]).adjacency):
        assert matrix.symmetric
        assert matrix.hollow
        assert matrix.to(dtype=torch.float32).hollow
        assert matrix.with_layout("dense").hollow
    assert not graph.propagation.hollow
    assert not graph.with_self_loops()[0].hollow


@pytest.mark.parametrize("transposed_first", [True, False])
def test_to_another_dtype(transposed_first):
    matrix = SparseMatrix.from_any(DENSE / 3, dtype=torch.float64)
    if transposed_first:
        assert matrix.transposed.dtype == torch.float64
    single = matrix.to(dtype=torch.float32)
    assert single.dtype == single.transposed.dtype == single.row_normalized.dtype == torch.float32
    assert torch.equal(single.to_dense(), torch.tensor(DENSE / 3).float())
    assert torch.equal(single.transposed.to_dense(), torch.tensor(DENSE / 3).float().T)
    assert single.transposed.transposed is single
    assert matrix.dtype == torch.float64
    assert matrix.to(dtype=torch.float64) is matrix
    assert matrix.to("cpu") is matrix
    assert cases.graph("path").propagation.to(dtype=torch.float32).symmetric


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.complex64, torch.bool])
def test_to_a_dtype_that_is_not_there(dtype):
    matrix = SparseMatrix.from_any(DENSE)
    wanted = rf"dtype: got {dtype}, want torch\.float32 or torch\.float64"
    with pytest.raises(TypeError, match=wanted):
        matrix.to(dtype=dtype)
    with pytest.raises(TypeError, match=wanted):
        SparseMatrix.from_any(DENSE, dtype=dtype)
    with pytest.raises(TypeError, match=wanted):
        SparseMatrix.from_any(matrix, dtype=dtype)
    with pytest.raises(TypeError, match=wanted):
        Graph(np.eye(2), dtype=dtype)
    with pytest.raises(TypeError, match=wanted):
        Graph(np.eye(2)).to(dtype=dtype)


def test_repr():
    assert repr(SparseMatrix.from_any(DENSE)) == "SparseMatrix(3 x 4, nnz=4, torch.float32, cpu)"
    assert "'tiny': 2 nodes, 1 edges, 2 features" in repr(Graph([[0, 1], [1, 0]], name="tiny"))


# --- SparseMatrix: refused -------------------------------------------------------------------------------------------

REFUSED = {
    "None": (None, TypeError, r"matrix: got NoneType, want a SciPy sparse matrix, a NumPy array or a torch tensor"),
    "string": ("matrix", TypeError, r"matrix: got str, want .*"),
    "number": (3.0, TypeError, r"matrix: got float, want .*"),
    "dictionary": ({}, TypeError, r"matrix: got dict, want .*"),
    "vector": (np.ones(3), ValueError, r"matrix: got 1 dimensions \(shape \(3,\)\), want 2"),
    "cube": (np.ones((2, 2, 2)), ValueError, r"matrix: got 3 dimensions \(shape \(2, 2, 2\)\), want 2"),
    "torch vector": (torch.ones(3), ValueError, r"matrix: got 1 dimensions \(shape \(3,\)\), want 2"),
    "torch sparse vector": (
        torch.ones(3).to_sparse(),
        ValueError,
        r"matrix: got a sparse tensor with 1 sparse .*, want 2 .*",
    ),
    "torch hybrid": (
        torch.ones(2, 2, 2).to_sparse(2),
        ValueError,
        r"matrix: got .* 2 sparse and 1 dense .*, want 2 and 0",
    ),
    "scipy vector": (scipy.sparse.coo_array(np.ones(3)), ValueError, r"matrix: got 1 dimensions .*, want 2"),
    "complex": (np.ones((2, 2), complex), TypeError, r"matrix: got values of type complex128, want real numbers"),
    "torch complex": (
        torch.ones(2, 2).cfloat(),
        TypeError,
        r"matrix: got values of type torch.complex64, want real .*",
    ),
    "scipy complex": (
        scipy.sparse.eye(2, dtype=complex),
        TypeError,
        r"matrix: got values of type complex128, want real .*",
    ),
    "object": (np.array([[1, None], [2, 3]]), TypeError, r"matrix: got values of type object, want real numbers"),
    "text": (np.array([["a", "b"]]), TypeError, r"matrix: got values of type <U1, want real numbers"),
    "dates": (
        np.zeros((2, 2), "datetime64[s]"),
        TypeError,
        r"matrix: got values of type datetime64\[s\], want real numbers",
    ),
    "ragged": ([[1.0, 2.0], [3.0]], ValueError, r"matrix: got rows of different lengths, .*"),
    "NaN": (
        np.array([[0, 1], [np.nan, 0]]),
        ValueError,
        r"matrix: got 1 values that are NaN or infinite \(the first is nan at row 1, column 0\), want finite numbers",
    ),
    "infinite": (
        torch.tensor([[0, -torch.inf], [torch.inf, 0]]),
        ValueError,
        r"matrix: got 2 values .* -inf at row 0, column 1.*",
    ),
    "sparse NaN": (
        scipy.sparse.coo_matrix(([np.nan], ([2], [1]))),
        ValueError,
        r"matrix: got 1 .* row 2, column 1\).*",
    ),
    "too large": (np.array([[0, -1e39]]), ValueError, r"matrix: got -1e\+39 at row 0, column 1, .* torch.float32 .*"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    given, error, message = REFUSED[what]
    with pytest.raises(error) as caught:
        SparseMatrix.from_any(given)
    assert type(caught.value) is error
    caught.match(f"^{message}$")


def test_an_error_calls_the_matrix_by_its_name():
    with pytest.raises(TypeError, match=r"^weights: got NoneType"):
        SparseMatrix.from_any(None, name="weights")
    with pytest.raises(ValueError, match=r"^adjacency: got 1 values that are NaN"):
        Graph([[0, np.nan], [0, 0]])
    with pytest.raises(ValueError, match=r"^features: got 1 values that are NaN"):
        Graph(np.eye(2), [[0, 1], [np.nan, 0]])


def test_large_values_are_welcome_in_float64():
    assert SparseMatrix.from_any([[1e39]], dtype=torch.float64).values.tolist() == [1e39]


TOO_LARGE = {
    "value": ([[0, 0, -1e39]], r"got -1e\+39 at row 0, column 2, which torch\.float32 cannot hold, want smaller .*"),
    "row": ([[0, 0], [3e38, -3e38]], r"got absolute values that add up to 6e\+38 in row 1, which torch\.float32 .*"),
    "column": (
        [[0, 3e38], [0, 3e38]],
        r"got absolute values that add up to 6e\+38 in column 1, which .*",
    ),
}


@pytest.mark.parametrize("what", TOO_LARGE)
@pytest.mark.parametrize("by", ["numpy", "double", "to", "graph"])
def test_values_and_sums_beyond_a_dtype(what, by):
    """The averages divide by the sums."""
    dense, message = TOO_LARGE[what]
    double = SparseMatrix.from_any(dense, dtype=torch.float64)
    graph = Graph(np.zeros((len(dense), len(dense))), dense, dtype=torch.float64)
    name, call = {
        "numpy": ("m", lambda: SparseMatrix.from_any(dense, name="m")),
        "double": ("m", lambda: SparseMatrix.from_any(double, name="m")),
        "to": ("values", lambda: double.to(dtype=torch.float32)),
        "graph": ("values", lambda: graph.to(dtype=torch.float32)),
    }[by]
    with pytest.raises(ValueError, match=f"^{name}: {message}$"):
        call()
    if what != "value":
        single = double.with_values(double.values / 2).to(dtype=torch.float32)
        assert torch.allclose(single.row_normalized.values, double.row_normalized.values.float())


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_sparse_matrix_with_values_that_are_not_finite(value):
    matrix = SparseMatrix.from_any(DENSE, dtype=torch.float64)
    broken = matrix.with_values(torch.full_like(matrix.values, value))
    for call in (
        lambda: SparseMatrix.from_any(broken),
        lambda: SparseMatrix.from_any(broken, dtype=torch.float64),
        lambda: broken.to(dtype=torch.float32),
    ):
        with pytest.raises(ValueError, match=f": got {matrix.nnz} values that are NaN or infinite"):
            call()


def test_many_large_values_in_different_rows_and_columns():
    matrix = SparseMatrix.from_any(np.diag([3e38, 2e38, 3e38]), dtype=torch.float64)
    for single in (matrix.to(dtype=torch.float32), SparseMatrix.from_any(matrix)):
        assert torch.allclose(single.row_normalized.values, torch.ones(3))


# --- Graph: in -------------------------------------------------------------------------------------------------------

TRIANGLE = undirected((0, 1), (1, 2), (0, 2), n=4)


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
            r"features: got 3 rows, want one per node: adjacency has 2 nodes",
        ),
        ({"edge_index": [[], []]}, ValueError, r"adjacency: got a graph without nodes, want at least one"),
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
    with pytest.warns(UserWarning, match="weighted=True keeps them"):
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
    with pytest.warns(UserWarning, match="got a directed graph"):
        assert Graph.from_networkx(directed).num_edges == 2
    weighted = networkx.Graph()
    weighted.add_edge(0, 1, weight=4.0)
    with pytest.warns(UserWarning, match="weighted=True keeps them"):
        assert Graph.from_networkx(weighted).num_edges == 1
    assert Graph.from_networkx(weighted, weighted=True).propagation.to_dense()[0, 1] > 0.7
    with pytest.raises(ValueError, match=r"^g: got a graph without nodes"):
        Graph.from_networkx(networkx.Graph())


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
    with pytest.raises(ValueError, match=r"^features: got 3 rows, want one per node: 4"):
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


# --- Graph: labels and masks -----------------------------------------------------------------------------------------


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
        (np.eye(3), ValueError, r"labels: got shape \(3,\), want one label per node: \[4\]"),
        (np.zeros((4, 2, 2)), ValueError, r"labels: got shape \(4, 2, 2\), want one label per node: \[4\]"),
        (3, ValueError, r"labels: got shape \(\), want one label per node: \[4\]"),
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
        ((np.eye(2), np.ones((3, 2))), ValueError, r"features: got 3 rows, want one per node: adjacency has 2 nodes"),
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


# --- damaged matrices ------------------------------------------------------------------------------------------------

POINTERS = {
    "beyond the end": [0, 1, 2, 3, 400],
    "negative": [0, -5, 2, 3, 4],
    "not ascending": [0, 3, 1, 3, 4],
    "not from 0": [1, 1, 2, 3, 4],
    "before the end": [0, 1, 2, 3, 3],
    "too few": [0, 2, 4],
    "none": [],
    "too many": [0, 1, 2, 3, 4, 4],
    "huge": [0, 1, 2, 3, 2**62],
    "all beyond": [0, 400, 400, 400, 400],
}
INDICES = {
    "beyond": [1, 0, 4, 2],
    "far beyond": [1, 0, 900_000_000, 2],
    "negative": [1, 0, -1, 2],
    "too few": [1, 0, 3],
    "too many": [1, 0, 3, 2, 1],
}
WRONG_PARTS = {
    **{f"pointers {name}": ("indptr", np.array(value, np.int64)) for name, value in POINTERS.items()},
    **{
        f"pointers {name}, int32": ("indptr", np.array(POINTERS[name], np.int32)) for name in ("negative", "all beyond")
    },
    "pointers of fractions": ("indptr", np.array([0, 1, 2, 3, 4.0])),
    "pointers of text": ("indptr", np.array(["0", "1", "2", "3", "4"])),
    "pointers in a list": ("indptr", [0, 1, 2, 3, 4]),
    **{f"indices {name}": ("indices", np.array(value)) for name, value in INDICES.items()},
    "indices beyond int64": ("indices", np.array([1, 0, 2**64 - 1, 2], np.uint64)),
    "indices of fractions": ("indices", np.array([1, 0, 3, 2.0])),
    "indices in two dimensions": ("indices", np.array([[1, 0], [3, 2]])),
    "too few values": ("data", np.ones(3)),
    "values in two dimensions": ("data", np.ones((2, 2))),
    "a larger shape": ("_shape", (500, 500)),
    "a smaller shape": ("_shape", (3, 3)),
}
PAIRS = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], float)


def tampered(matrix, **parts):
    for name, value in parts.items():
        setattr(matrix, name, value)
    return matrix


def unchecked(form, pointers, indices, values):
    make = getattr(torch, f"sparse_{form}_tensor")
    return make(torch.tensor(pointers), torch.tensor(indices), values, (4, 4), check_invariants=False)


def lil(part, row, value):
    matrix = scipy.sparse.lil_matrix(PAIRS)
    getattr(matrix, part)[row] = value
    return matrix


def torch_coo(index):
    return torch.sparse_coo_tensor(torch.tensor(index), torch.ones(len(index[0])), (4, 4), check_invariants=False)


DAMAGED = {
    **{
        f"{form}, {name}": lambda form=form, part=part: tampered(
            scipy.sparse.csr_matrix(PAIRS).asformat(form), **dict([part])
        )
        for form in ("csr", "csc")
        for name, part in WRONG_PARTS.items()
    },
    **{
        f"torch {form}, pointers {name}": lambda form=form, pointers=pointers: unchecked(
            form, pointers, [1, 0, 3, 2], torch.ones(4)
        )
        for form in ("csr", "csc")
        for name, pointers in POINTERS.items()
        if pointers
    },
    **{
        f"torch {form}, indices {name}": lambda form=form, indices=indices: unchecked(
            form, [0, 1, 2, 3, 4], indices, torch.ones(len(indices))
        )
        for form in ("csr", "csc")
        for name, indices in INDICES.items()
    },
    **{
        f"torch {form}, {pointers}, {indices}": lambda form=form, pointers=pointers, indices=indices: unchecked(
            form, pointers, indices, torch.ones(2, 2, 2)
        )
        for form in ("bsr", "bsc")
        for pointers, indices in [
            ([0, 1, 200], [0, 1]),
            ([0, -1, 2], [0, 1]),
            ([0, 1, 2], [0, 2]),
            ([0, 1, 2], [-1, 0]),
        ]
    },
    **{
        f"bsr, {name}": lambda parts=parts: tampered(scipy.sparse.bsr_matrix(PAIRS, blocksize=(2, 2)), **parts)
        for name, parts in {
            "pointers": {"indptr": np.array([0, 1, 200])},
            "indices": {"indices": np.array([0, 2])},
            "blocks": {"data": np.ones((2, 3, 2))},
            "empty blocks": {"data": np.ones((2, 0, 2))},
        }.items()
    },
    **{
        f"coo, {name}": lambda parts=parts: tampered(scipy.sparse.coo_matrix(PAIRS), **parts)
        for name, parts in {
            "beyond": {"row": np.array([0, 1, 2, 4])},
            "negative": {"col": np.array([1, 0, -1, 2])},
            "far beyond": {"coords": (np.arange(4), np.array([1, 0, 2**40, 2]))},
            "too few": {"row": np.array([0, 1, 2])},
            "fractions": {"coords": (np.array([0, 1, 2, 2.5]), np.arange(4))},
            "too few values": {"data": np.ones(3)},
            "one coordinate": {"coords": (np.arange(4),)},
        }.items()
    },
    "torch coo, beyond": lambda: torch_coo([[0, 1, 2, 9], [1, 0, 3, 2]]),
    "torch coo, negative": lambda: torch_coo([[0, 1, 2, -1], [1, 0, 3, 2]]),
    "torch coo, far beyond": lambda: torch_coo([[0, 1, 2, 3], [1, 0, 3, 2**40]]),
    "lil, beyond": lambda: lil("rows", 0, [9]),
    "lil, negative": lambda: lil("rows", 0, [-1]),
    "lil, fraction": lambda: lil("rows", 0, [0.5]),
    "lil, more columns": lambda: lil("rows", 0, [0, 1, 2, 3]),
    "lil, more values": lambda: lil("data", 0, [1.0] * 100),
    "lil, text": lambda: lil("data", 0, ["x"]),
    "lil, no list": lambda: lil("rows", 0, None),
    "lil, fewer rows": lambda: tampered(scipy.sparse.lil_matrix(PAIRS), rows=np.array([[1]], object)),
    "dia, fractions": lambda: tampered(scipy.sparse.dia_matrix(PAIRS), offsets=np.array([-1, 0.5])),
    "dia, more offsets": lambda: tampered(scipy.sparse.dia_matrix(np.eye(4)), offsets=np.array([0, 1])),
    "dia, one dimension": lambda: tampered(scipy.sparse.dia_matrix(PAIRS), data=np.ones(4)),
    "SparseMatrix": lambda: SparseMatrix(torch.tensor([0, 1, 2, 3, 400]), torch.arange(4), torch.ones(4), (4, 4)),
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_damaged_matrices_are_refused_before_they_are_read(damaged):
    """SciPy and torch would write outside their memory, or make another graph without a word."""
    matrix = damaged()
    with pytest.raises(ValueError, match=": got "):
        Graph(matrix)
    if isinstance(matrix, SparseMatrix):
        return  # Its constructor says that it doesn't check, and features take it as it is.
    for use in (
        lambda: Graph(PAIRS, matrix),
        lambda: Graph(PAIRS).with_features(matrix),
        lambda: SparseMatrix.from_any(matrix, name="features"),
    ):
        with pytest.raises(ValueError, match=r"^features: got "):
            use()


def test_subclass_is_pickled_without_what_it_computed():
    class Own(SparseMatrix):
        pass

    matrix = SparseMatrix.from_any(PAIRS)
    own = Own(matrix.rowptr, matrix.col, matrix.values, matrix.shape)
    before = set(own.__getstate__())
    assert own.row.tolist() == matrix.row.tolist()
    assert own.row_normalized.nnz == matrix.nnz
    assert set(own.__getstate__()) == before == set(matrix.__getstate__())


def test_damaged_sparse_matrix_is_neither_converted_nor_unpickled():
    good = SparseMatrix.from_any(PAIRS)
    assert pickle.loads(pickle.dumps(good)).to_dense().tolist() == PAIRS.tolist()
    for pointers, col in (([0, 1, 2, 3, 400], [1, 0, 3, 2]), ([0, 1, 2, 3, 4], [1, 0, -3, 2])):
        bad = SparseMatrix(torch.tensor(pointers), torch.tensor(col), torch.ones(4), (4, 4))
        with pytest.raises(ValueError, match=r"matrix: got (4 )?indices"):
            bad.to_scipy()
        content = pickle.dumps(bad)
        with pytest.raises(ValueError, match=r"matrix: got (4 )?indices"):
            pickle.loads(content)


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i2", ">i2", "u2", "<i4", ">i4", "u4", "<i8", ">i8", "u8"])
@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo"])
def test_indices_of_any_integer_type(form, dtype):
    """In steps through a larger array, too."""
    matrix = scipy.sparse.csr_matrix(DENSE).asformat(form)
    for name in ("row", "col") if form == "coo" else ("indptr", "indices"):
        setattr(matrix, name, np.repeat(getattr(matrix, name).astype(dtype), 3)[::3])
    matrix.data = matrix.data.astype(">f8")
    assert SparseMatrix.from_any(matrix, dtype=torch.float64).to_dense().tolist() == DENSE.tolist()


def arrays_of(matrix):
    """All arrays that a matrix is made of."""
    if isinstance(matrix, np.ndarray):
        return [matrix]
    if isinstance(matrix, torch.Tensor):
        if matrix.layout == torch.strided:
            return [matrix.numpy()]
        if matrix.layout == torch.sparse_coo:
            return [matrix._indices().numpy(), matrix._values().numpy()]
        by_row = matrix.layout in (torch.sparse_csr, torch.sparse_bsr)
        index = (
            (matrix.crow_indices(), matrix.col_indices()) if by_row else (matrix.ccol_indices(), matrix.row_indices())
        )
        return [part.numpy() for part in (*index, matrix.values())]
    return [array for array in vars(matrix).values() if isinstance(array, np.ndarray)] + list(
        getattr(matrix, "coords", ())
    )


OWNED = [f"{kind} {form}" for kind in ("scipy", "torch") for form in ("csr", "csc", "coo", "bsr", "dense")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", OWNED)
def test_changing_what_a_graph_was_made_of_does_not_change_it(kind, dtype):
    library, form = kind.split()

    def write():
        dense = np.array(PAIRS)
        if library == "scipy":
            return dense if form == "dense" else scipy.sparse.csr_matrix(dense).asformat(form)
        tensor = torch.tensor(dense)
        return {
            "dense": lambda: tensor,
            "csr": tensor.to_sparse_csr,
            "csc": tensor.to_sparse_csc,
            "coo": tensor.to_sparse_coo,
            "bsr": lambda: tensor.to_sparse_bsr((2, 2)),
        }[form]()

    adjacency, features, labels = write(), write(), np.arange(4)
    mask, other = np.array([True, False, True, False]), torch.tensor([True, False, True, False])
    graph = Graph(adjacency, features, labels, weighted=True, masks={"a": mask, "b": other}, dtype=dtype)
    again = graph.with_features(features)
    for array in (*arrays_of(adjacency), *arrays_of(features), labels, mask, other.numpy()):
        assert array.size
        array[...] = 77 if array.dtype != bool else True
    converted = graph.features.to_scipy()
    for array in (converted.data, converted.indices, converted.indptr):
        array[...] = 77
    for each in (graph, again):
        for matrix in (each.adjacency, each.features):
            assert matrix.to_dense().tolist() == PAIRS.tolist()
        assert each.weights.tolist() == [1] * 4
        assert each.labels.tolist() == [0, 1, 2, 3]
        assert each.masks["a"].tolist() == each.masks["b"].tolist() == [True, False, True, False]


def test_a_memory_mapped_matrix_is_copied(tmp_path):
    np.save(tmp_path / "indices.npy", np.array([1, 0, 3, 2]))
    mapped = np.load(tmp_path / "indices.npy", mmap_mode="r+")
    matrix = tampered(scipy.sparse.csr_matrix(PAIRS), indices=mapped)
    graph = Graph(matrix)
    mapped[:] = 10**6
    mapped.flush()
    assert graph.adjacency.to_dense().tolist() == PAIRS.tolist()
    with pytest.raises(ValueError, match="adjacency: got indices from 1000000"):
        Graph(matrix)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
def test_what_was_checked_is_what_is_used(form, monkeypatch):
    """Another thread, or another process by a file that is mapped, may change an array after the check."""
    matrix = scipy.sparse.csr_matrix(PAIRS).asformat(form)
    check = entries._check_range

    def check_and_change(*arguments):
        check(*arguments)
        for array in arrays_of(matrix):
            array[...] = 10**9

    monkeypatch.setattr(entries, "_check_range", check_and_change)
    found = entries.coo_of_coordinates if form == "coo" else entries.coo_of_compressed
    parts = (matrix.data, *matrix.coords) if form == "coo" else (matrix.data, matrix.indices, matrix.indptr)
    options = {} if form == "coo" else {"by_row": form != "csc"}
    assert found(*parts, (4, 4), "matrix", **options).toarray().tolist() == PAIRS.tolist()
    assert (matrix.data == 10**9).all()


def test_labels_beyond_int64():
    with pytest.raises(ValueError, match="labels: got numbers from 0 to 18446744073709551615, want numbers of 64 bits"):
        Graph(PAIRS, labels=np.array([0, 1, 2, 2**64 - 1], np.uint64))
    with pytest.raises(ValueError, match=r"labels: got numbers from 0\.0 to 1e\+300"):
        Graph(PAIRS, labels=[0.0, 1.0, 2.0, 1e300])


def damaged_matrices():
    rowptr, col, values = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 2]), torch.ones(3)
    return {
        "pointers beyond": ((torch.tensor([0, 10**10, 10**10, 3]), col, values), "indptr that falls"),
        "columns beyond": ((rowptr, torch.tensor([0, 1, 10**10]), values), "indices"),
    }


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("kind", damaged_matrices())
def test_a_damaged_sparse_matrix_is_refused_where_it_comes_in(kind, symmetric):
    parts, message = damaged_matrices()[kind]
    matrix = SparseMatrix(*parts, (3, 3), symmetric=symmetric)
    for name, make in {
        "features": lambda: Graph(PAIRS, features=matrix),
        "adjacency": lambda: Graph(matrix),
        "matrix": lambda: SparseMatrix.from_any(matrix),
    }.items():
        with pytest.raises(ValueError, match=f"{name}: got .*{message}"):
            make()
    with pytest.raises(ValueError, match=message):
        pickle.loads(pickle.dumps(matrix))


def test_a_sparse_matrix_of_wrong_sizes_is_refused():
    rowptr, col, values = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 2]), torch.ones(3)
    with pytest.raises(ValueError, match="rowptr: got 2 numbers, want 4"):
        SparseMatrix(rowptr[:2], col, values, (3, 3))
    with pytest.raises(ValueError, match="values: got 2, want 3"):
        SparseMatrix(rowptr, col, values[:2], (3, 3))
    with pytest.raises(ValueError, match="rowptr: is on meta and values on cpu"):
        SparseMatrix(rowptr.to("meta"), col, values, (3, 3))
    state = SparseMatrix(rowptr, col, values, (3, 3)).__getstate__()
    with pytest.raises(ValueError, match="values: got 1, want 3"):
        SparseMatrix.__new__(SparseMatrix).__setstate__({**state, "values": values[:1]})
