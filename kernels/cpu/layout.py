"""How the CPU computes with a matrix: "sparse", by rows, or "dense", in full. Both give the same up to rounding."""

from __future__ import annotations

import torch

from seegera_fast.sparse_matrix import SparseMatrix

# From this share of non-zeros on, the CPU multiplies a matrix in full: 2 rows cols w operations instead of 2 nnz w, but
# at the rate of the BLAS. Measured with 500 to 800 columns and widths of 512, on two cores of a processor whose name
# was not kept: at 15 % the sparse products took half to two thirds of the time of the dense ones, at 35 % (Photo) a
# fifth to two fifths more.
DENSE_SHARE = 0.25
# A matrix of fewer elements stays sparse: there is nothing to win.
DENSE_SIZE = 1 << 14


def layout(matrix: SparseMatrix) -> str:
    """The layout that a matrix asks for, or else the faster one for its share of non-zeros."""
    if matrix.layout != "auto":
        return matrix.layout
    size = matrix.shape[0] * matrix.shape[1]
    return "dense" if size >= DENSE_SIZE and matrix.nnz >= DENSE_SHARE * size else "sparse"


def parts(matrix: SparseMatrix, flipped: SparseMatrix) -> tuple[torch.Tensor, ...]:
    """A matrix and its transpose as the operators take them; in the dense layout with values in full.

    The columns are not read then. Where nothing reads the transpose, another matrix may be in its place.
    """
    if layout(matrix) == "sparse":
        return *matrix.by_rows, *flipped.by_rows
    return matrix.rowptr, matrix.col, matrix.dense, flipped.rowptr, flipped.col, matrix.dense.t()
