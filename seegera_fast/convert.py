"""Checks and converts what users pass beside matrices and labels: lists of edges, and masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
import torch

from .edge_keys import distinct, symmetric_pattern
from .entries import MOST_ROWS, OwnCoo
from .support.arguments import FLOATING as FLOATING
from .support.arguments import array, dense, shown, text, whole
from .support.warning import warn_outside

# Weights that differ by no more than this part of them are the same, but for the rounding of sums.
SAME = 1e-9
# Limits of is_far_beyond.
MANY_NODES, NODES_PER_EDGE = 2 * 10**6, 10


def check_fits(csr: scipy.sparse.csr_matrix, name: str, dtype: torch.dtype) -> None:
    """Raises a ValueError if the dtype can't hold a value, or the sum of absolute values of a row or column."""
    most, remedy = torch.finfo(dtype).max, f"which {dtype} cannot hold, want smaller numbers or torch.float64"
    magnitudes = abs(csr)
    with np.errstate(over="ignore"):
        if magnitudes.data.sum() <= most:
            return
        sums = {"row": magnitudes.sum(axis=1), "column": magnitudes.sum(axis=0)}
    beyond = np.flatnonzero(magnitudes.data > most)
    if beyond.size:
        coo, at = csr.tocoo(), beyond[0]
        raise ValueError(f"{name}: got {coo.data[at]} at row {coo.row[at]}, column {coo.col[at]}, {remedy}")
    for part, each in sums.items():
        beyond = np.flatnonzero(np.asarray(each).ravel() > most)
        if beyond.size:
            total = np.asarray(each).ravel()[beyond[0]]
            raise ValueError(f"{name}: got absolute values that add up to {total} in {part} {beyond[0]}, {remedy}")


def edges_to_coo(
    edge_index: Any, num_nodes: int | None, edge_weight: Any = None, features: Any = None, *, merge: bool = True
) -> OwnCoo:
    """Checks ``edge_index`` ``[2, E]`` and converts it to an adjacency with the entries that it lists.

    Args:
        num_nodes: None: the number of rows of the features, or without features the largest node number plus one.
        edge_weight: ``[E]``; None: all 1.
        features: a matrix with a row per node, or None.
        merge: False: an edge without weights that is listed several times may stay so.
    """
    index = array("edge_index", edge_index)
    if index.ndim != 2 or index.shape[0] != 2:
        raise ValueError(f"edge_index: got shape {tuple(index.shape)}, want [2, number of edges]")
    if index.size and index.dtype.kind not in "iu":
        raise TypeError(f"edge_index: got values of type {index.dtype}, want integers")
    if num_nodes is None:
        highest = int(index.max()) if index.size else -1
        if features is None and is_far_beyond(highest, index.shape[1]):
            raise ValueError(
                f"edge_index: got node {highest} in {index.shape[1]} edges, want nodes that are numbered from 0 "
                "without such gaps, or num_nodes"
            )
        num_nodes = highest + 1 if features is None else num_rows(features)
    else:
        num_nodes = whole("num_nodes", num_nodes, least=1, most=MOST_ROWS)
    if index.size and (index.min() < 0 or index.max() >= num_nodes):
        outside = index[(index < 0) | (index >= num_nodes)]
        raise ValueError(
            f"edge_index: got node {outside[0]}, want numbers from 0 to {num_nodes - 1} (num_nodes is {num_nodes})"
        )
    index = index.astype(np.int64, copy=False)
    if edge_weight is None and not merge:
        ones = np.broadcast_to(1.0, index.shape[1])
        return OwnCoo((ones, (index[0], index[1])), shape=(num_nodes, num_nodes))
    weight = np.ones(index.shape[1])
    if edge_weight is not None:
        weight = edge_weights("edge_weight", edge_weight, index.shape[1])
    return matrix_of_edges(*index, weight, num_nodes)


def edge_weights(name: str, weights: Any, num_edges: int) -> np.ndarray:
    """Checks for a weight of 0 and above per edge: float64 ``[E]``."""
    weight = array(name, weights).reshape(-1)
    if weight.shape[0] != num_edges:
        raise ValueError(f"{name}: got {weight.shape[0]} weights, want one per edge: {num_edges}")
    if weight.dtype.kind not in "buif":
        raise TypeError(f"{name}: got values of type {weight.dtype}, want real numbers")
    weight = weight.astype(np.float64)
    if not np.isfinite(weight).all():
        raise ValueError(f"{name}: got NaN or infinity, want finite weights")
    if weight.size and weight.min() < 0:
        raise ValueError(f"{name}: got a negative weight ({weight.min()}), want weights of 0 and above")
    return weight


def matrix_of_edges(row: np.ndarray, col: np.ndarray, weight: np.ndarray, num_nodes: int) -> OwnCoo:
    """The adjacency of a list of edges. An edge that is listed several times gets the largest of its weights."""
    shape = (num_nodes, num_nodes)
    if not weight.size or (weight == weight[0]).all():
        matrix = scipy.sparse.coo_matrix((weight, (row, col)), shape=shape).tocsr()
        matrix.data[:] = weight[:1]
        return OwnCoo(matrix)
    key = row * num_nodes + col
    order = np.lexsort((weight, key))
    last = np.ones(order.shape[0], bool)
    last[:-1] = np.diff(key[order]) != 0
    chosen = order[last]
    return OwnCoo((weight[chosen], (row[chosen], col[chosen])), shape=shape)


