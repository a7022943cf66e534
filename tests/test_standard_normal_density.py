"""standard_normal_density: the log prior, summed over rows."""

import math

import cases
import contract
import pytest
import torch
from cases import normal
from contract import columns, refuse
from tolerances import assert_close, assert_same_bits
from torch.distributions import Normal

from seegera_fast import ops, use_backend


def samples(n=5, j=2, d=4, *, scale=1.0, mean=0.0):
    return lambda: {"z": mean + normal(n, j, d, scale=scale)}


CASES = {
    **{f"J {j}": samples(j=j) for j in (1, 2, 3, 8)},
    # 65 and 127: by one more and one less than whole vectors of sums.
    **{f"d {d}": samples(d=d) for d in (*cases.WIDTHS, 65, 127)},
    "one row": samples(n=1),
    "no rows": samples(n=0),
    "no width": samples(d=0),
    "large": samples(scale=1e4),
    "far from zero": samples(mean=1e6),
}

REFUSALS = [
    *contract.tensor_refusals("z"),
    refuse("two dimensions", ValueError, r"z: got shape \(5, 8\), want 3 dimensions", z=lambda t: t.flatten(1)),
    refuse("no samples", ValueError, "z's number of samples: got 0, want at least 1", z=lambda t: t[:, :0]),
]


class TestStandardNormalDensity(contract.SummedOperation, contract.DrawnOperation):
    operation = "standard_normal_density"
    differentiable = ("z",)
    cases = CASES
    smooth = ("J 2", "d 33", "one row")
    typical = ("J 2", "d 33")
    drawn = ("J 1", "d 33")
    refusals = REFUSALS

    @staticmethod
    def slow(z):
        densities = Normal(0.0, 1.0).log_prob(z)
        return torch.tensor([math.fsum(own.flatten().tolist()) for own in densities.unbind(1)], dtype=torch.float64)

    @staticmethod
    def first_draw(arguments):
        return [arguments["z"][:, 0]]

    @staticmethod
    def terms(arguments):
        n, _, d = arguments["z"].shape
        return n * d

    @staticmethod
    def large():
        return samples(3000, 3, 67)()


@pytest.fixture(params=columns("standard_normal_density"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_by_hand(column, dtype):
    z = torch.tensor([[[3.0, 4.0], [0.0, 1.0]], [[1.0, 2.0], [-2.0, 0.0]]], dtype=dtype, device=column.device)
    z.requires_grad_()
    value = ops.standard_normal_density(z)
    constant = 2 * 2 * math.log(2 * math.pi)
    want = -0.5 * (torch.tensor([9.0 + 16 + 1 + 4, 1.0 + 4]).double() + constant)
    assert_close(value, want, terms=4)
    (gradient,) = torch.autograd.grad(value, z, torch.tensor([1.0, -0.5], dtype=dtype, device=column.device))
    assert gradient.tolist() == [[[-3.0, -4.0], [0.0, 0.5]], [[-1.0, -2.0], [-1.0, 0.0]]]


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_large_numbers(column, dtype):
    """Where a square is beyond the dtype the density is 0; the gradient is a number still."""
    z = torch.full((2, 2, 3), 0.4 * torch.finfo(dtype).max, dtype=dtype, device=column.device)
    z[:, 1] = 1.0
    z.requires_grad_()
    value = ops.standard_normal_density(z)
    assert value[0] == -math.inf
    assert value[1].isfinite()
    (gradient,) = torch.autograd.grad(value[1], z)
    assert gradient[:, 0].eq(0).all()
    assert gradient[:, 1].eq(-1).all()


@pytest.mark.parametrize("column", columns("standard_normal_density", interpreter=False), indirect=True)
def test_gradient_too_large_for_caches(column):
    """A row's gradient does not depend on how many rows there are, though a large result is written in another way."""
    z = normal(2064, 8, 512).float().to(column.device)
    upstream = normal(8, seed=1).float().to(column.device)

    def gradient(part):
        leaf = part.clone().requires_grad_()
        return torch.autograd.grad(ops.standard_normal_density(leaf), leaf, upstream)[0]

    whole = gradient(z)
    assert whole.numel() * 4 >= 2**25
    for begin in range(0, z.shape[0], 688):
        part = slice(begin, begin + 688)
        assert_same_bits(gradient(z[part]), whole[part])


@pytest.mark.parametrize("column", columns("standard_normal_density", compiled=True))
def test_rows_are_summed_in_float64(column):
    """In float32 each row of these would be rounded to a multiple of a 16th by the sum of those before it."""
    z = torch.full((2**20 + 1, 1, 1), 0.125, device=column.device)
    with use_backend(column.backend):
        value = ops.standard_normal_density(z).item()
    want = -0.5 * z.shape[0] * (0.125**2 + math.log(2 * math.pi))
    assert abs(value / want - 1) <= torch.finfo(torch.float32).eps
