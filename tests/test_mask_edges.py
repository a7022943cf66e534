"""mask_edges: the propagation matrix without an exact number of edges."""

import importlib
import re

import cases
import numpy as np
import pytest
import torch
from contract import DATA_SEED_REFUSALS, columns, refuse, sparse_refusals
from tolerances import assert_close, assert_same_bits

from seegera_fast import Graph, SparseMatrix, backends, ops, reference, use_backend
from seegera_fast.ops.mask_edges import OPERATOR


def weighted():
    rng = np.random.default_rng(5)
    edges = rng.integers(0, 40, (2, 150))
    weight = rng.random(150) + 0.1
    return Graph.from_edge_index(
        np.concatenate([edges, edges[::-1]], axis=1),
        None,
        40,
        edge_weight=np.concatenate([weight, weight]),
        weighted=True,
        dtype=torch.float64,
    )


GRAPHS = {
    **{name: (lambda name=name: cases.graph(name)) for name in cases.GRAPHS},
    "large": cases.large_graph,
    "weighted": weighted,
}


@pytest.fixture(params=columns("mask_edges"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def parts(matrix):
    return matrix.rowptr, matrix.col, matrix.values


def dense_definition(graph, removed):
    looped, edge = graph.with_self_loops()
    dense = torch.zeros(looped.shape, dtype=torch.float64)
    for i, k, weight, number in zip(looped.row, looped.col, looped.values, edge, strict=True):
        if number < 0 or not removed[number]:
            dense[i, k] = weight
    scale = dense.sum(dim=1).rsqrt()
    return scale[:, None] * dense * scale


def without_rows():
    empty = torch.zeros(0, dtype=torch.int64)
    return SparseMatrix(torch.zeros(1, dtype=torch.int64), empty, torch.zeros(0), (0, 0)), empty


def test_a_matrix_without_rows_has_a_row_pointer(column):
    looped, edge = without_rows()
    rowptr, col, values = parts(ops.mask_edges(looped.to(column.device), edge.to(column.device), 0, 4))
    assert (rowptr.tolist(), col.tolist(), values.tolist()) == ([0], [], [])


@pytest.mark.skipif(backends.CPU.missing is not None, reason="the CPU kernels are not there")
def test_edges_that_are_not_there():
    """Their marks would be read beyond those of the edges. A GPU does not look at the numbers."""
    graph = cases.graph("random")
    looped, edge = graph.with_self_loops()
    for number in (graph.num_edges, 10**12, 2**62, -2, -(2**62)):
        wrong = edge.clone()
        wrong[-1] = number
        with use_backend("reference"), pytest.raises(ValueError, match=r"^edge: got numbers from "):
            ops.mask_edges(looped, wrong, 3, 4)
        with (
            use_backend("cpu"),
            pytest.raises(RuntimeError, match="edge: got the number of an edge that is not there, want -1 to"),
        ):
            ops.mask_edges(looped, wrong, 3, 4)


@pytest.mark.parametrize("number", [-1, 10**12])
@pytest.mark.parametrize("gpu", [column for column in columns("mask_edges") if column.values[0].backend == "triton"])
def test_wrong_numbers_write_nothing_past_the_end(gpu, number, monkeypatch):
    """If all entries are of no edge they all stay, which are more than the results have room for."""
    looped, edge = (part.to(gpu.device) for part in cases.graph("random").with_self_loops())
    module = importlib.import_module("seegera_fast.kernels.triton.mask_edges")
    left = looped.nnz - 10
    room = looped.col.new_full((looped.nnz,), -7), looped.values.new_full((looped.nnz,), -7)
    launched, watched = module.write_kernel, {}

    class Watched:
        def __getitem__(self, grid):
            def launch(*given, **options):
                *given, _, _, rows, edges, found = given
                watched["left"] = found
                launched[grid](*given, *room, rows, edges, found, **options)

            return launch

    monkeypatch.setattr(module, "write_kernel", Watched())
    with use_backend("triton"):
        ops.mask_edges(looped, torch.full_like(edge, number), 5, 4)
    assert watched["left"] == left
    assert room[0][:left].tolist() == looped.col[:left].tolist()
    assert (room[0][left:] == -7).all()
    assert (room[1][left:] == -7).all()


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("name", list(GRAPHS))
def test_is_the_definition(column, name, share, dtype):
    graph = GRAPHS[name]()
    number = int(share * graph.num_edges)
    given = graph.to(column.device, dtype)
    masked = ops.mask_edges(*given.with_self_loops(), number, 4)
    removed = reference.draw_subset(4, graph.num_edges, number, stream="edges")
    assert masked.nnz == 2 * (graph.num_edges - number) + graph.num_nodes
    assert masked.dtype == dtype
    assert masked.symmetric
    assert masked.shape == graph.adjacency.shape
    assert_close(masked.to_dense(), dense_definition(graph, removed), terms=graph.num_nodes, name="dense")
    assert_same_bits(masked.to_dense(), masked.to_dense().T)
    ascending = masked.col.diff() > 0
    assert (ascending | (masked.row.diff() > 0)).all()
    with use_backend("reference"):
        want = ops.mask_edges(*graph.to(dtype=dtype).with_self_loops(), number, 4)
    assert torch.equal(masked.rowptr.cpu(), want.rowptr)
    assert torch.equal(masked.col.cpu(), want.col)
    assert_close(masked.values, want.values.double(), terms=graph.num_nodes, name="values")


def test_nothing_removed_is_the_propagation_matrix(column):
    graph = cases.large_graph().to(column.device)
    for got, want in zip(parts(ops.mask_edges(*graph.with_self_loops(), 0, 1)), parts(graph.propagation), strict=True):
        assert_close(got.double(), want.double(), terms=700, name="part")


def test_edges_in_any_layout(column):
    looped, edge = cases.graph("random").to(column.device).with_self_loops()
    apart = torch.stack([edge, edge.flip(0)], dim=1)[:, 0]
    assert not apart.is_contiguous()
    got, want = (parts(ops.mask_edges(looped, numbers, 5, 1)) for numbers in (apart, edge))
    for own, expected in zip(got, want, strict=True):
        assert_same_bits(own, expected)


def test_seed_as_number_or_tensor(column):
    graph = cases.large_graph().to(column.device)
    number = ops.mask_edges(*graph.with_self_loops(), 900, -7)
    tensor = ops.mask_edges(*graph.with_self_loops(), 900, torch.tensor([-7], device=column.device))
    for got, want in zip(parts(tensor), parts(number), strict=True):
        assert_same_bits(got, want)
    other = ops.mask_edges(*graph.with_self_loops(), 900, 8)
    assert not torch.equal(other.col, number.col)


@pytest.mark.parametrize("threaded", columns("mask_edges", compiled=True))
def test_any_number_of_threads_and_compiled(threaded):
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 9000, (2, 40_000))
    edges[0, :9000] = 17
    graph = Graph.from_edge_index(np.concatenate([edges, edges[::-1]], axis=1), None, 9000).to(threaded.device)
    looped, edge = graph.with_self_loops()

    def function(seed):
        masked = ops.mask_edges(looped, edge, 12_345, seed)
        return parts(masked)

    seed = torch.tensor([2], device=threaded.device)
    threads = torch.get_num_threads()
    with use_backend(threaded.backend):
        want = function(seed)
        try:
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                for got, expected in zip(function(seed), want, strict=True):
                    assert_same_bits(got, expected, name=f"{count} threads")
        finally:
            torch.set_num_threads(threads)
        torch.compiler.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for got, expected in zip(compiled(seed), want, strict=True):
            assert_same_bits(got, expected, name="compiled")


@pytest.mark.parametrize("checked", columns("mask_edges", compiled=True))
def test_operator_is_sound(checked):
    graph = cases.graph("random").to(checked.device)
    looped, edge = graph.with_self_loops()
    removed = ops.draw_subset(1, graph.num_edges, 5, device=checked.device)
    overload = OPERATOR._overloads["triton" if checked.backend == "triton" else "default"]
    torch.library.opcheck(overload, (looped.rowptr, looped.col, looped.values, edge, removed, 5))


@pytest.mark.skipif("cpu" not in [str(c.values[0]) for c in columns("mask_edges")], reason="no CPU kernels here")
def test_marks_that_do_not_match_their_number_are_refused():
    """The results have a fixed size: nothing is written beyond it."""
    graph = cases.graph("random")
    looped, edge = graph.with_self_loops()
    removed = ops.draw_subset(1, graph.num_edges, 3)
    with pytest.raises(RuntimeError, match=r"mask_edges: \d+ entries stay, want \d+"):
        torch.ops.seegera_fast.mask_edges(looped.rowptr, looped.col, looped.values, edge, removed, 5)


EDGE = r"want torch.int64 \(\d+,\), one per entry of looped"
REFUSALS = [
    *DATA_SEED_REFUSALS,
    *sparse_refusals("looped"),
    refuse(
        "edge of int32",
        ValueError,
        r"edge: got torch.int32 \(\d+,\), want torch.int64 \(\d+,\), .*",
        edge=lambda t: t.int(),
    ),
    refuse(
        "edge too short",
        ValueError,
        r"edge: got torch.int64 \(\d+,\), want torch.int64 \(\d+,\), .*",
        edge=lambda t: t[1:],
    ),
    refuse(
        "edge elsewhere", ValueError, "edge: is on meta and looped on cpu, want one device", edge=lambda t: t.to("meta")
    ),
    refuse("edge of NumPy", TypeError, "edge: got ndarray, want a torch.int64 tensor, .*", edge=lambda t: t.numpy()),
    refuse(
        "not square",
        ValueError,
        r"looped: got shape \(17, 9\), want a square matrix",
        looped=lambda _: cases.features("dense", 17),
    ),
    refuse(
        "no self-loops",
        ValueError,
        r"looped: got \d+ entries in 17 rows, want a self-loop in each, and each edge twice",
        looped=lambda _: SparseMatrix.from_any(np.diag([0.0] + [1.0] * 16)),
        edge=lambda edge: edge.new_zeros(16),
    ),
    refuse("too many", ValueError, r"num_removed: got 10000, want 0 to \d+", num_removed=10000),
    refuse("negative", ValueError, r"num_removed: got -1, want 0 to \d+", num_removed=-1),
    refuse("a fraction", TypeError, "num_removed: got 0.5, want an int", num_removed=0.5),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_refusals(refusal):
    looped, edge = cases.graph("random").with_self_loops()
    with pytest.raises((TypeError, ValueError)) as caught:
        ops.mask_edges(**refusal.change({"looped": looped, "edge": edge, "num_removed": 2, "seed": 1}))
    assert type(caught.value) is refusal.error
    assert re.fullmatch(refusal.message, str(caught.value)), str(caught.value)
