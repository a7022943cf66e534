"""mask_entries: an exact number of entries at zero, and all that follows from the matrix."""

import gc
import re
import weakref

import cases
import numpy as np
import pytest
import scipy.sparse
import torch
from contract import DATA_SEED_REFUSALS, columns, refuse, sparse_refusals
from tolerances import assert_close, assert_same_bits

from seegera_fast import SparseMatrix, ops, reference, use_backend
from seegera_fast.ops.mask_entries import OPERATOR

MATRICES = {
    **{kind: (lambda kind=kind: cases.features(kind, 17)) for kind in cases.FEATURES},
    "large": lambda: cases.large_graph().features,
    "one row": lambda: cases.features("dense", 1, 40),
    "one column": lambda: cases.features("dense", 40, 1),
    "symmetric": lambda: cases.graph("random").propagation,
}


@pytest.fixture(params=columns("mask_entries"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def forms(matrix):
    """The matrix, its transpose, the row-normalised forms of both, and the transposes of those."""
    flipped = matrix.transposed
    return {
        "plain": matrix,
        "transposed": flipped,
        "by row": matrix.row_normalized,
        "by row, transposed": matrix.row_normalized.transposed,
        "by column, transposed": flipped.row_normalized,
        "by column": flipped.row_normalized.transposed,
    }


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("name", list(MATRICES))
def test_is_the_definition(column, name, share, dtype):
    matrix = MATRICES[name]().to(column.device, dtype)
    number = int(share * matrix.nnz)
    before = matrix.values.clone()
    masked = ops.mask_entries(matrix, number, 6)
    removed = reference.draw_subset(6, matrix.nnz, number, stream="entries").to(column.device)
    assert_same_bits(masked.values, torch.where(removed, 0, before))
    assert torch.equal(matrix.values, before), "the matrix itself was changed"
    # A matrix that knows nothing but its values.
    want = forms(SparseMatrix(matrix.rowptr, matrix.col, masked.values, matrix.shape))
    for form, got in forms(masked).items():
        assert got.shape == want[form].shape
        assert torch.equal(got.rowptr, want[form].rowptr), form
        assert torch.equal(got.col, want[form].col), form
        assert_close(got.values, want[form].values.double(), terms=max(matrix.shape), name=form)
        assert_same_bits(got.to_dense(), got.transposed.to_dense().T, name=form)


def test_by_hand(column):
    matrix = SparseMatrix.from_any([[1.0, -3.0, 0.0], [0.0, 0.0, 0.0], [2.0, 0.0, 4.0]]).to(device=column.device)
    for seed in range(8):
        masked = ops.mask_entries(matrix, 1, seed)
        gone = (masked.values == 0).nonzero().item()
        dense = matrix.to_dense()
        dense[matrix.row[gone], matrix.col[gone]] = 0
        norms = dense.abs().sum(dim=1, keepdim=True).clamp(min=1e-9)
        assert_close(masked.row_normalized.to_dense(), (dense / norms).double(), name="by row")
        norms = dense.abs().sum(dim=0, keepdim=True).clamp(min=1e-9)
        assert_close(masked.transposed.row_normalized.to_dense().T, (dense / norms).double(), name="by column")


def test_masking_again_starts_from_all_entries(column):
    matrix = cases.features("sparse", 17).to(column.device, torch.float32)
    first, second = ops.mask_entries(matrix, 9, 1), ops.mask_entries(matrix, 9, 2)
    assert not torch.equal(first.values, second.values)
    for masked in (first, second):
        assert (masked.values == 0).sum() == 9


def test_memory_goes_with_the_matrix(column):
    """No cycle of references: a step's matrices don't wait for the garbage collector."""
    matrix = cases.features("sparse", 17).to(column.device, torch.float32)
    gc.disable()
    try:
        masked = ops.mask_entries(matrix, 9, 1)
        alive = [weakref.ref(form.values) for form in forms(masked).values()]
        assert all(values() is not None for values in alive)
        del masked
        assert all(values() is None for values in alive)
    finally:
        gc.enable()


@pytest.mark.parametrize("threaded", columns("mask_entries", compiled=True))
def test_any_number_of_threads_and_compiled(threaded):
    x = scipy.sparse.random(3000, 500, 0.1, random_state=np.random.default_rng(3), dtype=np.float32)
    matrix = SparseMatrix.from_any(x).to(device=threaded.device)

    def function(seed):
        return tuple(form.values for form in forms(ops.mask_entries(matrix, 40_000, seed)).values())

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


@pytest.mark.parametrize("checked", columns("mask_entries", compiled=True))
def test_operator_is_sound(checked):
    matrix = cases.features("negative", 17).to(checked.device)
    flipped = matrix.transposed
    removed = ops.draw_subset(1, matrix.nnz, 5, stream="entries", device=checked.device)
    overload = OPERATOR._overloads["triton" if checked.backend == "triton" else "default"]
    given = (matrix.rowptr, matrix.col, matrix.values, flipped.rowptr, flipped.col, matrix.order, removed)
    torch.library.opcheck(overload, given)


REFUSALS = [
    *DATA_SEED_REFUSALS,
    *sparse_refusals("matrix"),
    refuse("too many", ValueError, r"num_removed: got 1000, want 0 to \d+", num_removed=1000),
    refuse("negative", ValueError, r"num_removed: got -1, want 0 to \d+", num_removed=-1),
    refuse("a bool", TypeError, "num_removed: got True, want an int", num_removed=True),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_refusals(refusal):
    with pytest.raises((TypeError, ValueError)) as caught:
        ops.mask_entries(**refusal.change({"matrix": cases.features("sparse", 17), "num_removed": 2, "seed": 1}))
    assert type(caught.value) is refusal.error
    assert re.fullmatch(refusal.message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize("name", ["values", "by_row", "by_column"])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (torch.ones(3, dtype=torch.float16), TypeError),
        (torch.ones(3, dtype=torch.float64), TypeError),
        (torch.ones(3, dtype=torch.int64), TypeError),
        (torch.ones(3, device="meta"), ValueError),
        (torch.ones(4), ValueError),
        ([1.0, 1.0, 1.0], TypeError),
    ],
    ids=str,
)
def test_values_of_another_kind_are_refused(name, place, wrong, error):
    matrix = SparseMatrix.from_any(np.eye(3))
    given = {other: [torch.ones(3), torch.ones(3)] for other in ("values", "by_row", "by_column")}
    matrix.with_all_values(**given)
    given[name][place] = wrong
    with pytest.raises(error, match=r"^(values|by_row|by_column): got .*, want"):
        matrix.with_all_values(**given)


def test_all_values_have_one_of_the_two_dtypes():
    pair = (torch.ones(3, dtype=torch.float16),) * 2
    with pytest.raises(TypeError, match=r"^values: got torch\.float16, want torch\.float32 or torch\.float64$"):
        SparseMatrix.from_any(np.eye(3)).with_all_values(pair, pair, pair)
