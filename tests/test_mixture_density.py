"""mixture_density: log Omega with one mixture per row, summed over rows."""

import math

import cases
import contract
import pytest
import scipy.special
import torch
from cases import normal
from contract import columns
from tolerances import assert_close, assert_same_bits
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from seegera_fast import ops, reference, use_backend
from seegera_fast.objective import Posterior, log_mixture


def mixture(n=5, d=4, j=2, k=3, *, shared=True, spread=1.0, log_var=None, far=0.0):
    """Arguments of both densities; the samples lie ``far`` from the means."""

    def arguments():
        draws = 1 if shared else k + j
        given = 0.5 * normal(n, draws, d, seed=2) if log_var is None else torch.full((n, draws, d), log_var).double()
        return {"z": far + normal(n, j, d), "means": spread * normal(n, k + j, d, seed=1), "log_var": given}

    return arguments


CASES = {
    **{f"J {j}, K {k}": mixture(j=j, k=k) for j, k in cases.SAMPLES},
    **{f"J {j}, K {k}, own variances": mixture(j=j, k=k, shared=False) for j, k in cases.SAMPLES},
    **{f"d {d}": mixture(d=d) for d in cases.WIDTHS},
    **{f"d {d}, own variances": mixture(3, d, shared=False) for d in cases.WIDTHS},
    "one row": mixture(n=1),
    "no rows": mixture(n=0),
    "no width": mixture(d=0),
    "many components": mixture(3, 3, 2, 17, shared=False),
    "far from the means": mixture(far=1e3),
    "far apart means": mixture(spread=1e3),
    "narrow": mixture(log_var=-20.0),
    "wide": mixture(log_var=20.0),
}

REFUSALS = [
    *(refusal for name in ("z", "means", "log_var") for refusal in contract.tensor_refusals(name)),
    contract.refuse(
        "two dimensions", ValueError, r"z: got shape \(5, 8\), want 3 dimensions", z=lambda t: t.flatten(1)
    ),
    contract.refuse("no samples", ValueError, "z's number of samples: got 0, want at least 1", z=lambda t: t[:, :0]),
    contract.refuse(
        "rows of the means", ValueError, r"means: got shape \(4, 5, 4\), want \[5, any, 4\]", means=lambda t: t[1:]
    ),
    contract.refuse(
        "width of the means", ValueError, r"means: got shape \(5, 5, 3\), want .*", means=lambda t: t[..., 1:]
    ),
    contract.refuse(
        "too few means",
        ValueError,
        "means: got 1 draws, want at least the 2 of z",
        means=lambda t: t[:, :1],
    ),
    contract.refuse(
        "rows of the variances",
        ValueError,
        r"log_var: got shape \(4, 1, 4\), want \[5, any, 4\]",
        log_var=lambda t: t[1:],
    ),
    contract.refuse(
        "draws of the variances",
        ValueError,
        r"log_var: got shape \(5, 2, 4\), want 1 or 5 draws",
        log_var=lambda t: t.repeat(1, 2, 1),
    ),
    contract.refuse(
        "two dtypes",
        TypeError,
        "means: got torch.float32 where z is torch.float64, want one dtype",
        means=lambda t: t.float(),
    ),
    contract.refuse(
        "two devices", ValueError, "log_var: is on meta and z on cpu, want one device", log_var=lambda t: t.to("meta")
    ),
]


def terms(arguments):
    n, _, d = arguments["z"].shape
    # A weight is an exponential of densities, each a sum with an error of its own.
    largest = d * float(arguments["log_var"].abs().max()) if n * d else 0
    return n * d + arguments["means"].shape[1] + int(largest**2)


def large():
    return {"z": normal(700, 3, 67), "means": normal(700, 7, 67, seed=1), "log_var": 0.3 * normal(700, 1, 67, seed=2)}


def first_draw(arguments):
    z, means, log_var = (arguments[name] for name in ("z", "means", "log_var"))
    own = means.shape[1] - z.shape[1]
    return [z[:, 0], means[:, own], *([log_var[:, own]] if log_var.shape[1] > 1 else [])]


