"""Models whose numbers leave the range of float32: what is lost has weight 0, and the rest is as ever."""

import math

import numpy as np
import pytest
import scipy.special
import torch
from contract import columns
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tolerances import assert_same_bits

from seegera_fast import Graph, SeeGera, SparseMatrix, ops, use_backend
from seegera_fast.objective import Posterior, log_mixture
from seegera_fast.training import TrainingConfig, TrainingFailure, train

SMALL = {"embedding_dim": 48, "hidden_dim": 48}
# Once a loss was NaN with one of them for each kind of features.
SEEDS = (0, 11, 19, 22)


@pytest.fixture(params=columns("feature_likelihood"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def graph_of(kind, column, *, scale=1.0, dtype=torch.float32):
    """60 nodes with "identity", "binary" or "normal" features."""
    rng = np.random.default_rng(5)
    edges = rng.integers(0, 60, (2, 150))
    features = {
        "identity": np.eye(60),
        "binary": (rng.random((60, 40)) < 0.2).astype(float),
        "normal": rng.normal(size=(60, 40)),
    }[kind]
    edges = np.concatenate([edges, edges[::-1]], axis=1)
    return Graph.from_edge_index(edges, scale * features, 60, dtype=dtype).to(device=column.device)


def gradients_of(model, seed):
    """The output of a step, and the gradients by the names of their weights."""
    model.zero_grad()
    output = model(seed=seed)
    output.loss.backward()
    return output, {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def assert_finite(output, gradients):
    assert output.loss.isfinite()
    for name, value in {**output.terms, **gradients}.items():
        assert value.isfinite().all(), name


@pytest.mark.parametrize("mixture", ["per_node", "joint"])
@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("kind", ["identity", "binary", "normal"])
def test_log_variances_far_beyond_their_range(column, kind, samples, mixture):
    """ "gaussian" with dropout 0.9, which multiplies what it keeps by 10 in every layer."""
    options = {"likelihood": "gaussian", "dropout": 0.9, "num_importance_samples": samples, "mixture": mixture}
    model = SeeGera(graph_of(kind, column), **options, embedding_dim=64, hidden_dim=64)
    # A step takes Triton's interpreter seconds.
    for seed in SEEDS[:1] if column.backend == "triton" else SEEDS:
        assert_finite(*gradients_of(model, seed))


@pytest.mark.parametrize("likelihood", ["mse", "gaussian"])
def test_a_posterior_far_beyond_its_range(column, likelihood):
    """Features of 1e10 give log variances as large."""
    model = SeeGera(graph_of("normal", column, scale=1e10), likelihood=likelihood, **SMALL)
    assert_finite(*gradients_of(model, 0))


@pytest.mark.parametrize("mixture", ["per_node", "joint"])
def test_samples_that_overflow_count_nothing(column, mixture):
    """In float64 they don't overflow, but count nothing either: their weights are exponentials of -1e34 and less."""
    options = {"likelihood": "mse", "dropout": 0.9, "num_importance_samples": 5, "mixture": mixture}

    def step(dtype):
        model = SeeGera(graph_of("normal", column, scale=4e16, dtype=dtype), **options, **SMALL)
        return gradients_of(model, 1)

    output, gradients = step(torch.float32)
    assert_finite(output, gradients)
    want, want_gradients = step(torch.float64)
    # The mean of float64 has the samples that overflow in float32.
    assert output.terms["feature"] > 0.9 * want.terms["feature"]
    assert output.loss.item() == pytest.approx(want.loss.item(), rel=1e-4)
    for name, gradient in gradients.items():
        expected = want_gradients[name]
        if expected.numel() == 0:
            # Without noise there are no weights for it.
            continue
        assert (gradient.double() - expected).abs().max() <= 1e-3 * expected.abs().max(), name


def test_training_without_a_sample_left(column):
    """It stops before the weights change, and says what may help."""
    model = SeeGera(graph_of("binary", column, scale=1e18), likelihood="mse", num_importance_samples=5, **SMALL)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(TrainingFailure, match=r"epoch 1: [a-z]+ became NaN or infinite first; features of smaller"):
        train(model, TrainingConfig(epochs=2), progress=False)
    for name, tensor in model.state_dict().items():
        assert_same_bits(tensor, before[name], name=name)
    output, gradients = gradients_of(model, 0)
    assert output.loss == math.inf
    for name, gradient in gradients.items():
        assert (gradient == 0).all(), name


def test_training_goes_on_after_a_sample_overflows(column):
    options = {"likelihood": "mse", "dropout": 0.9, "num_importance_samples": 5}
    model = SeeGera(graph_of("normal", column, scale=4e16), **options, **SMALL)
    training = train(model, TrainingConfig(epochs=3), progress=False, seed=2)
    assert len(training.history) == 3
    for record in training.history:
        assert all(math.isfinite(value) for value in record.values()), record


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_joint_mixture_without_a_component(column, dtype):
    """Its log is minus infinity, with a gradient of 0; other samples are as ever."""
    generator = torch.Generator().manual_seed(0)
    z, means, log_var = (torch.randn(4, draws, 3, generator=generator).to(dtype) for draws in (2, 3, 1))
    z[2, 0] = torch.finfo(dtype).max ** 0.52
    leaves = [tensor.to(column.device).requires_grad_() for tensor in (z, means, log_var)]
    value = log_mixture("joint", [(leaves[0], Posterior(*leaves[1:]))])
    assert value[0] == -math.inf
    assert value[1].isfinite()
    by_z, *others = torch.autograd.grad(value.sum(), leaves)
    assert (by_z[:, 0] == 0).all()
    leaves = [
        tensor[:, chosen].detach().requires_grad_() for tensor, chosen in zip(leaves, ([1], [0, 2], [0]), strict=True)
    ]
    alone = log_mixture("joint", [(leaves[0], Posterior(*leaves[1:]))])
    want = torch.autograd.grad(alone.sum(), leaves)
    torch.testing.assert_close(by_z[:, 1:], want[0])
    torch.testing.assert_close(others[0][:, [0, 2]], want[1])
    torch.testing.assert_close(others[1], want[2])


# Magnitudes: the sum of squares of numbers of the last ones overflows float32, that of the ones before does not.
MAGNITUDES = st.sampled_from([0.0, 1e-30, 1.0, 1e4, 1e9])
LOG_VARIANCES = st.one_of(st.floats(-40, 40, width=32), st.floats(width=32, allow_nan=False, allow_infinity=False))


def tensor_of(draw, shape, magnitudes):
    """Normal numbers, those of each draw (dimension 1) with a magnitude."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 9))))
    factors = draw(st.lists(magnitudes, min_size=shape[1], max_size=shape[1]))
    return numbers * torch.tensor(factors).view(1, -1, *(1,) * (len(shape) - 2))


def check_what_is_left(function, leaves):
    """The values are numbers or minus infinity. Without upstream gradients for the latter, all gradients are finite.

    Those of values beyond -1e25 are left out, too: times a weight of 1e9 a square of 1e30 overflows.
    """
    leaves = [leaf.requires_grad_() for leaf in leaves]
    value = function(*leaves)
    assert (value.isfinite() | (value == -math.inf)).all(), value
    for gradient in torch.autograd.grad(value, leaves, (value > -1e25).to(value.dtype)):
        assert gradient.isfinite().all(), gradient


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_densities_are_finite_or_minus_infinity(column, data):
    rows, width, samples, extra = (data.draw(st.integers(least, 4)) for least in (1, 1, 1, 0))
    magnitudes = st.one_of(MAGNITUDES, st.sampled_from([1e15, 1e20, 1e37]))
    z = tensor_of(data.draw, (rows, samples, width), magnitudes)
    means = tensor_of(data.draw, (rows, extra + samples, width), magnitudes)
    shape = (rows, data.draw(st.sampled_from([1, extra + samples])), width)
    size = math.prod(shape)
    log_var = torch.tensor(data.draw(st.lists(LOG_VARIANCES, min_size=size, max_size=size))).view(shape)
    operands = [tensor.to(column.device) for tensor in (z, means, log_var)]
    check_what_is_left(ops.standard_normal_density, operands[:1])
    check_what_is_left(ops.mixture_density, [operand.detach() for operand in operands])
    check_what_is_left(ops.component_log_density, [operand.detach() for operand in operands])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_likelihoods_are_finite_or_minus_infinity(column, data):
    rows, width, columns, samples = (data.draw(st.integers(1, 4)) for _ in range(4))
    likelihood = data.draw(st.sampled_from(["bernoulli", "mse", "gaussian", "mse_relu"]))
    hidden = tensor_of(data.draw, (rows, samples, width), MAGNITUDES)
    weights = [tensor_of(data.draw, (width, columns), MAGNITUDES) for _ in range(1 + (likelihood == "gaussian"))]
    x = torch.rand(rows, columns, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 9)))).round()
    if likelihood != "bernoulli":
        x = x * data.draw(st.sampled_from([1.0, 1e9, 1e15, 1e20]))
    features = SparseMatrix.from_any(x).to(device=column.device)

    def function(hidden, weight, log_var_weight=None):
        return ops.feature_likelihood(hidden, weight, features, likelihood=likelihood, log_var_weight=log_var_weight)

    check_what_is_left(function, [tensor.to(column.device) for tensor in (hidden, *weights)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_weights_of_samples(column, data):
    """The bound is that of SciPy. Its gradients are the weights, of which the sum is 1 unless all samples are lost."""
    samples = data.draw(st.integers(1, 6))
    numbers = st.one_of(st.just(-math.inf), st.floats(-1e6, 1e6, width=32))
    likelihood = torch.tensor(data.draw(st.lists(numbers, min_size=samples, max_size=samples))).to(column.device)
    likelihood.requires_grad_()
    value = ops.importance_bound(likelihood, torch.zeros_like(likelihood), torch.zeros_like(likelihood))
    want = scipy.special.logsumexp(likelihood.detach().cpu().double().numpy()) - math.log(samples)
    assert value.item() == pytest.approx(want, rel=1e-6, abs=1e-6)
    (gradient,) = torch.autograd.grad(value, likelihood)
    assert gradient.sum().item() == pytest.approx(float(math.isfinite(want)), abs=1e-6)
    assert (gradient[likelihood == -math.inf] == 0).all()
