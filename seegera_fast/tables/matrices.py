"""Matrices without names in files: NumPy's arrays and SciPy's archives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..convert import MANY_NODES, NODES_PER_EDGE, is_far_beyond
from ..entries import INTEGER_KINDS, REAL_KINDS, coo_of_compressed, coo_of_coordinates
from ..support.hints import quoted
from .numpy_files import TEXT_KINDS, read_npy, read_npz

# The parts of SciPy's archives.
FORMATS = {
    "csr": ("data", "indices", "indptr", "shape"),
    "csc": ("data", "indices", "indptr", "shape"),
    "coo": ("data", "row", "col", "shape"),
}
SPARSE = {"format": TEXT_KINDS, **{part: REAL_KINDS for parts in FORMATS.values() for part in parts}}


def read_features(path: Path) -> Any:
    """A row of features per node, from ``.npz`` (SciPy sparse) or ``.npy``."""
    if path.suffix == ".npz":
        return read_sparse(path)
    values = read_npy(path, REAL_KINDS)
    if values.ndim != 2 or not values.shape[0]:
        raise ValueError(f"{path}: got shape {values.shape}, want two dimensions: a row per node")
    return values


def read_labels(path: Path) -> np.ndarray:
    """An integer per node, from ``.npy``."""
    values = read_npy(path, INTEGER_KINDS)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"{path}: got {values.dtype} of shape {values.shape}, want one integer per node")
    return values


def read_sparse(path: Path) -> scipy.sparse.csr_matrix:
    """Reads a matrix of SciPy from an archive. SciPy itself would use its indices unchecked."""
    members = read_npz(path, SPARSE, "a matrix from scipy.sparse.save_npz")
    form = _form(members.get("format"))
    if form not in FORMATS:
        raise ValueError(f"{path}: got a matrix in SciPy's format {quoted(form)}, want csr, csc or coo")
    missing = [part for part in FORMATS[form] if part not in members]
    if missing:
        raise ValueError(f"{path}: has no {', '.join(missing)}, want a matrix from scipy.sparse.save_npz")
    parts = [members[part] for part in FORMATS[form]]
    if form == "coo":
        return checked_coordinates(*parts, str(path))
    return checked_csr(*parts, str(path), by_row=form == "csr")


def _form(member: np.ndarray | None) -> str | None:
    """The name of the format, which SciPy writes as bytes, and once wrote as a string."""
    if member is None or member.size != 1:
        return None
    name = member.item()
    return name.decode("latin-1") if isinstance(name, bytes) else name


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
