"""graph.subgraph: the graph of some of the nodes is that of their rows and columns, bit for bit."""

import copy
import pickle
import re

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import assert_same_bits

from seegera_fast import Graph, SparseMatrix, backends, subgraph, use_backend


def random_graph(num_nodes=30, density=0.2, seed=0, **options):
    rng = np.random.default_rng(seed)
    links = scipy.sparse.triu(scipy.sparse.random(num_nodes, num_nodes, density, random_state=rng), 1)
    if not options.get("weighted"):
        links = links.sign()
    features = scipy.sparse.random(num_nodes, 7, 0.4, random_state=rng)
    return Graph(links + links.T, features, **options)


def of_scipy(graph, nodes):
    """The same by SciPy's indexing, and a new graph."""
    values = torch.ones(graph.adjacency.nnz) if graph.weights is None else graph.weights
    parts = values.numpy(), graph.adjacency.col.numpy(), graph.adjacency.rowptr.numpy()
    adjacency = scipy.sparse.csr_matrix(parts, shape=graph.adjacency.shape)[nodes][:, nodes]
    features = graph.features.to_scipy()[nodes]
    return Graph(adjacency, features, weighted=graph.weights is not None, dtype=graph.dtype)


def matrices(graph):
    features = graph.features
    return {
        "adjacency": graph.adjacency,
        "with self-loops": graph.with_self_loops()[0],
        "propagation": graph.propagation,
        "features": features,
        "features, transposed": features.transposed,
        "features, rows": features.row_normalized,
        "features, rows, transposed": features.row_normalized.transposed,
        "features, columns": features.transposed.row_normalized,
    }


def assert_same_graph(found, want):
    for (name, got), matrix in zip(matrices(found).items(), matrices(want).values(), strict=True):
        for part in ("rowptr", "col", "values"):
            assert_same_bits(getattr(got, part), getattr(matrix, part), name=f"{name}, {part}")
        assert (got.shape, got.symmetric, got.hollow) == (matrix.shape, matrix.symmetric, matrix.hollow), name
    assert_same_bits(found.edges(), want.edges(), name="edges")
    assert_same_bits(found.with_self_loops()[1], want.with_self_loops()[1], name="edge of each entry")
    assert_same_bits(found.features.order, want.features.order, name="order")
    assert_same_bits(found.adjacency.non_edges.gaps, want.adjacency.non_edges.gaps, name="non-edges")
    assert (found.weights is None) == (want.weights is None)
    if want.weights is not None:
        assert_same_bits(found.weights, want.weights, name="weights")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("nodes", [[3], [0, 1, 2, 17, 29], [17, 3, 29, 4, 0, 11, 12], range(30), range(29, -1, -1)])
def test_is_the_graph_of_the_rows_and_columns(nodes, weighted, dtype):
    graph, nodes = random_graph(weighted=weighted, dtype=dtype), list(nodes)
    part = graph.subgraph(nodes)
    assert part.node_numbers.tolist() == nodes
    assert part.name == graph.name
    assert (part.dtype, part.device) == (graph.dtype, graph.device)
    assert_same_graph(part, of_scipy(graph, nodes))


@given(data=st.data())
def test_any_nodes_of_any_graph(data):
    num_nodes = data.draw(st.integers(1, 12))
    chosen = data.draw(st.sets(st.integers(0, num_nodes - 1), min_size=1))
    nodes = data.draw(st.permutations(sorted(chosen)))
    density, seed = data.draw(st.floats(0, 1)), data.draw(st.integers(0, 99))
    graph = random_graph(num_nodes, density, seed, weighted=data.draw(st.booleans()))
    part = graph.subgraph(nodes)
    assert_same_graph(part, of_scipy(graph, nodes))
    again = data.draw(st.permutations(range(len(nodes))))[: data.draw(st.integers(1, len(nodes)))]
    assert_same_graph(part.subgraph(again), graph.subgraph([nodes[number] for number in again]))


NODES = [5, 2, 9, 4]


