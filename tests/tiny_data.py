"""Tiny data sets in the formats of the real files, and how tests load them."""

import pickle
from pathlib import Path

import numpy as np
import scipy.sparse

import seegera_fast as sf

# A tiny Planetoid folder: 8 nodes, of which 5 are known, 6 and 5 are test nodes in this order and 7 is isolated.
TINY_FEATURES = np.array(
    [[1, 0, 1], [0, 2, 0], [0, 0, 0], [1, 1, 1], [0, 0, 3], [4, 0, 0], [0, 5, 5], [0, 0, 0]], dtype=np.float32
)
TINY_LABELS = np.array([0, 1, 1, 0, 1, 0, 1, -1])
TINY_GRAPH = {0: [1, 1, 3], 1: [0], 2: [2], 3: [0, 4], 4: [3, 6], 5: [6], 6: [4, 5], 7: []}
TINY_EDGES = [[0, 1], [0, 3], [3, 4], [4, 6], [5, 6]]


def one_hot(labels: np.ndarray) -> np.ndarray:
    return np.eye(2, dtype=np.int32)[labels]


def tiny_parts() -> dict:
    features = scipy.sparse.csr_matrix(TINY_FEATURES)
    return {
        "x": features[:2],
        "y": one_hot(TINY_LABELS[:2]),
        "tx": features[[6, 5]],
        "ty": one_hot(TINY_LABELS[[6, 5]]),
        "allx": features[:5],
        "ally": one_hot(TINY_LABELS[:5]),
        "graph": TINY_GRAPH,
        "test.index": "6\n5\n",
    }


def write_planetoid(root: Path, changes: dict | None = None, protocol: int = 2) -> Path:
    folder = root / "Planetoid" / "Cora" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in {**tiny_parts(), **(changes or {})}.items():
        path = folder / f"ind.cora.{part}"
        if isinstance(value, str):
            path.write_text(value)
        else:
            path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol))
    return folder


def tiny_members() -> dict:
    # Stored: 0-1 both ways, 2-0 one way with weight 2, the self-loop 3-3, and a zero at 3-1.
    adjacency = scipy.sparse.csr_matrix(([1.0, 1.0, 2.0, 0.0, 1.0], ([0, 1, 2, 3, 3], [1, 0, 0, 1, 3])), shape=(4, 4))
    features = scipy.sparse.csr_matrix(np.array([[0, 7.0], [1, 0], [0, 0], [2, 105]], dtype=np.float32))
    members = {"labels": np.array([0, 1, 1, 0])}
    for prefix, matrix in (("adj", adjacency), ("attr", features)):
        members |= {f"{prefix}_{part}": np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr")}
        members[f"{prefix}_shape"] = np.array(matrix.shape)
    return members


def write_npz(root: Path, changes: dict | None = None) -> Path:
    path = root / "Amazon" / "Photo" / "raw" / "amazon_electronics_photo.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    members = {**tiny_members(), **(changes or {})}
    np.savez(path, **{key: value for key, value in members.items() if value is not None})
    return path


def load_tiny(root: Path, name: str = "cora", **options) -> sf.Graph:
    return sf.datasets.load(name, root, download=False, **options)


class Call:
    """Pickles as a call of ``function``."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call
