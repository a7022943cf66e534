"""The ``.npz`` graphs of the GNN benchmark (Shchur et al. 2018): Amazon and Coauthor."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import numpy as np

from .arrays import INTEGER_KINDS, RawGraph, checked_csr, undirected

PARTS = ("data", "indices", "indptr", "shape")
MEMBERS = (*(f"adj_{part}" for part in PARTS), *(f"attr_{part}" for part in PARTS), "labels")


def read_npz(path: Path) -> RawGraph:
    """Reads one archive: the CSR matrices ``adj_*`` and ``attr_*`` (data, indices, indptr, shape) and ``labels``.

    In the graphs of Amazon some edges are stored in one direction only, so an edge in either direction counts. Features
    keep their values (Coauthor: counts). Other members of the archive are not opened, and nothing is unpickled.

    Raises:
        OSError: the file is missing.
        ValueError: the file is corrupt, a member is missing, or the parts do not fit together; the message names the
            file.
    """
    members = _members(path)
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
    return RawGraph(undirected(adjacency), features, labels.astype(np.int64), None)


def _members(path: Path) -> dict[str, np.ndarray]:
    """The members of the archive that are needed, by name."""
    content = io.BytesIO(path.read_bytes())
    try:
        # ZipFile refuses what is not an archive; np.load alone would also accept a bare array.
        with zipfile.ZipFile(content) as archive, np.load(content, allow_pickle=False) as arrays:
            missing = [member for member in MEMBERS if f"{member}.npy" not in archive.namelist()]
            if not missing:
                return {member: arrays[member] for member in MEMBERS}
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, MemoryError, RuntimeError) as error:
        raise ValueError(f"{path}: corrupt or truncated archive ({error})") from error
    raise ValueError(f"{path}: has no {', '.join(missing)}")
