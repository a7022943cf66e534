"""Sparse times dense, against torch's CSR product and, where they are installed, MKL's and DGL's."""

import importlib.util
import os

import numpy as np
import pytest
import scipy.sparse
import torch
from cases import load

import seegera_fast as sf

# Read when MKL is loaded: by default its threads keep the cores busy for 200 ms after a product, in which the next
# contender is timed. 1 ms still keeps them awake from one product to the next.
os.environ.setdefault("KMP_BLOCKTIME", "1")


def matrices():
    """Name -> matrix: propagation and features of data sets, and a large random one."""
    generator = np.random.default_rng(0)
    rows = np.repeat(np.arange(200_000), 15)
    large = scipy.sparse.csr_matrix((np.ones(rows.size), (rows, generator.integers(0, 200_000, rows.size))))
    yield "random 200,000 x 15", sf.SparseMatrix.from_any(large)
    for name in ("cora", "cs", "physics"):
        graph = load(name)
        yield f"{name} propagation", graph.propagation
        yield f"{name} features, by rows", graph.features.row_normalized
        yield f"{name} features, by columns", graph.features.transposed.row_normalized


def contenders(matrix, dense):
    """Name -> call without arguments, each giving ``matrix @ dense``."""
    csr = torch.sparse_csr_tensor(matrix.rowptr, matrix.col, matrix.values, matrix.shape)
    calls = {"seegera_fast": lambda: sf.ops.sparse_matmul(matrix, dense), "torch CSR": lambda: csr @ dense}
    if importlib.util.find_spec("sparse_dot_mkl"):
        from sparse_dot_mkl import dot_product_mkl

        ours, array = matrix.to_scipy(), dense.numpy()
        calls["MKL"] = lambda: dot_product_mkl(ours, array)
    if importlib.util.find_spec("dgl"):
        import dgl

        graph = dgl.create_block((matrix.col, matrix.row), num_src_nodes=matrix.shape[1], num_dst_nodes=matrix.shape[0])
        weight = matrix.values[:, None]
        calls["DGL"] = lambda: dgl.ops.u_mul_e_sum(graph, dense, weight)
    return calls


@pytest.mark.parametrize("width", [64, 256, 1024])
@pytest.mark.parametrize("which", ["seegera_fast", "torch CSR", "MKL", "DGL"])
def bench_cora_features(benchmark, which, width):
    matrix = load("cora").features
    dense = torch.randn(matrix.shape[1], width)
    calls = contenders(matrix, dense)
    if which not in calls:
        pytest.skip(f"{which} is not installed")
    torch.testing.assert_close(torch.as_tensor(calls[which]()), calls["seegera_fast"](), rtol=1e-4, atol=1e-4)
    benchmark.group = f"width {width}"
    benchmark(calls[which])
