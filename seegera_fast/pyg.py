"""What a ``Data`` of PyTorch Geometric holds, checked. PyTorch Geometric itself is not needed."""

from __future__ import annotations

import copy
import threading
import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch

from .convert import edge_weights, edges_to_coo
from .entries import coo_of_compressed, to_coo
from .support import arguments
from .support.warning import warn_outside

WANTED = "want a torch_geometric.data.Data"
EDGES = ("edge_index", "adj_t", "adj")
FEATURES, LABELS = "x", "y"
MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
SPLIT = ("edge_label_index", "pos_edge_label_index")
# Attributes that say how many nodes there are, where PyTorch Geometric would take the largest number in edge_index.
PER_NODE = (LABELS, *MASKS.values())

RECORDING = threading.Lock()


class Labels(NamedTuple):
    """``values``: what :class:`Graph` takes as labels. ``missing``: why there are none, for a message."""

    values: Any
    missing: str | None = None


def check_data(data: Any) -> None:
    """Checks for one graph with one kind of nodes and of edges.

    Raises:
        TypeError: something else, and what to do with it.
    """
    name = type(data).__name__
    if isinstance(data, torch.utils.data.Dataset):
        raise TypeError(f"data: got {name}, a data set of {len(data)} graphs, {WANTED}: data[0]")
    if isinstance(data, (list, tuple)):
        remedy = "Batch.from_data_list(data) makes one of them"
        if any(_value(each, "edge_label_index") is not None for each in data):
            remedy = "of a link split, seegera_fast.tasks.LinkSplit.from_pyg(*data)"
        raise TypeError(f"data: got a {name} of {len(data)}, {WANTED}: {remedy}")
    if hasattr(type(data), "to_homogeneous"):
        raise TypeError(f"data: got {name}, {WANTED}: data.to_homogeneous()")
    if name == "TemporalData":
        remedy = "Data(edge_index=torch.stack([data.src, data.dst]), num_nodes=data.num_nodes)"
        raise TypeError(f"data: got {name}, {WANTED}: {remedy}")
    # The number itself is not asked for: PyTorch Geometric warns where it has to guess.
    counts = hasattr(type(data), "num_nodes") or "num_nodes" in getattr(data, "__dict__", {})
    if not counts or not any(hasattr(data, attribute) for attribute in EDGES):
        raise TypeError(f"data: got {arguments.shown(data)}, {WANTED}")


def check_unsplit(data: Any) -> None:
    """Refuses a part of a link split, whose held-out pairs a graph has no place for."""
    for attribute in SPLIT:
        if _value(data, attribute) is not None:
            raise ValueError(
                f"data: has {attribute}, the pairs of a part of a link split, want the graph before the split, or "
                "all its parts: seegera_fast.tasks.LinkSplit.from_pyg(train, valid, test)"
            )


