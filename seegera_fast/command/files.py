"""A graph from the user's own files: an edge list or a sparse matrix, features and labels."""

from __future__ import annotations

import zipfile
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..convert import is_far_beyond, matrix_of_edges
from ..datasets.arrays import checked_csr
from ..graph import Graph

LONGEST_QUOTE = 40
# The exceptions of NumPy and SciPy for a file that is damaged or of another kind.
NOT_AN_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    NotImplementedError,
)


def read_graph(
    edges: str | Path, features: str | Path | None = None, labels: str | Path | None = None, *, weighted: bool = False
) -> Graph:
    """Reads a graph from files. Text files have one record per line, split at commas or blanks; ``#`` starts a comment.

    Args:
        edges: ``.npz``: an ``n x n`` adjacency as written by ``scipy.sparse.save_npz``. Any other name: text with two
            node numbers from 0 per line, and optionally a weight. One direction of an edge is enough. An edge that is
            listed several times gets the largest of its weights.
        features: a row per node: ``.npz`` (SciPy sparse), ``.npy``, or text with one number per column. None: the
            identity.
        labels: an integer per node (negative: unknown): ``.npy``, or text with one per line. None: no labels.
        weighted: keep edge weights in the propagation matrix.

    Returns:
        The graph, named after the file of its edges. Its number of nodes is that of the adjacency; for text, the number
        of rows of the features or the labels; without both, the largest node number plus one. That number may be at
        most 100 million, or 1,000 times the number of edges.

    Raises:
        OSError: a file can't be read.
        ValueError: a file isn't what its name says, or a line is wrong; the message names the file and the line.
        TypeError: values that aren't numbers.
    """
    edges = Path(edges)
    feature_matrix = None if features is None else _read_features(Path(features))
    label_vector = None if labels is None else _read_labels(Path(labels))
    options = {"labels": label_vector, "weighted": weighted, "name": edges.stem}
    if edges.suffix == ".npz":
        return Graph(_read_sparse(edges), feature_matrix, **options)
    if edges.suffix == ".npy":
        raise ValueError(f"{edges}: want an edge list as text, or an adjacency from scipy.sparse.save_npz (.npz)")
    pairs, weights, line = _read_edges(edges)
    highest = int(pairs.max()) if pairs.size else -1
    nodes = None if feature_matrix is None else feature_matrix.shape[0]
    if nodes is None and label_vector is not None:
        nodes = label_vector.shape[0]
    if nodes is None:
        if is_far_beyond(highest, pairs.shape[0]):
            raise ValueError(
                f"{edges}, line {line}: got node {highest} in a file of {pairs.shape[0]} edges, want nodes that are "
                "numbered from 0 without such gaps: number them anew, or give features or labels with a row per node"
            )
        nodes = highest + 1
    if highest >= nodes:
        raise ValueError(
            f"{edges}, line {line}: got node {highest}, but {features or labels} has {nodes} rows: want 0 to "
            f"{nodes - 1}"
        )
    # Both directions are added, so that the file needs only one of them.
    row, col = np.concatenate([pairs, pairs[:, ::-1]]).T
    return Graph(matrix_of_edges(row, col, np.tile(weights, 2), nodes), feature_matrix, **options)


def _read_edges(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Reads edges int64 ``[E, 2]`` and weights float64 ``[E]`` from text; also returns the largest node's line."""
    ends, weights = array("q"), array("d")
    highest, line = -1, 0
    for number, fields in _records(path):
        try:
            if len(fields) not in (2, 3):
                raise ValueError
            pair = (int(fields[0]), int(fields[1]))
            weight = float(fields[2]) if len(fields) == 3 else 1.0
            if min(pair) < 0 or not 0 <= weight < np.inf:
                raise ValueError
            ends.extend(pair)
            weights.append(weight)
            if max(pair) > highest:
                highest, line = max(pair), number
        except (ValueError, OverflowError):
            want = "two node numbers (integers from 0) and optionally a weight of 0 or more"
            raise _wrong_line(path, number, fields, want) from None
    return np.array(ends, np.int64).reshape(-1, 2), np.array(weights, np.float64), line


def _read_features(path: Path) -> Any:
    if path.suffix == ".npz":
        return _read_sparse(path)
    if path.suffix == ".npy":
        values = _read_array(path)
        if values.ndim != 2:
            raise ValueError(f"{path}: got shape {values.shape}, want two dimensions: a row per node")
        return values
    values, width = array("d"), None
    for number, fields in _records(path):
        try:
            values.extend([float(field) for field in fields])
        except ValueError:
            raise _wrong_line(path, number, fields, "numbers") from None
        if width not in (None, len(fields)):
            raise ValueError(f"{path}, line {number}: got {len(fields)} columns, want {width} as in the lines above")
        width = len(fields)
    if width is None:
        raise ValueError(f"{path}: holds no rows, want one row of features per node")
    return np.array(values, np.float64).reshape(-1, width)


def _read_labels(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        values = _read_array(path)
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise ValueError(f"{path}: got {values.dtype} of shape {values.shape}, want one integer per node")
        return values
    values = array("q")
    for number, fields in _records(path):
        try:
            (field,) = fields
            values.append(int(field))
        except (ValueError, OverflowError):
            raise _wrong_line(path, number, fields, "one integer") from None
    return np.array(values, np.int64)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number and the fields of each line that isn't empty."""
    with open(path, encoding="utf-8-sig") as file:
        try:
            for number, line in enumerate(file, 1):
                fields = line.partition("#")[0].replace(",", " ").split()
                if fields:
                    yield number, fields
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: is not a text file ({error.reason} at byte {error.start})") from error


def _wrong_line(path: Path, number: int, fields: list[str], want: str) -> ValueError:
    got = " ".join(fields)
    if len(got) > LONGEST_QUOTE:
        got = got[:LONGEST_QUOTE] + "..."
    return ValueError(f"{path}, line {number}: got {got!r}, want {want}; a line of comment starts with #")


def _read_array(path: Path) -> np.ndarray:
    with open(path, "rb") as file:
        try:
            return np.lib.format.read_array(file, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path}: is not a NumPy array file ({error})") from error


def _read_sparse(path: Path) -> scipy.sparse.csr_matrix:
    """Reads a SciPy matrix from an archive and checks its indices, which SciPy does not check."""
    with open(path, "rb") as file:
        try:
            matrix = scipy.sparse.load_npz(file)
        except NOT_AN_ARCHIVE as error:
            raise ValueError(f"{path}: is not a matrix from scipy.sparse.save_npz ({error})") from error
    if matrix.format == "csr":
        return checked_csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape, str(path))
    if matrix.format == "csc":
        flipped = checked_csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[::-1], str(path))
        return flipped.T.tocsr()
    if matrix.format == "coo":
        return matrix.tocsr()
    raise ValueError(f"{path}: got a matrix in SciPy's {matrix.format} format, want csr, csc or coo")
