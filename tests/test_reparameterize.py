"""reparameterize: mean + exp(log_var / 2) * N(0, I)."""

import cases
import contract
import pytest
import slow
import torch
from cases import normal
from contract import columns, refuse
from tolerances import assert_close, assert_same_bits, relative_error

from seegera_fast import ops, reference, use_backend


def moments(n, j, d, draws=None, *, seed=4, scale=1.0, log_var=None):
    draws = j if draws is None else draws

    def arguments():
        given = normal(n, draws, d, seed=1) if log_var is None else torch.full((n, draws, d), log_var).double()
        return {"mean": scale * normal(n, j, d), "log_var": given, "seed": seed}

    return arguments


CASES = {
    **{f"width {width}": moments(3, 2, width) for width in cases.WIDTHS},
    **{f"shared variance, width {width}": moments(3, 2, width, 1) for width in cases.WIDTHS},
    **{f"seed {seed}": moments(4, 2, 5, seed=seed) for seed in (0, -1, 2**63 - 1, -(2**63))},
    "one": moments(1, 1, 1),
    "no rows": moments(0, 2, 3),
    "no columns": moments(3, 2, 0),
    "tiny variance": moments(3, 2, 5, log_var=-29.5),
    "huge variance": moments(3, 2, 5, log_var=29.5),
    "large mean": moments(3, 2, 5, scale=1e4),
}

REFUSALS = [
    *contract.tensor_refusals("mean"),
    *contract.tensor_refusals("log_var"),
    *contract.DATA_SEED_REFUSALS,
    refuse("no samples", ValueError, "mean's number of samples: got 0, want at least 1", mean=lambda t: t[:, :0]),
    refuse("two dimensions", ValueError, r"mean: got shape \(3, 14\), want 3 dimensions", mean=lambda t: t.flatten(1)),
    refuse("rows", ValueError, r"log_var: got shape \(2, 2, 7\), want \[3, any, 7\]", log_var=lambda t: t[:2]),
    refuse(
        "draws",
        ValueError,
        r"log_var: got shape \(3, 4, 7\), want 1 or 2 draws",
        log_var=lambda t: t.repeat(1, 2, 1),
    ),
    refuse(
        "two dtypes",
        TypeError,
        "log_var: got torch.float32 where mean is torch.float64, want one dtype",
        log_var=lambda t: t.float(),
    ),
    refuse(
        "two devices",
        ValueError,
        "log_var: is on meta and mean on cpu, want one device",
        log_var=lambda t: t.to("meta"),
    ),
]


class TestReparameterize(contract.SeededOperation, contract.DrawnOperation, contract.RangedOperation):
    operation = "reparameterize"
    differentiable = ("mean", "log_var")
    cases = CASES
    smooth = ("one", "seed 0", "shared variance, width 7")
    typical = ("width 7", "shared variance, width 7")
    drawn = typical
    refusals = REFUSALS

    @staticmethod
    def slow(mean, log_var, seed):
        return mean + log_var.exp().sqrt() * slow.normals(seed, tuple(mean.shape))

    @staticmethod
    def first_draw(arguments):
        mean, log_var = arguments["mean"], arguments["log_var"]
        return [mean[:, 0], *([log_var[:, 0]] if log_var.shape[1] > 1 else [])]

    @staticmethod
    def draws_of(output):
        return output.transpose(0, 1)

    @staticmethod
    def terms(arguments):
        # The gradient of a shared variance sums over the draws.
        return max(1, arguments["mean"].shape[1])

    @staticmethod
    def large():
        return {"mean": normal(900, 3, 130), "log_var": normal(900, 1, 130, seed=1), "seed": 8}


@pytest.fixture(params=columns("reparameterize"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def test_moments_of_the_draws(column):
    """Mean, variance, third and fourth moment of 160,000 draws, within five standard deviations."""
    shape = (10000, 2, 8)
    mean = torch.full(shape, 3.0, dtype=torch.float64, device=column.device)
    log_var = torch.full((10000, 1, 8), 2 * torch.tensor(2.0).log().item(), dtype=torch.float64, device=column.device)
    z = (ops.reparameterize(mean, log_var, 6) - 3) / 2
    count = z.numel()
    for power, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - expected) < 5 * (variance / count) ** 0.5, power
    correlation = torch.corrcoef(z.reshape(10000, 16).T) - torch.eye(16, dtype=torch.float64, device=column.device)
    assert correlation.abs().max() < 5 / 10000**0.5


def test_gradients_are_those_of_the_formula(column):
    """d/dmean is 1; d/dlog_var is half of (z - mean)."""
    mean = normal(5, 2, 7).to(column.device).requires_grad_()
    log_var = normal(5, 2, 7, seed=1).to(column.device).requires_grad_()
    z = ops.reparameterize(mean, log_var, 2)
    by_mean, by_log_var = torch.autograd.grad(z.sum(), [mean, log_var])
    assert_same_bits(by_mean, torch.ones_like(mean))
    assert_close(by_log_var, ((z - mean) / 2).detach(), terms=2, name="gradient of log_var")


def test_a_shared_variance_is_repeated(column):
    mean, log_var = normal(5, 3, 7).to(column.device), normal(5, 1, 7, seed=1).to(column.device)
    assert_same_bits(ops.reparameterize(mean, log_var, 2), ops.reparameterize(mean, log_var.repeat(1, 3, 1), 2))


def test_each_deviation_is_accurate_relative_to_itself(column):
    """On the whole range: the ratio to the same draw with a deviation of 1."""
    log_var = torch.linspace(-30, 30, 60 * 35).reshape(60, 1, 35).to(column.device)
    zero = torch.zeros_like(log_var)
    ratio = ops.reparameterize(zero, log_var, 3).double() / ops.reparameterize(zero, zero, 3).double()
    error = (ratio / torch.exp(log_var.double() / 2) - 1).abs()
    assert error.max() < relative_error(torch.float32)


@pytest.mark.parametrize("column", contract.columns("reparameterize"))
@pytest.mark.parametrize("variances", [1, 3])
def test_an_infinite_gradient_where_the_variance_is_at_its_end(column, variances):
    """Nothing depends on the log variance there."""
    mean, log_var = (
        torch.zeros(2, 3, 5, device=column.device),
        torch.full((2, variances, 5), 40.0, device=column.device),
    )
    with use_backend(column.backend):
        log_var[0] = -40.0
        log_var.requires_grad_()
        sample = ops.reparameterize(mean, log_var, 3)
        (gradient,) = torch.autograd.grad(sample, log_var, torch.full_like(sample, torch.inf))
    assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_definition_in_half_precision(dtype):
    """Its normal numbers are those of float32, rounded."""
    zero = torch.zeros(40, 2, 5)
    want = reference.reparameterize(zero, zero, 3)
    got = reference.reparameterize(zero.to(dtype), zero.to(dtype), 3)
    assert torch.equal(got, want.to(dtype))
