"""What is built once per data set: sparse matrices and the graph that holds them."""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
import torch

from .sampling import NonEdges

FLOATING = (torch.float32, torch.float64)

LAYOUTS = ("sparse", "dense")

# See is_far_beyond.
MANY_NODES, NODES_PER_EDGE, MOST_NODES = 10**8, 1000, 2**31 - 1

# From this share of non-zeros on, the CPU multiplies a matrix in full: 2 rows cols w operations instead of 2 nnz w, but
# at the rate of the BLAS. Measured with 500 to 800 columns and widths of 512: at 15 % the sparse products took half to
# two thirds of the time of the dense ones, at 35 % (Photo) a fifth to two fifths more.
DENSE_SHARE = 0.25
# A matrix of fewer elements stays sparse: there is nothing to win.
DENSE_SIZE = 1 << 14


class SparseMatrix:
    """A sparse matrix in compressed sparse row form, on any device.

    Attributes:
        rowptr: int64 ``[rows + 1]``; row ``i`` owns the entries ``rowptr[i]`` to ``rowptr[i + 1]``.
        col: int64 ``[nnz]``, ascending inside a row, without duplicates.
        values: float32 or float64 ``[nnz]``.
        shape: ``(rows, cols)``.
        symmetric: the matrix equals its transpose, value for value.
        hollow: there is no entry on the diagonal.

    The constructor takes its parts on trust, and "hollow" may be False for want of knowing; :meth:`from_any` checks.
    What follows from the matrix (its transpose, row numbers, weights of the averages of Eq. cor) is built at the first
    use and kept.
    """

    def __init__(
        self,
        rowptr: torch.Tensor,
        col: torch.Tensor,
        values: torch.Tensor,
        shape: tuple[int, int],
        *,
        symmetric: bool = False,
        hollow: bool = False,
    ) -> None:
        # The kernels read the three one element after the other.
        self.rowptr = rowptr.contiguous()
        self.col = col.contiguous()
        self.values = values.contiguous()
        self.shape = (int(shape[0]), int(shape[1]))
        self.symmetric = symmetric
        self.hollow = hollow
        self._row: torch.Tensor | None = None
        self._order: torch.Tensor | None = None
        self._transposed: SparseMatrix | None = None
        # Of the transpose, the matrix that it was made from. Two matrices that hold each other would keep their memory
        # beyond the training step that made them, until the garbage collector finds the cycle.
        self._origin: weakref.ref[SparseMatrix] | None = None
        self._row_normalized: SparseMatrix | None = None
        self._layout: str | None = None
        self._dense: torch.Tensor | None = None
        self._non_edges: NonEdges | None = None
        self._value_range: tuple[float, float] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_origin": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._transposed is not None:
            self._transposed._origin = weakref.ref(self)

    def __repr__(self) -> str:
        return f"SparseMatrix({self.shape[0]} x {self.shape[1]}, nnz={self.nnz}, {self.dtype}, {self.device})"

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.col.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def row(self) -> torch.Tensor:
        """int64 ``[nnz]``: the row of each entry."""
        if self._row is None:
            rows = torch.arange(self.shape[0], device=self.device)
            self._row = torch.repeat_interleave(rows, self.rowptr.diff(), output_size=self.nnz)
        return self._row

    @property
    def order(self) -> torch.Tensor:
        """int64 ``[nnz]``: entry ``k`` of the transpose is entry ``order[k]`` of this matrix."""
        if self._order is None:
            self._order = torch.argsort(self.col, stable=True)
        return self._order

    @property
    def transposed(self) -> SparseMatrix:
        """The transpose, by rows; the matrix itself where it is symmetric."""
        if self.symmetric:
            return self
        if self._transposed is None:
            origin = None if self._origin is None else self._origin()
            if origin is not None:
                return origin
            counts = torch.zeros(self.shape[1] + 1, dtype=torch.int64, device=self.device)
            counts.scatter_add_(0, self.col + 1, torch.ones_like(self.col))
            self._set_transposed(counts.cumsum(0), self.row[self.order], self.values[self.order])
        return self._transposed

    def _set_transposed(self, rowptr: torch.Tensor, col: torch.Tensor, values: torch.Tensor) -> SparseMatrix:
        self._transposed = SparseMatrix(rowptr, col, values, (self.shape[1], self.shape[0]))
        self._transposed._origin = weakref.ref(self)
        self._transposed._layout = self._layout
        return self._transposed

    @property
    def row_normalized(self) -> SparseMatrix:
        """Each row divided by the sum of its absolute values (Eq. cor's weights); an all-zero row stays zero."""
        if self._row_normalized is None:
            norms = _row_sums(self.rowptr, self.values.abs())
            scale = torch.where(norms > 0, norms.reciprocal(), torch.zeros_like(norms))
            self._row_normalized = self.with_values(self.values * scale[self.row])
        return self._row_normalized

    @property
    def layout(self) -> str:
        """How the CPU computes with the matrix: "sparse", by rows, or "dense", in full.

        Chosen once, from the share of non-zeros, and passed on to what follows from the matrix; :meth:`with_layout`
        forces it. Both give the same numbers up to rounding. A matrix on another device is always sparse.
        """
        if self.device.type != "cpu":
            return "sparse"
        if self._layout is None:
            size = self.shape[0] * self.shape[1]
            self._layout = "dense" if size >= DENSE_SIZE and self.nnz >= DENSE_SHARE * size else "sparse"
        return self._layout

    def with_layout(self, layout: str) -> SparseMatrix:
        """The same matrix, whose parts are shared, in the layout "sparse" or "dense".

        Raises:
            ValueError: another layout.
        """
        if layout not in LAYOUTS:
            raise ValueError(f"layout: got {layout!r}, want one of {', '.join(map(repr, LAYOUTS))}")
        matrix = SparseMatrix(
            self.rowptr, self.col, self.values, self.shape, symmetric=self.symmetric, hollow=self.hollow
        )
        matrix._row, matrix._order, matrix._layout = self._row, self._order, layout
        if self._transposed is not None:
            matrix._share_transposed(self._transposed, self._transposed.values)
        return matrix

    @property
    def dense(self) -> torch.Tensor:
        """The matrix as a dense tensor ``[rows, cols]``, made once: what the dense layout computes with."""
        if self._dense is None:
            self._dense = self.to_dense()
        return self._dense

    @property
    def non_edges(self) -> NonEdges:
        """The pairs ``i < k`` without an entry, for a symmetric matrix without a diagonal."""
        if self._non_edges is None:
            upper = self.row < self.col
            self._non_edges = NonEdges(torch.stack([self.row[upper], self.col[upper]], dim=1), self.shape[0])
        return self._non_edges

    @property
    def non_edge_count(self) -> int:
        """The number of those pairs, without building them."""
        return self.shape[0] * (self.shape[0] - 1) // 2 - self.nnz // 2

    @property
    def value_range(self) -> tuple[float, float]:
        """The smallest and the largest element, zeros included; read on the host once."""
        if self._value_range is None:
            ends = (float(self.values.min()), float(self.values.max())) if self.nnz else (0.0, 0.0)
            full = self.nnz == self.shape[0] * self.shape[1]
            self._value_range = ends if full else (min(ends[0], 0.0), max(ends[1], 0.0))
        return self._value_range

    def with_values(self, values: torch.Tensor) -> SparseMatrix:
        """The same structure, which is shared, with other values ``[nnz]``, float32 or float64, on the same device.

        Raises:
            TypeError, ValueError: values of another shape, type or device.
        """
        if not isinstance(values, torch.Tensor) or values.dtype not in FLOATING:
            got = values.dtype if isinstance(values, torch.Tensor) else type(values).__name__
            raise TypeError(f"values: got {got}, want torch.float32 or torch.float64")
        if tuple(values.shape) != (self.nnz,) or values.device != self.device:
            raise ValueError(
                f"values: got shape {tuple(values.shape)} on {values.device}, want ({self.nnz},) on {self.device}"
            )
        matrix = SparseMatrix(self.rowptr, self.col, values, self.shape)
        matrix._row, matrix._layout = self._row, self._layout
        if self._transposed is not None:
            matrix._order = self.order
            matrix._share_transposed(self._transposed, values[self.order])
        return matrix

    def _share_transposed(self, other: SparseMatrix, values: torch.Tensor) -> None:
        self._set_transposed(other.rowptr, other.col, values)._row = other._row

    def with_all_values(
        self, own: tuple[torch.Tensor, ...], by_row: tuple[torch.Tensor, ...], by_column: tuple[torch.Tensor, ...]
    ) -> SparseMatrix:
        """The same structure with other values, of which all that follows is known.

        Args:
            own: values ``[nnz]`` in the order of this matrix, and in that of its transpose.
            by_row: the same two for :attr:`row_normalized`.
            by_column: the same two for the matrix with each column divided by the sum of its absolute values.
        """
        matrix = self._paired(*own)
        matrix._row_normalized = self._paired(*by_row)
        matrix.transposed._row_normalized = self.transposed._paired(*reversed(by_column))
        return matrix

    def _paired(self, values: torch.Tensor, transposed_values: torch.Tensor) -> SparseMatrix:
        matrix = SparseMatrix(self.rowptr, self.col, values, self.shape)
        matrix._row, matrix._order, matrix._layout = self._row, self._order, self._layout
        matrix._share_transposed(self.transposed, transposed_values)
        return matrix

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> SparseMatrix:
        """The matrix on another device or with values of another type.

        Raises:
            TypeError: a dtype other than torch.float32 and torch.float64.
            ValueError: a value, or the sum of a row's or column's absolute values, is beyond what ``dtype`` can hold.
        """
        if dtype is not None and dtype not in FLOATING:
            raise TypeError(f"dtype: got {dtype}, want torch.float32 or torch.float64")
        if dtype not in (None, self.dtype) and not self._surely_fits(dtype):
            _check_fits(_to_csr(self, "values"), "values", dtype)
        values = self.values.to(device=device, dtype=dtype)
        if values is self.values:
            return self
        matrix = SparseMatrix(
            self.rowptr.to(device=device),
            self.col.to(device=device),
            values,
            self.shape,
            symmetric=self.symmetric,
            hollow=self.hollow,
        )
        matrix._layout = self._layout
        if self._transposed is not None:
            other = self._transposed
            matrix._set_transposed(
                other.rowptr.to(device=device),
                other.col.to(device=device),
                other.values.to(device=device, dtype=dtype),
            )
        return matrix

    def _surely_fits(self, dtype: torch.dtype) -> bool:
        """Whether all values together add up to what a dtype can hold, so that each one and each part does."""
        return bool(self.values.abs().sum(dtype=torch.float64) <= torch.finfo(dtype).max)

    def to_dense(self) -> torch.Tensor:
        """The matrix as a dense tensor ``[rows, cols]``."""
        return self.values.new_zeros(self.shape).index_put_((self.row, self.col), self.values)

    def to_scipy(self) -> scipy.sparse.csr_matrix:
        """The matrix as a SciPy CSR matrix."""
        parts = (self.values.detach().cpu().numpy(), self.col.cpu().numpy(), self.rowptr.cpu().numpy())
        return scipy.sparse.csr_matrix(parts, shape=self.shape)

    @classmethod
    def from_any(cls, matrix: Any, *, name: str = "matrix", dtype: torch.dtype = torch.float32) -> SparseMatrix:
        """Reads a SciPy matrix or array (any format), a NumPy array or matrix, or a torch tensor (dense or sparse).

        Duplicate entries are added up, and explicit zeros dropped, with them what ``dtype`` holds only as zero or as a
        subnormal number (below 1.2e-38 in float32), whose reciprocal it does not hold.

        Args:
            matrix: the matrix, two-dimensional, real, finite. A ``SparseMatrix`` is taken as it is.
            name: what errors call it.
            dtype: torch.float32 or torch.float64.

        Raises:
            TypeError: not a matrix of numbers, or a dtype that is not one of the two.
            ValueError: not two-dimensional, or a value is NaN or infinite, or it, or the sum of a row's or column's
                absolute values, is beyond what ``dtype`` can hold.
        """
        if dtype not in FLOATING:
            raise TypeError(f"dtype: got {dtype}, want torch.float32 or torch.float64")
        tiny = torch.finfo(dtype).tiny
        if (
            isinstance(matrix, SparseMatrix)
            and matrix._surely_fits(dtype)
            and bool((matrix.values.abs() >= tiny).all())
        ):
            return matrix.to(dtype=dtype)
        device = matrix.device if isinstance(matrix, (torch.Tensor, SparseMatrix)) else None
        return cls._from_csr(_to_csr(matrix, name), name, dtype).to(device=device)

    @classmethod
    def _from_csr(
        cls, csr: scipy.sparse.csr_matrix, name: str, dtype: torch.dtype, *, hollow: bool = False
    ) -> SparseMatrix:
        _check_fits(csr, name, dtype)
        subnormal = np.abs(csr.data) < torch.finfo(dtype).tiny
        if subnormal.any():
            csr.data[subnormal] = 0
            csr.eliminate_zeros()
        return cls(
            torch.from_numpy(csr.indptr.astype(np.int64)),
            torch.from_numpy(csr.indices.astype(np.int64)),
            torch.from_numpy(np.ascontiguousarray(csr.data)).to(dtype),
            csr.shape,
            symmetric=hollow,
            hollow=hollow,
        )