def pairs_of_part(part: str, data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The pairs ``[m, 2]`` with and without a link in one part of a link split."""
    try:
        check_data(data)
    except TypeError as error:
        raise TypeError(f"{part}: {error}") from None
    both = _value(data, "edge_label_index")
    parts = _value(data, "pos_edge_label_index"), _value(data, "neg_edge_label_index")
    if both is not None:
        label = arguments.array(f"{part}.edge_label", _value(data, "edge_label"))
        index = arguments.array(f"{part}.edge_label_index", both)
        if index.ndim != 2 or label.shape != index.shape[1:]:
            raise ValueError(
                f"{part}: got edge_label {label.shape} and edge_label_index {index.shape}, want [m] and [2, m]"
            )
        parts = index[:, label > 0], index[:, label == 0]
    elif parts[0] is None:
        raise ValueError(f"{part}: has no edge_label_index, want a part from RandomLinkSplit")
    positive, negative = (_apart(part, pairs) for pairs in parts)
    return positive, negative


def _apart(part: str, pairs: Any) -> torch.Tensor:
    """Pairs ``[2, m]`` as ``[m, 2]``, without those of a node with itself; None: no pairs."""
    index = np.empty((2, 0), np.int64) if pairs is None else arguments.array(part, pairs)
    if index.ndim != 2 or index.shape[0] != 2:
        raise ValueError(f"{part}: got pairs of shape {index.shape}, want [2, m]")
    return torch.from_numpy(index.T[index[0] != index[1]])


def without_pairs(data: Any, least: int) -> Any:
    """A shallow copy of one part of a link split without its pairs, which is a graph.

    Args:
        least: the number of nodes that the pairs of all parts have, at least: the edges of one part may have fewer.
    """
    data = copy.copy(data)
    for attribute in SPLIT:
        if _value(data, attribute) is not None:
            delattr(data, attribute)
    if _nodes_of(data)[1]:
        data.num_nodes = max(least, _num_nodes(data, _value(data, "edge_index")) or 0)
    return data


def adjacency_of_data(data: Any, weighted: bool) -> scipy.sparse.coo_matrix:
    """The edges with their weights, from edge_index, adj_t or adj."""
    name, is_matrix = _place_of_edges(data)
    value = _value(data, name)
    if is_matrix:
        coo = to_coo(_matrix(value, name), f"data.{name}")
        if coo.shape[0] != coo.shape[1]:
            raise ValueError(f"data.{name}: got shape {coo.shape[0]} x {coo.shape[1]}, want a square matrix")
        return coo
    edge_index = arguments.array("edge_index", value)
    weights = _weights(data, edge_index.shape[-1] if edge_index.ndim else 0, weighted)
    return edges_to_coo(edge_index, _num_nodes(data, value), weights, merge=weighted)


def has_weights(data: Any) -> bool:
    """Whether the edges have weights. A matrix has values, but one of torch_sparse may have none."""
    name, is_matrix = _place_of_edges(data)
    if not is_matrix:
        return any(_value(data, attribute) is not None for attribute in ("edge_weight", "edge_attr"))
    matrix = _value(data, name)
    return not _is_sparse_tensor(matrix) or matrix.csr()[2] is not None


def _place_of_edges(data: Any) -> tuple[str, bool]:
    """The name of the attribute that has the edges, and whether it is a matrix."""
    name = next((name for name in EDGES if _value(data, name) is not None), None)
    if name is None:
        raise ValueError(f"data: has neither edge_index nor adj_t, {WANTED} with edges")
    value = _value(data, name)
    sparse = scipy.sparse.issparse(value) or _is_sparse_tensor(value)
    if isinstance(value, torch.Tensor):
        sparse = value.layout != torch.strided
    return name, name != "edge_index" or sparse


def _is_sparse_tensor(value: Any) -> bool:
    """Whether a value is a matrix of torch_sparse, which may not be installed."""
    return hasattr(value, "csr") and hasattr(value, "sparse_sizes")


def _matrix(value: Any, name: str) -> Any:
    """The matrix itself; one of torch_sparse as a matrix of SciPy."""
    if not _is_sparse_tensor(value):
        return value
    rowptr, col, values = value.csr()
    values = np.ones(col.shape[0]) if values is None else arguments.array(f"data.{name}", values)
    sizes = tuple(map(int, value.sparse_sizes()))
    return coo_of_compressed(values, col.cpu().numpy(), rowptr.cpu().numpy(), sizes, f"data.{name}")


def _num_nodes(data: Any, edge_index: Any) -> Any:
    """The number of nodes that the data says, or that its attributes with a row per node have."""
    sizes = getattr(edge_index, "sparse_size", None)
    known = [size for size in (sizes() if callable(sizes) else ()) if size is not None]
    if known and len({*known}) > 1:
        raise ValueError(f"data.edge_index: got a matrix of {known[0]} x {known[1]}, want as many rows as columns")
    found, guessed = _nodes_of(data)
    if found is not None and not guessed:
        return found
    lengths = {name: value.shape[0] for name in PER_NODE if getattr(value := _value(data, name), "ndim", 0)}
    masks = [lengths[name] for name in MASKS.values() if name in lengths]
    # A label for each edge says nothing about nodes.
    if (lengths.get(LABELS),) == np.shape(edge_index)[-1:] and lengths[LABELS] not in masks:
        del lengths[LABELS]
    return max([found or 0, *known, *lengths.values()]) or None


def _nodes_of(data: Any) -> tuple[int | None, bool]:
    """The number of nodes that PyTorch Geometric has for a data, and whether it is the largest number in edge_index."""
    # A warning is all that says so. Of two threads that record warnings at once, one would leave its recorder behind.
    with RECORDING, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = getattr(data, "num_nodes", None)
    return found, any("num_nodes" in str(warning.message) for warning in caught)


def _weights(data: Any, num_edges: int, weighted: bool) -> np.ndarray | None:
    """The weights of the edges, from edge_weight, or with ``weighted`` from edge_attr, if it is one column."""
    weights, name = _value(data, "edge_weight"), "data.edge_weight"
    if weights is None and weighted:
        weights, name = _value(data, "edge_attr"), "data.edge_attr"
        weights = None if weights is None else arguments.array(name, weights)
        if weights is not None and weights.ndim > 1 and weights.shape[1:] != (1,):
            raise ValueError(
                f"{name}: got shape {weights.shape}, want one weight per edge: set data.edge_weight to one "
                "of the columns, or weighted=False"
            )
    return None if weights is None else edge_weights(name, weights, num_edges)


def features_of_data(data: Any, name: str) -> Any:
    """An attribute of the data as a matrix; None: there is no x."""
    features = _matrix(_named(data, "features", name, FEATURES), name)
    return features[:, None] if getattr(features, "ndim", 2) == 1 else features


def labels_of_data(data: Any, name: str, num_nodes: int) -> Labels:
    """An attribute of the data as labels. What are no classes of nodes is left out, with a warning.

    Raises:
        TypeError: values that are neither numbers nor words.
        ValueError: several columns of integers.
    """
    given = _named(data, "labels", name, LABELS)
    if given is None:
        return Labels(None, f"data has no {name}")
    found = arguments.array(f"data.{name}", given)
    missing = None
    if found.ndim == 0 or found.shape[0] != num_nodes:
        missing = (
            f"data.{name} has shape {tuple(found.shape)}, which is not a label for each of {num_nodes} nodes "
            "(data.num_nodes sets their number)"
        )
    elif found.dtype.kind == "f" and not _are_classes(found):
        missing = f"data.{name} holds real numbers ({_dtype(given)}), which are no classes"
    elif found.ndim > 1 and found.shape[1] > 1 and found.dtype.kind in "iu" and not np.isin(found, (0, 1)).all():
        raise ValueError(
            f"data.{name}: got shape {found.shape} of integers, want one label per node: labels=data.{name}[:, 0]"
        )
    if missing is None:
        return Labels(given)
    warn_outside(f"data: {missing}, so that the graph has no labels; labels=None says so without this warning")
    return Labels(None, missing)


def _are_classes(values: np.ndarray) -> bool:
    """Whether floats may be classes: whole numbers or NaN, in several columns 0, 1 or NaN."""
    known = values[~np.isnan(values)]
    if values.ndim > 1 and values.shape[1] > 1:
        return bool(values.ndim == 2 and np.isin(known, (0, 1)).all())
    return bool((np.isfinite(known) & (known == np.round(known))).all())


def _dtype(value: Any) -> Any:
    return getattr(value, "dtype", type(value).__name__)


def masks_of_data(data: Any, split: int | None) -> dict[str, Any]:
    """The masks of a data set, by the names that they have here.

    Args:
        split: of masks of several splits, ``[n, splits]``, the number of the one to take; None: such masks are left
            out, with a warning.
    """
    masks = {key: _value(data, name) for key, name in MASKS.items() if _value(data, name) is not None}
    masks = {key: mask[:, 0] if getattr(mask, "shape", ())[1:] == (1,) else mask for key, mask in masks.items()}
    tables = {key: mask for key, mask in masks.items() if getattr(mask, "ndim", 1) == 2}
    if not tables:
        if split is not None:
            raise ValueError(f"split: got {arguments.shown(split)}, want None: data has no masks of several splits")
        return masks
    count = min(table.shape[1] for table in tables.values())
    if split is None:
        names = ", ".join(MASKS[key] for key in tables)
        warn_outside(f"data: {names} hold {count} splits and are left out; split=0 to {count - 1} chooses one")
        return {key: mask for key, mask in masks.items() if key not in tables}
    split = arguments.whole("split", split, most=count - 1)
    return {key: mask[:, split] if key in tables else mask for key, mask in masks.items()}


def _named(data: Any, argument: str, name: str, usual: str) -> Any:
    """An attribute that the user has named; it may be absent only if it is the usual one."""
    value = _value(data, name)
    if value is None and name != usual:
        raise ValueError(f"{argument}: data has no attribute {arguments.shown(name)}")
    return value


def _value(data: Any, name: str) -> Any:
    """An attribute of a Data; None: it has none."""
    return getattr(data, name, None)