class TestMixtureDensity(contract.SummedOperation, contract.DrawnOperation, contract.RangedOperation):
    operation = "mixture_density"
    differentiable = ("z", "means", "log_var")
    cases = CASES
    smooth = ("J 2, K 3", "J 2, K 3, own variances", "J 1, K 0", "d 33", "one row")
    typical = ("J 2, K 3", "J 2, K 3, own variances")
    drawn = (*typical, "J 1, K 1, own variances", "d 33, own variances")
    refusals = REFUSALS
    terms = staticmethod(terms)
    large = staticmethod(large)
    first_draw = staticmethod(first_draw)

    @staticmethod
    def slow(z, means, log_var):
        n, samples, _ = z.shape
        if n == 0:
            return torch.zeros(samples, dtype=torch.float64)
        extra = means.shape[1] - samples
        deviation = (0.5 * log_var).exp().expand(means.shape)
        logs = []
        for j in range(samples):
            own = [*range(extra), extra + j]
            parts = Independent(Normal(means[:, own], deviation[:, own]), 1)
            logs.append(
                MixtureSameFamily(Categorical(torch.ones(n, extra + 1).double()), parts).log_prob(z[:, j]).sum()
            )
        return torch.stack(logs)


@pytest.fixture(params=columns("mixture_density"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def test_one_component_is_a_normal_density(column):
    """K = 0, J = 1: log N(z; mu, diag exp(log_var)), with its constant."""
    z, mean, log_var = normal(6, 1, 5), normal(6, 1, 5, seed=1), normal(6, 1, 5, seed=2)
    want = Normal(mean, (log_var / 2).exp()).log_prob(z).sum().reshape(1)
    got = ops.mixture_density(z.to(column.device), mean.to(column.device), log_var.to(column.device))
    assert_close(got, want, terms=30, name="normal density")


@pytest.mark.parametrize("shared", [True, False])
def test_integrates_to_one(column, shared):
    """Samples at 121 points, each with the same component of its own; trapezoids are exact for such a function."""
    points = torch.linspace(-15, 15, 121, dtype=torch.float64)
    given = mixture(1, 1, 1, 2, shared=shared)()
    own = {"z": points.reshape(1, -1, 1)}
    for name in ("means", "log_var"):
        tensor = given[name]
        own[name] = tensor if tensor.shape[1] == 1 else torch.cat([tensor[:, :2], tensor[:, 2:].expand(1, 121, 1)], 1)
    density = ops.mixture_density(**contract.converted(own, torch.float64, column.device)).exp().cpu()
    assert density.shape == (121,)
    assert abs(torch.trapezoid(density, points).item() - 1) < 1e-10


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("extra", [1, 4])
def test_gradient_where_the_exponential_underflows(column, dtype, extra):
    """At d = 512 each density is below the smallest number; value and gradient are those of logsumexp, not of zeros."""
    z, means = 3 * normal(4, 1, 512).to(dtype), normal(4, extra + 1, 512, seed=1).to(dtype)
    log_var = (0.2 * normal(4, 1, 512, seed=2)).to(dtype)
    leaves = [t.to(column.device).requires_grad_() for t in (z, means, log_var)]
    value = ops.mixture_density(*leaves)
    gradients = torch.autograd.grad(value.sum(), leaves)

    z, means, log_var = (t.detach().cpu().double() for t in leaves)
    precision = torch.exp(-log_var)
    distance = z - means
    logs = -0.5 * ((distance**2 * precision).sum(dim=2) + log_var.sum(dim=2) + 512 * math.log(2 * math.pi))
    assert (logs.exp() == 0).all(), "nothing underflows: the test has lost its point"
    assert_close(
        value,
        torch.from_numpy(scipy.special.logsumexp(logs.numpy(), axis=1) - math.log(extra + 1)).sum().reshape(1),
        terms=2048,
        name="value",
    )
    share = torch.from_numpy(scipy.special.softmax(logs.numpy(), axis=1))[:, :, None]
    by_mean = share * distance * precision
    want = (
        -by_mean.sum(dim=1, keepdim=True),
        by_mean,
        (share * 0.5 * (distance**2 * precision - 1)).sum(dim=1, keepdim=True),
    )
    for gradient, expected, name in zip(gradients, want, ("z", "means", "log_var"), strict=True):
        assert expected.abs().max() > 0.1
        # A share follows from differences of sums over 512 columns.
        assert_close(gradient, expected, terms=512 * 512, name=f"gradient of {name}")


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("log_var", [-20.0, -29.5, -60.0, -2000.0])
def test_samples_of_a_psi_that_has_all_but_lost_its_noise(column, log_var, shared, dtype):
    n, samples, extra, d = 5, 2, 3, 19
    log_var = torch.full((n, 1 if shared else extra + samples, d), log_var, dtype=dtype)
    means = normal(n, extra + samples, d, seed=1).to(dtype)
    # From a mean of 0 a sample differs, from another one it doesn't.
    means[:, extra:, ::2] = 0
    z = means[:, extra:] + (0.5 * log_var).exp()[:, -samples:] * normal(n, samples, d).to(dtype)
    check_like_the_reference("mixture_density", (z, means, log_var), n * d, column)


# Distances from the means, in the dtype, whose squares are infinite: that of the difference itself, that of its product
# with 1 / sigma, and a product which is infinite itself.
BEYOND = [
    *((torch.float32, *given) for given in ((1e20, 0.0), (1e13, -30.0), (1e33, -30.0), (math.inf, 0.0))),
    *((torch.float64, *given) for given in ((1e160, 0.0), (1e150, -30.0), (1e305, -30.0), (math.inf, 0.0))),
]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("dtype", "distance", "log_var"), BEYOND)
def test_a_row_without_a_density(column, distance, log_var, shared, dtype):
    """log 0 in value; its gradients are 0, and those of other rows as if it weren't there."""
    n, samples, extra, d = 5, 2, 3, 19
    means = normal(n, extra + samples, d, seed=1).to(dtype)
    log_var = torch.full((n, 1 if shared else extra + samples, d), log_var, dtype=dtype)
    z = means[:, extra:] + (0.5 * log_var).exp()[:, -samples:] * normal(n, samples, d).to(dtype)
    # Of the first sample only.
    z[2, 0] = distance
    others = [0, 1, 3, 4]
    results = []
    for rows in (slice(None), others):
        leaves = [t[rows].to(column.device).requires_grad_() for t in (z, means, log_var)]
        value = ops.mixture_density(*leaves)
        results.append((value, torch.autograd.grad(value[0], leaves)))
    (value, gradients), (want, want_gradients) = results
    assert value[0] == -math.inf
    assert value[1].isfinite()
    assert want.isfinite().all()
    for gradient, expected in zip(gradients, want_gradients, strict=True):
        assert (gradient[2] == 0).all()
        assert_close(gradient[others], expected.double(), terms=d * (extra + samples))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("dtype", "distance", "log_var"), BEYOND)
