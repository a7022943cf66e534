"""Damaged matrices are refused before they are read, and later changes of what was given change nothing."""

import pickle

import numpy as np
import pytest
import scipy.sparse
import torch
from matrices import BETA, DENSE

from seegera_fast import Graph, SparseMatrix, entries

pytestmark = BETA


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
