"""feature_likelihood: log p(X | H W), entry by entry."""

import functools
import importlib
import itertools
import math
import os
import subprocess
import sys
import types

import cases
import contract
import pytest
import scipy.integrate
import torch
from cases import normal
from contract import columns, converted, refuse
from tolerances import assert_close, assert_same_bits
from torch.distributions import Bernoulli, Normal

from seegera_fast import SparseMatrix, backends, ops, precision, use_backend
from seegera_fast.schema import Rows

LIKELIHOODS = ("bernoulli", "mse", "gaussian", "mse_relu")


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
    **{f"{name}, no nodes": outputs(name, rows=0) for name in LIKELIHOODS},
    **{f"{name}, no features": outputs(name, num_columns=0) for name in LIKELIHOODS},
    **{f"{name}, several tiles": outputs(name, rows=300, num_columns=250) for name in LIKELIHOODS},
    **{f"{name}, tiles of three samples": outputs(name, rows=200, num_columns=9, samples=3) for name in LIKELIHOODS},
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
        "likelihood: got 'poisson', want one of 'bernoulli', 'mse', 'gaussian', 'mse_relu'",
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


class TestFeatureLikelihood(contract.MultipliedOperation, contract.SummedOperation, contract.DrawnOperation):
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
    typical = ("bernoulli, binary", "mse, negative", "gaussian, a weight for each sample", "mse_relu, negative")
    conditioned = typical
    drawn = (
        *typical,
        *(f"{name}, one sample" for name in LIKELIHOODS),
        *(f"{name}, tiles of three samples" for name in LIKELIHOODS),
        "mse, several tiles",
    )
    refusals = REFUSALS

    @staticmethod
    def slow(hidden, weight, features, likelihood, pos_weight, log_var_weight, reduction):
        """torch.distributions on the outputs written out; the weight on ones by hand."""
        x = torch.from_numpy(features.to_scipy().toarray())
        totals = []
        for j in range(hidden.shape[1]):
            output = hidden[:, j] @ (weight[j] if weight.ndim == 3 else weight)
            if likelihood in ("mse", "mse_relu"):
                mean = output if likelihood == "mse" else output.clamp_min(0)
                terms = Normal(mean, math.sqrt(0.5)).log_prob(x)
            elif likelihood == "gaussian":
                terms = Normal(output, torch.exp(hidden[:, j] @ log_var_weight).sqrt()).log_prob(x)
            else:
                chance = Bernoulli(logits=output)
                one, zero = chance.log_prob(torch.ones_like(x)), chance.log_prob(torch.zeros_like(x))
                terms = pos_weight * x * one + (1 - x) * zero
            totals.append(terms.mean() if reduction == "mean" else terms.sum())
        return torch.stack(totals)

    @staticmethod
    def first_draw(arguments):
        hidden, weight = arguments["hidden"], arguments["weight"]
        return [hidden[:, 0], *([weight[0]] if weight.ndim == 3 else [])]

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
def test_mse_relu_sees_no_output_below_zero(column, dtype):
    """The slope is that of torch.relu: 0 where the output is 0 or less, whatever the feature is."""
    features = SparseMatrix.from_any([[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]], dtype=dtype).to(device=column.device)
    hidden = torch.ones(1, 1, 1, dtype=dtype, device=column.device, requires_grad=True)
    weight = torch.tensor([[-2.0, 0.0, 3.0, -2.0, 0.0, 3.0]], dtype=dtype, device=column.device, requires_grad=True)
    value = ops.feature_likelihood(hidden, weight, features, likelihood="mse_relu")
    wanted = torch.tensor([-(1 + 1 + 4 + 9) - 3 * math.log(math.pi)], dtype=torch.float64)
    assert_close(value.cpu(), wanted, terms=6, name="value")
    (by_weight,) = torch.autograd.grad(value.sum(), [weight])
    assert by_weight.flatten().tolist() == [0, 0, -4, 0, 0, -6]


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


