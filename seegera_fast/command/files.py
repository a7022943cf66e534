"""A graph from the user's own files: an edge list or a sparse matrix, features and labels."""

from __future__ import annotations

import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..convert import is_far_beyond, matrix_of_edges
from ..datasets.arrays import checked_coordinates, checked_csr
from ..datasets.numpy_files import TEXT_KINDS, read_npy, read_npz
from ..datasets.text_files import records, wrong_line
from ..entries import INTEGER_KINDS, REAL_KINDS
from ..graph import Graph
from ..support.hints import quoted

# The parts of SciPy's archives.
FORMATS = {
    "csr": ("data", "indices", "indptr", "shape"),
    "csc": ("data", "indices", "indptr", "shape"),
    "coo": ("data", "row", "col", "shape"),
}
SPARSE = {"format": TEXT_KINDS, **{part: REAL_KINDS for parts in FORMATS.values() for part in parts}}
EDGE = "two node numbers (integers from 0) and optionally a weight of 0 or more"


def read_graph(
    edges: str | Path, features: str | Path | None = None, labels: str | Path | None = None, *, weighted: bool = False
) -> Graph:
    """Reads a graph from files. Text files have one record per line, split at commas or blanks; ``#`` starts a comment.

    Numbers are written in the digits 0 to 9. A file without records is refused.

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
        most 2 million, or 10 times the number of edges: a graph with more nodes than that needs features, labels, or an
        adjacency in SciPy's format csr, which hold something for each node.

    Raises:
        OSError: a file can't be read.
        ValueError: a file isn't what its name says, is empty or declares other sizes than it contains, or a line or a
            value is wrong; the message names the file and the line.
    """
    edges = Path(edges)
    feature_matrix = None if features is None else _read_features(Path(features))
    label_vector = None if labels is None else _read_labels(Path(labels))
    if edges.suffix == ".npz":
        adjacency = _read_sparse(edges)
    elif edges.suffix == ".npy":
        raise ValueError(f"{edges}: want an edge list as text, or an adjacency from scipy.sparse.save_npz (.npz)")
    elif feature_matrix is not None:
        adjacency = _read_adjacency(edges, feature_matrix.shape[0], features)
    elif label_vector is not None:
        adjacency = _read_adjacency(edges, label_vector.shape[0], labels)
    else:
        adjacency = _read_adjacency(edges)
    try:
        return Graph(adjacency, feature_matrix, label_vector, weighted=weighted, name=edges.stem)
    except (TypeError, ValueError) as error:
        # The error begins with the argument, which the user gave as a file.
        argument, _, reason = str(error).partition(": ")
        file = {"features": features, "labels": labels}.get(argument) or edges
        raise ValueError(f"{file}: {reason}") from error


def _read_adjacency(
    edges: Path, nodes: int | None = None, counted: str | Path | None = None
) -> scipy.sparse.coo_matrix:
    """Reads an edge list. The file ``counted`` has ``nodes`` rows; None: the largest node number counts the nodes."""
    pairs, weights, line = _read_edges(edges)
    highest = int(pairs.max())
    if nodes is None:
        if is_far_beyond(highest, pairs.shape[0]):
            raise ValueError(
                f"{edges}, line {line}: got node {highest} in a file of {pairs.shape[0]} edges, want nodes that are "
                "numbered from 0 without such gaps: number them anew, or give features or labels with a row per node"
            )
        nodes = highest + 1
    if highest >= nodes:
        raise ValueError(
            f"{edges}, line {line}: got node {highest}, but {counted} has {nodes} rows: want 0 to {nodes - 1}"
        )
    # Both directions are added, so that the file needs only one of them.
    row, col = np.concatenate([pairs, pairs[:, ::-1]]).T
    return matrix_of_edges(row, col, np.tile(weights, 2), nodes)


def _read_edges(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Reads edges int64 ``[E, 2]`` and weights float64 ``[E]`` from text; also returns the largest node's line."""
    ends, weights = array("q"), array("d")
    highest, line = -1, 0
    for number, fields in records(path, EDGE, most=3):
        try:
            if len(fields) not in (2, 3) or not (fields[0].isdigit() and fields[1].isdigit()):
                raise ValueError
            pair = (int(fields[0]), int(fields[1]))
            weight = float(fields[2]) if len(fields) == 3 else 1.0
            if not 0 <= weight < math.inf:
                raise ValueError
            ends.extend(pair)
            weights.append(weight)
            if max(pair) > highest:
                highest, line = max(pair), number
        except (ValueError, OverflowError):
            raise wrong_line(path, number, fields, EDGE) from None
    if not weights:
        raise ValueError(f"{path}: holds no edges, want {EDGE} per line")
    return np.array(ends, np.int64).reshape(-1, 2), np.array(weights, np.float64), line


def _read_features(path: Path) -> Any:
    if path.suffix == ".npz":
        return _read_sparse(path)
    if path.suffix == ".npy":
        values = read_npy(path, REAL_KINDS)
        if values.ndim != 2 or not values.shape[0]:
            raise ValueError(f"{path}: got shape {values.shape}, want two dimensions: a row per node")
        return values
    values, width, lines = array("d"), None, array("q")
    for number, fields in records(path, "finite numbers"):
        try:
            values.extend([float(field) for field in fields])
        except ValueError:
            raise wrong_line(path, number, fields, "finite numbers") from None
        if width not in (None, len(fields)):
            raise ValueError(f"{path}, line {number}: got {len(fields)} columns, want {width} as in the lines above")
        width = len(fields)
        lines.append(number)
    if width is None:
        raise ValueError(f"{path}: holds no rows, want one row of features per node")
    matrix = np.array(values, np.float64).reshape(-1, width)
    bad = np.argwhere(~np.isfinite(matrix))
    if bad.size:
        row, column = bad[0]
        raise ValueError(
            f"{path}, line {lines[row]}: got {matrix[row, column]} in column {column}, want finite numbers"
        )
    return matrix


def _read_labels(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        values = read_npy(path, INTEGER_KINDS)
        if values.ndim != 1 or not values.size:
            raise ValueError(f"{path}: got {values.dtype} of shape {values.shape}, want one integer per node")
        return values
    values = array("q")
    for number, fields in records(path, "one integer", most=1):
        try:
            (field,) = fields
            values.append(int(field))
        except (ValueError, OverflowError):
            raise wrong_line(path, number, fields, "one integer") from None
    if not values:
        raise ValueError(f"{path}: holds no labels, want one integer per node")
    return np.array(values, np.int64)


def _read_sparse(path: Path) -> scipy.sparse.csr_matrix:
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
