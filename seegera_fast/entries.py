"""The entries of a matrix of any kind. All pointers and indices are checked before anything is read by them.

SciPy and torch convert their sparse formats in native code that trusts the indices. A matrix that is damaged, or whose
arrays were changed, makes them write outside their memory. So every sparse matrix comes in through
:func:`coo_of_compressed` or :func:`coo_of_coordinates`, which copy its arrays, check the copies, and use only these.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse
import torch

from .support.arguments import constant, dense, on_device, unmasked, without_tensors
from .support.frames import is_frame, matrix_of_frame
from .support.hints import maker, quoted

INTEGER_KINDS = "iu"
REAL_KINDS = "biuf"
MOST_ROWS = 2**31 - 1

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]

# What users pass.


class OwnCoo(scipy.sparse.coo_matrix):
    """Entries that were made and checked here and that nobody else can change, so that nobody copies them.

    Attributes:
        one_is_enough: whether it is usual that each edge is there in one direction, as in a list of edges.
    """

    one_is_enough = False


def to_coo(matrix: Any, name: str) -> scipy.sparse.coo_matrix:
    """Converts any kind of matrix to SciPy COO in float64, checks it, and leaves duplicate entries as they are."""
    if is_frame(matrix):
        matrix = matrix_of_frame(name, matrix)
    if hasattr(matrix, "_to_scipy"):  # a SparseMatrix
        constant(name, matrix.values)
        matrix = matrix._to_scipy(name)
    if isinstance(matrix, torch.Tensor):
        constant(name, matrix)
        return _coo_of_tensor(matrix, name)
    if isinstance(matrix, OwnCoo):
        return matrix
    if scipy.sparse.issparse(matrix):
        return _coo_of_scipy(matrix, name)
    if not isinstance(matrix, (np.ndarray, list, tuple)):
        raise TypeError(
            f"{name}: got {type(matrix).__name__}, want a SciPy sparse matrix, a NumPy array, a torch tensor "
            f"or a data frame{maker(matrix)}"
        )
    unmasked(name, matrix)
    matrix = without_tensors(name, matrix)
    try:
        matrix = np.asarray(matrix)
    except ValueError:
        raise ValueError(f"{name}: got rows of different lengths, want a matrix") from None
    return _coo_of_dense(matrix, name)


def to_csr(matrix: Any, name: str) -> scipy.sparse.csr_matrix:
    """Converts any kind of matrix to CSR in float64: duplicates added up, no zeros, columns in ascending order."""
    csr = to_coo(matrix, name).tocsr()
    csr.sum_duplicates()
    csr.eliminate_zeros()
    csr.sort_indices()
    return csr


def to_numpy(tensor: torch.Tensor, name: str) -> np.ndarray:
    """Converts a real tensor to a float64 array, which may share its memory."""
    if tensor.is_complex() or tensor.is_quantized:
        raise TypeError(f"{name}: got values of type {tensor.dtype}, want real numbers")
    return tensor.cpu().to(torch.float64).numpy()


def _coo_of_dense(array: np.ndarray, name: str) -> scipy.sparse.coo_matrix:
    _want_matrix(array.shape, array.dtype, name)
    # SciPy has no sparse float16.
    return _finite(scipy.sparse.coo_matrix(array.astype(np.float64)), name)


def _coo_of_tensor(tensor: torch.Tensor, name: str) -> scipy.sparse.coo_matrix:
    on_device(name, tensor)
    if tensor.is_nested or tensor.layout == torch.strided:
        dense(name, tensor)
    shape, layout = tuple(tensor.shape), tensor.layout
    if layout == torch.strided:
        return _coo_of_dense(to_numpy(tensor, name), name)
    if layout == torch.sparse_coo:
        if tensor.sparse_dim() != 2 or tensor.dense_dim() != 0:
            raise ValueError(
                f"{name}: got a sparse tensor with {tensor.sparse_dim()} sparse and {tensor.dense_dim()} dense "
                "dimensions, want 2 and 0"
            )
        index = tensor._indices().cpu().numpy()
        if index.ndim != 2 or index.shape[0] != 2:
            raise ValueError(f"{name}: got indices of shape {index.shape}, want [2, number of entries]")
        return coo_of_coordinates(to_numpy(tensor._values(), name), *index, shape, name)
    by_row = layout in (torch.sparse_csr, torch.sparse_bsr)
    if not by_row and layout not in (torch.sparse_csc, torch.sparse_bsc):
        raise TypeError(f"{name}: got a tensor of layout {layout}, want a dense or a sparse tensor")
    pointers, indices = (
        (tensor.crow_indices(), tensor.col_indices()) if by_row else (tensor.ccol_indices(), tensor.row_indices())
    )
    data = to_numpy(tensor.values(), name)
    return coo_of_compressed(data, indices.cpu().numpy(), pointers.cpu().numpy(), shape, name, by_row=by_row)


def _coo_of_scipy(matrix: Any, name: str) -> scipy.sparse.coo_matrix:
    shape, form = matrix.shape, matrix.format
    _want_matrix(shape, getattr(matrix, "dtype", np.dtype(object)), name)
    read = {"lil": _lists_of_lil, "dok": _lists_of_dok, "dia": _diagonals, "coo": _coordinates}.get(form, _compressed)
    try:
        parts = read(matrix)
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: got a damaged {form} matrix ({error}), want one that SciPy can read") from error
    if read is _compressed:
        return coo_of_compressed(*parts, shape, name, by_row=form != "csc")
    return coo_of_coordinates(*parts, shape, name)


def _compressed(matrix: Any) -> Parts:
    return matrix.data, matrix.indices, matrix.indptr


def _coordinates(matrix: Any) -> Parts:
    return matrix.data, matrix.row, matrix.col


def _lists_of_lil(matrix: Any) -> Parts:
    lengths = [len(row) for row in matrix.rows]
    if lengths != [len(row) for row in matrix.data]:
        raise ValueError("rows with more or fewer values than columns")
    col = _integers(list(chain.from_iterable(matrix.rows)))
    data = np.fromiter(chain.from_iterable(matrix.data), np.float64, col.size)
    return data, np.repeat(np.arange(len(lengths)), lengths), col


def _lists_of_dok(matrix: Any) -> Parts:
    keys = _integers(list(matrix.keys())).reshape(-1, 2)
    return np.fromiter(matrix.values(), np.float64, keys.shape[0]), keys[:, 0], keys[:, 1]


def _diagonals(matrix: Any) -> Parts:
    if matrix.offsets.dtype.kind not in INTEGER_KINDS:
        raise ValueError(f"offsets of {matrix.offsets.dtype}")
    if matrix.offsets.shape != matrix.data.shape[:1]:
        raise ValueError(f"{matrix.offsets.size} offsets for {matrix.data.shape[0]} diagonals")
    coo = matrix.tocoo()  # NumPy alone does this.
    return coo.data, coo.row, coo.col


def _integers(numbers: list[Any]) -> np.ndarray:
    """An array of the type that the numbers have; of no numbers, of integers."""
    return np.array(numbers) if numbers else np.empty(0, np.int64)


# The door.


def coo_of_compressed(
    data: Any, indices: Any, indptr: Any, shape: Any, name: str, *, by_row: bool = True
) -> scipy.sparse.coo_matrix:
    """The entries, in their order, of a matrix that is compressed by row (CSR, BSR) or by column (CSC, BSC).

    Args:
        data: real ``[k]``, or blocks ``[k, R, C]``.
        indices: integers ``[k]``, each the column (or row) of an entry or of a block.
        indptr: integers; entries ``indptr[i]`` to ``indptr[i + 1] - 1`` are in row (or column) ``i``.
        shape: the two sizes.
        name: name of the matrix in error messages.

    Returns:
        The entries in float64. No memory is shared with the arguments.

    Raises:
        ValueError: the arrays do not form a matrix of that shape, or a value is NaN or infinite.
    """
    shape = checked_sizes(shape, 2, name)
    data = _values(data, name)
    block = data.shape[1:] or (1, 1)
    if data.ndim == 2 or 0 in block or any(size % part for size, part in zip(shape, block, strict=True)):
        raise ValueError(f"{name}: got values of shape {data.shape}, want one per entry, or blocks that fill {shape}")
    blocks = (shape[0] // block[0], shape[1] // block[1])
    indices, indptr = checked_structure(indices, indptr, blocks if by_row else blocks[::-1], name)
    if indices.size != data.shape[0]:
        raise ValueError(f"{name}: got {indices.size} indices and {data.shape[0]} values, want one value per index")
    outer = np.repeat(np.arange(indptr.size - 1, dtype=indices.dtype), np.diff(indptr))
    row, col = (outer, indices) if by_row else (indices, outer)
    if data.ndim == 3:
        row = block[0] * row[:, None, None] + np.arange(block[0], dtype=row.dtype)[:, None]
        col = block[1] * col[:, None, None] + np.arange(block[1], dtype=col.dtype)
        # The zeros in blocks are only what fills them up.
        filled = data != 0
        row, col = (part[filled] for part in np.broadcast_arrays(row, col))
        data = data[filled]
    return _finite(scipy.sparse.coo_matrix((data.ravel(), (row, col)), shape=shape), name)


def checked_structure(indices: Any, indptr: Any, shape: tuple[int, int], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Copies of the indices and the pointers of a compressed matrix, checked; see :func:`coo_of_compressed`.

    Args:
        shape: the number of rows and the number of columns; of a matrix that is compressed by column, the reverse.
    """
    indices, indptr = _own(indices, "indices", name), _own(indptr, "indptr", name)
    want = f"want {shape[0] + 1} ascending numbers from 0 to the number of entries"
    if indptr.size != shape[0] + 1:
        raise ValueError(f"{name}: got {indptr.size} numbers as indptr, {want}")
    if indptr[0] != 0:
        raise ValueError(f"{name}: got indptr from {indptr[0]} on, {want}")
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        at = int(falls.argmax())
        raise ValueError(f"{name}: got indptr that falls from {indptr[at]} to {indptr[at + 1]} at {at + 1}, {want}")
    if indptr[-1] != indices.size:
        raise ValueError(f"{name}: got {indices.size} indices, but indptr up to {indptr[-1]}, {want}")
    _check_range(indices, shape[1], "indices", name)
    return indices, indptr


