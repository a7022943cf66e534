"""Handwritten digits as a graph: the data set that needs no download."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from .arrays import RawGraph, undirected

NEIGHBOURS = 10
GREY_LEVELS = 16


def build_digits() -> RawGraph:
    """Builds a graph of scikit-learn's 1,797 digits of 8 x 8 pixels, each joined to its 10 nearest neighbours.

    Features are the 64 grey levels divided by 16, in [0, 1]. Two digits are joined if either is among the ten nearest
    of the other by Euclidean distance; of equally near digits, the lower node numbers are taken. Labels are the ten
    digits. There is no public split.
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    # Grey levels are small integers, so squared distances are exact and their order is the same on every machine.
    norms = (pixels * pixels).sum(axis=1)
    distances = norms[:, None] + norms[None, :] - 2 * (pixels @ pixels.T)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :NEIGHBOURS]
    nodes = pixels.shape[0]
    row = np.repeat(np.arange(nodes), NEIGHBOURS)
    directed = scipy.sparse.coo_matrix((np.ones(row.size, np.float32), (row, nearest.ravel())), shape=(nodes, nodes))
    features = scipy.sparse.csr_matrix(pixels / GREY_LEVELS)
    return RawGraph(undirected(directed), features, labels.astype(np.int64), None)
