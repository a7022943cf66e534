"""Matrices in all the forms in which users have them, for the tests of SparseMatrix and Graph."""

import numpy as np
import pytest
import scipy.sparse
import torch

from seegera_fast import SparseMatrix

# A 3 x 4 matrix with an empty row and an empty column.
DENSE = np.array([[0.0, 2.0, 0.0, -1.5], [0.0, 0.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.25]])

SCIPY_FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")

# Ways to write a dense NumPy matrix down.
WRITERS = {
    **{
        f"scipy {name} matrix": lambda x, name=name: scipy.sparse.csr_matrix(x).asformat(name) for name in SCIPY_FORMATS
    },
    **{f"scipy {name} array": lambda x, name=name: scipy.sparse.csr_array(x).asformat(name) for name in SCIPY_FORMATS},
    "numpy array": np.array,
    "numpy matrix": np.matrix,
    "numpy in columns": np.asfortranarray,
    "numpy float32": lambda x: x.astype(np.float32),
    "numpy float16": lambda x: x.astype(np.float16),
    "nested lists": lambda x: x.tolist(),
    "torch dense": torch.tensor,
    "torch float32": lambda x: torch.tensor(x).float(),
    "torch bfloat16": lambda x: torch.tensor(x).bfloat16(),
    "torch transposed twice": lambda x: torch.tensor(x.T.copy()).T,
    "torch coo": lambda x: torch.tensor(x).to_sparse_coo(),
    "torch csr": lambda x: torch.tensor(x).to_sparse_csr(),
    "torch csc": lambda x: torch.tensor(x).to_sparse_csc(),
    "torch bsr": lambda x: torch.tensor(x).to_sparse_bsr((x.shape[0], 1)),
    "sparse matrix": lambda x: SparseMatrix.from_any(x, dtype=torch.float64),
}
# torch warns that its CSR support is in beta, NumPy that its matrix class is of the past.
BETA = [
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR) tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:the matrix subclass is not the recommended way"),
]


def undirected(*edges, n):
    dense = np.zeros((n, n))
    for i, k in edges:
        dense[i, k] = dense[k, i] = 1
    return dense


# Four nodes, one of them alone.
TRIANGLE = undirected((0, 1), (1, 2), (0, 2), n=4)


def assert_well_formed(matrix):
    """The promises of the attributes: types, sizes, ascending columns without duplicates."""
    rows, columns = matrix.shape
    assert matrix.rowptr.dtype == matrix.col.dtype == torch.int64
    assert matrix.values.dtype in (torch.float32, torch.float64)
    assert matrix.rowptr.shape == (rows + 1,)
    assert matrix.col.shape == matrix.values.shape == (matrix.nnz,)
    assert matrix.rowptr[0] == 0
    assert matrix.rowptr[-1] == matrix.nnz
    for begin, end in zip(matrix.rowptr[:-1].tolist(), matrix.rowptr[1:].tolist(), strict=True):
        own = matrix.col[begin:end].tolist()
        assert own == sorted(set(own))
        assert all(0 <= column < columns for column in own)
