"""decoder_input: the decoder's first product, [z | zbar] W."""

import cases
import contract
import pytest
import slow
import torch
from cases import normal
from contract import columns, refuse
from tolerances import assert_close

from seegera_fast import ops, use_backend


def decoded(kind="sparse", d=5, h=4, *, draws=2, num_rows=8, num_columns=6, dropout=0.0, scale=1.0, layout="sparse"):
    return lambda: {
        "features": cases.features(kind, num_rows, num_columns).with_layout(layout),
        "z_nodes": scale * normal(num_rows, draws, d),
        "z_features": scale * normal(num_columns, draws, d, seed=1),
        "weight": normal(2 * d, h, seed=2),
        "dropout": dropout,
        "seed": 6,
    }


CASES = {
    **{kind: decoded(kind) for kind in cases.FEATURES},
    **{f"d {d}": decoded(d=d, num_rows=5) for d in cases.WIDTHS},
    **{f"h {h}": decoded(h=h) for h in cases.WIDTHS},
    **{f"dropout {rate}, d {d}": decoded(d=d, dropout=rate) for rate in (0.3, 0.9) for d in (1, 2, 5, 33)},
    # Lines of several blocks of columns; tiles of 512 of them end within a half.
    **{f"dropout, d {d}": decoded(d=d, num_rows=5, dropout=0.3) for d in (70, 300)},
    "more features than nodes": decoded("counts", num_columns=20),
    "dense layout": decoded("negative", layout="dense"),
    "dense layout, more features than nodes": decoded(num_columns=20, layout="dense"),
    "dense layout with dropout": decoded("counts", layout="dense", dropout=0.3),
    "one node": decoded("dense", num_rows=1),
    "one feature": decoded("dense", num_columns=1),
    "no features": decoded("dense", num_columns=0),
    "no features with dropout": decoded("dense", num_columns=0, dropout=0.3),
    "one draw": decoded(draws=1),
    "no outputs": decoded(h=0),
    "large values": decoded("counts", scale=1e4, dropout=0.2),
}

DIFFERENTIABLE = ("z_nodes", "z_features", "weight")

REFUSALS = [
    *contract.sparse_refusals("features"),
    *(refusal for name in DIFFERENTIABLE for refusal in contract.tensor_refusals(name)),
    *contract.DATA_SEED_REFUSALS,
    *contract.probability_refusals("dropout"),
    refuse("rows of z", ValueError, r"z_nodes: got shape \(7, 2, 5\), want \[8, any, any\]", z_nodes=lambda t: t[1:]),
    refuse(
        "rows of zF", ValueError, r"z_features: got shape \(5, 2, 5\), want \[6, 2, 5\]", z_features=lambda t: t[1:]
    ),
    refuse(
        "draws of zF", ValueError, r"z_features: got shape \(6, 1, 5\), want \[6, 2, 5\]", z_features=lambda t: t[:, :1]
    ),
    refuse("rows of W", ValueError, r"weight: got shape \(5, 4\), want \[10, any\]", weight=lambda t: t[:5]),
    refuse(
        "two dtypes",
        TypeError,
        "weight: got torch.float32 where z_nodes is torch.float64, want one dtype",
        weight=lambda t: t.float(),
    ),
    refuse(
        "two devices",
        ValueError,
        "weight: is on meta and z_nodes on cpu, want one device",
        weight=lambda t: t.to("meta"),
    ),
]


class TestDecoderInput(contract.MultipliedOperation, contract.SeededOperation, contract.DrawnOperation):
    operation = "decoder_input"
    differentiable = DIFFERENTIABLE
    cases = CASES
    smooth = ("negative", "dropout 0.3, d 2", "empty")
    typical = ("negative", "dropout 0.3, d 5", "more features than nodes", "dense layout")
    conditioned = typical
    # The gradient of the weight is a product over all draws: of an infinite one with 0 it is NaN.
    drawn, fills = typical, ("huge",)
    refusals = REFUSALS

    @staticmethod
    def first_draw(arguments):
        return [arguments["z_nodes"][:, 0], arguments["z_features"][:, 0]]

    @staticmethod
    def draws_of(output):
        return output.transpose(0, 1)

    @staticmethod
    def slow(features, z_nodes, z_features, weight, dropout, seed):
        """The two halves of W apart: z W_u + zbar W_f, row by row."""
        n, draws, d = z_nodes.shape
        matrix = features.to_scipy()
        kept = slow.keep(seed, (n, draws, 2 * d), dropout)
        rows = []
        for i in range(n):
            own = range(matrix.indptr[i], matrix.indptr[i + 1])
            total = sum(abs(matrix.data[k]) for k in own)
            zbar = torch.zeros(draws, d, dtype=torch.float64)
            for k in own:
                zbar += matrix.data[k] / total * z_features[matrix.indices[k]]
            rows.append((kept[i, :, :d] * z_nodes[i]) @ weight[:d] + (kept[i, :, d:] * zbar) @ weight[d:])
        return torch.stack(rows)

    @staticmethod
    def terms(arguments):
        features, z_nodes, weight = arguments["features"], arguments["z_nodes"], arguments["weight"]
        return sum(features.shape) + z_nodes.shape[0] * z_nodes.shape[1] + sum(weight.shape)

    @staticmethod
    def large():
        return {
            "features": cases.large_graph().features,
            "z_nodes": normal(700, 3, 40),
            "z_features": normal(90, 3, 40, seed=1),
            "weight": normal(80, 33, seed=2),
            "dropout": 0.2,
            "seed": 6,
        }


@pytest.mark.parametrize("column", columns("decoder_input"))
def test_identity_shows_the_two_halves(column):
    """With W = I the result is [z | zbar], zbar the features' average to the nodes."""
    given = contract.converted(decoded(d=5)(), torch.float64, column.device)
    given["weight"] = torch.eye(10, dtype=torch.float64, device=column.device)
    with use_backend(column.backend):
        joined = ops.decoder_input(**given).cpu()
    average = ops.feature_average(given["features"].to("cpu"), given["z_features"].cpu(), to="nodes")
    assert_close(joined, torch.cat([given["z_nodes"].cpu(), average], dim=2), terms=16, name="[z | zbar]")
