"""The graph: what is built once per data set."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
import torch

from .sparse_matrix import FLOATING, SparseMatrix, matrix_of_csr, row_sums, to_coo, to_numpy

# See is_far_beyond.
MANY_NODES, NODES_PER_EDGE, MOST_NODES = 10**8, 1000, 2**31 - 1


class Graph:
    """An undirected graph with node features: simple, symmetric, checked once.

    Args:
        adjacency: ``n x n``: SciPy (any format), NumPy, torch dense or sparse. Duplicate entries of a sparse matrix add
            their weights, as they do everywhere in SciPy and torch, and self-loops are dropped. An input that is not
            symmetric is made so, with a warning: an edge in either direction counts, with the larger of its weights.
        features: ``n x l``, the same kinds of matrix; values are kept. None stands for the identity (``l = n``).
        labels: class of each node: integers ``[n]`` (negative: unknown) or one row of scores or a one-hot row per node.
        weighted: keep edge weights in the propagation matrix. Otherwise all edges count 1, with a warning where the
            input has other weights. The link targets are 0/1 either way.
        masks: named boolean vectors ``[n]``, such as a data set's public split ("train", "valid", "test").
        name: what messages and files call the graph.
        dtype: torch.float32 or torch.float64.

    Raises:
        TypeError: an argument is of a wrong kind or not numeric.
        ValueError: not square, no nodes, sizes that don't match, NaN, infinite or negative weights.
    """

    def __init__(
        self,
        adjacency: Any,
        features: Any = None,
        labels: Any = None,
        *,
        weighted: bool = False,
        masks: Mapping[str, Any] | None = None,
        name: str = "graph",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if dtype not in FLOATING:
            raise TypeError(f"dtype: got {dtype}, want torch.float32 or torch.float64")
        coo = to_coo(adjacency, "adjacency")
        if coo.shape[0] != coo.shape[1]:
            raise ValueError(f"adjacency: got shape {coo.shape[0]} x {coo.shape[1]}, want a square matrix")
        num_nodes = coo.shape[0]
        if num_nodes == 0:
            raise ValueError("adjacency: got a graph without nodes, want at least one")
        if coo.nnz and coo.data.min() < 0:
            raise ValueError(f"adjacency: got a negative edge weight ({coo.data.min()}), want weights of 0 and above")
        weights = _symmetric(_simple(coo, weighted))
        if features is None:
            features = scipy.sparse.identity(num_nodes, format="csr")
        feature_matrix = SparseMatrix.from_any(features, name="features", dtype=dtype)
        if feature_matrix.shape[0] != num_nodes:
            raise ValueError(
                f"features: got {feature_matrix.shape[0]} rows, want one per node: adjacency has {num_nodes} nodes"
            )
        if feature_matrix.shape[1] == 0:
            raise ValueError("features: got no columns, want at least one feature (None stands for the identity)")
        device = feature_matrix.device
        self.name = name
        self.adjacency = matrix_of_csr(weights, "adjacency", dtype, hollow=True).to(device=device)
        self._weights: torch.Tensor | None = self.adjacency.values if weighted else None
        self.adjacency.values = torch.ones_like(self.adjacency.values)
        self.features = feature_matrix
        self.labels = _labels(labels, num_nodes)
        self.masks = {key: _mask(key, mask, num_nodes) for key, mask in (masks or {}).items()}
        self._clear()

    def _clear(self) -> None:
        self._edges: torch.Tensor | None = None
        self._propagation: SparseMatrix | None = None
        self._looped: tuple[SparseMatrix, torch.Tensor] | None = None

    def __repr__(self) -> str:
        return (
            f"Graph({self.name!r}: {self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features, "
            f"{self.dtype}, {self.device})"
        )

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        features: Any = None,
        num_nodes: int | None = None,
        labels: Any = None,
        *,
        edge_weight: Any = None,
        **options: Any,
    ) -> Graph:
        """A graph from ``edge_index`` ``[2, E]``, integer node numbers from 0.

        An edge that is given several times, in one direction or in both, counts once, with the largest of its weights.

        Args:
            num_nodes: taken from the features, or else the largest number in ``edge_index``, where it is left out.
            edge_weight: ``[E]``; used with ``weighted=True``.
            options: those of :class:`Graph`.

        Raises:
            TypeError: ``num_nodes`` or the node numbers are not integers, or the weights are no real numbers.
            ValueError: a wrong shape, a negative weight, a number outside ``0 .. num_nodes - 1``, or one that is far
                beyond what so few edges reach (above 100 million and 1,000 times their number, or beyond 2^31), without
                ``num_nodes`` or features.
        """
        index = edge_index.detach().cpu().numpy() if isinstance(edge_index, torch.Tensor) else np.asarray(edge_index)
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
            num_nodes = highest + 1 if features is None else _rows(features)
        elif isinstance(num_nodes, bool) or not isinstance(num_nodes, (int, np.integer)):
            raise TypeError(f"num_nodes: got {type(num_nodes).__name__}, want an int")
        elif not 1 <= num_nodes <= MOST_NODES:
            raise ValueError(f"num_nodes: got {num_nodes}, want 1 to {MOST_NODES}")
        outside = (index < 0) | (index >= num_nodes)
        if outside.any():
            raise ValueError(
                f"edge_index: got node {index[outside][0]}, want numbers from 0 to {num_nodes - 1} "
                f"(num_nodes is {num_nodes})"
            )
        index = index.astype(np.int64)
        if edge_weight is None:
            weight = np.ones(index.shape[1])
        else:
            if isinstance(edge_weight, torch.Tensor):
                edge_weight = to_numpy(edge_weight.detach().cpu(), "edge_weight")
            try:
                weight = np.asarray(edge_weight).reshape(-1)
            except ValueError:
                raise ValueError("edge_weight: got rows of different lengths, want one weight per edge") from None
            if weight.shape[0] != index.shape[1]:
                raise ValueError(f"edge_weight: got {weight.shape[0]} weights, want one per edge: {index.shape[1]}")
            if weight.dtype.kind not in "buif":
                raise TypeError(f"edge_weight: got values of type {weight.dtype}, want real numbers")
            weight = weight.astype(np.float64)
            if not np.isfinite(weight).all():
                raise ValueError("edge_weight: got NaN or infinity, want finite weights")
            if weight.size and weight.min() < 0:
                raise ValueError(f"edge_weight: got a negative weight ({weight.min()}), want weights of 0 and above")
        return cls(matrix_of_edges(*index, weight, int(num_nodes)), features, labels, **options)

    @classmethod
    def from_pyg(cls, data: Any, **options: Any) -> Graph:
        """A graph from a ``torch_geometric.data.Data``: edge_index, x, y, edge_weight and the masks that it has."""
        masks = {
            key: getattr(data, attribute)
            for key, attribute in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask"))
            if getattr(data, attribute, None) is not None and getattr(data, attribute).ndim == 1
        }
        return cls.from_edge_index(
            data.edge_index,
            getattr(data, "x", None),
            data.num_nodes,
            getattr(data, "y", None),
            edge_weight=getattr(data, "edge_weight", None),
            **{"masks": masks, **options},
        )

    @classmethod
    def from_networkx(cls, g: Any, features: Any = None, labels: Any = None, **options: Any) -> Graph:
        """A graph from a ``networkx`` graph, nodes in the order of ``g.nodes``; parallel edges add their weights.

        Args:
            features: a matrix with a row per node, or the name of a node attribute that holds a vector.
            labels: one per node, or the name of a node attribute.
        """
        import networkx

        if isinstance(features, str):
            features = np.asarray([_attribute(g, node, features, "features") for node in g.nodes])
        if isinstance(labels, str):
            labels = np.asarray([_attribute(g, node, labels, "labels") for node in g.nodes])
        if g.number_of_nodes() == 0:
            raise ValueError("g: got a graph without nodes, want at least one")
        return cls(networkx.to_scipy_sparse_array(g, nodelist=list(g.nodes)), features, labels, **options)

    @property
    def num_nodes(self) -> int:
        return self.adjacency.shape[0]

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def num_edges(self) -> int:
        """Undirected edges, self-loops not counted."""
        return self.adjacency.nnz // 2

    @property
    def weights(self) -> torch.Tensor | None:
        """``[nnz]``: the weight in propagation of each entry of the adjacency; None where all count 1."""
        return self._weights

    @property
    def device(self) -> torch.device:
        return self.adjacency.device

    @property
    def dtype(self) -> torch.dtype:
        return self.adjacency.dtype

    def edges(self) -> torch.Tensor:
        """int64 ``[num_edges, 2]``: each undirected edge once, ``i < j``, in ascending order."""
        if self._edges is None:
            row, col = self.adjacency.row, self.adjacency.col
            self._edges = torch.stack([row, col], dim=1)[row < col]
        return self._edges

    @property
    def propagation(self) -> SparseMatrix:
        """The matrix of graph convolutions: ``D^-1/2 (A + I) D^-1/2`` with ``D`` the degrees of ``A + I``."""
        if self._propagation is None:
            self._propagation = propagation_matrix(*self.with_self_loops())
        return self._propagation

    def with_self_loops(self) -> tuple[SparseMatrix, torch.Tensor]:
        """``A + I`` with its weights, and int64 ``[nnz]``: each entry's row in :meth:`edges`, -1 for a self-loop."""
        if self._looped is None:
            adjacency, nodes = self.adjacency, torch.arange(self.num_nodes, device=self.device)
            low, high = torch.minimum(adjacency.row, adjacency.col), torch.maximum(adjacency.row, adjacency.col)
            edges = self.edges()
            keys = edges[:, 0] * self.num_nodes + edges[:, 1]
            edge = torch.searchsorted(keys, low * self.num_nodes + high)
            row, col = torch.cat([adjacency.row, nodes]), torch.cat([adjacency.col, nodes])
            weight = adjacency.values if self._weights is None else self._weights
            order = torch.argsort(row * self.num_nodes + col)
            looped = SparseMatrix(
                adjacency.rowptr + torch.arange(self.num_nodes + 1, device=self.device),
                col[order],
                torch.cat([weight, weight.new_ones(self.num_nodes)])[order],
                adjacency.shape,
                symmetric=True,
            )
            self._looped = (looped, torch.cat([edge, torch.full_like(nodes, -1)])[order])
        return self._looped

    def with_edges(self, edges: torch.Tensor) -> Graph:
        """The graph with a part of its edges, ``[m, 2]`` rows of :meth:`edges`; features and labels are shared."""
        chosen = torch.as_tensor(edges, device=self.device)
        if chosen.numel() == 0:
            chosen = chosen.new_empty(0, 2)
        elif chosen.is_floating_point() or chosen.is_complex() or chosen.dtype == torch.bool:
            raise TypeError(f"edges: got {chosen.dtype}, want integers")
        elif chosen.ndim != 2 or chosen.shape[1] != 2:
            raise ValueError(f"edges: got shape {tuple(chosen.shape)}, want [m, 2]")
        chosen = chosen.to(torch.int64)
        low, high = chosen.min(dim=1).values, chosen.max(dim=1).values
        own = self.edges()
        # A number that is no node would be taken for another pair.
        inside = (low >= 0) & (high < self.num_nodes)
        kept = torch.isin(own[:, 0] * self.num_nodes + own[:, 1], low * self.num_nodes + high)
        if not inside.all() or int(kept.sum()) != torch.unique(low * self.num_nodes + high).shape[0]:
            raise ValueError("edges: got pairs that are not edges of this graph, want rows of graph.edges()")
        edge = self.with_self_loops()[1]
        keep = kept[edge[edge >= 0]]
        rowptr = torch.zeros_like(self.adjacency.rowptr)
        rowptr[1:] = torch.bincount(self.adjacency.row[keep], minlength=self.num_nodes).cumsum(0)
        graph = self._copy()
        graph.adjacency = SparseMatrix(
            rowptr,
            self.adjacency.col[keep],
            self.adjacency.values[keep],
            self.adjacency.shape,
            symmetric=True,
            hollow=True,
        )
        graph._weights = None if self._weights is None else self._weights[keep]
        graph._clear()
        return graph

    def with_features(self, features: Any) -> Graph:
        """The same nodes and edges with other features ``n x l``."""
        matrix = SparseMatrix.from_any(features, name="features", dtype=self.dtype).to(device=self.device)
        if matrix.shape[0] != self.num_nodes:
            raise ValueError(f"features: got {matrix.shape[0]} rows, want one per node: {self.num_nodes}")
        if matrix.shape[1] == 0:
            raise ValueError("features: got no columns, want at least one feature")
        graph = self._copy()
        graph.features = matrix
        return graph

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> Graph:
        """The graph on another device, or in float32 or float64."""
        graph = self._copy()
        graph.adjacency = self.adjacency.to(device=device, dtype=dtype)
        if self._weights is not None:
            graph._weights = self.adjacency.with_values(self._weights).to(device=device, dtype=dtype).values
        graph.features = self.features.to(device=device, dtype=dtype)
        graph.labels = None if self.labels is None else self.labels.to(device=device)
        graph.masks = {key: mask.to(device=device) for key, mask in self.masks.items()}
        graph._clear()
        return graph

    def _copy(self) -> Graph:
        graph = Graph.__new__(Graph)
        graph.__dict__.update(self.__dict__)
        return graph


