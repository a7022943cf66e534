"""The Triton kernels of sparse_matmul, interpreted on the CPU, against SciPy in float64.

Triton decides whether to interpret when it is imported. So this file runs as a script in another process, once for all
cases, which writes its results to a file.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import ahead_of_time
import interpreter
import numpy as np
import pytest
import scipy.sparse
import torch
from cases import DTYPES, LAYOUTS, laid_out
from tolerances import assert_close, assert_same_bits

# The number of non-zeros above which a row is a hub.
CHUNK = 256

WIDTHS = (1, 3, 64, 130, 512)


def _matrix(lengths: list[int], cols: int) -> scipy.sparse.csr_matrix:
    """Rows of the given numbers of non-zeros; the last fifth of the columns has none."""
    rng = np.random.default_rng([cols, *lengths])
    rows = [np.sort(rng.choice(cols - cols // 5, length, replace=False)) for length in lengths]
    rowptr = np.cumsum([0, *lengths])
    col = np.concatenate([np.empty(0, dtype=np.int64), *rows])
    return scipy.sparse.csr_matrix((rng.normal(size=col.size), col, rowptr), shape=(len(lengths), cols))


MATRICES = {
    "one by one": _matrix([1], 1),
    "no edges": _matrix([0] * 5, 7),
    "no rows": _matrix([], 7),
    "no columns": _matrix([0] * 3, 0),
    "empty rows": _matrix([0, 3, 0, 0, 17, 1, 0], 30),
    "many rows": _matrix([5, 0, 2, 40, 1] * 30, 60),
    # A chunk with two hubs, a hub that begins with a chunk, one that ends with it, rows of just as many non-zeros.
    "hubs": _matrix([0, 100, 2 * CHUNK + 99, CHUNK, CHUNK + 1, 3, 3 * CHUNK, 0, CHUNK - 1, CHUNK + 58, 1, 0], 1200),
    "only a hub": _matrix([5 * CHUNK], 5 * CHUNK * 5 // 4),
}


@dataclass(frozen=True)
class Case:
    matrix: str
    width: int
    dtype: torch.dtype
    layout: str = "contiguous"
    blocks: str = "cpu"  # whose block sizes: the interpreter's or a GPU's ("cuda")

    def __str__(self) -> str:
        return f"{self.matrix}-{self.width}-{self.dtype}-{self.layout}-{self.blocks}".replace(" ", "_")

    def dense(self) -> torch.Tensor:
        """The right side ``[cols, width]`` in float64."""
        cols = MATRICES[self.matrix].shape[1]
        return torch.from_numpy(np.random.default_rng([cols, self.width]).normal(size=(cols, self.width)))

    def poisoned(self) -> torch.Tensor:
        """The same in its dtype and layout; a row that no non-zero asks for is NaN or infinite."""
        dense = self.dense().to(self.dtype)
        unused = np.setdiff1d(np.arange(dense.shape[0]), MATRICES[self.matrix].indices)
        dense[unused] = float("nan")
        dense[unused[::2]] = float("inf")
        return dense if self.layout == "contiguous" else laid_out(dense, self.layout)

    def expected(self) -> torch.Tensor:
        return torch.from_numpy(MATRICES[self.matrix] @ self.dense().numpy())


CASES = [
    *(Case(matrix, width, torch.float32) for matrix in MATRICES for width in WIDTHS),
    *(Case(matrix, width, torch.float64) for matrix in ("empty rows", "hubs") for width in WIDTHS),
    *(Case("hubs", 0, dtype) for dtype in DTYPES),
    *(Case("many rows", width, torch.float32, layout) for width in (1, 64) for layout in LAYOUTS),
    *(Case(matrix, width, torch.float32, blocks="cuda") for matrix in ("hubs", "empty rows") for width in (3, 130)),
]


def _run_cases(path: str) -> None:
    """Runs every case twice, with memory that is NaN wherever nothing was written, and saves the results."""
    from seegera_fast.kernels.triton.common import csr_product as kernels

    from seegera_fast.schema import Rows

    torch.use_deterministic_algorithms(True)
    if not torch.empty(9).isnan().all():
        raise RuntimeError("new memory is not filled with NaN")
    block_sizes = kernels.block_sizes
    results = {"chunk": kernels.CHUNK}
    for case in CASES:
        kernels.block_sizes = lambda rows, width, device, blocks=case.blocks: block_sizes(rows, width, blocks)
        matrix, dense = MATRICES[case.matrix], case.poisoned()
        pattern = [torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices)]
        rows = Rows(*pattern, torch.from_numpy(matrix.data).to(case.dtype))
        results[str(case)] = [kernels.multiply_csr(rows, dense) for _ in range(2)]
    torch.save(results, path)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    if not ahead_of_time.has_triton():
        pytest.skip("Triton is not installed")
    path = tmp_path_factory.mktemp("triton") / "results.pt"
    interpreter.run(__file__, path)
    return torch.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_interpreted_kernel_is_the_product(results, case):
    first, second = results[str(case)]
    terms = int(np.diff(MATRICES[case.matrix].indptr).max(initial=1))
    assert first.dtype == case.dtype
    assert first.is_contiguous()
    assert_close(first, case.expected(), terms=terms)
    assert_same_bits(second, first, name="the second run")


def test_the_cases_are_made_for_the_chunk_of_the_kernels(results):
    assert results["chunk"] == CHUNK


if __name__ == "__main__":
    _run_cases(sys.argv[1])
