"""What the readers share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse


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


def undirected(adjacency: scipy.sparse.spmatrix) -> scipy.sparse.csr_matrix:
    """The symmetric pattern of a matrix: an edge in either direction counts 1, and an explicit zero is no edge."""
    pattern = scipy.sparse.csr_matrix(adjacency) != 0
    return scipy.sparse.csr_matrix(pattern + pattern.T, dtype=np.float32)
