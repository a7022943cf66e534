"""SparseMatrix: every way in, what is derived, and what is refused."""

import pickle

import cases
import hypothesis
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from matrices import BETA, DENSE, WRITERS, assert_well_formed
from tolerances import assert_close, assert_same_bits

from seegera_fast import Graph, SparseMatrix, backends, ops, use_backend

pytestmark = BETA


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


def test_a_sparse_matrix_out_of_order():
    """Its constructor has not looked at the columns, which torch does not sort either."""
    parts = torch.tensor([0, 3, 3, 4]), torch.tensor([2, 0, 2, 1]), torch.tensor([1.0, 2.0, 3.0, 1.0])
    given = SparseMatrix(*parts, (3, 3))
    for matrix in (SparseMatrix.from_any(given), SparseMatrix.from_any(pickle.loads(pickle.dumps(given)))):
        assert_well_formed(matrix)
        assert matrix.to_dense().tolist() == [[2, 0, 4], [0, 0, 0], [0, 1, 0]]
    twice = SparseMatrix(torch.tensor([0, 2]), torch.tensor([1, 1]), torch.ones(2), (1, 2))
    assert SparseMatrix.from_any(twice).to_dense().tolist() == [[0, 2]]
    ordered = SparseMatrix(torch.tensor([0, 1, 2]), torch.tensor([1, 1]), torch.ones(2), (2, 2))
    assert SparseMatrix.from_any(ordered) is ordered


def test_a_sparse_matrix_that_requires_a_gradient():
    given = SparseMatrix(torch.arange(3), torch.arange(2), torch.ones(2, requires_grad=True), (2, 2))
    for made in (lambda: Graph(np.zeros((2, 2)), given), lambda: Graph(given, np.eye(2))):
        with pytest.raises(ValueError, match=r"^(features|adjacency): got a tensor that requires a gradient"):
            made()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_sparse_matrix_of_16_bits(dtype):
    given = SparseMatrix(torch.arange(3), torch.arange(2), torch.tensor([1.5, 2], dtype=dtype), (2, 2))
    assert given.to_scipy().toarray().tolist() == [[1.5, 0], [0, 2]]
    assert SparseMatrix.from_any(given).to_dense().tolist() == [[1.5, 0], [0, 2]]


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


def test_to_a_dtype_that_holds_not_every_value():
    """They are dropped, as they are where the matrix is made."""
    dense = np.array([[1e-40, 0.0, -1e-60], [1.0, 1e-50, 2.0], [0.0, 0.0, 0.0]])
    double = SparseMatrix.from_any(dense, dtype=torch.float64).with_layout("dense")
    double.transposed  # noqa: B018
    single = double.to(dtype=torch.float32)
    assert_well_formed(single)
    assert single.layout == "dense"
    assert single.transposed.nnz == single.nnz == 2
    assert torch.equal(single.to_dense(), SparseMatrix.from_any(dense).to_dense())
    assert torch.isfinite(single.row_normalized.values).all()
    zero = double.with_values(torch.zeros_like(double.values)).to(dtype=torch.float32)
    assert zero.nnz == double.nnz, "a zero that is stored is no number that float32 lacks"


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
    "None": (
        None,
        TypeError,
        r"matrix: got NoneType, want a SciPy sparse matrix, a NumPy array, a torch tensor or a data frame",
    ),
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
    "masked": (
        np.ma.masked_equal([[0.0, -9.0], [1.0, -9.0]], -9.0),
        ValueError,
        r"matrix: got 2 masked entries, want none: matrix.filled\(...\)",
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


def test_what_a_matrix_keeps_outlives_a_transform():
    """torch.func asks for the transpose first, in which tensors of the transform would be of no use afterwards."""
    given = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    for name in ("cpu", "reference"):
        if backends.NAMED[name].missing is None:
            matrix = SparseMatrix.from_any(given)
            with use_backend(name):
                found = torch.func.grad(lambda v, m=matrix: ops.sparse_matmul(m, v).sum())(torch.ones(3, 1))
            assert torch.equal(found, given.sum(dim=0)[:, None])
            assert torch.equal(matrix.transposed.to_dense(), given.T)
            averages = SparseMatrix.from_any(given)
            torch.func.vjp(lambda v, m=averages: ops.feature_average(m, v, to="nodes"), torch.ones(3, 1, 2))[1](
                torch.ones(2, 1, 2)
            )
            assert torch.equal(averages.row_normalized.transposed.to_dense(), (given / given.sum(1, keepdim=True)).T)