def ascends(indices: np.ndarray, indptr: np.ndarray) -> bool:
    """Whether the indices of a compressed matrix ascend in each row, without duplicates."""
    falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1
    return bool((indptr[np.searchsorted(indptr, falls)] == falls).all())


def coo_of_coordinates(data: Any, row: Any, col: Any, shape: Any, name: str) -> scipy.sparse.coo_matrix:
    """The entries of a matrix in coordinate form: values, row numbers and column numbers ``[k]``.

    Returns and raises as :func:`coo_of_compressed`.
    """
    shape = checked_sizes(shape, 2, name)
    data, row, col = _values(data, name), _own(row, "row", name), _own(col, "col", name)
    if not data.shape == row.shape == col.shape:
        raise ValueError(
            f"{name}: got {row.size} row numbers, {col.size} column numbers and values of shape {data.shape}, want "
            "one of each per entry"
        )
    _check_range(row, shape[0], "row", name)
    _check_range(col, shape[1], "col", name)
    return _finite(scipy.sparse.coo_matrix((data, (row, col)), shape=shape), name)


def checked_sizes(sizes: Any, count: int, name: str) -> tuple[int, ...]:
    """Converts ``count`` sizes to ints; raises a ValueError if one is negative or too large for int32."""
    if isinstance(sizes, np.ndarray) and sizes.ndim == 1 and sizes.dtype.kind in INTEGER_KINDS:
        sizes = tuple(sizes.tolist())
    if (
        not isinstance(sizes, tuple)
        or len(sizes) != count
        or not all(type(size) is int and 0 <= size <= MOST_ROWS for size in sizes)
    ):
        raise ValueError(f"{name}: got the shape {quoted(sizes)}, want {count} integers from 0 to 2**31 - 1")
    return sizes


