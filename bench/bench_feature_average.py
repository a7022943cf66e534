"""feature_average, value and gradient, against torch's CSR product with a matrix that was normalised beforehand."""

import floors
from operations import csr, grid, leaf, operation, spread, with_gradients

import seegera_fast as sf


def floor(size, to, draws):
    return floors.sparse_matmul(size.graph.features.nnz, size.nodes, size.features, draws * size.width)


# Averages for features take all K + J draws of the means, averages for nodes the J samples.
@operation(
    [*grid(to=("features",), draws=(2, 10)), *grid(to=("nodes",), draws=(1, 5))],
    small=grid(to=("features", "nodes"), draws=(2,)),
    floor=floor,
)
def bench_feature_average(size, to, draws):
    features = size.graph.features
    weights = (features.transposed if to == "features" else features).row_normalized
    values, matrix = leaf(weights.shape[1], draws, size.width), csr(weights)
    functions = {
        "seegera_fast": lambda: sf.ops.feature_average(features, values, to=to),
        "torch": lambda: spread(matrix, values),
    }
    return with_gradients(functions, [values])
