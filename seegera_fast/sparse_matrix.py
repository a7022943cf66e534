"""Sparse matrices in compressed sparse row (CSR) form."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import scipy.sparse
import torch

from .compressed import chosen, holds, inverse, row_sums, rows_of, transposed, unit_rows
from .convert import check_fits, edges_to_coo
from .edge_keys import symmetric_pattern
from .entries import ascends, checked_structure, to_csr
from .sampling import NonEdges, require_undirected
from .support.arguments import FLOATING, choice, constant, flag, shown, text, vector, whole
from .support.arguments import device as checked_device
from .support.arguments import dtype as checked_dtype
from .support.kept import Keeping, kept, lasting

# The dtypes of a matrix's vectors. The definitions take values of 16 bits, too.
INDEX, VALUES = (torch.int64,), (*FLOATING, torch.float16, torch.bfloat16)
LAYOUTS = ("auto", "sparse", "dense")


class SparseMatrix(Keeping):
    """A sparse matrix in compressed sparse row form, on any device.

    Attributes:
        rowptr: int64 ``[rows + 1]``; row ``i`` has the entries ``rowptr[i]`` to ``rowptr[i + 1] - 1``.
        col: int64 ``[nnz]``, ascending inside a row, without duplicates.
        values: float32 or float64 ``[nnz]``.
        shape: ``(rows, cols)``.
        symmetric: whether the matrix is known to equal its transpose, value for value.
        hollow: whether the matrix is known to have no entry on the diagonal.

    The constructor checks the kinds of its arguments, not the numbers in them; :meth:`from_any` does. Unpickling checks
    that columns and row pointers are inside of the matrix. Properties such as the transpose, the row numbers and
    ``row_normalized`` are computed at first use and then kept. So don't change the tensors in place:
    :meth:`with_values` makes another matrix.
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
        vector("rowptr", rowptr, INDEX)
        vector("col", col, INDEX)
        vector("values", values, VALUES)
        if not isinstance(shape, (tuple, list)) or len(shape) != 2:
            raise TypeError(f"shape: got {shown(shape)}, want two ints")
        # The kernels read these three tensors as contiguous memory.
        self.rowptr, self.col, self.values = (part.contiguous() for part in (rowptr, col, values))
        self.shape = (whole("shape", shape[0]), whole("shape", shape[1]))
        self._check_sizes()
        self.symmetric = flag("symmetric", symmetric)
        self.hollow = flag("hollow", hollow)
        self._transposed: SparseMatrix | None = None
        # A transpose refers weakly to the matrix that it was made from. With strong references in both directions, the
        # memory of both would be freed only when the garbage collector finds the cycle, not after the training step.
        self._origin: weakref.ref[SparseMatrix] | None = None
        self._layout = "auto"

    def _check_sizes(self) -> None:
        """Checks that the three tensors are as long as the kernels take them to be, and on one device."""
        if self.rowptr.shape[0] != self.shape[0] + 1:
            raise ValueError(
                f"rowptr: got {self.rowptr.shape[0]} numbers, want {self.shape[0] + 1}, one more than the rows of shape"
            )
        if self.values.shape != self.col.shape:
            raise ValueError(f"values: got {self.values.shape[0]}, want {self.col.shape[0]}, one for each of col")
        for name, part in (("rowptr", self.rowptr), ("col", self.col)):
            if part.device != self.values.device:
                raise ValueError(f"{name}: is on {part.device} and values on {self.values.device}")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_origin": None, "_transposed": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._check_sizes()
        self._structure("matrix")

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

    @kept
    def row(self) -> torch.Tensor:
        """int64 ``[nnz]``: the row of each entry."""
        return rows_of(self.rowptr, self.nnz)

    @property
    def order(self) -> torch.Tensor:
        """int64 ``[nnz]``: entry ``k`` of the transpose is entry ``order[k]`` of this matrix."""
        return self._flipped[2]

    @kept
    def _flipped(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Row pointers and columns of the transpose, and :attr:`order`."""
        other = self._other
        if other is None or "_flipped" not in other.__dict__:
            return transposed(self.rowptr, self.col, self.shape)
        return other.rowptr, other.col, inverse(other.order)

    @property
    def _other(self) -> SparseMatrix | None:
        """The transpose, if there is one already."""
        return self._transposed or (None if self._origin is None else self._origin())

    @property
    def transposed(self) -> SparseMatrix:
        """The transpose, in CSR form too; the matrix itself if it is symmetric."""
        return self if self.symmetric else self._other or self._transpose()

    @lasting
    def _transpose(self) -> SparseMatrix:
        rowptr, col, order = self._flipped
        return self._set_transposed(rowptr, col, self.values.index_select(0, order))

    def _set_transposed(self, rowptr: torch.Tensor, col: torch.Tensor, values: torch.Tensor) -> SparseMatrix:
        transposed = SparseMatrix(rowptr, col, values, (self.shape[1], self.shape[0]))
        transposed._origin = weakref.ref(self)
        transposed._layout = self._layout
        # From here on other threads may use it.
        self._transposed = transposed
        return transposed

    @kept
    def row_normalized(self) -> SparseMatrix:
        """The matrix with each row divided by the sum of its absolute values (Eq. cor); a zero row stays zero."""
        return self.with_values(unit_rows(self.rowptr, self.values))

    @kept
    def may_have_unit_rows(self) -> bool:
        """Whether each row is one of :attr:`row_normalized`, or what is left of it: its absolute values have a sum of 1
        at most. The device is read once."""
        return bool((row_sums(self.rowptr, self.values.abs()) < 1 + 1e-3).all())

    @property
    def layout(self) -> str:
        """How a backend with both layouts computes with the matrix: "sparse", "dense" or "auto".

        With "auto" the backend chooses. The layouts give the same numbers up to rounding, where all are finite: zeros
        times infinity are NaN in the dense one. :meth:`with_layout` sets it, also for the transpose and the like.
        """
        return self._layout

    @lasting
    def with_layout(self, layout: str) -> SparseMatrix:
        """The same matrix with the layout "auto", "sparse" or "dense"; its tensors are shared.

        Raises:
            TypeError, ValueError: not a string, or an unknown layout.
        """
        choice("layout", layout, LAYOUTS)
        matrix = self._like(*self.by_rows)
        matrix._layout = layout
        matrix._share(self, "row", "_flipped")
        if self._transposed is not None:
            matrix._share_transposed(self._transposed, self._transposed.values)
        return matrix

    @property
    def parts(self) -> tuple[torch.Tensor, ...]:
        """What kernels take: row pointers, columns and values of the matrix, then those of its transpose."""
        return *self.by_rows, *self.transposed.by_rows

    @property
    def by_rows(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Row pointers, columns and values."""
        return self.rowptr, self.col, self.values

    @kept
    def dense(self) -> torch.Tensor:
        """The matrix as a dense tensor ``[rows, cols]``, made once, for the dense layout."""
        return self.to_dense()

    @kept
    def above(self) -> torch.Tensor:
        """int64 ``[m, 2]``: row and column of the entries above the diagonal, in ascending order."""
        # The property would keep the rows, which a graph that is only split does not need.
        row = rows_of(self.rowptr, self.nnz)
        entry = (row < self.col).nonzero().flatten()
        return torch.stack([row.index_select(0, entry), self.col.index_select(0, entry)], dim=1)

    @kept
    def non_edges(self) -> NonEdges:
        """The pairs ``i < k`` without an entry, for a matrix that is known to be symmetric without a diagonal."""
        require_undirected("matrix", self)
        return NonEdges(self.above, self.shape[0])

    @property
    def non_edge_count(self) -> int:
        """The number of :attr:`non_edges`, computed without them."""
        require_undirected("matrix", self)
        return self.shape[0] * (self.shape[0] - 1) // 2 - self.nnz // 2

    @kept
    def value_range(self) -> tuple[float, float]:
        """The smallest and the largest element, zeros included. The device is read once."""
        ends = (float(self.values.min()), float(self.values.max())) if self.nnz else (0.0, 0.0)
        full = self.nnz == self.shape[0] * self.shape[1]
        return ends if full else (min(ends[0], 0.0), max(ends[1], 0.0))

    @kept
    def value_sum(self) -> float:
        """The sum of the elements. The device is read once."""
        return float(self.values.sum(dtype=torch.float64))

    def with_values(self, values: torch.Tensor) -> SparseMatrix:
        """A matrix with other values ``[nnz]``, float32 or float64, on the same device. The structure is shared.

        Raises:
            TypeError, ValueError: values of another shape, dtype or device.
        """
        self._check_values("values", values)
        matrix = SparseMatrix(self.rowptr, self.col, values, self.shape)
        matrix._layout = self._layout
        matrix._share(self, "row")
        if (other := self._other) is not None:
            matrix._flipped = self._flipped
            matrix._share_transposed(other, values.index_select(0, self.order))
        return matrix

    def _check_values(self, name: str, values: Any) -> None:
        """Checks that values fit the structure."""
        vector(name, values, FLOATING)
        if values.shape != self.col.shape or values.device != self.device:
            raise ValueError(
                f"{name}: got shape {tuple(values.shape)} on {values.device}, want ({self.nnz},) on {self.device}"
            )

    @lasting
    def with_ones(self) -> SparseMatrix:
        """A matrix with all values 1. The structure is shared; a symmetric matrix stays symmetric."""
        return self._like(self.rowptr, self.col, torch.ones_like(self.values))

    def _share_transposed(self, other: SparseMatrix, values: torch.Tensor) -> None:
        self._set_transposed(other.rowptr, other.col, values)._share(other, "row")

    def with_all_values(
        self, values: tuple[torch.Tensor, ...], by_row: tuple[torch.Tensor, ...], by_column: tuple[torch.Tensor, ...]
    ) -> SparseMatrix:
        """A matrix with other values, whose transpose and normalised forms are given too. The structure is shared.

        Args:
            values: the values ``[nnz]`` in the order of this matrix, and in the order of its transpose.
            by_row: the same two for :attr:`row_normalized`.
            by_column: the same two for the matrix with each column divided by the sum of its absolute values.

        Raises:
            TypeError, ValueError: not two tensors each, values of another shape or device than this matrix, or not one
                dtype, torch.float32 or torch.float64, for all six.
        """
        shape, device, dtype = self.col.shape, self.device, None
        for name, pair in (("values", values), ("by_row", by_row), ("by_column", by_column)):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"{name}: got {shown(pair)}, want two tensors")
            for part in pair:
                # The constructor of a matrix checks the rest, which no step has the time to do twice.
                fits = isinstance(part, torch.Tensor) and not part.is_nested
                if dtype is None or not fits or part.shape != shape or part.device != device:
                    self._check_values(name, part)
                dtype = dtype or part.dtype
                if part.dtype != dtype:
                    raise TypeError(f"{name}: got {part.dtype} where values is {dtype}, want one dtype")
        matrix = self._paired(*values)
        matrix.row_normalized = self._paired(*by_row)
        matrix.transposed.row_normalized = self.transposed._paired(*reversed(by_column))
        return matrix

    def _paired(self, values: torch.Tensor, transposed_values: torch.Tensor) -> SparseMatrix:
        matrix = SparseMatrix(self.rowptr, self.col, values, self.shape)
        matrix._layout = self._layout
        matrix._share(self, "row", "_flipped")
        matrix._share_transposed(self.transposed, transposed_values)
        return matrix

    @lasting
    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> SparseMatrix:
        """The matrix on another device or with another dtype.

        Values that would be zero or subnormal in ``dtype`` are dropped, as :meth:`from_any` does.

        Raises:
            TypeError: a dtype other than torch.float32 and torch.float64, or a device of a wrong kind.
            ValueError: ``dtype`` can't hold a value, or the sum of the absolute values of a row or column; or this
                machine has no such device.
        """
        if dtype is not None:
            checked_dtype("dtype", dtype)
        if device is not None:
            device = checked_device("device", device)
        if dtype not in (None, self.dtype):
            if not self._surely_fits(dtype):
                check_fits(to_csr(self, "values"), "values", dtype)
            held = holds(dtype, self.values)
            if not bool(held.all()):
                return self._like(*chosen(self.by_rows, held)).to(device=device, dtype=dtype)
        parts = self._moved(device, dtype)
        if parts[2] is self.values:
            return self
        matrix = self._like(*parts)
        if self._transposed is not None:
            matrix._set_transposed(*self._transposed._moved(device, dtype))
        return matrix

    def _moved(self, device: Any, dtype: torch.dtype | None) -> tuple[torch.Tensor, ...]:
        return self.rowptr.to(device=device), self.col.to(device=device), self.values.to(device=device, dtype=dtype)

    def _like(self, rowptr: torch.Tensor, col: torch.Tensor, values: torch.Tensor) -> SparseMatrix:
        """A matrix with other entries, of the same shape, symmetry and layout."""
        matrix = SparseMatrix(rowptr, col, values, self.shape, symmetric=self.symmetric, hollow=self.hollow)
        matrix._layout = self._layout
        return matrix

    def _surely_fits(self, dtype: torch.dtype) -> bool:
        """Whether a dtype can hold the sum of all absolute values, and so each value and each partial sum."""
        return bool(self.values.abs().sum(dtype=torch.float64) <= torch.finfo(dtype).max)

    def to_dense(self) -> torch.Tensor:
        """The matrix as a dense tensor ``[rows, cols]``."""
        return self.values.new_zeros(self.shape).index_put_((self.row, self.col), self.values)

    def to_scipy(self) -> scipy.sparse.csr_matrix:
        """The matrix as a SciPy CSR matrix, which shares no memory with it.

        Raises:
            ValueError: the tensors that the matrix was made from do not form one.
        """
        return self._to_scipy("matrix")

    def _to_scipy(self, name: str) -> scipy.sparse.csr_matrix:
        """:meth:`to_scipy` with a name for the messages."""
        # SciPy has no matrices of 16 bits.
        values = self.values.detach().to("cpu", torch.promote_types(self.dtype, torch.float32), copy=True).numpy()
        return scipy.sparse.csr_matrix((values, *self._structure(name)), shape=self.shape)

    def _structure(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Copies of the columns and the row pointers, checked."""
        return checked_structure(self.col.cpu().numpy(), self.rowptr.cpu().numpy(), self.shape, name)

    @classmethod
    @lasting
    def from_any(cls, matrix: Any, *, name: str = "matrix", dtype: torch.dtype = torch.float32) -> SparseMatrix:
        """Converts a SciPy matrix or array (any format), a NumPy array or matrix, or a torch tensor (dense or sparse).

        Duplicate entries are added up. Zeros are dropped, and so are values that would be zero or subnormal in
        ``dtype`` (below 1.2e-38 in float32), because their reciprocals overflow.

        Args:
            matrix: a two-dimensional matrix of finite real numbers, or a ``SparseMatrix``.
            name: name of the matrix in error messages.
            dtype: torch.float32 or torch.float64.

        Raises:
            TypeError: ``matrix`` is not a matrix of numbers, or ``dtype`` is not one of the two.
            ValueError: the matrix is not two-dimensional; a value is NaN or infinite; or ``dtype`` can't hold a value,
                or the sum of the absolute values of a row or column.

        Example:
            >>> import numpy
            >>> import seegera_fast as sf
            >>> sf.SparseMatrix.from_any(numpy.eye(3))
            SparseMatrix(3 x 3, nnz=3, torch.float32, cpu)
        """
        text("name", name)
        checked_dtype("dtype", dtype)
        if isinstance(matrix, SparseMatrix):
            constant(name, matrix.values)
            # Its constructor has not read the numbers.
            ordered = ascends(*matrix._structure(name))
            if ordered and matrix._surely_fits(dtype) and bool((matrix.values.abs() >= torch.finfo(dtype).tiny).all()):
                return matrix.to(dtype=dtype)
        device = matrix.device if isinstance(matrix, (torch.Tensor, SparseMatrix)) else None
        return matrix_of_csr(to_csr(matrix, name), name, dtype).to(device=device)

    @classmethod
    @lasting
    def from_edge_index(
        cls, edge_index: Any, num_nodes: int | None = None, *, dtype: torch.dtype = torch.float32
    ) -> SparseMatrix:
        """Makes the adjacency of an undirected graph from ``edge_index`` ``[2, E]``, as in PyTorch Geometric.

        An edge in either direction counts once. Self-loops are dropped, and all values are 1. The result is on the
        device of ``edge_index``, and can be given to :func:`seegera_fast.ops.link_likelihood`.

        Args:
            edge_index: integer node numbers from 0.
            num_nodes: n; None: the largest node number plus one.
            dtype: torch.float32 or torch.float64.

        Raises:
            TypeError: ``num_nodes`` or the node numbers are not integers, or ``dtype`` is not one of the two.
            ValueError: a wrong shape, a node number outside ``0 .. num_nodes - 1``, or, without ``num_nodes``, a node
                number that is too large for so few edges (see :meth:`seegera_fast.Graph.from_edge_index`).

        Example:
            >>> import torch, seegera_fast as sf
            >>> sf.SparseMatrix.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
            SparseMatrix(3 x 3, nnz=4, torch.float32, cpu)
        """
        checked_dtype("dtype", dtype)
        device = edge_index.device if isinstance(edge_index, torch.Tensor) else None
        # No warning of edges in one direction: the result is the same as for both.
        coo = edges_to_coo(edge_index, num_nodes, merge=False)
        return adjacency_of(*symmetric_pattern(coo.row, coo.col, coo.shape[0])[:2], dtype).to(device=device)


def adjacency_of(rowptr: np.ndarray, col: np.ndarray, dtype: torch.dtype) -> SparseMatrix:
    """The adjacency of an undirected graph without self-loops, from int64 ``[n + 1]`` and ``[nnz]``."""
    parts = torch.from_numpy(rowptr), torch.from_numpy(col), torch.ones(col.size, dtype=dtype, device="cpu")
    return SparseMatrix(*parts, (rowptr.size - 1,) * 2, symmetric=True, hollow=True)


def matrix_of_csr(csr: scipy.sparse.csr_matrix, name: str, dtype: torch.dtype, *, hollow: bool = False) -> SparseMatrix:
    """Converts a CSR matrix of :func:`to_csr`; ``hollow``: it is known to be symmetric, without a diagonal."""
    check_fits(csr, name, dtype)
    subnormal = np.abs(csr.data) < torch.finfo(dtype).tiny
    if subnormal.any():
        csr.data[subnormal] = 0
        csr.eliminate_zeros()
    return SparseMatrix(
        torch.from_numpy(csr.indptr.astype(np.int64)),
        torch.from_numpy(csr.indices.astype(np.int64)),
        torch.from_numpy(np.ascontiguousarray(csr.data)).to(dtype),
        csr.shape,
        symmetric=hollow,
        hollow=hollow,
    )
