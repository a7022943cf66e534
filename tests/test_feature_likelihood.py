"""feature_likelihood: log p(X | H W), entry by entry."""

import itertools
import math

import cases
import contract
import pytest
import scipy.integrate
import torch
from cases import normal
from contract import columns, converted, refuse
from tolerances import assert_close, assert_same_bits
from torch.distributions import Bernoulli, Normal

from seegera_fast import SparseMatrix, ops, use_backend

LIKELIHOODS = ("bernoulli", "mse", "gaussian")


def outputs(
    likelihood="bernoulli",
    kind="binary",
    h=5,
    *,
    rows=8,
    num_columns=9,
    samples=2,
    own=False,
    pos_weight=1.0,
    mean=False,
    scale=0.7,
):
    def arguments():
        weight = torch.tensor(pos_weight, dtype=torch.float64) if isinstance(pos_weight, list) else pos_weight
        return {
            "hidden": scale * normal(rows, samples, h) / max(h, 1) ** 0.25,
            "weight": normal(*([samples] if own else []), h, num_columns, seed=1) / max(h, 1) ** 0.25,
            "features": cases.features(kind, rows, num_columns),
            "likelihood": likelihood,
            "pos_weight": weight,
            "log_var_weight": normal(h, num_columns, seed=2) / max(h, 1) ** 0.5 if likelihood == "gaussian" else None,
            "reduction": "mean" if mean else "sum",
        }

    return arguments


CASES = {
    **{f"{name}, {kind}": outputs(name, kind) for name in LIKELIHOODS for kind in cases.FEATURES},
    **{f"{name}, h {h}": outputs(name, h=h, rows=4, num_columns=5) for name in LIKELIHOODS for h in cases.WIDTHS},
    **{f"{name}, mean": outputs(name, mean=True) for name in LIKELIHOODS},
    **{f"{name}, a weight for each sample": outputs(name, "unit", own=True) for name in LIKELIHOODS},
    **{f"{name}, one sample": outputs(name, samples=1, mean=True) for name in LIKELIHOODS},
    **{f"{name}, one node": outputs(name, "dense", rows=1) for name in LIKELIHOODS},
    **{f"{name}, one feature": outputs(name, "dense", num_columns=1, pos_weight=3.0) for name in LIKELIHOODS},
    **{f"{name}, no width": outputs(name, "dense", 0) for name in LIKELIHOODS},
    "weight 4": outputs(pos_weight=4.5),
    "weight 0": outputs(pos_weight=0),
    "weight of a tensor": outputs(pos_weight=[4.5]),
    "weight 4, a weight for each sample": outputs(pos_weight=4.5, own=True),
    "logits of 1e4": outputs(scale=1e4),
    "means of 1e4": outputs("mse", "counts", scale=1e4),
}

REFUSALS = [
    *contract.sparse_refusals("features"),
    *contract.tensor_refusals("hidden"),
    *contract.tensor_refusals("weight"),
    *contract.weight_refusals("pos_weight"),
    refuse(
        "two dimensions", ValueError, r"hidden: got shape \(8, 10\), want 3 dimensions", hidden=lambda t: t.flatten(1)
    ),
    refuse("no samples", ValueError, "hidden's number of samples: got 0, want at least 1", hidden=lambda t: t[:, :0]),
    refuse("rows of hidden", ValueError, "features: got 8 rows, want 7, one per row of hidden", hidden=lambda t: t[1:]),
    refuse("rows of W", ValueError, r"weight: got shape \(4, 9\), want \[5, 9\]", weight=lambda t: t[1:]),
    refuse("columns of W", ValueError, r"weight: got shape \(5, 8\), want \[5, 9\]", weight=lambda t: t[:, 1:]),
    refuse(
        "samples of W",
        ValueError,
        r"weight: got shape \(3, 5, 9\), want \[2, 5, 9\]",
        weight=lambda t: t.repeat(3, 1, 1),
    ),
    refuse(
        "likelihood",
        ValueError,
        "likelihood: got 'poisson', want one of 'bernoulli', 'mse', 'gaussian'",
        likelihood="poisson",
    ),
    refuse(
        "gaussian without variance",
        ValueError,
        "log_var_weight: got none with likelihood 'gaussian'; it goes with \"gaussian\" and only there",
        likelihood="gaussian",
    ),
    refuse(
        "variance without gaussian",
        ValueError,
        "log_var_weight: got one with likelihood 'bernoulli'; it goes with \"gaussian\" and only there",
        log_var_weight=normal(5, 9),
    ),
    refuse(
        "shape of the variance",
        ValueError,
        r"log_var_weight: got shape \(5, 8\), want \[5, 9\]",
        likelihood="gaussian",
        log_var_weight=normal(5, 8),
    ),
    refuse("reduction", ValueError, "reduction: got 'none', want one of 'sum', 'mean'", reduction="none"),
    refuse(
        "two dtypes",
        TypeError,
        "weight: got torch.float32 where hidden is torch.float64, want one dtype",
        weight=lambda t: t.float(),
    ),
    refuse(
        "two devices",
        ValueError,
        "weight: is on meta and hidden on cpu, want one device",
        weight=lambda t: t.to("meta"),
    ),
]


