"""sparse_matmul, value and gradient, against torch's CSR product. `make bench` has more matrices, MKL's and DGL's."""

import floors
from operations import csr, grid, leaf, operation, with_gradients

import seegera_fast as sf


def floor(size, matrix):
    operand = getattr(size.graph, matrix)
    return floors.sparse_matmul(operand.nnz, *operand.shape, size.width)


@operation(grid(matrix=("propagation", "features"), width=(512, 64)), floor=floor)
def bench_sparse_matmul(size, matrix):
    operand = getattr(size.graph, matrix)
    dense, plain = leaf(operand.shape[1], size.width), csr(operand)
    functions = {
        "seegera_fast": lambda: sf.ops.sparse_matmul(operand, dense),
        "torch": lambda: plain @ dense,
    }
    return with_gradients(functions, [dense])
