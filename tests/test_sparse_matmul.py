"""sparse_matmul: CSR times dense, over all trailing dimensions."""

import os
import subprocess
import sys

import cases
import contract
import numpy as np
import pytest
import scipy.sparse
import torch
from cases import normal
from contract import columns, refuse
from tolerances import assert_close, assert_same_bits

from seegera_fast import SparseMatrix, backends, ops, reference, use_backend


def product(matrix, *trailing):
    return lambda: {"matrix": matrix(), "dense": normal(matrix().shape[1], *trailing)}


def propagation(name):
    return lambda: cases.graph(name).propagation


def features(kind, num_rows=17, num_columns=9, layout="sparse"):
    return lambda: cases.features(kind, num_rows, num_columns).with_layout(layout)


def zeros(num_rows, num_columns):
    return lambda: SparseMatrix.from_any(torch.zeros(num_rows, num_columns), dtype=torch.float64)


CASES = {
    **{f"{name}-{width}": product(propagation(name), width) for name in cases.GRAPHS for width in (1, 7)},
    **{f"features-{kind}": product(features(kind), 2, 5) for kind in cases.FEATURES},
    **{f"width-{width}": product(propagation("hub"), width) for width in (*cases.WIDTHS, 2, 3, 16, 64, 130, 2049)},
    "vector": product(propagation("random")),
    "draws": product(propagation("random"), 3, 11),
    "four dimensions": product(propagation("path"), 2, 3, 5),
    "small draws": product(propagation("path"), 2, 3),
    "dense layout": product(features("negative", layout="dense"), 2, 5),
    "dense layout, no width": product(features("dense", layout="dense"), 0),
    "dense layout, no rows": product(lambda: zeros(0, 4)().with_layout("dense"), 3),
    "dense layout, no columns": product(lambda: zeros(4, 0)().with_layout("dense"), 3),
    "dense layout, 300 rows": product(features("dense", 300, 5, layout="dense"), 1100),
    "no width": product(propagation("path"), 0),
    "no draws": product(propagation("path"), 0, 4),
    "no rows": product(zeros(0, 4), 3),
    "no columns": product(zeros(4, 0), 3),
    "nothing": product(zeros(0, 0), 3),
    "one row": product(features("dense", 1, 40), 33),
    "one column": product(features("dense", 40, 1), 33),
    "large values": lambda: {
        "matrix": cases.features("counts", 12, 8),
        "dense": 1e4 * normal(8, 3),
    },
}

REFUSALS = [
    *contract.sparse_refusals("matrix"),
    *contract.tensor_refusals("dense"),
    refuse(
        "two dtypes",
        TypeError,
        "dense: got torch.float32 where matrix is torch.float64, want one dtype",
        dense=lambda t: t.float(),
    ),
    refuse(
        "two devices", ValueError, "dense: is on meta and matrix on cpu, want one device", dense=lambda t: t.to("meta")
    ),
    refuse(
        "a row too many",
        ValueError,
        r"dense: got shape \(18, 3\), want 17 rows, as matrix has columns",
        dense=torch.zeros(18, 3, dtype=torch.float64),
    ),
    refuse(
        "a number",
        ValueError,
        r"dense: got shape \(\), want 17 rows, as matrix has columns",
        dense=torch.tensor(1.0, dtype=torch.float64),
    ),
]


class TestSparseMatmul(contract.Operation):
    operation = "sparse_matmul"
    differentiable = ("dense",)
    cases = CASES
    smooth = ("small draws", "vector", "no rows", "no columns", "features-negative")
    typical = ("draws", "vector", "features-negative", "dense layout")
    refusals = REFUSALS

    @staticmethod
    def slow(matrix, dense):
        flat = dense.reshape(dense.shape[0], -1) if dense.numel() else dense.new_zeros(dense.shape[0], 0)
        if matrix.shape[0] == 0 or flat.shape[1] == 0 or dense.shape[0] == 0:
            return dense.new_zeros(matrix.shape[0], *dense.shape[1:])
        return torch.from_numpy(matrix.to_scipy() @ flat.numpy()).reshape(matrix.shape[0], *dense.shape[1:])

    @staticmethod
    def terms(arguments):
        return max(1, *arguments["matrix"].shape)

    @staticmethod
    def large():
        return {"matrix": cases.large_graph().propagation, "dense": normal(700, 3, 67)}


