"""importance_bound: warm-up and logsumexp over the importance samples."""

import itertools
import math

import cases
import contract
import pytest
import torch
from cases import normal
from contract import columns, refuse
from tolerances import assert_close, assert_same_bits

from seegera_fast import ops, use_backend


def vectors(count, *, warmup=1.0, scale=1.0, offset=0.0):
    def eighths(seed):
        # Multiples of 1/8, so that float32 holds differences between them at an offset of a million.
        return (8 * scale * normal(count, seed=seed)).round() / 8

    return lambda: {
        "log_likelihood": offset + eighths(0),
        "log_prior": eighths(1),
        "log_mixture": eighths(2),
        "warmup": torch.tensor(warmup, dtype=torch.float64) if isinstance(warmup, list) else warmup,
    }


CASES = {
    **{f"{count} samples": vectors(count) for count in (1, 2, 3, 8, 33)},
    **{f"warm-up {warmup}": vectors(4, warmup=warmup) for warmup in (0, 0.0, 0.3, 2.5)},
    "warm-up of a tensor": vectors(4, warmup=[0.3]),
    "far below zero": vectors(4, offset=-1e6),
    "far above zero": vectors(4, offset=1e6),
    "far apart": vectors(5, scale=1e4),
    "equal": vectors(6, scale=0.0, offset=-5.0),
}

DIFFERENTIABLE = ("log_likelihood", "log_prior", "log_mixture")

REFUSALS = [
    *(refusal for name in DIFFERENTIABLE for refusal in contract.tensor_refusals(name)),
    *contract.weight_refusals("warmup"),
    refuse(
        "a table",
        ValueError,
        r"log_likelihood: got shape \(3, 1\), want 1 dimensions",
        log_likelihood=lambda t: t[:, None],
    ),
    refuse(
        "no samples",
        ValueError,
        "log_likelihood's number of samples: got 0, want at least 1",
        log_likelihood=lambda t: t[:0],
    ),
    refuse("length of the prior", ValueError, r"log_prior: got shape \(2,\), want \[3\]", log_prior=lambda t: t[1:]),
    refuse(
        "length of the mixture", ValueError, r"log_mixture: got shape \(2,\), want \[3\]", log_mixture=lambda t: t[1:]
    ),
    refuse(
        "two dtypes",
        TypeError,
        "log_prior: got torch.float32 where log_likelihood is torch.float64, want one dtype",
        log_prior=lambda t: t.float(),
    ),
    refuse(
        "two devices",
        ValueError,
        "log_mixture: is on meta and log_likelihood on cpu, want one device",
        log_mixture=lambda t: t.to("meta"),
    ),
]


class TestImportanceBound(contract.SummedOperation):
    operation = "importance_bound"
    differentiable = DIFFERENTIABLE
    cases = CASES
    smooth = ("1 samples", "3 samples", "warm-up 0.3", "warm-up of a tensor")
    typical = ("3 samples", "warm-up 0.3")
    refusals = REFUSALS

    @staticmethod
    def slow(log_likelihood, log_prior, log_mixture, warmup):
        logs = [a + float(warmup) * (b - c) for a, b, c in zip(log_likelihood, log_prior, log_mixture, strict=True)]
        best = max(logs)
        mean = math.fsum(math.exp(value - best) for value in logs) / len(logs)
        return (best + math.log(mean)).double()

    @staticmethod
    def terms(arguments):
        return arguments["log_likelihood"].shape[0]

    @staticmethod
    def large():
        return vectors(5000)()