def _check_fits(csr: scipy.sparse.csr_matrix, name: str, dtype: torch.dtype) -> None:
    """Raises a ValueError where a dtype can't hold a value, or what the averages over a row or column divide by."""
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


def _to_coo(matrix: Any, name: str) -> scipy.sparse.coo_matrix:
    """Any kind of matrix as SciPy COO in float64, duplicates still apart; checked for shape, type and finite values."""
    if isinstance(matrix, SparseMatrix):
        matrix = matrix.to_scipy()
    elif isinstance(matrix, torch.Tensor):
        matrix = _torch_to_scipy(matrix.detach().cpu(), name)
    elif not scipy.sparse.issparse(matrix):
        if not isinstance(matrix, (np.ndarray, list, tuple)):
            raise TypeError(
                f"{name}: got {type(matrix).__name__}, want a SciPy sparse matrix, a NumPy array or a torch tensor"
            )
        try:
            matrix = np.asarray(matrix)
        except ValueError:
            raise ValueError(f"{name}: got rows of different lengths, want a matrix") from None
    if matrix.ndim != 2:
        raise ValueError(f"{name}: got {matrix.ndim} dimensions (shape {tuple(matrix.shape)}), want 2")
    if matrix.dtype.kind not in "buif":
        raise TypeError(f"{name}: got values of type {matrix.dtype}, want real numbers")
    # SciPy has no sparse float16.
    coo = scipy.sparse.coo_matrix(matrix if scipy.sparse.issparse(matrix) else matrix.astype(np.float64))
    coo = scipy.sparse.coo_matrix((coo.data.astype(np.float64), (coo.row, coo.col)), shape=coo.shape)
    bad = np.flatnonzero(~np.isfinite(coo.data))
    if bad.size:
        at = bad[0]
        raise ValueError(
            f"{name}: got {bad.size} values that are NaN or infinite (the first is {coo.data[at]} at row "
            f"{coo.row[at]}, column {coo.col[at]}), want finite numbers"
        )
    return coo