def is_far_beyond(node: int, num_edges: int) -> bool:
    """Whether a node number is above both 2 million and 10 times the number of edges, or is 2^31 - 1 or more.

    Such a number is more likely a name, or damage. As a number it would make a graph of nodes without edges that takes
    far more memory than its edges do.
    """
    return node > min(max(MANY_NODES, NODES_PER_EDGE * num_edges), MOST_ROWS - 1)


def undirected(coo: scipy.sparse.coo_matrix) -> tuple[np.ndarray, np.ndarray]:
    """The row pointers and columns of the undirected graph with the edges that a matrix stores, without self-loops.

    Warns if the matrix is that of a directed graph, or if it has weights, which are ignored.
    """
    if (coo.data != 1).any():
        data = coo.data[coo.row != coo.col]
        warn_of_ignored_weights(int((data == 0).sum()), int(((data != 0) & (data != 1)).sum()))
    rowptr, col, stored = symmetric_pattern(coo.row, coo.col, coo.shape[0])
    if stored < col.size:
        _warn_of_direction(coo, one_each=2 * stored == col.size)
    return rowptr, col


def warn_of_ignored_weights(zeros: int, others: int) -> None:
    """Warns of entries of weight 0, and of other weights than 0 and 1, in a graph without weights."""
    if zeros:
        warn_outside(
            f"adjacency: got stored entries of weight 0, which count as edges: {zeros}; weighted=True drops them"
        )
    if others:
        warn_outside("adjacency: got edge weights other than 1, which are ignored; weighted=True keeps them")


def undirected_weights(coo: scipy.sparse.coo_matrix) -> scipy.sparse.csr_matrix:
    """The matrix of an undirected graph without self-loops and weights of 0: duplicates are added up, and an edge in
    either direction counts, with the larger of its two weights."""
    used = (coo.row != coo.col) & (coo.data != 0)
    row, col = coo.row[used].astype(np.int64), coo.col[used].astype(np.int64)
    csr = scipy.sparse.csr_matrix((coo.data[used], (row, col)), shape=coo.shape)
    csr.sum_duplicates()
    flipped = csr.T.tocsr()
    if (csr != flipped).nnz:
        larger = csr.maximum(flipped).tocsr()
        # Duplicates that were added up in another order differ in their rounding; that is no direction.
        if (abs(csr - flipped) > SAME * larger).nnz:
            _warn_of_direction(coo, one_each=2 * csr.nnz == larger.nnz)
        csr = larger
    csr.sort_indices()
    return csr


def _warn_of_direction(coo: scipy.sparse.coo_matrix, *, one_each: bool) -> None:
    """Warns of a directed graph; not of a list of edges that has one direction of each."""
    if not (one_each and isinstance(coo, OwnCoo) and coo.one_is_enough):
        warn_outside("adjacency: got a directed graph, which is made undirected (an edge in either direction counts)")


def warn_of_lost_edges(coo: scipy.sparse.coo_matrix, num_edges: int, dtype: torch.dtype) -> None:
    """Warns if entries of a matrix have made fewer edges than there are pairs of nodes among them."""
    apart = coo.row != coo.col
    row, col = coo.row[apart].astype(np.int64), coo.col[apart].astype(np.int64)
    keys = torch.from_numpy(np.minimum(row, col) * coo.shape[0] + np.maximum(row, col))
    warn_of_vanished_edges(len(distinct(keys)) - num_edges, dtype)


def warn_of_vanished_edges(lost: int, dtype: torch.dtype) -> None:
    """Warns of edges whose weight is 0 in a graph with weights."""
    if lost:
        warn_outside(
            f"adjacency: got edges of weight 0 (in {dtype}), which vanish with weighted=True: {lost}; want weights "
            "above 0, or weighted=False"
        )


def num_rows(features: Any) -> int:
    """The number of rows of a matrix of any kind."""
    try:
        shape = np.shape(features)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"features: got {type(features).__name__}, want a matrix ({error})") from None
    if not shape:
        raise TypeError(f"features: got {type(features).__name__}, want a matrix with a row per node")
    return int(shape[0])


def boolean_masks(masks: Any, num_nodes: int) -> dict[str, torch.Tensor]:
    """Checks for a mapping of names to boolean vectors ``[n]``, or None, and copies these."""
    if masks is not None and not isinstance(masks, Mapping):
        raise TypeError(f"masks: got {shown(masks)}, want a mapping of names to boolean vectors")
    return {text("masks", key): _boolean_mask(key, mask, num_nodes) for key, mask in (masks or {}).items()}


def _boolean_mask(key: str, mask: Any, num_nodes: int) -> torch.Tensor:
    """Checks for a boolean vector ``[n]`` and copies it to a tensor."""
    name = f"masks[{key!r}]"
    if isinstance(mask, torch.Tensor):
        dense(name, mask)
    else:
        mask = array(name, mask)
    if mask.dtype not in (torch.bool, np.dtype(bool)) or tuple(mask.shape) != (num_nodes,):
        raise ValueError(f"{name}: got {mask.dtype} {tuple(mask.shape)}, want torch.bool ({num_nodes},)")
    # An array may run backwards or be read-only, which torch doesn't take.
    return mask.clone() if isinstance(mask, torch.Tensor) else torch.from_numpy(mask.copy())
