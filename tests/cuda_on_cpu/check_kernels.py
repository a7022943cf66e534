"""Tests of the operators of kernels/cuda, compiled for the CPU. test_cuda_on_cpu.py runs them under the sanitizers.

Every result is compared with the reference, and must have the same bits for every order of blocks and threads.
"""

import ctypes
import os

import cases
import contract
import pytest
import test_mask_edges as edges
import test_mask_entries as entries
import test_noisy_gcn as layers
import test_sparse_matmul as products
import torch
from test_draw_subset import smallest
from tolerances import assert_close, assert_same_bits

import seegera_fast
from seegera_fast import SparseMatrix, ops, reference, use_backend
from seegera_fast.registry import OPERATORS

LIBRARY = os.environ["SEEGERA_CUDA_ON_CPU"]
# Ascending, descending, and one at random.
ORDERS = (0, 1, 5)


@pytest.fixture(scope="module")
def operators():
    """Each operator with a CUDA column -> the same, compiled for the CPU."""
    names = [row.name for row in OPERATORS.values() if "cuda" in row.columns]
    library = torch.library.Library("seegera_cuda_on_cpu", "DEF")
    for name in names:
        library.define(str(getattr(torch.ops.seegera_fast, name).default._schema).removeprefix("seegera_fast::"))
    torch.ops.load_library(LIBRARY)
    for name in ("sparse_matmul", "noisy_gcn"):
        derivative = OPERATORS[name].derivative
        backward, keep = derivative.backward("default"), derivative.setup_context
        torch.library.register_autograd(f"seegera_cuda_on_cpu::{name}", backward, setup_context=keep, lib=library)
    yield {name: getattr(torch.ops.seegera_cuda_on_cpu, name).default for name in names}
    library._destroy()


@pytest.fixture(autouse=True)
def new_memory_is_nan():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def run(operators, monkeypatch):
    """Calls a function, which returns a list of tensors, for every order of blocks and threads."""
    order = ctypes.CDLL(LIBRARY).cuda_on_cpu_order
    order.argtypes = [ctypes.c_int64]

    def function(call):
        with monkeypatch.context() as patch, use_backend("cpu"):
            patch.setattr(seegera_fast.backends.CPU, "missing", None)
            for name, overload in operators.items():
                patch.setitem(OPERATORS[name]._overloads, "default", overload)
            results = []
            for number in ORDERS:
                order(number)
                results.append(call())
        for other in results[1:]:
            for got, want in zip(other, results[0], strict=True):
                assert_same_bits(got, want, name="in another order of the threads")
        return results[0]

    return function


def parts(matrix):
    return [matrix.rowptr, matrix.col, matrix.values]


def matrix_with_hubs():
    """Rows with as many entries as a chunk, several longer rows in succession, one over many chunks, and empty rows.

    A chunk has 32 non-zeros, 64 in the widest product, and 256 where rows are added up.
    """
    generator = torch.Generator().manual_seed(3)
    dense = torch.zeros(11, 700, dtype=torch.float64)
    for row, length in enumerate([3, 0, 650, 256, 257, 1, 33, 300, 32, 64, 0]):
        dense[row, torch.randperm(700, generator=generator)[:length]] = 1
    return SparseMatrix.from_any(dense * cases.normal(11, 700), dtype=torch.float64)


SPARSE = {
    name: make for name, make in products.CASES.items() if not name.startswith("dense layout") and name != "width-2049"
}


# The widest product has one dtype only, because it takes longer than all others together.
PRODUCTS = [
    *((case, dtype) for case in (*SPARSE, "hubs-1", "hubs-3", "hubs-4", "hubs-40") for dtype in cases.DTYPES),
    ("hubs-10624", torch.float32),
]


@pytest.mark.parametrize(("case", "dtype"), PRODUCTS)
def test_sparse_matmul(run, case, dtype):
    if case in SPARSE:
        given = SPARSE[case]()
    else:
        given = {"matrix": matrix_with_hubs(), "dense": cases.normal(700, int(case.removeprefix("hubs-")))}
    matrix, dense = given["matrix"].to(dtype=dtype), given["dense"].to(dtype)
    (product,) = run(lambda: [ops.sparse_matmul(matrix, dense)])
    want = reference.sparse_matmul(matrix.to(dtype=torch.float64), dense.double())
    assert_close(product, want, terms=max(1, *matrix.shape), name=case)


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize("width", [8, 5])
def test_sparse_matmul_of_layouts(run, layout, width):
    matrix = cases.graph("random").propagation.to(dtype=torch.float32)
    dense = cases.normal(17, width).float()
    (product,) = run(lambda: [ops.sparse_matmul(matrix, cases.laid_out(dense, layout))])
    assert_close(product, reference.sparse_matmul(matrix.to(dtype=torch.float64), dense.double()), terms=17)


def layer_with_hubs(**options):
    """A layer whose X has hubs."""
    features = matrix_with_hubs()
    return {
        "propagation": SparseMatrix.from_any(matrix_with_hubs().to_dense()[:, :11], dtype=torch.float64),
        "features": features,
        "weight": cases.normal(700, 4, seed=1),
        "noise_weight": cases.normal(2, 4, seed=2),
        "num_draws": 2,
        "seed": -6,
        **options,
    }