@pytest.mark.parametrize("column", columns("sparse_matmul"))
def test_each_output_is_the_sum_over_its_row(column):
    """By hand: [[0, 2, 0], [1, 0, 3]] times [[1, 2], [3, 4], [5, 6]]."""
    matrix = SparseMatrix.from_any([[0, 2, 0], [1, 0, 3]]).to(device=column.device)
    dense = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device=column.device)
    with use_backend(column.backend):
        assert ops.sparse_matmul(matrix, dense).tolist() == [[6.0, 8.0], [16.0, 20.0]]


@pytest.mark.parametrize("column", columns("sparse_matmul", compiled=True))
def test_a_column_of_dense_does_not_depend_on_the_others(column):
    """The bits of an element depend on its row and its column alone, not on the width."""
    matrix = cases.large_graph().propagation.to(device=column.device, dtype=torch.float32)
    dense = normal(700, 200).to(column.device, torch.float32)
    with use_backend(column.backend):
        whole = ops.sparse_matmul(matrix, dense)
        for begin, end in ((0, 1), (0, 64), (37, 101), (199, 200)):
            part = ops.sparse_matmul(matrix, dense[:, begin:end])
            assert_close(part, whole[:, begin:end].double(), terms=700, name=f"columns {begin} to {end}")


WIDTHS = (1, 29, 30, 31, *range(57, 64), *range(113, 128), 255, 1023, 1025, 2111)


@pytest.mark.parametrize("column", columns("sparse_matmul", compiled=True))
@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_nothing_beyond_the_rows_of_dense_is_read_into_a_result(column, dtype):
    """Rows of dense lie between NaNs; the result's memory held NaNs before. On a CPU all widths give the same bits."""
    matrix = cases.large_graph(90).propagation.to(device=column.device, dtype=dtype)
    values = normal(90, max(WIDTHS)).to(column.device, dtype)
    with use_backend(column.backend):
        whole = ops.sparse_matmul(matrix, values)
        for width in WIDTHS:
            padded = torch.full((90, width + 80), float("nan"), dtype=dtype, device=column.device)
            dense = padded[:, 40 : 40 + width]
            dense.copy_(values[:, :width])
            # Freed at once, so that the result most likely lies there.
            torch.full((90, width), float("nan"), dtype=dtype, device=column.device)
            product = ops.sparse_matmul(matrix, dense)
            assert_close(product, whole[:, :width].double(), terms=90, name=f"width {width}")
            if column.backend == "cpu":
                assert_same_bits(product, whole[:, :width].contiguous())


