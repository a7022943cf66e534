"""Checks and conversions that the readers share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ..convert import MANY_NODES, NODES_PER_EDGE, is_far_beyond
from ..entries import coo_of_compressed, coo_of_coordinates


class RawGraph(NamedTuple):
    """What a reader returns.

    Attributes:
        adjacency: ``n x n``, symmetric, every entry 1; stored self-loops are kept.
        features: ``n x l``, with the stored values.
        labels: int64 ``[n]``, -1 where the class is unknown.
        masks: boolean vectors ``[n]`` "train", "valid" and "test", or None where the data set has no public split.
    """

    adjacency: scipy.sparse.csr_matrix
    features: scipy.sparse.csr_matrix
    labels: np.ndarray
    masks: dict[str, np.ndarray] | None


def checked_csr(
    data: Any, indices: Any, indptr: Any, shape: Any, what: str, *, by_row: bool = True
) -> scipy.sparse.csr_matrix:
    """Makes a CSR matrix from the arrays of a file, which may be wrong or hostile: CSR, or CSC with ``by_row`` False.

    Raises:
        ValueError: see :func:`seegera_fast.entries.coo_of_compressed`; or the file has far fewer entries than columns
            (of CSC: rows).
    """
    coo = coo_of_compressed(data, indices, indptr, shape, what, by_row=by_row)
    # The pointers hold the number of rows, and so that of the columns of a square matrix. Otherwise a file of a few
    # bytes can declare any number of columns.
    rows, cols = coo.shape if by_row else coo.shape[::-1]
    if cols > rows:
        check_contained(coo, cols, what)
    return _csr(coo)


def checked_coordinates(data: Any, row: Any, col: Any, shape: Any, what: str) -> scipy.sparse.csr_matrix:
    """The same as :func:`checked_csr` for a matrix in coordinate form, both of whose sizes are only declared."""
    coo = coo_of_coordinates(data, row, col, shape, what)
    check_contained(coo, max(coo.shape), what)
    return _csr(coo)


def check_contained(coo: scipy.sparse.coo_matrix, size: int, what: str) -> None:
    """Raises a ValueError if a size is far beyond the number of entries."""
    if is_far_beyond(size - 1, coo.nnz):
        raise ValueError(
            f"{what}: got the shape {coo.shape[0]} x {coo.shape[1]} for {coo.nnz} entries, want at most {MANY_NODES} "
            f"rows and columns, or {NODES_PER_EDGE} times the number of entries; rows without entries need the format "
            "csr"
        )


def _csr(coo: scipy.sparse.coo_matrix) -> scipy.sparse.csr_matrix:
    matrix = coo.tocsr()
    matrix.sum_duplicates()
    return matrix


def undirected(adjacency: scipy.sparse.spmatrix) -> scipy.sparse.csr_matrix:
    """The symmetric pattern of a matrix: an edge in either direction counts 1, and an explicit zero is no edge."""
    pattern = scipy.sparse.csr_matrix(adjacency) != 0
    return scipy.sparse.csr_matrix(pattern + pattern.T, dtype=np.float32)