def test_a_component_without_a_density(column, distance, log_var, shared, dtype):
    """It counts nothing, in value and gradients; the others count as ever."""
    n, samples, extra, d = 5, 2, 3, 19
    means = torch.zeros(n, extra + samples, d, dtype=dtype)
    means[:, 1] = distance
    log_var = torch.full((n, 1 if shared else extra + samples, d), log_var, dtype=dtype)
    z = (0.5 * log_var).exp()[:, -samples:] * normal(n, samples, d).to(dtype)
    count = terms({"z": z, "means": means, "log_var": log_var})
    check_like_the_reference("mixture_density", (z, means, log_var), count, column)


@pytest.mark.parametrize("component", [0, 2])
def test_a_nan_beside_components_without_a_density(column, component):
    z, means, log_var = (torch.zeros(2, draws, 5, device=column.device) for draws in (1, 3, 1))
    means[1] = 1e20
    means[1, component, 3] = math.nan
    assert ops.mixture_density(z, means, log_var).isnan().all()


def check_like_the_reference(name, operands, terms, column):
    """Value and gradients."""
    leaves = [t.to(column.device).requires_grad_() for t in operands]
    value = getattr(ops, name)(*leaves)
    gradients = torch.autograd.grad(value, leaves, contract.upstream(value))
    wanted = [t.double().requires_grad_() for t in operands]
    want = getattr(reference, name)(*wanted)
    assert want.isfinite().all()
    assert_close(value, want, terms=terms, name="value")
    want_gradients = torch.autograd.grad(want, wanted, contract.upstream(want))
    for gradient, expected, operand in zip(gradients, want_gradients, ("z", "means", "log_var"), strict=True):
        assert_close(gradient, expected, terms=terms, name=f"gradient of {operand}")


