"""importance_bound: warm-up and logsumexp over the importance samples."""

import itertools
import math

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