@pytest.mark.parametrize(
    "nodes",
    [
        tuple(NODES),
        np.array(NODES, np.int8),
        np.array(NODES)[::-1][::-1],
        torch.tensor(NODES, dtype=torch.int32),
        torch.tensor(NODES).repeat_interleave(2)[::2],
    ],
    ids=["tuple", "int8", "backwards", "int32", "in gaps"],
)
def test_kinds_of_numbers(nodes):
    graph = random_graph()
    assert_same_graph(graph.subgraph(nodes), graph.subgraph(NODES))


def test_a_mask_takes_its_nodes_in_ascending_order():
    graph, mask = random_graph(), np.isin(np.arange(30), NODES)
    want = graph.subgraph(sorted(NODES))
    for given_mask in (mask, torch.from_numpy(mask), mask.tolist()):
        found = graph.subgraph(given_mask)
        assert found.node_numbers.tolist() == sorted(NODES)
        assert_same_graph(found, want)


def described():
    rng = np.random.default_rng(3)
    graph = random_graph(
        labels=[("red", "blue", "")[number % 3] for number in range(30)],
        masks={"train": rng.random(30) < 0.5},
        nodes=[f"node {number}" for number in range(30)],
        feature_names=list("abcdefg"),
        name="described",
    )
    graph.sides = rng.integers(-1, 2, 30)
    graph.edge_times = torch.arange(graph.num_edges, dtype=torch.float64) + 0.5
    return graph


@pytest.mark.parametrize("piece", [4, 1 << 16])
def test_what_is_known_of_nodes_and_edges_goes_along(piece, monkeypatch):
    monkeypatch.setattr(subgraph, "PIECE", piece)
    graph, nodes = described(), [17, 3, 29, 4, 0, 11, 12, 26]
    part = graph.subgraph(nodes)
    assert part.labels.tolist() == graph.labels[nodes].tolist()
    assert part.classes == ("blue", "red")
    assert part.masks["train"].tolist() == graph.masks["train"][nodes].tolist()
    assert part.nodes.tolist() == [f"node {number}" for number in nodes]
    assert part.sides.tolist() == graph.sides[nodes].tolist()
    assert part.feature_names.tolist() == list("abcdefg")
    assert part.name == "described"
    times = {
        frozenset(edge): time for edge, time in zip(graph.edges().tolist(), graph.edge_times.tolist(), strict=True)
    }
    ends = part.node_numbers[part.edges()].tolist()
    assert len(ends) > 3
    assert [times[frozenset(edge)] for edge in ends] == part.edge_times.tolist()


def test_what_is_not_known_stays_unknown():
    graph = random_graph()
    part = graph.subgraph(NODES)
    unknown = ("labels", "classes", "nodes", "sides", "feature_names", "edge_times", "weights")
    assert {getattr(part, name) for name in unknown} == {None}
    assert part.masks == {}
    assert graph.node_numbers is None


def test_numbers_of_a_part_of_a_part_are_those_in_the_whole():
    graph = described()
    part = graph.subgraph([9, 8, 7, 1, 2]).subgraph([3, 0])
    assert part.node_numbers.tolist() == [1, 9]
    assert part.nodes.tolist() == ["node 1", "node 9"]


def test_copies_keep_the_numbers():
    part = described().subgraph(NODES)
    edges = part.edges()[:1]
    copies = [part.to(dtype=torch.float64), part.with_edges(edges), part.with_features(np.eye(4)), copy.deepcopy(part)]
    for other in (*copies, pickle.loads(pickle.dumps(part))):
        assert other.node_numbers.tolist() == NODES


def test_the_numbers_are_a_copy():
    graph, numbers = random_graph(), torch.tensor(NODES)
    part = graph.subgraph(numbers)
    numbers[0] = 0
    assert part.node_numbers.tolist() == NODES


def test_nothing_is_kept_that_was_computed_of_the_whole():
    graph = random_graph()
    _ = graph.propagation, graph.edges(), graph.features.parts
    assert_same_graph(graph.subgraph(NODES), random_graph().subgraph(NODES))


def test_without_features_the_columns_stay():
    graph = Graph(random_graph().adjacency.to_scipy())
    part = graph.subgraph(NODES)
    assert part.features.shape == (4, 30)
    assert part.features.col.tolist() == NODES