LAYERS = {
    **{name: make for name, make in layers.CASES.items() if not name.startswith("dense layout") and name != "h 512"},
    "hubs": layer_with_hubs,
    "hubs with dropout": lambda: layer_with_hubs(dropout=0.3),
}


@pytest.mark.parametrize("case", list(LAYERS))
def test_noisy_gcn(run, case):
    arguments = contract.converted(LAYERS[case](), torch.float32)
    found = {}

    def values_and_gradients():
        found.update(layers.TestNoisyGcn.outcome(ops.noisy_gcn, arguments))
        return list(found.values())

    run(values_and_gradients)
    layers.TestNoisyGcn.compare(found, arguments, torch.float32)


@pytest.mark.parametrize("stream", ["edges", "entries"])
@pytest.mark.parametrize("seed", [5, -(2**63)])
@pytest.mark.parametrize(("count", "chosen"), [(0, 0), (1, 0), (1, 1), (2, 1), (19, 18), (19, 19), (130, 41)])
def test_draw_subset(run, seed, count, chosen, stream):
    (drawn,) = run(lambda: [ops.draw_subset(seed, count, chosen, stream=stream)])
    assert_same_bits(drawn, smallest(seed, count, chosen, stream))


@pytest.mark.parametrize("count", [2048, 5000, 20_000])
@pytest.mark.parametrize("share", [0.0003, 0.4, 1.0])
def test_draw_subset_of_many(run, count, share):
    """More elements than a block's share, with one or several elements in the bucket of the last chosen one."""
    chosen = max(1, int(share * count))
    (drawn,) = run(lambda: [ops.draw_subset(3, count, chosen)])
    assert drawn.sum() == chosen
    assert_same_bits(drawn, reference.draw_subset(3, count, chosen))


def star():
    """Node 0 is a neighbour of all 600 others, node 350 of half of them. These hubs lose entries in every piece."""
    others = torch.arange(1, 601)
    pairs = torch.cat(
        [torch.stack([torch.zeros_like(others), others]), torch.stack([others[:300], others[:300] * 0 + 350])], 1
    )
    return seegera_fast.Graph.from_edge_index(torch.cat([pairs, pairs.flip(0)], 1), None, 601, dtype=torch.float64)


GRAPHS = {**edges.GRAPHS, "star": star}


def test_relu_at_a_nan_lets_the_gradient_through(run):
    assert_same_bits(*run(lambda: layers.gradient_at_a_nan("cpu")))


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("name", list(GRAPHS))
def test_mask_edges(run, name, share, dtype):
    graph = GRAPHS[name]()
    number = int(share * graph.num_edges)
    looped, edge = graph.to(dtype=dtype).with_self_loops()
    rowptr, col, values = run(lambda: parts(ops.mask_edges(looped, edge, number, 4)))
    with use_backend("reference"):
        want = ops.mask_edges(looped.to(dtype=torch.float64), edge, number, 4)
    assert_same_bits(rowptr, want.rowptr)
    assert_same_bits(col, want.col)
    assert_close(values, want.values, terms=graph.num_nodes, name="values")
    dense = SparseMatrix(rowptr, col, values, looped.shape).to_dense()
    assert_same_bits(dense, dense.T, name="the transpose")


@pytest.mark.parametrize("number", [-1, 10**12])
def test_wrong_numbers_of_edges_write_nothing_past_the_end(run, number):
    """If all entries are of no edge they all stay, which are more than the results have room for."""
    looped, edge = cases.graph("random").with_self_loops()
    _, col, _ = run(lambda: parts(ops.mask_edges(looped, torch.full_like(edge, number), 5, 4)))
    assert_same_bits(col, looped.col[:-10])


def test_mask_edges_of_a_matrix_without_rows(run):
    rowptr, col, values = run(lambda: parts(ops.mask_edges(*edges.without_rows(), 0, 4)))
    assert (rowptr.tolist(), col.tolist(), values.tolist()) == ([0], [], [])


def test_running_sums_of_more_rows_than_a_block_takes(run):
    ring = torch.arange(2500)
    pairs = torch.stack([ring, (ring + 1) % 2500])
    graph = seegera_fast.Graph.from_edge_index(torch.cat([pairs, pairs.flip(0)], 1), None, 2500)
    looped, edge = graph.with_self_loops()
    rowptr, col, _ = run(lambda: parts(ops.mask_edges(looped, edge, 1000, 9)))
    with use_backend("reference"):
        want = ops.mask_edges(looped, edge, 1000, 9)
    assert_same_bits(rowptr, want.rowptr)
    assert_same_bits(col, want.col)


MATRICES = {**entries.MATRICES, "hubs": matrix_with_hubs}


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("name", list(MATRICES))
def test_mask_entries(run, name, share, dtype):
    matrix = MATRICES[name]().to(dtype=dtype)
    number = int(share * matrix.nnz)

    def masked_forms():
        forms = entries.forms(ops.mask_entries(matrix, number, 6))
        return [form.values for form in forms.values()]

    got = run(masked_forms)
    with use_backend("reference"):
        masked = ops.mask_entries(matrix, number, 6)
    assert_same_bits(got[0], masked.values)
    exact = SparseMatrix(matrix.rowptr, matrix.col, masked.values.double(), matrix.shape)
    for (form, want), values in zip(entries.forms(exact).items(), got, strict=True):
        assert_close(values, want.values, terms=max(matrix.shape), name=form)