def _to_csr(matrix: Any, name: str) -> scipy.sparse.csr_matrix:
    csr = _to_coo(matrix, name).tocsr()
    csr.sum_duplicates()
    csr.eliminate_zeros()
    csr.sort_indices()
    return csr


def _torch_to_scipy(tensor: torch.Tensor, name: str) -> Any:
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        tensor = tensor.to_sparse_coo()
    if tensor.layout == torch.sparse_coo:
        if tensor.sparse_dim() != 2 or tensor.dense_dim() != 0:
            raise ValueError(
                f"{name}: got a sparse tensor with {tensor.sparse_dim()} sparse and {tensor.dense_dim()} dense "
                "dimensions, want 2 and 0"
            )
        index, values = tensor._indices().numpy(), tensor._values()
        return scipy.sparse.coo_matrix((_to_numpy(values, name), (index[0], index[1])), shape=tuple(tensor.shape))
    return _to_numpy(tensor, name)


def _to_numpy(tensor: torch.Tensor, name: str) -> np.ndarray:
    if tensor.is_complex() or tensor.is_quantized:
        raise TypeError(f"{name}: got values of type {tensor.dtype}, want real numbers")
    return tensor.to(torch.float64).numpy()


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
        coo = _to_coo(adjacency, "adjacency")
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
        self.adjacency = SparseMatrix._from_csr(weights, "adjacency", dtype, hollow=True).to(device=device)
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
                edge_weight = _to_numpy(edge_weight.detach().cpu(), "edge_weight")
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
    scale = _row_sums(rowptr, weight).rsqrt()
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


def _row_sums(rowptr: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """``[rows]``: each row's values added in their order, on every device."""
    return torch.segment_reduce(values, "sum", offsets=rowptr, unsafe=True, initial=0)


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