def _warn(message: str) -> None:
    """Warns at the line outside of this package that made the graph."""
    package, level, frame = os.path.dirname(__file__), 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def propagation_matrix(looped: SparseMatrix, edge: torch.Tensor, kept: torch.Tensor | None = None) -> SparseMatrix:
    """``D^-1/2 (A + I) D^-1/2`` from what :meth:`Graph.with_self_loops` gives, with the edges ``kept`` (None: all)."""
    rowptr, row, col, weight = looped.rowptr, looped.row, looped.col, looped.values
    if kept is not None:
        # A self-loop has edge number -1, which picks the True at the end.
        stays = torch.cat([kept, kept.new_ones(1)])[edge]
        row, col, weight = row[stays], col[stays], weight[stays]
        rowptr = torch.zeros_like(rowptr)
        rowptr[1:] = torch.bincount(row, minlength=looped.shape[0]).cumsum(0)
    scale = row_sums(rowptr, weight).rsqrt()
    # Symmetric bit for bit: the product of the two scales does not depend on their order.
    return SparseMatrix(rowptr, col, weight * (scale[row] * scale[col]), looped.shape, symmetric=True)


def matrix_of_edges(row: np.ndarray, col: np.ndarray, weight: np.ndarray, num_nodes: int) -> scipy.sparse.coo_matrix:
    """The adjacency of a list of edges; one that is given several times has the largest of its weights."""
    if not weight.size or (weight == weight[0]).all():
        matrix = scipy.sparse.coo_matrix((weight, (row, col)), shape=(num_nodes, num_nodes)).tocsr()
        matrix.data[:] = weight[:1]
        return matrix.tocoo()
    key = row * num_nodes + col
    order = np.lexsort((weight, key))
    last = np.ones(order.shape[0], bool)
    last[:-1] = np.diff(key[order]) != 0
    chosen = order[last]
    return scipy.sparse.coo_matrix((weight[chosen], (row[chosen], col[chosen])), shape=(num_nodes, num_nodes))


