"""dropout: the mask is addressed by seed, row, draw and column."""

import cases
import contract
import pytest
import slow
import torch
from cases import normal
from contract import columns, refuse
from tolerances import assert_same_bits

from seegera_fast import ops, reference, use_backend


def values(*shape, rate=0.3, seed=4, scale=1.0):
    return lambda: {"values": normal(*shape, scale=scale), "rate": rate, "seed": seed}


CASES = {
    **{f"width {width}": values(3, 2, width) for width in cases.WIDTHS},
    **{f"rate {rate}": values(4, 2, 5, rate=rate) for rate in (0.0, 1e-12, 0.5, 0.999)},
    **{f"seed {seed}": values(4, 2, 5, seed=seed) for seed in (0, -1, 2**63 - 1, -(2**63))},
    "one": values(1, 1, 1),
    "no rows": values(0, 2, 3),
    "no draws": values(3, 0, 3),
    "no columns": values(3, 2, 0),
    "large values": values(5, 1, 9, scale=1e30),
}

REFUSALS = [
    *contract.tensor_refusals("values"),
    *contract.DATA_SEED_REFUSALS,
    *contract.probability_refusals("rate"),
    refuse(
        "two dimensions", ValueError, r"values: got shape \(3, 14\), want 3 dimensions", values=lambda t: t.flatten(1)
    ),
]


class TestDropout(contract.SeededOperation):
    operation = "dropout"
    differentiable = ("values",)
    cases = CASES
    smooth = ("rate 0.5", "rate 0.0", "one")
    typical = ("width 7", "rate 0.5")
    refusals = REFUSALS

    @staticmethod
    def slow(values, rate, seed):
        return values * slow.keep(seed, tuple(values.shape), rate)

    @staticmethod
    def terms(arguments):
        return 1

    @staticmethod
    def large():
        return {"values": normal(900, 3, 130), "rate": 0.4, "seed": 8}


@pytest.fixture(params=columns("dropout"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def test_rate_zero_gives_the_values_back(column):
    given = normal(3, 2, 5).to(column.device)
    assert_same_bits(ops.dropout(given, 0.0, 1), given)


def test_zero_is_zero_and_the_rest_is_scaled(column):
    given = torch.full((50, 2, 11), 2.0, dtype=torch.float64, device=column.device)
    assert set(ops.dropout(given, 0.5, 1).unique().tolist()) == {0.0, 4.0}


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_share_of_zeros(column, rate):
    """Within five standard deviations overall, for each draw and for each column; the mean stays."""
    dropped = ops.dropout(torch.ones(4000, 2, 8, dtype=torch.float64, device=column.device), rate, 3)
    zero = (dropped == 0).double()
    deviation = (rate * (1 - rate)) ** 0.5
    assert abs(zero.mean() - rate) < 5 * deviation / zero.numel() ** 0.5
    assert ((zero.mean(dim=0) - rate).abs() < 5 * deviation / 4000**0.5).all()
    assert abs(dropped.mean() - 1) < 5 * deviation / (1 - rate) / zero.numel() ** 0.5


def test_masks_of_two_draws_and_seeds_differ(column):
    ones = torch.ones(64, 2, 16, device=column.device)
    first, second = ops.dropout(ones, 0.5, 1), ops.dropout(ones, 0.5, 2)
    assert 0.4 < (first[:, 0] != first[:, 1]).double().mean() < 0.6
    assert 0.4 < (first != second).double().mean() < 0.6


def test_the_mask_is_not_the_noise(column):
    """One seed may serve both."""
    kept = ops.dropout(torch.ones(64, 2, 16, device=column.device), 0.5, 1) != 0
    noise = reference.draw_noise(1, 64, 2, 16) != 0
    assert 0.4 < (kept.cpu() != noise).double().mean() < 0.6


def test_a_nan_that_is_kept_stays_and_no_other_appears(column):
    given = torch.ones(8, 2, 6, device=column.device)
    given[3, 1, 2] = float("nan")
    clean = ops.dropout(torch.ones_like(given), 0.5, 1)
    found = ops.dropout(given, 0.5, 1)
    assert_same_bits(found.nan_to_num(0) * (given == given), clean * (given == given))
