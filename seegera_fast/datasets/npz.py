"""The ``.npz`` graphs of the GNN benchmark (Shchur et al. 2018): Amazon and Coauthor."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..entries import INTEGER_KINDS, REAL_KINDS
from ..tables.matrices import checked_csr
from ..tables.numpy_files import read_npz as read_members
from .arrays import RawGraph, undirected

PARTS = ("data", "indices", "indptr", "shape")
KINDS = dict.fromkeys((*(f"{prefix}_{part}" for prefix in ("adj", "attr") for part in PARTS), "labels"), REAL_KINDS)


def read_npz(path: Path) -> RawGraph:
    """Reads one archive: the CSR matrices ``adj_*`` and ``attr_*`` (data, indices, indptr, shape) and ``labels``.

    In the graphs of Amazon some edges are stored in one direction only, so an edge in either direction counts. Features
    keep their values (Coauthor: counts). Other members of the archive are not opened, and nothing is unpickled.

    Raises:
        OSError: the file is missing.
        ValueError: the file is corrupt, a member is missing, or the parts do not fit together; the message names the
            file.
    """
    members = read_members(path, KINDS, "a graph of the GNN benchmark")
    missing = [name for name in KINDS if name not in members]
    if missing:
        raise ValueError(f"{path}: has no {', '.join(missing)}")
    adjacency, features = (
        checked_csr(*(members[f"{prefix}_{part}"] for part in PARTS), f"{path}: {prefix}") for prefix in ("adj", "attr")
    )
    labels = members["labels"]
    nodes = adjacency.shape[0]
    if adjacency.shape[1] != nodes:
        raise ValueError(f"{path}: the adjacency is {nodes} x {adjacency.shape[1]}, want a square matrix")
    if features.shape[0] != nodes:
        raise ValueError(f"{path}: {features.shape[0]} rows of features, but {nodes} nodes")
    if labels.shape != (nodes,) or labels.dtype.kind not in INTEGER_KINDS:
        raise ValueError(
            f"{path}: labels are {labels.dtype} {labels.shape}, want one integer for each of {nodes} nodes"
        )
    if labels.dtype.kind == "u" and labels.size and labels.max() >= 2**63:
        raise ValueError(f"{path}: got the label {labels.max()}, want numbers of 64 bits")
    return RawGraph(undirected(adjacency), features, labels.astype(np.int64), None)
