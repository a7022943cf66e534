"""add_self_loops: A + I, the edge that each of its entries belongs to, and the edges."""

import re

import cases
import numpy as np
import pytest
import torch
from contract import columns, refuse, sparse_refusals
from tolerances import assert_same_bits

from seegera_fast import SparseMatrix, ops, use_backend
from seegera_fast.ops.add_self_loops import OPERATOR

GRAPHS = {
    **{name: (lambda name=name: cases.graph(name).adjacency) for name in cases.GRAPHS},
    "large": lambda: cases.large_graph().adjacency,
}


@pytest.fixture(params=columns("add_self_loops"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def weighted(adjacency):
    """The matrix with a value of its own for each edge."""
    low, high = torch.minimum(adjacency.row, adjacency.col), torch.maximum(adjacency.row, adjacency.col)
    values = (0.5 + low + 0.01 * high).to(adjacency.dtype)
    return SparseMatrix(adjacency.rowptr, adjacency.col, values, adjacency.shape, symmetric=True, hollow=True)


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("name", GRAPHS)
def test_is_the_definition(column, name, dtype):
    adjacency = weighted(GRAPHS[name]()).to(column.device, dtype)
    looped, edge, edges = ops.add_self_loops(adjacency)
    assert looped.dtype == dtype
    assert looped.symmetric
    assert not looped.hollow
    assert_same_bits(looped.to_dense(), adjacency.to_dense() + torch.eye(adjacency.shape[0], device=column.device))
    assert ((looped.col.diff() > 0) | (looped.row.diff() > 0)).all()
    assert edges.tolist() == torch.triu(adjacency.to_dense(), 1).nonzero().tolist()
    ends = torch.stack([torch.minimum(looped.row, looped.col), torch.maximum(looped.row, looped.col)], dim=1)
    assert torch.equal(edge < 0, looped.row == looped.col)
    assert torch.equal(edges[edge[edge >= 0]], ends[edge >= 0])


@pytest.mark.parametrize("threaded", columns("add_self_loops", compiled=True))
def test_any_number_of_threads(threaded):
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 9000, (2, 60_000))
    ends[0, :5000] = 17
    adjacency = SparseMatrix.from_edge_index(ends, 9000).to(threaded.device)
    threads = torch.get_num_threads()
    with use_backend("reference"):
        want, *others = ops.add_self_loops(adjacency)
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            with use_backend(threaded.backend):
                looped, *found = ops.add_self_loops(adjacency)
            for part in ("rowptr", "col", "values"):
                assert_same_bits(getattr(looped, part), getattr(want, part), name=f"{part} with {count} threads")
            for got, expected in zip(found, others, strict=True):
                assert_same_bits(got, expected, name=f"{count} threads")
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("checked", columns("add_self_loops", compiled=True))
def test_operator_is_sound(checked):
    adjacency = cases.graph("random").adjacency.to(checked.device)
    torch.library.opcheck(OPERATOR._overloads["default"], (adjacency.rowptr, adjacency.col, adjacency.values))


@pytest.mark.skipif("cpu" not in [str(c.values[0]) for c in columns("add_self_loops")], reason="no CPU kernels here")
@pytest.mark.parametrize(
    ("col", "message"), [([1, 2, 0], "got 2 of 3 entries"), ([2, 1, 2, 0], "got 3 of 4"), ([1, 2, 0, 0], "not symm")]
)
def test_the_kernel_refuses_what_is_not_symmetric(col, message):
    rowptr = torch.tensor([0, 1, 2, 3] if len(col) == 3 else [0, 1, 3, 4] if col[0] == 2 else [0, 1, 2, 4])
    values = torch.ones(len(col))
    with pytest.raises(RuntimeError, match=f"add_self_loops: .*{message}"):
        torch.ops.seegera_fast.add_self_loops(rowptr, torch.tensor(col), values)


REFUSALS = [
    *sparse_refusals("adjacency", undirected=True),
    refuse(
        "not symmetric",
        ValueError,
        r"adjacency: is not known to be symmetric without a diagonal, want Graph\(matrix\).*",
        adjacency=lambda matrix: matrix.with_values(matrix.values),
    ),
    refuse(
        "with a diagonal",
        ValueError,
        r"adjacency: is not known to be symmetric without a diagonal, want Graph\(matrix\).*",
        adjacency=lambda _: cases.graph("random").propagation,
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_refusals(refusal):
    with pytest.raises((TypeError, ValueError)) as caught:
        ops.add_self_loops(**refusal.change({"adjacency": cases.graph("random").adjacency}))
    assert type(caught.value) is refusal.error
    assert re.fullmatch(refusal.message, str(caught.value)), str(caught.value)