@pytest.mark.parametrize("weighted", [False, True])
def test_reads_only_the_rows_of_the_nodes(weighted, tmp_path):
    """A graph in memory-mapped files, where all other rows are damaged."""
    graph = random_graph(weighted=weighted)
    want = graph.subgraph(NODES)
    for matrix in (graph.adjacency, graph.features):
        other = torch.ones(matrix.nnz, dtype=torch.bool)
        for node in NODES:
            other[matrix.rowptr[node] : matrix.rowptr[node + 1]] = False
        matrix.col[other] = 10**12

    def mapped(name, tensor):
        np.save(tmp_path / name, tensor.numpy())
        return torch.from_numpy(np.load(tmp_path / name, mmap_mode="c"))

    def reopened(name):
        matrix = getattr(graph, name)
        parts = (mapped(f"{name}_{part}.npy", getattr(matrix, part)) for part in ("rowptr", "col", "values"))
        return SparseMatrix(*parts, matrix.shape, symmetric=matrix.symmetric, hollow=matrix.hollow)

    graph.adjacency, graph.features = reopened("adjacency"), reopened("features")
    before = {name: set(getattr(graph, name).__dict__) for name in ("adjacency", "features")}
    assert_same_graph(graph.subgraph(NODES), want)
    # Nor was anything computed that is as long as the graph.
    assert {name: set(getattr(graph, name).__dict__) for name in before} == before
    assert not graph._kept_names & set(graph.__dict__)


@pytest.mark.parametrize("name", [name for name, backend in backends.NAMED.items() if backend.missing is None])
def test_a_forced_backend_changes_nothing(name):
    """Also one that has no kernel for what a graph keeps."""
    want = random_graph(weighted=True).subgraph(NODES)
    with use_backend(name):
        assert_same_graph(random_graph(weighted=True).subgraph(NODES), want)
        assert backends.forced().name == name


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        ([], ValueError, "nodes: got none, want at least one node"),
        (np.zeros(30, bool), ValueError, "nodes: got none, want at least one node"),
        ([0, 30], ValueError, "nodes: got numbers from 0 to 30, want 0 to 29"),
        ([-1], ValueError, "nodes: got numbers from -1 to -1, want 0 to 29"),
        ([2, 7, 2], ValueError, "nodes: got 2 twice, want different numbers"),
        ([[0, 1]], ValueError, r"nodes: got shape \(1, 2\), want \[m\]"),
        (3, TypeError, r"nodes: got 3, want integers \[m\] or a boolean mask .*"),
        ({1, 2}, TypeError, r"nodes: got set, want integers \[m\] or a boolean mask .*"),
        (torch.ones(9, dtype=torch.bool).to_sparse(), TypeError, r"nodes: got a tensor of layout torch\.sparse_coo.*"),
        (np.ones(29, bool), ValueError, r"nodes: got a mask of shape \(29,\), want \[30\]"),
        (torch.ones(30, 1, dtype=torch.bool), ValueError, r"nodes: got a mask of shape \(30, 1\), want \[30\]"),
        ([0.0, 1.0], TypeError, "nodes: got torch.float64, want integers"),
        (["a"], TypeError, r"nodes: got words, want integers: node k has the name graph\.nodes\[k\]"),
        (None, TypeError, r"nodes: got None, want integers \[m\] or a boolean mask .*"),
        (
            torch.tensor([0, 1]).to_sparse(),
            TypeError,
            "nodes: got a tensor of layout torch.sparse_coo, want a dense one",
        ),
        (torch.tensor([0, 1], device="meta"), ValueError, "nodes: is on meta, .*"),
    ],
)
def test_refusals(nodes, error, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        random_graph().subgraph(nodes)
    assert type(caught.value) is error
    assert re.fullmatch(message, str(caught.value), flags=re.DOTALL), str(caught.value)


@pytest.mark.parametrize(
    ("col", "message"), [([0, 5], "indices from 0 to 5, want 0 to 2"), ([-1, 0], "indices from -1 to 0")]
)
def test_a_damaged_matrix_has_no_transpose(col, message):
    matrix = SparseMatrix(torch.tensor([0, 1, 2]), torch.tensor(col), torch.ones(2), (2, 3))
    with pytest.raises(ValueError, match=f"matrix: got {message}"):
        _ = matrix.transposed