class TestFeatureLikelihood(contract.Operation):
    operation = "feature_likelihood"
    differentiable = ("hidden", "weight", "log_var_weight")
    cases = CASES
    smooth = (
        "bernoulli, binary",
        "weight of a tensor",
        "mse, negative",
        "gaussian, counts",
        "gaussian, a weight for each sample",
        "bernoulli, a weight for each sample",
        "mse, a weight for each sample",
        "mse, one node",
    )
    typical = ("bernoulli, binary", "mse, negative", "gaussian, a weight for each sample")
    refusals = REFUSALS

    @staticmethod
    def slow(hidden, weight, features, likelihood, pos_weight, log_var_weight, reduction):
        """torch.distributions on the outputs written out; the weight on ones by hand."""
        x = torch.from_numpy(features.to_scipy().toarray())
        totals = []
        for j in range(hidden.shape[1]):
            output = hidden[:, j] @ (weight[j] if weight.ndim == 3 else weight)
            if likelihood == "mse":
                terms = Normal(output, math.sqrt(0.5)).log_prob(x)
            elif likelihood == "gaussian":
                terms = Normal(output, torch.exp(hidden[:, j] @ log_var_weight).sqrt()).log_prob(x)
            else:
                chance = Bernoulli(logits=output)
                one, zero = chance.log_prob(torch.ones_like(x)), chance.log_prob(torch.zeros_like(x))
                terms = pos_weight * x * one + (1 - x) * zero
            totals.append(terms.mean() if reduction == "mean" else terms.sum())
        return torch.stack(totals)

    @staticmethod
    def terms(arguments):
        return math.prod(arguments["features"].shape) + arguments["hidden"].shape[1] + arguments["hidden"].shape[2]

    @staticmethod
    def large():
        return {
            "hidden": 0.3 * normal(700, 2, 40),
            "weight": 0.3 * normal(40, 90, seed=1),
            "features": cases.large_graph().features,
            "likelihood": "bernoulli",
            "pos_weight": 2.0,
            "log_var_weight": None,
            "reduction": "sum",
        }


@pytest.fixture(params=columns("feature_likelihood"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def likelihood_of(column, dense, hidden, weight, **options):
    features = SparseMatrix.from_any(dense, dtype=torch.float64).to(device=column.device)
    options = converted(options, torch.float64, column.device)
    return ops.feature_likelihood(hidden.to(column.device), weight.to(column.device), features, **options).cpu()


def test_probabilities_of_all_binary_features_sum_to_one(column):
    hidden, weight = normal(2, 2, 3), normal(3, 3, seed=1)
    matrices = [torch.tensor(bits).double().reshape(2, 3) for bits in itertools.product([0, 1], repeat=6)]
    total = torch.stack([likelihood_of(column, x, hidden, weight) for x in matrices]).exp().sum(dim=0)
    assert_close(total, torch.ones(2, dtype=torch.float64), terms=64 * 6, name="sum over binary features")


@pytest.mark.parametrize("likelihood", ["mse", "gaussian"])
def test_densities_integrate_to_one(column, likelihood):
    hidden, weight = normal(1, 1, 2), normal(2, 1, seed=1)
    options = {"log_var_weight": normal(2, 1, seed=2)} if likelihood == "gaussian" else {}

    def density(x):
        return likelihood_of(column, [[x]], hidden, weight, likelihood=likelihood, **options).exp().item()

    total, error = scipy.integrate.quad(density, -15, 15, points=[0.0], epsabs=1e-9, limit=200)
    assert abs(total - 1) < 1e-8 + error


def test_mse_is_the_squared_error(column):
    """Up to a constant: differences of the value are differences of the squared error."""
    x, weight = normal(6, 7), normal(3, 7, seed=1)
    hidden = torch.stack([normal(6, 3, seed=2), normal(6, 3, seed=3)], dim=1)
    values = likelihood_of(column, x, hidden, weight, likelihood="mse")
    errors = torch.stack([((x - hidden[:, j] @ weight) ** 2).sum() for j in range(2)])
    assert_close(values[0] - values[1], errors[1] - errors[0], terms=84, name="difference of two samples")


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_logits_of_ten_thousand(column, dtype):
    """A one with logit -1e4 and a zero with logit 1e4 cost 1e4 each, to the digit, with gradients of 1."""
    features = SparseMatrix.from_any([[1.0, 0.0]], dtype=dtype).to(device=column.device)
    hidden = torch.tensor([[[100.0]]], dtype=dtype, device=column.device, requires_grad=True)
    weight = torch.tensor([[-100.0, 100.0]], dtype=dtype, device=column.device, requires_grad=True)
    value = ops.feature_likelihood(hidden, weight, features, pos_weight=2.0)
    assert value.tolist() == [-3e4]
    by_hidden, by_weight = torch.autograd.grad(value.sum(), [hidden, weight])
    assert by_hidden.flatten().tolist() == [2.0 * -100.0 - 100.0]
    assert by_weight.flatten().tolist() == [2.0 * 100.0, -100.0]


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_a_shared_weight_is_one_for_each_sample(column, likelihood):
    given = converted(outputs(likelihood, "unit")(), torch.float64, column.device)
    repeated = {**given, "weight": given["weight"].repeat(2, 1, 1)}
    want = ops.feature_likelihood(**given).cpu()
    assert_close(ops.feature_likelihood(**repeated), want, terms=90, name="repeated weight")


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_weight_of_one_element_is_a_number(column, shape, dtype):
    given = converted(outputs(pos_weight=3.0)(), torch.float32, column.device)
    weight = torch.full(shape, 3, dtype=dtype, device=column.device)
    assert_same_bits(ops.feature_likelihood(**{**given, "pos_weight": weight}), ops.feature_likelihood(**given))


def test_defaults(column):
    given = converted(outputs()(), torch.float64, column.device)
    short = ops.feature_likelihood(given["hidden"], given["weight"], given["features"])
    assert_same_bits(short, ops.feature_likelihood(**given))