def test_infinite_logits(column):
    """Of ones with plus infinity and zeros with minus infinity the probability is 1; a weight of 0 counts nothing."""
    features = SparseMatrix.from_any([[1.0, 0.0]]).to(device=column.device)
    hidden, weight = (torch.tensor(given, device=column.device) for given in ([[[1e30]]], [[1e30, -1e30]]))
    assert ops.feature_likelihood(hidden, weight, features).tolist() == [0]
    weight[0, 0] = -1e30
    assert ops.feature_likelihood(hidden, weight, features, pos_weight=0.0).tolist() == [0]
    assert ops.feature_likelihood(hidden, weight, features) < -1e37


def with_log_variances(log_var, dtype):
    """Gaussian, each column of X with a log variance. A third of the columns fits exactly, the others to its deviation:

    a third by small outputs, a third by small entries of X.
    """
    rows, num_columns = 9, len(log_var)
    small = (0.5 * log_var).exp()
    hidden = torch.stack([torch.ones(rows).double(), normal(rows)], dim=1)[:, None].repeat(1, 2, 1)
    weight, log_var_weight = torch.zeros(2, 2, num_columns).double()
    weight[0, ::3], weight[1, 1::3] = 1, small[1::3]
    log_var_weight[0] = log_var
    x = torch.zeros(rows, num_columns).double()
    x[:, ::3], x[:, 2::3] = 1, small[2::3] * normal(rows, len(small[2::3]), seed=3)
    return {
        "hidden": hidden.to(dtype),
        "weight": weight.to(dtype),
        "features": SparseMatrix.from_any(x, dtype=dtype),
        "likelihood": "gaussian",
        "log_var_weight": log_var_weight.to(dtype),
    }


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("log_var", [-20.0, -29.5, 29.5])
def test_small_and_large_deviations(column, log_var, dtype):
    arguments = converted(with_log_variances(torch.full((20,), log_var).double(), dtype), dtype, column.device)
    TestFeatureLikelihood.compare(outcome_of(arguments), arguments, dtype)


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_log_variances_end_at_30(column, dtype):
    """Outside of the range everything is as at its end, and the gradient of the log variance is 0."""
    log_var = torch.tensor([-1e30, -2000.0, -90.0, -30.5, -30.0, -29.5, 0.0, 29.5, 30.0, 30.5, 200.0, 1e30]).double()
    arguments = converted(with_log_variances(log_var.clamp(-30, 30), dtype), dtype, column.device)
    want = outcome_of(arguments)
    beyond = arguments["log_var_weight"].clone()
    beyond[0] = log_var.to(beyond)
    outside = log_var.abs().gt(30).to(column.device)
    got = outcome_of({**arguments, "log_var_weight": beyond})
    for name in ("output", "gradient of weight"):
        assert torch.equal(got[name], want[name]), name
    by_log_var = got["gradient of log_var_weight"]
    assert (by_log_var[:, outside] == 0).all()
    assert torch.equal(by_log_var[:, ~outside], want["gradient of log_var_weight"][:, ~outside])
    TestFeatureLikelihood.compare(got, {**arguments, "log_var_weight": beyond}, dtype)


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


# --- mse by squares --------------------------------------------------------------------------------------------------


@pytest.fixture(params=columns("feature_likelihood", compiled=True))
def compiled_column(request):
    with use_backend(request.param.backend):
        yield request.param


@pytest.fixture
def by_squares(monkeypatch):
    """Chooses the form of the sum of squares."""
    module = importlib.import_module("seegera_fast.ops.feature_likelihood")

    def choose(squares):
        monkeypatch.setattr(module, "squares_are_cheaper", lambda *sizes: squares)

    return choose


def outcome_of(arguments):
    return TestFeatureLikelihood.outcome(ops.feature_likelihood, arguments)


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("layout", ["rows", "columns", "samples of columns", "every second"])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("squares", [False, True])
def test_both_forms_of_mse(compiled_column, by_squares, squares, samples, own, layout, dtype):
    """A weight in all the orders in memory in which the model hands it over."""
    given = outputs("mse", "counts", 40, rows=70, num_columns=50, samples=samples, own=own)()
    weight = given["weight"]
    if layout == "columns":
        weight = weight.mT.contiguous().mT
    elif layout == "samples of columns" and own:
        weight = weight.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    elif layout == "every second":
        weight = cases.laid_out(weight, "gaps")
    arguments = converted({**given, "weight": weight}, dtype, compiled_column.device)
    by_squares(squares)
    TestFeatureLikelihood.compare(outcome_of(arguments), arguments, dtype)