def _want_matrix(shape: tuple[int, ...], dtype: np.dtype, name: str) -> None:
    if len(shape) != 2:
        raise ValueError(f"{name}: got {len(shape)} dimensions (shape {tuple(shape)}), want 2")
    if dtype.kind not in REAL_KINDS:
        raise TypeError(f"{name}: got values of type {dtype}, want real numbers")


def _own(array: Any, part: str, name: str) -> np.ndarray:
    """A copy of indices, which nobody else can change after the checks: int32 where the type fits, else int64."""
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in INTEGER_KINDS:
        raise ValueError(f"{name}: got {part} as {_described(array)}, want one dimension of integers")
    # A number beyond int64 becomes a negative one, which is refused.
    return np.array(array, np.int32 if np.can_cast(array.dtype, np.int32) else np.int64)


def _values(array: Any, name: str) -> np.ndarray:
    """A copy of values in float64."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in REAL_KINDS or array.ndim not in (1, 3):
        raise ValueError(f"{name}: got data as {_described(array)}, want one dimension of numbers")
    with np.errstate(over="ignore"):
        return np.array(array, np.float64)


def _described(array: Any) -> str:
    return f"{array.ndim} dimensions of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__


def _check_range(indices: np.ndarray, size: int, part: str, name: str) -> None:
    if indices.size:
        low, high = indices.min(), indices.max()
        if low < 0 or high >= size:
            raise ValueError(f"{name}: got {part} from {low} to {high}, want 0 to {size - 1}")


def _finite(coo: scipy.sparse.coo_matrix, name: str) -> scipy.sparse.coo_matrix:
    bad = np.flatnonzero(~np.isfinite(coo.data))
    if bad.size:
        at = bad[0]
        raise ValueError(
            f"{name}: got {bad.size} values that are NaN or infinite (the first is {coo.data[at]} at row "
            f"{coo.row[at]}, column {coo.col[at]}), want finite numbers"
        )
    return coo
