"""feature_average, value and gradient, against torch's CSR product with weights that were normalised beforehand."""

import pytest
from cases import CONTENDERS, WIDTH, compare, cora_sized, csr, leaf, spread, with_gradients

import seegera_fast as sf


def contenders(to, draws):
    features = cora_sized().features
    weights = (features.transposed if to == "features" else features).row_normalized
    values, matrix = leaf(weights.shape[1], draws, WIDTH), csr(weights)
    functions = {
        "seegera_fast": lambda: sf.ops.feature_average(features, values, to=to),
        "torch": lambda: spread(matrix, values),
    }
    return {name: with_gradients(function, [values]) for name, function in functions.items()}


# To features go all K + J draws of the means, to nodes the J samples.
@pytest.mark.parametrize(("to", "draws"), [("features", 2), ("features", 10), ("nodes", 1), ("nodes", 5)])
@pytest.mark.parametrize("contender", CONTENDERS)
def bench_feature_average(benchmark, contender, to, draws):
    benchmark.group = f"feature_average to {to}, {draws} draws"
    compare(benchmark, contender, contenders(to, draws))