def test_squares_of_a_long_matrix(compiled_column, by_squares):
    """More rows than one sum of a Gram matrix takes, and more columns than one stripe."""
    given = {
        **outputs("mse", h=150, rows=9000, num_columns=20, samples=1)(),
        "features": cases.features("unit", 9000, 20),
    }
    arguments = converted(given, torch.float32, compiled_column.device)
    by_squares(True)
    TestFeatureLikelihood.compare(outcome_of(arguments), arguments, torch.float32)


@pytest.mark.parametrize("noise", [1.0, 0.3, 0.2, 0.1, 0.03, 1e-2, 1e-4, 0.0])
def test_squares_that_cancel(compiled_column, by_squares, noise):
    """The closer the fit, the more cancels: to 1e-5 while squares are used, and beyond that the very bits of tiles.

    Other columns than "cpu" take their squares in float64 and use them always.
    """
    hidden, weight = normal(120, 2, 6, seed=1), normal(6, 80, seed=2)
    # Only the second sample fits.
    features = SparseMatrix.from_any(hidden[:, 1] @ weight + noise * normal(120, 80, seed=3))
    arguments = {"hidden": hidden.float(), "weight": weight.float(), "features": features, "likelihood": "mse"}
    arguments = converted(arguments, torch.float32, compiled_column.device)
    by_squares(True)
    got = outcome_of(arguments)
    want = TestFeatureLikelihood.expected(arguments)["output"]
    assert abs(got["output"][0].double().cpu() / want[0] - 1) < 1e-5
    by_squares(False)
    tiles = outcome_of(arguments)
    if noise >= 0.3 or compiled_column.backend != "cpu":
        assert abs(got["output"][1].double().cpu() / want[1] - 1) < 1e-5
    else:
        assert_same_bits(got["output"][1], tiles["output"][1], name="value")
        assert_same_bits(got["gradient of hidden"][:, 1], tiles["gradient of hidden"][:, 1], name="gradient of hidden")
    for name in ("gradient of hidden", "gradient of weight"):
        scale = tiles[name].abs().max()
        assert (got[name] - tiles[name]).abs().max() < 1e-5 * scale


@pytest.mark.parametrize("scale", [1e20, 1e25])
def test_squares_that_overflow(compiled_column, by_squares, scale):
    """H^T H is beyond float32 and W W^T is small or 0, while H W is 2."""
    hidden = torch.full((3, 1, 2), scale, device=compiled_column.device)
    weight = torch.full((2, 4), 1 / scale, device=compiled_column.device)
    features = SparseMatrix.from_any(torch.eye(3, 4)).to(device=compiled_column.device)
    by_squares(True)
    value = ops.feature_likelihood(hidden, weight, features, likelihood="mse")
    assert_close(value.cpu(), torch.tensor([-9 * 4.0 - 3.0 - 6 * math.log(math.pi)]).double(), terms=12)


def test_gradients_where_only_a_sum_of_squares_overflows(compiled_column, by_squares):
    """An element of H^T H is beyond float32, and the value is not."""
    hidden = (4e17 * (normal(4096, 1, 2, seed=1).abs() + 0.5)).float().to(compiled_column.device)
    weight = (normal(2, 40, seed=2) / 4e17).float().to(compiled_column.device)
    features = SparseMatrix.from_any(normal(4096, 40, seed=3) > 1.2).to(device=compiled_column.device)
    arguments = {"hidden": hidden, "weight": weight, "features": features, "likelihood": "mse"}
    by_squares(False)
    want = outcome_of(converted(arguments, torch.float32, compiled_column.device))
    by_squares(True)
    got = outcome_of(converted(arguments, torch.float32, compiled_column.device))
    for name in ("output", "gradient of hidden", "gradient of weight"):
        assert torch.isfinite(got[name]).all()
        assert (got[name] - want[name]).abs().max() < 1e-4 * want[name].abs().max()