def test_lies_between_the_best_component_and_the_best_less_log_of_their_number(column):
    given = mixture(1, 3, 2, 3)()
    value = ops.mixture_density(**contract.converted(given, torch.float64, column.device)).cpu()
    best = reference.component_log_density(**given).max(dim=1).values
    assert (value <= best + 1e-12).all()
    assert (value >= best - math.log(4) - 1e-12).all()


def test_equal_components_count_as_one(column):
    z, mean, log_var = (normal(4, 1, 3, seed=s).to(column.device) for s in (0, 1, 2))
    want = ops.mixture_density(z, mean, log_var).cpu()
    assert_close(ops.mixture_density(z, mean.repeat(1, 5, 1), log_var), want, terms=17, name="five equal components")


def test_a_sample_does_not_see_the_means_of_the_others(column):
    """Sample j's mixture is the K extra draws and its own: the means of another sample change nothing."""
    given = contract.converted(mixture(j=3, k=2)(), torch.float64, column.device)
    changed = given["means"].clone()
    changed[:, 2 + 1] += 7
    before, after = ops.mixture_density(**given), ops.mixture_density(**{**given, "means": changed})
    assert_same_bits(after[[0, 2]], before[[0, 2]])
    assert after[1] != before[1]


@pytest.mark.parametrize("column", columns("mixture_density", interpreter=False), indirect=True)
def test_gradients_too_large_for_caches(column):
    """A row's gradient does not depend on how many rows there are, though large results are written in another way."""
    rows, dim = 1032, 512
    tensors = [normal(rows, draws, dim, seed=draws).float().to(column.device) for draws in (2, 16, 1)]

    def gradients(*operands):
        leaves = [operand.clone().requires_grad_() for operand in operands]
        return torch.autograd.grad(ops.mixture_density(*leaves)[0], leaves)

    whole = gradients(*tensors)
    assert whole[1].numel() * 4 >= 2**25
    for begin in range(0, rows, 344):
        part = slice(begin, begin + 344)
        for got, want in zip(gradients(*(tensor[part] for tensor in tensors)), whole, strict=True):
            assert_same_bits(got, want[part])


def _gradient_of_one_component(mixture, components, *given):
    """The gradient in the samples of a mixture of one component, so many times over."""
    z, means, log_var = (tensor.clone() for tensor in given)
    z.requires_grad_()
    mixture(z, means.repeat(1, components, 1), log_var.repeat(1, components, 1)).sum().backward()
    return z.grad


@pytest.mark.parametrize("column", columns("mixture_density"))
def test_equal_components_of_large_densities_count_as_one(column):
    """In float32 the logarithm of four is lost beside a density of -9e7, but not in the gradient."""
    device = column.device
    given = torch.full((3, 1, 512), 30.0), torch.zeros(3, 1, 512), torch.full((3, 1, 512), -6.0)
    given = [tensor.to(device) for tensor in given]
    with use_backend(column.backend):
        one, four = (_gradient_of_one_component(ops.mixture_density, count, *given) for count in (1, 4))
    assert_close(four, one.double(), terms=4)


@pytest.mark.parametrize("column", columns("component_log_density"))
def test_equal_components_of_a_joint_mixture_count_as_one(column):
    """As those of a posterior without noise, whose densities are sums over all rows."""

    def mixture(z, *psi):
        return log_mixture("joint", [(z, Posterior(*psi))])

    given = [tensor.to(column.device) for tensor in torch.randn(3, 2000, 1, 64, generator=torch.manual_seed(0))]
    given[2] = given[2] - 8
    with use_backend(column.backend):
        one, four = (_gradient_of_one_component(mixture, count, *given) for count in (1, 4))
    assert_close(four, one.double(), terms=4)
