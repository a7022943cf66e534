"""Checks and conversions that the readers share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

INTEGER_KINDS = "iu"
REAL_KINDS = "biuf"


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


def checked_csr(data: Any, indices: Any, indptr: Any, shape: Any, what: str) -> scipy.sparse.csr_matrix:
    """Makes a CSR matrix from arrays that may be wrong or hostile.

    Args:
        data, indices, indptr: the three arrays of the format.
        shape: the two sizes.
        what: name of the matrix in error messages.

    Raises:
        ValueError: the arrays do not form a CSR matrix of that shape, or a value is NaN or infinite.
    """
    parts = (("data", data, REAL_KINDS), ("indices", indices, INTEGER_KINDS), ("indptr", indptr, INTEGER_KINDS))
    for part, array, kinds in parts:
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds:
            got = f"{array.ndim} dimensions of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
            want = "numbers" if kinds == REAL_KINDS else "integers"
            raise ValueError(f"{what}: {part} is {got}, want one dimension of {want}")
    rows, cols = checked_sizes(shape, 2, what)
    indices, indptr = indices.astype(np.int64), indptr.astype(np.int64)
    # SciPy's check_format skips these tests if the last entry of indptr is 0.
    if indptr.size != rows + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise ValueError(f"{what}: indptr is not {rows + 1} ascending numbers from 0")
    if not indptr[-1] == indices.size == data.size:
        raise ValueError(f"{what}: {indices.size} indices and {data.size} values, but indptr ends with {indptr[-1]}")
    if indices.size and not 0 <= indices.min() <= indices.max() < cols:
        raise ValueError(f"{what}: indices from {indices.min()} to {indices.max()}, want 0 to {cols - 1}")
    if not np.isfinite(data).all():
        raise ValueError(f"{what}: a value is NaN or infinite")
    matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=(rows, cols))
    matrix.sum_duplicates()
    return matrix


def checked_sizes(sizes: Any, count: int, what: str) -> tuple[int, ...]:
    """Converts ``count`` sizes to ints; raises a ValueError if one is negative or too large for int32."""
    if isinstance(sizes, np.ndarray) and sizes.ndim == 1 and sizes.dtype.kind in INTEGER_KINDS:
        sizes = tuple(sizes.tolist())
    if (
        not isinstance(sizes, tuple)
        or len(sizes) != count
        or not all(type(size) is int and 0 <= size < 2**31 for size in sizes)
    ):
        raise ValueError(f"{what}: the shape is {sizes!r}, want {count} integers from 0 to 2**31 - 1")
    return sizes


def undirected(adjacency: scipy.sparse.spmatrix) -> scipy.sparse.csr_matrix:
    """The symmetric pattern of a matrix: an edge in either direction counts 1, and an explicit zero is no edge."""
    pattern = scipy.sparse.csr_matrix(adjacency) != 0
    return scipy.sparse.csr_matrix(pattern + pattern.T, dtype=np.float32)