@pytest.mark.parametrize("backend", [backends.CPU, backends.TRITON], ids=lambda backend: backend.name)
def test_the_cheaper_form_of_mse(backend):
    """Squares for Cora and CS, tiles for Computers (dense) and for outputs narrower than H."""
    module = importlib.import_module("seegera_fast.ops.feature_likelihood")
    cheaper = functools.partial(module.squares_are_cheaper, backend.costs)
    assert cheaper(2708, 1433, 512, 49_216, 1, 1, True, True)
    assert cheaper(18_333, 6805, 512, 1_092_079, 5, 1, True, True)
    assert not cheaper(13_752, 767, 512, 3_675_000, 1, 1, True, True)
    assert not cheaper(1797, 64, 512, 58_000, 1, 1, False, False)


# --- threads and memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("likelihood", [*LIKELIHOODS, "squares"])
@pytest.mark.parametrize("shape", [(500, 450), (4000, 16), (16, 1500)])
def test_same_bits_with_other_threads(compiled_column, by_squares, shape, likelihood, own):
    """Many blocks of rows and of columns, or one of either; more threads than may add to the same gradient at once."""
    name = "mse" if likelihood == "squares" else likelihood
    if compiled_column == contract.Column("triton", "cpu"):
        # The interpreter runs blocks one after the other, milliseconds each.
        shape = [-(-size // 8) for size in shape]
    given = outputs(name, "binary", 33, rows=shape[0], num_columns=shape[1], own=own)()
    arguments = converted(given, torch.float32, compiled_column.device)
    by_squares(likelihood == "squares")
    threads = torch.get_num_threads()
    try:
        found = []
        # No promise of an interpreted kernel, whose products are those of torch on the CPU.
        for count in (1, 2, 3, 12, 12) if compiled_column.backend == "cpu" else (1, 1):
            torch.set_num_threads(count)
            found.append(outcome_of(arguments))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        for key, value in other.items():
            assert_same_bits(value, found[0][key], name=key)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="resident memory is read from Linux's /proc")
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_memory_without_the_outputs(compiled_column, likelihood):
    """A step of 10,000 x 8,000 outputs, 320 MB, adds no tenth of them to what is resident."""
    if compiled_column.backend != "cpu":
        pytest.skip("resident memory says nothing about that of a GPU")
    code = """
import sys, torch
from seegera_fast import SparseMatrix, ops, use_backend

def resident(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field))

likelihood = sys.argv[1]
def step(n, l):
    features = SparseMatrix(torch.arange(n + 1), torch.arange(n) % l, torch.ones(n), (n, l))
    hidden, weight = (torch.ones(*size, requires_grad=True) for size in ((n, 1, 4), (4, l)))
    variance = torch.zeros(4, l, requires_grad=True) if likelihood == "gaussian" else None
    value = ops.feature_likelihood(hidden, weight, features, likelihood=likelihood, log_var_weight=variance)
    torch.autograd.grad(value.sum(), [hidden, weight])

with use_backend(sys.argv[2]):
    step(300, 300)
    before = resident("VmRSS")
    step(10_000, 8_000)
    print(resident("VmHWM") - before)
"""
    command = [sys.executable, "-c", code, likelihood, compiled_column.backend]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) * 1024 < 32e6


# --- Triton: chunks, a GPU's sizes, half precision -------------------------------------------------------------------

TRITON = [column for column in columns("feature_likelihood", compiled=True) if "triton" in column.id] or [
    pytest.param(None, id="none", marks=pytest.mark.skip(reason="Triton neither has a GPU nor is interpreted"))
]


