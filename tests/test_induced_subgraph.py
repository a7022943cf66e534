"""induced_subgraph: the entries of a matrix in the rows and columns of some nodes, and where they were."""

import re

import cases
import numpy as np
import pytest
import scipy.sparse
import torch
from contract import columns, refuse, sparse_refusals
from tolerances import assert_same_bits

from seegera_fast import SparseMatrix, ops, use_backend
from seegera_fast.ops.induced_subgraph import OPERATOR

CHOICES = {
    "all": lambda n: torch.arange(n),
    "all, backwards": lambda n: torch.arange(n - 1, -1, -1),
    "none": lambda n: torch.empty(0, dtype=torch.int64),
    "one": lambda n: torch.tensor([n // 2]),
    "ascending": lambda n: torch.arange(n)[::2].contiguous(),
    "any order": lambda n: torch.from_numpy(np.random.default_rng(n).permutation(n)[: (2 * n + 2) // 3]),
    "in gaps": lambda n: torch.arange(n).repeat_interleave(2)[::2],
}


@pytest.fixture(params=columns("induced_subgraph"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def not_symmetric(num_nodes=23):
    matrix = scipy.sparse.random(num_nodes, num_nodes, 0.3, random_state=3)
    return SparseMatrix.from_any(matrix, dtype=torch.float64)


MATRICES = {
    **{name: (lambda name=name: cases.graph(name).adjacency) for name in cases.GRAPHS},
    "not symmetric": not_symmetric,
}


def check(found, adjacency, nodes, weighted=True):
    """Against the dense matrix, and each entry against the one that it was."""
    part, entry = found
    dense = adjacency.to_dense()[nodes][:, nodes]
    assert part.shape == (len(nodes), len(nodes))
    assert part.dtype == adjacency.dtype
    assert (part.symmetric, part.hollow) == (adjacency.symmetric, adjacency.hollow)
    assert torch.equal(part.to_dense(), dense if weighted else (dense != 0).to(dense.dtype))
    assert ((part.col.diff() > 0) | (part.row.diff() > 0)).all()
    assert torch.equal(adjacency.row[entry], nodes[part.row])
    assert torch.equal(adjacency.col[entry], nodes[part.col])


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", MATRICES)
def test_is_the_definition(column, name, choice):
    adjacency = MATRICES[name]().to(column.device)
    nodes = CHOICES[choice](adjacency.shape[0]).to(column.device)
    check(ops.induced_subgraph(adjacency, nodes), adjacency, nodes)


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_values_are_kept_or_one(column, dtype):
    adjacency = not_symmetric().to(column.device, dtype)
    nodes = torch.tensor([20, 3, 11, 4, 0], device=column.device)
    for weighted in (True, False):
        check(ops.induced_subgraph(adjacency, nodes, weighted=weighted), adjacency, nodes, weighted)


def test_long_rows_and_many_nodes(column):
    """Rows that are longer than a block, and several blocks of rows; by another way, SciPy's indexing."""
    rng = np.random.default_rng(5)
    ends = rng.integers(0, 1100, (2, 3000))
    ends[0, :700] = 7
    adjacency = SparseMatrix.from_edge_index(ends, 1100).to(column.device)
    whole = adjacency.to_scipy()
    for nodes in (np.sort(rng.permutation(1100)[:900]), rng.permutation(1100)[:900]):
        part, entry = ops.induced_subgraph(adjacency, torch.from_numpy(nodes).to(column.device))
        want = whole[nodes][:, nodes].tocsr()
        want.sort_indices()
        assert np.array_equal(part.rowptr.cpu(), want.indptr)
        assert np.array_equal(part.col.cpu(), want.indices)
        assert torch.equal(adjacency.col[entry].cpu(), torch.from_numpy(nodes)[part.col.cpu()])


@pytest.mark.skipif(not columns("induced_subgraph", compiled=True)[0].values[0], reason="no kernel here")
@pytest.mark.parametrize("threaded", columns("induced_subgraph", compiled=True, interpreter=False))
def test_any_number_of_threads(threaded):
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 9000, (2, 60_000))
    ends[0, :5000] = 17
    adjacency = SparseMatrix.from_edge_index(ends, 9000).to(threaded.device)
    nodes = torch.from_numpy(rng.permutation(9000)[:7000]).to(threaded.device)
    threads = torch.get_num_threads()
    with use_backend(threaded.backend):
        want, entry = ops.induced_subgraph(adjacency, nodes)
        try:
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                part, again = ops.induced_subgraph(adjacency, nodes)
                for got, expected in ((part.rowptr, want.rowptr), (part.col, want.col), (again, entry)):
                    assert_same_bits(got, expected, name=f"{count} threads")
        finally:
            torch.set_num_threads(threads)


def test_only_the_rows_of_the_nodes_are_read(column):
    """The other rows may hold anything: here numbers of nodes that are not there."""
    rowptr, col = torch.tensor([0, 2, 4, 5]), torch.tensor([1, 2, 10**12, -5, 0])
    matrix = SparseMatrix(rowptr, col, torch.ones(5), (3, 3)).to(column.device)
    part, entry = ops.induced_subgraph(matrix, torch.tensor([2, 0], device=column.device))
    assert part.to_dense().tolist() == [[0, 1], [1, 0]]
    assert entry.tolist() == [4, 1]


@pytest.mark.parametrize("checked", columns("induced_subgraph", compiled=True))
def test_operator_is_sound(checked):
    adjacency = cases.graph("random").adjacency.to(checked.device)
    overload = OPERATOR._overloads["triton" if checked.backend == "triton" else "default"]
    nodes = torch.tensor([9, 2, 3, 4, 16, 0], device=checked.device)
    torch.library.opcheck(overload, (adjacency.rowptr, adjacency.col, nodes))


@pytest.mark.skipif("cpu" not in [str(c.values[0]) for c in columns("induced_subgraph")], reason="no CPU kernels here")
@pytest.mark.parametrize(
    ("nodes", "message"), [([1, 6], "got row 6, want 0 to 5"), ([-1], "got row -1"), ([2, 0, 2], "got node 2 twice")]
)
def test_the_kernel_writes_nowhere_else(nodes, message):
    adjacency = cases.graph("path").adjacency
    with pytest.raises(RuntimeError, match=f"induced_subgraph: {message}"):
        torch.ops.seegera_fast.induced_subgraph(adjacency.rowptr, adjacency.col, torch.tensor(nodes))


REFUSALS = [
    *sparse_refusals("adjacency"),
    refuse(
        "not square",
        ValueError,
        r"adjacency: got shape \(17, 9\), want a square matrix",
        adjacency=lambda _: cases.features("dense", 17),
    ),
    refuse("nodes of int32", TypeError, "nodes: got torch.int32, want .*torch.int64", nodes=lambda t: t.int()),
    refuse("a mask", TypeError, "nodes: got torch.bool, want .*torch.int64", nodes=lambda t: t > 2),
    refuse("a list", TypeError, "nodes: got list, want .*torch.int64", nodes=lambda t: t.tolist()),
    refuse("two dimensions", ValueError, r"nodes: got shape \(2, 2\), want \[any\]", nodes=lambda t: t.reshape(2, 2)),
    refuse("too large", ValueError, "nodes: got numbers from 0 to 17, want 0 to 16", nodes=torch.tensor([0, 17])),
    refuse("negative", ValueError, "nodes: got numbers from -1 to 3, want 0 to 16", nodes=torch.tensor([3, -1])),
    refuse("twice", ValueError, "nodes: got 5 twice, want different numbers", nodes=torch.tensor([5, 2, 5])),
    refuse("elsewhere", ValueError, "nodes: is on meta, .*", nodes=lambda t: t.to("meta")),
    refuse("no flag", TypeError, "weighted: got 1, want True or False", weighted=1),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_refusals(refusal):
    arguments = {"adjacency": cases.graph("random").adjacency, "nodes": torch.tensor([3, 1, 16, 0])}
    with pytest.raises((TypeError, ValueError)) as caught:
        ops.induced_subgraph(**refusal.change(arguments))
    assert type(caught.value) is refusal.error
    assert re.fullmatch(refusal.message, str(caught.value)), str(caught.value)