# Rows of dense: a cache holds four of their lines, or two.
@pytest.mark.parametrize(("rows", "num_columns", "width"), [(30, 1500, 2111), (60, 25_000, 131)])
@pytest.mark.parametrize("column", columns("sparse_matmul", compiled=True, interpreter=False))
@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_where_dense_outgrows_the_caches(column, dtype, rows, num_columns, width):
    rng = np.random.default_rng(5)
    count = 12 * num_columns
    places = (np.minimum(rng.integers(0, rows + 5, count), rows - 1), rng.integers(0, num_columns, count))
    entries = scipy.sparse.csr_matrix((rng.standard_normal(count), places), (rows, num_columns))
    matrix = SparseMatrix.from_any(entries).with_layout("sparse").to(device=column.device, dtype=dtype)
    # Fewer reads of a row would not be worth a copy of it.
    assert matrix.nnz >= 8 * num_columns
    dense = normal(num_columns, width + 3).to(column.device, dtype)[:, 3:]
    with use_backend(column.backend):
        whole = ops.sparse_matmul(matrix, dense)
        for begin, end in ((0, 1), (0, 31), (width // 2, width // 2 + 33), (width - 40, width)):
            part = ops.sparse_matmul(matrix, dense[:, begin:end])
            assert_close(whole[:, begin:end], part.double(), terms=count, name=f"columns {begin} to {end}")
            if column.backend == "cpu":
                assert_same_bits(whole[:, begin:end].contiguous(), part)


@pytest.mark.parametrize("column", columns("sparse_matmul", compiled=True))
def test_a_nan_reaches_only_the_rows_that_read_it(column):
    matrix = cases.graph("path").propagation.to(device=column.device, dtype=torch.float32)
    dense = torch.ones(6, 40, device=column.device)
    dense[0, 3] = float("nan")
    with use_backend(column.backend):
        assert ops.sparse_matmul(matrix, dense).isnan().nonzero().tolist() == [[0, 3], [1, 3]]


@pytest.mark.slow
@pytest.mark.parametrize("column", columns("sparse_matmul", compiled=True))
def test_inductor(column):
    """A function around the operator, compiled to native code."""
    if column.device == "cpu" and not _cpu_compiler_works():
        pytest.skip("no C++ compiler that inductor can use")
    matrix = cases.graph("random").propagation.to(device=column.device, dtype=torch.float32)

    def function(dense):
        return torch.relu(ops.sparse_matmul(matrix, dense * 2)).sum(dim=1)

    dense = normal(17, 2, 9).to(column.device, torch.float32)
    want = dense.double().cpu().requires_grad_()
    expected = torch.relu(reference.sparse_matmul(matrix.to("cpu", torch.float64), want * 2)).sum(dim=1)
    expected.backward(contract.upstream(expected))
    got = dense.requires_grad_()
    torch.compiler.reset()
    # To compile all of torch's headers ahead takes longer than this function with them.
    with use_backend(column.backend), torch._inductor.config.patch(cpp_cache_precompile_headers=False):
        actual = torch.compile(function, fullgraph=True)(got)
        actual.backward(contract.upstream(actual))
    assert_close(actual, expected, terms=34, name="value")
    assert_close(got.grad, want.grad, terms=34, name="gradient")


def _cpu_compiler_works():
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


SCRIPT = """
import sys, torch
from seegera_fast import SparseMatrix, backends, ops
given = torch.load(sys.argv[1])
matrix = SparseMatrix(given["rowptr"], given["col"], given["values"], given["shape"])
products = [ops.sparse_matmul(matrix, dense) for dense in given["dense"]]
torch.save({"isa": backends.instruction_set(), "products": products}, sys.argv[2])
"""


@pytest.mark.skipif(backends.instruction_set() is None, reason="the CPU kernels are not there")
@pytest.mark.parametrize("asked", ["base", "avx2", "no such set"])
def test_instruction_sets(asked, tmp_path):
    """Every instruction set gives the reference's numbers; one that is not there falls back to the best that is."""
    matrix = cases.large_graph().propagation.to(dtype=torch.float32)
    dense = [normal(700, width).float() for width in (1, 2, 3, 5, 8, 17, 40, 129)]
    given = {"rowptr": matrix.rowptr, "col": matrix.col, "values": matrix.values, "shape": matrix.shape, "dense": dense}
    torch.save(given, tmp_path / "given.pt")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "given.pt"), str(tmp_path / "out.pt")]
    subprocess.run(command, check=True, env={**os.environ, "SEEGERA_ISA": asked})
    found = torch.load(tmp_path / "out.pt")
    assert found["isa"] in ({"base"} if asked == "base" else {"base", "avx2", "avx512"})
    for tensor, output in zip(dense, found["products"], strict=True):
        expected = reference.sparse_matmul(matrix.to(dtype=torch.float64), tensor.double())
        assert_close(output, expected, terms=700, name=f"width {tensor.shape[1]} with {found['isa']}")


@pytest.mark.parametrize("column", columns("sparse_matmul"))
def test_linear_in_powers_of_two(column):
    matrix = cases.graph("random").propagation.to(device=column.device, dtype=torch.float32)
    dense = normal(17, 12).to(column.device, torch.float32)
    with use_backend(column.backend):
        assert_same_bits(ops.sparse_matmul(matrix, 4 * dense), 4 * ops.sparse_matmul(matrix, dense))