@pytest.fixture
def kernels(monkeypatch):
    """Makes chunks small, and on request takes a GPU's block sizes."""
    operators = pytest.importorskip("seegera_fast.kernels.triton.feature_likelihood")
    chunks, squares = operators.feature_likelihood_chunks, operators.feature_likelihood_squares
    choosing = {
        chunks: ("entry_blocks", "chunk_block"),
        squares: ("cross_blocks",),
        operators: ("transpose_blocks",),
        operators.scale: ("scale_block",),
    }

    def force(*, chunk=None, gpu_blocks=False):
        if chunk is not None:
            monkeypatch.setattr(chunks, "CHUNK", chunk)
            monkeypatch.setattr("seegera_fast.kernels.triton.common.chunks.UNIT", 16)
        for module, names in choosing.items() if gpu_blocks else ():
            for name in names:
                sizes = getattr(module, name)
                monkeypatch.setattr(module, name, lambda *given, sizes=sizes: sizes(*given[:-1], "cuda"))
        return operators

    return force


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize(
    ("shape", "own", "dtype"),
    [
        ((100, 70), False, torch.float32),
        ((100, 70), True, torch.float64),
        ((130, 20), False, torch.float64),
        ((130, 20), True, torch.float32),
    ],
)
def test_chunks(column, kernels, by_squares, shape, likelihood, own, dtype):
    """Several pieces of rows and of columns, the last ones smaller; pieces of rows alone."""
    kernels(chunk=32)
    by_squares(False)
    given = outputs(likelihood, "unit", 7, rows=shape[0], num_columns=shape[1], own=own, pos_weight=2.5)()
    arguments = converted(given, dtype, column.device)
    with use_backend(column.backend):
        TestFeatureLikelihood.compare(outcome_of(arguments), arguments, dtype)


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_rows_of_products_are_aligned(column, kernels, likelihood, own, dtype):
    """A weight of rows of 37 numbers, and two pieces of columns of which the last one has 5."""
    module = kernels(chunk=32)
    given = converted(outputs(likelihood, "unit", 8, rows=32, num_columns=37, own=own)(), dtype, column.device)
    matrix, variance = given["features"], given["log_var_weight"]
    pos_weight = torch.ones(1, dtype=torch.float64, device=column.device)
    rows = Rows(matrix.rowptr, matrix.col, matrix.values)
    arguments = (given["hidden"], given["weight"], variance, rows, None)
    with contract.Products() as made:
        wanted = (True, True, variance is not None)
        module.feature_likelihood(*arguments, pos_weight, LIKELIHOODS.index(likelihood), precision.HIGHEST, *wanted)
    assert made.unaligned == []
    # Three products of each chunk; for gaussian of twice as many, and those of the log variances.
    assert made.count == 2 * 2 * 3 * (4 if likelihood == "gaussian" else 1)


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("likelihood", [*LIKELIHOODS, "squares"])
def test_sizes_of_a_gpu(column, kernels, by_squares, likelihood):
    kernels(chunk=64, gpu_blocks=True)
    by_squares(likelihood == "squares")
    name = "mse" if likelihood == "squares" else likelihood
    width, rows = (300, 12) if likelihood == "squares" else (40, 40)
    given = outputs(name, "unit", width, rows=rows, num_columns=90)()
    arguments = converted(given, torch.float32, column.device)
    with use_backend(column.backend):
        TestFeatureLikelihood.compare(outcome_of(arguments), arguments, torch.float32)


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("likelihood", [*LIKELIHOODS, "squares"])
def test_half_precision(column, by_squares, likelihood, dtype):
    """A float32 value, gradients in the type of the operands. The gradients of a sum are beyond float16."""
    by_squares(likelihood == "squares")
    name = "mse" if likelihood == "squares" else likelihood
    scale = 0.7 if name == "gaussian" else 5.0
    given = outputs(name, "unit", 12, rows=900, num_columns=70, pos_weight=500.0, scale=scale, mean=True)()
    features = given.pop("features").to(device=column.device, dtype=torch.float32)
    arguments = {**converted(given, dtype, column.device), "features": features}
    with use_backend(column.backend):
        got = outcome_of(arguments)
    want = TestFeatureLikelihood.expected(arguments)
    for key, value in got.items():
        assert value.dtype == (torch.float32 if key == "output" else dtype)
        assert_close(value, want[key], terms=TestFeatureLikelihood.terms(arguments), name=key)