@pytest.fixture(params=columns("importance_bound"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def bound(column, *vectors, **options):
    return ops.importance_bound(*(v.to(column.device) for v in vectors), **options).cpu()


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("likelihood", [[-math.inf], [-math.inf] * 3])
def test_nothing_but_minus_infinity(column, likelihood, dtype):
    """The bound is minus infinity, its gradients are 0."""
    leaves = [torch.tensor(values, dtype=dtype, device=column.device) for values in (likelihood, *2 * [[1.0]])]
    leaves = [leaf.expand(len(likelihood)).clone().requires_grad_() for leaf in leaves]
    value = ops.importance_bound(*leaves)
    assert value == -math.inf
    for gradient in torch.autograd.grad(value, leaves):
        assert (gradient == 0).all()


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_sample_of_minus_infinity_has_weight_0(column, name, dtype):
    """In value and gradients the others are as ever, but for the number of samples."""
    given = contract.converted(vectors(3)(), dtype, column.device)
    fewer = {key: value[1:] if isinstance(value, torch.Tensor) else value for key, value in given.items()}
    given[name][0] = math.inf if name == "log_mixture" else -math.inf
    got, want = (TestImportanceBound.outcome(ops.importance_bound, arguments) for arguments in (given, fewer))
    want["output"] += math.log(2) - math.log(3)
    for key, value in want.items():
        found = got[key]
        if key != "output":
            assert found[0] == 0
            found = found[1:]
        assert_close(found, value.double(), terms=3, name=key)


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_infinity_and_nan_are_not_hidden(column, number):
    vector = torch.tensor([number, 0.0], device=column.device)
    zeros = torch.zeros_like(vector)
    for operands in ((vector, zeros, zeros), (zeros, vector, zeros), (zeros, zeros, -vector)):
        found = TestImportanceBound.outcome(ops.importance_bound, dict(zip(DIFFERENTIABLE, operands, strict=True)))
        for name, value in found.items():
            assert value.isnan().all(), name


@pytest.mark.parametrize("warmup", [0, 0.0, [0.0]])
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_warm_up_of_0_leaves_the_regularising_terms_out(column, number, warmup):
    """Even where they are infinite or NaN."""
    warmup = torch.tensor(warmup, dtype=torch.float64, device=column.device) if isinstance(warmup, list) else warmup
    vector = torch.tensor([number, 0.0], device=column.device)
    found = TestImportanceBound.outcome(
        ops.importance_bound,
        {"log_likelihood": torch.zeros_like(vector), "log_prior": vector, "log_mixture": vector, "warmup": warmup},
        gradient=torch.ones_like,
    )
    assert found["output"].item() == pytest.approx(0, abs=1e-6)
    assert found["gradient of log_likelihood"].tolist() == [0.5, 0.5]
    assert (found["gradient of log_prior"] == 0).all()
    assert (found["gradient of log_mixture"] == 0).all()


def test_an_upstream_gradient_of_0(column):
    leaves = [torch.tensor([math.nan, 0.0], device=column.device).requires_grad_() for _ in range(3)]
    value = ops.importance_bound(*leaves)
    for gradient in torch.autograd.grad(value, leaves, torch.zeros_like(value)):
        assert (gradient == 0).all()


def test_enumeration_of_a_discrete_model(column):
    """Three latent states, an observed likelihood and prior for each, and a proposal q.

    Over all J-tuples of states drawn from q: exp(bound) has the mean p(x) for every J, the bound's own mean lies below
    log p(x) and rises with J, and with the true posterior as proposal every bound is log p(x) itself.
    """
    likelihood = torch.tensor([0.7, 0.1, 0.02], dtype=torch.float64)
    prior = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    proposal = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    evidence = (likelihood * prior).sum()
    means = []
    for count in (1, 2, 3, 4):
        unbiased, expected = 0.0, 0.0
        for states in itertools.product(range(3), repeat=count):
            chosen = torch.tensor(states)
            value = bound(column, likelihood[chosen].log(), prior[chosen].log(), proposal[chosen].log())
            chance = proposal[chosen].prod()
            unbiased += chance * value.exp()
            expected += chance * value
        assert_close(unbiased, evidence, terms=81, name=f"mean of exp(bound), J = {count}")
        means.append(expected.item())
    assert means == sorted(means)
    assert means[-1] < evidence.log()
    posterior = likelihood * prior / evidence
    exact = bound(column, likelihood.log(), prior.log(), posterior.log())
    assert_close(exact, evidence.log(), terms=3, name="bound under the posterior")


def test_gradients_are_the_normalised_weights(column):
    vectors = [normal(4, seed=s).to(column.device).requires_grad_() for s in range(3)]
    value = ops.importance_bound(*vectors, warmup=0.3)
    logs = (vectors[0] + 0.3 * (vectors[1] - vectors[2])).detach().cpu()
    share = logs.exp() / logs.exp().sum()
    for gradient, factor in zip(torch.autograd.grad(value, vectors), (1.0, 0.3, -0.3), strict=True):
        assert_close(gradient, factor * share, terms=4, name=f"gradient with factor {factor}")


def test_is_a_scalar_that_ignores_the_order_of_samples(column):
    vectors = [normal(5, seed=s) for s in range(3)]
    value = bound(column, *vectors)
    assert value.shape == ()
    assert_close(bound(column, *(v.flip(0) for v in vectors)), value, terms=5, name="bound of the reversed samples")


def test_warmup_zero_leaves_the_likelihood(column):
    value = bound(column, normal(4), 1e3 * normal(4, seed=1), normal(4, seed=2), warmup=0.0)
    assert_close(value, torch.logsumexp(normal(4), dim=0) - math.log(4), terms=4, name="bound without regularisers")


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_warmup_of_one_element_is_a_number(column, shape, dtype):
    vectors = [normal(4, seed=s).float() for s in range(3)]
    factor = torch.full(shape, 2, dtype=dtype, device=column.device)
    assert_same_bits(bound(column, *vectors, warmup=factor), bound(column, *vectors, warmup=2.0))


def test_the_default_is_full_weight(column):
    vectors = [normal(4, seed=s) for s in range(3)]
    assert_same_bits(bound(column, *vectors), bound(column, *vectors, warmup=1.0))
