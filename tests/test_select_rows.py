"""select_rows: some rows of a sparse matrix, in their order."""

import re

import cases
import numpy as np
import pytest
import torch
from contract import columns, refuse, sparse_refusals
from tolerances import assert_same_bits

from seegera_fast import SparseMatrix, ops, use_backend
from seegera_fast.ops.select_rows import OPERATOR


@pytest.fixture(params=columns("select_rows"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("kind", cases.FEATURES)
def test_is_the_definition(column, kind, dtype):
    matrix = cases.features(kind, 11).to(column.device, dtype)
    for rows in ([], [4], [0, 1, 2], [10, 0, 5, 5, 3, 10], list(range(11))):
        chosen = torch.tensor(rows, dtype=torch.int64, device=column.device)
        found = ops.select_rows(matrix, chosen)
        assert found.dtype == dtype
        assert found.shape == (len(rows), 9)
        assert_same_bits(found.to_dense(), matrix.to_dense()[chosen])
        assert ((found.col.diff() > 0) | (found.row.diff() > 0)).all()


def test_the_layout_goes_along_and_no_other_row_is_read(column):
    rowptr, col = torch.tensor([0, 2, 3, 4]), torch.tensor([0, 2, 10**12, 1])
    matrix = SparseMatrix(rowptr, col, torch.ones(4), (3, 3)).to(column.device).with_layout("dense")
    found = ops.select_rows(matrix, torch.tensor([2, 0], device=column.device))
    assert found.to_dense().tolist() == [[0, 1, 0], [1, 0, 1]]
    assert found.layout == "dense"


def test_any_number_of_threads(column):
    matrix = cases.large_graph(3000, 200).features.to(column.device)
    rows = torch.from_numpy(np.random.default_rng(2).integers(0, 3000, 5000)).to(column.device)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found = ops.select_rows(matrix, rows)
            assert_same_bits(found.to_dense(), matrix.to_dense()[rows], name=f"{count} threads")
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("checked", columns("select_rows", compiled=True))
def test_operator_is_sound(checked):
    matrix = cases.features("sparse", 6).to(checked.device)
    rows = torch.tensor([5, 0, 0], device=checked.device)
    torch.library.opcheck(OPERATOR._overloads["default"], (matrix.rowptr, matrix.col, matrix.values, rows))


@pytest.mark.skipif("cpu" not in [str(c.values[0]) for c in columns("select_rows")], reason="no CPU kernels here")
def test_the_kernel_reads_nowhere_else():
    matrix = cases.features("sparse", 6)
    with pytest.raises(RuntimeError, match="select_rows: got row 6, want 0 to 5"):
        torch.ops.seegera_fast.select_rows(matrix.rowptr, matrix.col, matrix.values, torch.tensor([0, 6]))


REFUSALS = [
    *sparse_refusals("matrix"),
    refuse("rows of int32", TypeError, "rows: got torch.int32, want .*torch.int64", rows=lambda t: t.int()),
    refuse("one number", ValueError, r"rows: got shape \(\), want \[any\]", rows=torch.tensor(3)),
    refuse("too large", ValueError, "rows: got numbers from 0 to 11, want 0 to 10", rows=torch.tensor([0, 11])),
    refuse("negative", ValueError, "rows: got numbers from -1 to 3, want 0 to 10", rows=torch.tensor([3, -1])),
    refuse("elsewhere", ValueError, "rows: is on meta, .*", rows=lambda t: t.to("meta")),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_refusals(refusal):
    with pytest.raises((TypeError, ValueError)) as caught:
        ops.select_rows(**refusal.change({"matrix": cases.features("dense", 11), "rows": torch.tensor([3, 1, 10])}))
    assert type(caught.value) is refusal.error
    assert re.fullmatch(refusal.message, str(caught.value)), str(caught.value)