@pytest.mark.parametrize(
    ("dtype", "device", "capability", "fast"),
    [
        (torch.float32, "cuda", (8, 0), True),
        (torch.float32, "cuda", (9, 0), True),
        (torch.bfloat16, "cuda", (10, 0), True),
        (torch.float32, "cuda", (8, 6), False),
        (torch.bfloat16, "cuda", (8, 9), False),
        (torch.float32, "cuda", (12, 0), False),
        (torch.float64, "cuda", (8, 9), True),
        (torch.float32, "cpu", None, True),
    ],
)
def test_squares_are_for_devices_with_fast_float64(kernels, monkeypatch, dtype, device, capability, fast):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    operand = types.SimpleNamespace(dtype=dtype, device=torch.device(device))
    assert kernels().multiplies_fast(operand) == fast


@pytest.mark.parametrize("column", TRITON)
def test_chunks_are_taken_where_float64_is_slow(column, kernels, by_squares, monkeypatch):
    """Though the operator hands the transpose of X over."""
    arguments = converted(outputs("mse", "counts", 40, rows=70, num_columns=50)(), torch.float32, column.device)
    monkeypatch.setattr(kernels(), "multiplies_fast", lambda operand: False)
    found = []
    with use_backend(column.backend):
        for squares in (False, True):
            by_squares(squares)
            found.append(outcome_of(arguments))
    for name, value in found[0].items():
        assert_same_bits(value, found[1][name], name=name)


@pytest.mark.parametrize("column", TRITON)
def test_half_precision_is_refused_where_it_is_not_written(column):
    given = converted(outputs()(), torch.float32)
    halves = {name: given[name].half() for name in ("hidden", "weight")}
    match = r"hidden: got torch.float16 on cpu, want .* with backend 'cpu'; .* run with 'triton'"
    with pytest.raises(TypeError, match=match):
        ops.feature_likelihood(**{**given, **halves})


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_chunks_bound_the_memory(column, kernels, likelihood):
    """No tensor is larger than a chunk, a gradient or the columns of X, let alone all outputs (1.2 MB)."""
    module = kernels(chunk=256)
    given = converted(outputs(likelihood, "binary", 5, rows=600, num_columns=500)(), torch.float32, column.device)
    matrix = given["features"]
    weight = torch.ones(1, dtype=torch.float64, device=column.device)
    variance = given["log_var_weight"]
    rows = Rows(matrix.rowptr, matrix.col, matrix.values)
    arguments = (given["hidden"], given["weight"], variance, rows, None)
    with contract.Allocations() as made:
        wanted = (True, True, variance is not None)
        module.feature_likelihood(*arguments, weight, LIKELIHOODS.index(likelihood), precision.HIGHEST, *wanted)
    assert made.largest <= max(4 * 256 * 256, 4 * 600 * 2 * 5, 8 * matrix.nnz) < 1e6


@pytest.mark.parametrize("column", columns("feature_likelihood"))
def test_infinite_outputs(column):
    """An infinite output counts as such, one whose weight is 0 not at all."""
    zero, one = (SparseMatrix.from_any(torch.full((1, 1), value)).to(column.device) for value in (0.0, 1.0))
    huge = torch.full((1, 1, 1), 1e30, device=column.device), torch.full((1, 1), 1e30, device=column.device)
    none = torch.full((1, 1, 1), torch.nan, device=column.device), huge[1]
    with use_backend(column.backend):
        assert ops.feature_likelihood(*huge, zero).item() == -torch.inf
        assert ops.feature_likelihood(*huge, one).item() == 0
        assert ops.feature_likelihood(-huge[0], huge[1], one).item() == -torch.inf
        assert ops.feature_likelihood(-huge[0], huge[1], one, pos_weight=0.0).item() == 0
        assert ops.feature_likelihood(*none, one, pos_weight=0.0).item() == 0
        assert math.isnan(ops.feature_likelihood(*none, zero).item())