def is_far_beyond(node: int, num_edges: int) -> bool:
    """Whether a node's number is above 100 million and 1,000 times the number of edges, or beyond 2^31.

    Then it is rather a name than a number: most of the nodes would have no edge, and take more memory than there is.
    """
    return node > min(max(MANY_NODES, NODES_PER_EDGE * num_edges), MOST_NODES - 1)


def _simple(coo: scipy.sparse.coo_matrix, weighted: bool) -> scipy.sparse.csr_matrix:
    """Without self-loops, zeros and duplicates; with weights 1 unless they are wanted."""
    used = (coo.row != coo.col) & (coo.data != 0)
    row, col, data = coo.row[used], coo.col[used], coo.data[used]
    if not weighted and data.size and (data != 1).any():
        _warn("adjacency: got edge weights other than 1, which are ignored; weighted=True keeps them")
        data = np.ones_like(data)
    csr = scipy.sparse.csr_matrix((data, (row.astype(np.int64), col.astype(np.int64))), shape=coo.shape)
    csr.sum_duplicates()
    if not weighted:
        csr.data[:] = 1
    return csr


def _symmetric(csr: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    flipped = csr.T.tocsr()
    if (csr != flipped).nnz:
        _warn("adjacency: got a directed graph, which is made undirected (an edge in either direction counts)")
        csr = csr.maximum(flipped).tocsr()
    csr.sort_indices()
    return csr


def _labels(labels: Any, num_nodes: int) -> torch.Tensor | None:
    if labels is None:
        return None
    array = labels.detach().cpu().numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if array.ndim == 2 and array.shape[1] > 0:
        # A row without any score has no label.
        array = array[:, 0] if array.shape[1] == 1 else np.where(array.any(axis=1), array.argmax(axis=1), -1)
    if array.ndim != 1 or array.shape[0] != num_nodes:
        raise ValueError(f"labels: got shape {tuple(array.shape)}, want one label per node: [{num_nodes}]")
    whole = array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.round(array)).all()
    if array.dtype.kind not in "iub" and not whole:
        raise TypeError(f"labels: got values of type {array.dtype}, want integers")
    return torch.from_numpy(array.astype(np.int64))


def _rows(features: Any) -> int:
    shape = np.shape(features)
    if not shape:
        raise TypeError(f"features: got {type(features).__name__}, want a matrix with a row per node")
    return int(shape[0])


def _mask(key: str, mask: Any, num_nodes: int) -> torch.Tensor:
    tensor = torch.as_tensor(np.asarray(mask)) if not isinstance(mask, torch.Tensor) else mask
    if tensor.dtype != torch.bool or tuple(tensor.shape) != (num_nodes,):
        raise ValueError(f"masks[{key!r}]: got {tensor.dtype} {tuple(tensor.shape)}, want torch.bool ({num_nodes},)")
    return tensor


def _attribute(g: Any, node: Any, key: str, argument: str) -> Any:
    if key not in g.nodes[node]:
        raise ValueError(f"{argument}: node {node!r} has no attribute {key!r}")
    return g.nodes[node][key]
