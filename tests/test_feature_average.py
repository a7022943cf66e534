"""feature_average: means weighted by the features, and their mirror."""

import cases
import contract
import pytest
import torch
from cases import normal
from contract import columns, refuse
from tolerances import assert_close, assert_same_bits

from seegera_fast import SparseMatrix, ops, use_backend


def average(kind, width, *, to="features", num_rows=11, num_columns=9, draws=2, scale=1.0, layout="sparse"):
    def arguments():
        matrix = cases.features(kind, num_rows, num_columns).with_layout(layout)
        rows = matrix.shape[0 if to == "features" else 1]
        return {"features": matrix, "values": scale * normal(rows, draws, width), "to": to}

    return arguments


CASES = {
    **{f"{kind} to {to}": average(kind, 5, to=to) for kind in cases.FEATURES for to in ("features", "nodes")},
    **{
        f"width {width} to {to}": average("sparse", width, to=to)
        for width in cases.WIDTHS
        for to in ("features", "nodes")
    },
    **{f"dense layout to {to}": average("negative", 5, to=to, layout="dense") for to in ("features", "nodes")},
    "one node to features": average("dense", 3, num_rows=1),
    "one node to nodes": average("dense", 3, num_rows=1, to="nodes"),
    "one feature to features": average("dense", 3, num_columns=1),
    "one feature to nodes": average("dense", 3, num_columns=1, to="nodes"),
    "no width": average("dense", 0),
    "no draws": average("dense", 4, draws=0),
    "large values": average("counts", 4, scale=1e4),
}

REFUSALS = [
    *contract.sparse_refusals("features"),
    *contract.tensor_refusals("values"),
    refuse("direction", ValueError, "to: got 'edges', want one of 'features', 'nodes'", to="edges"),
    refuse("rows of the other side", ValueError, r"values: got shape \(11, 2, 5\), want \[9, any, any\]", to="nodes"),
    refuse(
        "two dimensions",
        ValueError,
        r"values: got shape \(11, 10\), want \[11, any, any\]",
        values=lambda t: t.flatten(1),
    ),
    refuse(
        "two dtypes",
        TypeError,
        "features: got torch.float64 where values is torch.float32, want one dtype",
        values=lambda t: t.float(),
    ),
    refuse(
        "two devices",
        ValueError,
        "features: is on cpu and values on meta, want one device",
        values=lambda t: t.to("meta"),
    ),
]


class TestFeatureAverage(contract.Operation):
    operation = "feature_average"
    differentiable = ("values",)
    cases = CASES
    smooth = ("negative to features", "negative to nodes", "empty to nodes")
    typical = ("negative to features", "sparse to nodes", "dense layout to features")
    refusals = REFUSALS

    @staticmethod
    def slow(features, values, to):
        matrix = features.to_scipy().tocsc() if to == "features" else features.to_scipy().tocsr()
        means = torch.zeros(matrix.shape[1 if to == "features" else 0], *values.shape[1:], dtype=torch.float64)
        for r in range(len(means)):
            own = range(matrix.indptr[r], matrix.indptr[r + 1])
            weight = sum(abs(matrix.data[k]) for k in own)
            for k in own:
                means[r] += matrix.data[k] * values[matrix.indices[k]] / weight
        return means

    @staticmethod
    def terms(arguments):
        return max(arguments["features"].shape)

    @staticmethod
    def large():
        return {"features": cases.large_graph().features, "values": normal(700, 3, 67), "to": "features"}


@pytest.fixture(params=columns("feature_average"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


@pytest.mark.parametrize("to", ["features", "nodes"])
def test_a_constant_keeps_its_value_where_there_are_features(column, to):
    """Weights of one sign sum to 1; where there are none the mean is zero, not NaN."""
    features = cases.features("sparse", 11, 9).to(device=column.device)
    values = torch.full((11 if to == "features" else 9, 2, 3), 2.5, dtype=torch.float64, device=column.device)
    present = (features.to_dense() != 0).any(dim=0 if to == "features" else 1)
    assert not present.all()
    want = 2.5 * present.double().cpu()[:, None, None].expand(-1, 2, 3)
    assert_close(ops.feature_average(features, values, to=to), want, terms=11, name="mean of a constant")


def test_a_column_that_cancels(column):
    """Weights of both signs are divided by the sum of their magnitudes, not by their sum of zero."""
    features = SparseMatrix.from_any([[1.5, 0], [-1.5, 2]], dtype=torch.float64).to(device=column.device)
    values = torch.tensor([[[4.0]], [[1.0]]], dtype=torch.float64, device=column.device)
    assert ops.feature_average(features, values).flatten().tolist() == [1.5, 1.0]


def test_the_default_is_to_features(column):
    features = cases.features("sparse", 11, 9).to(device=column.device)
    values = normal(11, 2, 3).to(column.device)
    assert_same_bits(ops.feature_average(features, values), ops.feature_average(features, values, to="features"))


def test_the_mirror_is_the_average_over_the_transpose(column):
    features = cases.features("negative", 11, 9).to(device=column.device)
    values = normal(9, 2, 3).to(column.device)
    want = ops.feature_average(features.transposed, values, to="features")
    assert_close(ops.feature_average(features, values, to="nodes"), want.cpu(), terms=11, name="mirror")
