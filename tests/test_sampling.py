"""The numbering of the cells that a sparse matrix does not store."""

import bisect

import cases
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seegera_fast import Graph, SparseMatrix
from seegera_fast.sampling import NonEdges, ZeroEntries


def enumerated(dense):
    """The pairs i < k of a graph that are not edges, in ascending order."""
    n = dense.shape[0]
    return [[i, k] for i in range(n) for k in range(i + 1, n) if dense[i, k] == 0]


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 9))
    pairs = [(i, k) for i in range(n) for k in range(i + 1, n)]
    chosen = [pair for pair in pairs if draw(st.booleans())]
    index = torch.tensor(chosen, dtype=torch.int64).reshape(-1, 2).T
    return Graph.from_edge_index(torch.cat([index, index.flip(0)], dim=1), num_nodes=n)


@given(graphs())
def test_non_edges_of_small_graphs(graph):
    non_edges = graph.adjacency.non_edges
    want = enumerated(graph.adjacency.to_dense())
    assert non_edges.count == len(want)
    assert non_edges.pairs(torch.arange(non_edges.count)).tolist() == want


@pytest.mark.parametrize("name", cases.GRAPHS)
def test_non_edges_of_the_shared_graphs(name):
    adjacency = cases.graph(name).adjacency
    want = enumerated(adjacency.to_dense())
    assert adjacency.non_edges.count == len(want)
    assert adjacency.non_edges.pairs(torch.arange(len(want))).tolist() == want


@pytest.mark.parametrize("shape", [(2, 3), (3, 3)])
def test_non_edges_of_a_matrix_that_is_no_adjacency_are_refused(shape):
    matrix = SparseMatrix.from_any(torch.ones(shape))
    for call in (lambda: matrix.non_edge_count, lambda: matrix.non_edges):
        with pytest.raises(ValueError, match=r"^matrix: is not known to be symmetric without a diagonal, want Graph\("):
            call()


def test_non_edges_in_any_order_and_repeated():
    non_edges = cases.graph("random").adjacency.non_edges
    whole = non_edges.pairs(torch.arange(non_edges.count))
    ranks = torch.tensor([5, 0, 5, non_edges.count - 1, 17])
    assert torch.equal(non_edges.pairs(ranks), whole[ranks])
    assert non_edges.pairs(ranks[:0]).shape == (0, 2)


def test_non_edges_beyond_32_bits():
    """200,000 nodes have 2e10 pairs: the numbers of the first, the last and some between, against Python integers."""
    n = 200_000
    low = torch.arange(0, n - 1, 3)
    edges = torch.stack([low, low + 1], dim=1)
    non_edges = NonEdges(edges, n)
    assert non_edges.count == n * (n - 1) // 2 - len(low)
    # Number of each edge among all pairs, less the edges before it: how many non-edges come before it.
    gaps = [i * (2 * n - i - 1) // 2 - e for e, i in enumerate(low.tolist())]
    ranks = [0, 1, 199_997, 199_998, 2**31, 2**32, 2**33 + 12345, non_edges.count - 2, non_edges.count - 1]
    for rank, (i, k) in zip(ranks, non_edges.pairs(torch.tensor(ranks)).tolist(), strict=True):
        assert 0 <= i < k < n
        number = i * (2 * n - i - 1) // 2 + k - i - 1
        assert number - bisect.bisect_right(gaps, rank) == rank
        assert not (i % 3 == 0 and k == i + 1)


@given(st.integers(1, 7), st.integers(1, 7), st.data())
def test_zero_entries_of_small_matrices(rows, columns, data):
    present = data.draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    dense = torch.tensor(present).reshape(rows, columns).float()
    matrix = SparseMatrix.from_any(dense)
    zero = ZeroEntries(matrix.row, matrix.col, matrix.shape)
    want = (dense == 0).nonzero().tolist()
    assert zero.count == len(want)
    assert zero.cells(torch.arange(zero.count)).tolist() == want


@pytest.mark.parametrize("kind", cases.FEATURES)
def test_zero_entries_of_the_shared_features(kind):
    matrix = cases.features(kind, 13, 9)
    zero = ZeroEntries(matrix.row, matrix.col, matrix.shape)
    want = (matrix.to_dense() == 0).nonzero()
    assert zero.count == len(want)
    assert torch.equal(zero.cells(torch.arange(zero.count)), want)
    assert zero.cells(torch.arange(0)).shape == (0, 2)


def test_zero_entries_beyond_32_bits():
    """A matrix of 1e6 x 1e5 with a filled first row and one last entry."""
    rows, columns = 10**6, 10**5
    row = torch.cat([torch.zeros(columns, dtype=torch.int64), torch.tensor([rows - 1])])
    col = torch.cat([torch.arange(columns), torch.tensor([columns - 1])])
    zero = ZeroEntries(row, col, (rows, columns))
    assert zero.count == rows * columns - columns - 1
    cells = zero.cells(torch.tensor([0, columns, 2**33, zero.count - 1])).tolist()
    number = columns + 2**33
    assert cells == [[1, 0], [2, 0], [number // columns, number % columns], [rows - 1, columns - 2]]
