"""noisy_gcn: the first layer, over features joined to Bernoulli noise."""

import cases
import contract
import pytest
import slow
import torch
from cases import normal
from contract import columns, refuse
from tolerances import assert_close, assert_same_bits

from seegera_fast import ops, reference, use_backend


def layer(
    name="random",
    kind="sparse",
    h=4,
    *,
    draws=2,
    c=3,
    prob=0.5,
    dropout=0.0,
    activation="tanh",
    bias=False,
    dense=False,
    num_columns=9,
    scale=1.0,
    layout="sparse",
):
    def arguments():
        graph = cases.graph(name)
        return {
            "propagation": None if dense else graph.propagation,
            "features": cases.features(kind, graph.num_nodes, num_columns).with_layout(layout),
            "weight": scale * normal(num_columns, h, seed=1),
            "noise_weight": scale * normal(c, h, seed=2),
            "num_draws": draws,
            "seed": 6,
            "bias": normal(h, seed=3) if bias else None,
            "noise_prob": prob,
            "dropout": dropout,
            "activation": activation,
        }

    return arguments


CASES = {
    **{f"{name}, {act}": layer(name, activation=act) for name in cases.GRAPHS for act in ("relu", "tanh", "none")},
    **{kind: layer("hub", kind, dropout=0.3, bias=True) for kind in cases.FEATURES},
    **{f"h {h}": layer("path", h=h) for h in cases.WIDTHS},
    **{f"noise of {c}": layer("path", c=c) for c in (0, 1, 4, 5, 9)},
    **{f"noise of {c} with dropout": layer("path", c=c, dropout=0.4) for c in (0, 1, 4, 9)},
    **{f"{draws} draws": layer("path", draws=draws) for draws in (1, 5)},
    **{f"probability {prob}": layer("path", prob=prob) for prob in (0.0, 0.2, 1.0)},
    **{f"dense layer, {act}": layer("hub", dense=True, bias=True, activation=act) for act in ("relu", "tanh", "none")},
    "dense layer with dropout": layer("hub", "counts", dense=True, dropout=0.4, activation="none"),
    "high dropout": layer("hub", "dense", dropout=0.9, activation="relu"),
    "one feature": layer("path", "dense", num_columns=1, dropout=0.2),
    "no outputs": layer("path", h=0),
    "no features": layer("path", "dense", num_columns=0),
    "no features with dropout": layer("path", "dense", num_columns=0, dropout=0.3),
    "no features, dense layer": layer("path", "dense", num_columns=0, dense=True),
    "draws of more than one word": layer("path", draws=70, dropout=0.3, h=2),
    "dense layout": layer("hub", "negative", layout="dense", bias=True),
    "dense layout with dropout": layer("hub", "counts", layout="dense", dropout=0.4, bias=True),
    "dense layout, dense layer": layer("hub", "dense", layout="dense", dense=True, activation="relu", bias=True),
    "dense layout, dense layer with dropout": layer("hub", "unit", layout="dense", dense=True, dropout=0.4, c=5),
    "dense layout without noise": layer("path", "dense", layout="dense", c=0, draws=1, activation="none"),
    "dense layout, 2,100 columns": layer("path", layout="dense", num_columns=2100, dropout=0.3),
    "large values": layer("random", "counts", scale=1e4, activation="none"),
}

DIFFERENTIABLE = ("weight", "noise_weight", "bias")

REFUSALS = [
    *contract.sparse_refusals("features"),
    *(refusal for name in DIFFERENTIABLE for refusal in contract.tensor_refusals(name)),
    *contract.DATA_SEED_REFUSALS,
    *contract.probability_refusals("noise_prob", one=True),
    *contract.probability_refusals("dropout"),
    refuse(
        "propagation dense",
        TypeError,
        "propagation: got Tensor, want a SparseMatrix .*",
        propagation=lambda m: m.to_dense(),
    ),
    refuse(
        "propagation of another graph",
        ValueError,
        r"propagation: got shape \(6, 6\), want \(12, 12\)",
        propagation=lambda _: cases.graph("path").propagation,
    ),
    refuse("rows of W", ValueError, r"weight: got shape \(8, 4\), want \[9, any\]", weight=lambda t: t[1:]),
    refuse(
        "width of the noise's W",
        ValueError,
        r"noise_weight: got shape \(3, 3\), want \[any, 4\]",
        noise_weight=lambda t: t[:, 1:],
    ),
    refuse("length of the bias", ValueError, r"bias: got shape \(3,\), want \[4\]", bias=lambda t: t[1:]),
    refuse("no draws", ValueError, "num_draws: got 0, want 1 to 16777216", num_draws=0),
    refuse("draws of a fraction", TypeError, "num_draws: got 2.0, want an int", num_draws=2.0),
    refuse("activation", ValueError, "activation: got 'gelu', want one of 'relu', 'tanh', 'none'", activation="gelu"),
    refuse(
        "two dtypes",
        TypeError,
        "noise_weight: got torch.float32 where weight is torch.float64, want one dtype",
        noise_weight=lambda t: t.float(),
    ),
    refuse(
        "two dtypes of the features",
        TypeError,
        "features: got torch.float32 where weight is torch.float64, want one dtype",
        features=lambda m: m.to(dtype=torch.float32),
    ),
    refuse(
        "two devices",
        ValueError,
        "noise_weight: is on meta and weight on cpu, want one device",
        noise_weight=lambda t: t.to("meta"),
    ),
]


class TestNoisyGcn(contract.MultipliedOperation, contract.SeededOperation):
    operation = "noisy_gcn"
    differentiable = DIFFERENTIABLE
    cases = CASES
    smooth = ("path, tanh", "noise of 9 with dropout", "dense layer with dropout", "noise of 0", "one_node, none")
    typical = ("sparse", "hub, relu", "dense layer, tanh", "noise of 0", "dense layout", "dense layout with dropout")
    conditioned = ("sparse", "hub, relu", "dense layout", "dense layout, dense layer")
    # Features by rows have no dense products, and those with the noise are exact.
    multiplying = ()
    refusals = REFUSALS

    @staticmethod
    def slow(propagation, features, weight, noise_weight, num_draws, seed, bias, noise_prob, dropout, activation):
        """The features' part and the noise's part apart, element by element."""
        (n, l), (c, h) = features.shape, noise_weight.shape
        matrix = features.to_scipy()
        noise = slow.noise(seed, (n, num_draws, c), noise_prob)
        kept = slow.keep(seed, (n, num_draws, l + c), dropout)
        joined = torch.zeros(n, num_draws, h, dtype=torch.float64)
        for i in range(n):
            for s in range(num_draws):
                for k in range(matrix.indptr[i], matrix.indptr[i + 1]):
                    r = matrix.indices[k]
                    joined[i, s] += matrix.data[k] * kept[i, s, r] * weight[r]
                for r in range(c):
                    joined[i, s] += noise[i, s, r] * kept[i, s, l + r] * noise_weight[r]
        if propagation is not None:
            mixed = propagation.to_scipy() @ joined.reshape(n, num_draws * h).numpy()
            joined = torch.from_numpy(mixed).reshape(n, num_draws, h)
        if bias is not None:
            joined = joined + bias
        return {
            "relu": lambda x: x.clamp(min=0),
            "tanh": lambda x: 1 - 2 / (torch.exp(2 * x) + 1),
            "none": lambda x: x,
        }[activation](joined)

    @staticmethod
    def terms(arguments):
        (n, l), c = arguments["features"].shape, arguments["noise_weight"].shape[0]
        return n * (1 + arguments["num_draws"]) + l + c

    @staticmethod
    def large():
        return {
            "propagation": cases.large_graph().propagation,
            "features": cases.large_graph().features,
            "weight": normal(90, 67, seed=1),
            "noise_weight": normal(5, 67, seed=2),
            "num_draws": 3,
            "seed": 6,
            "bias": normal(67, seed=3),
            "noise_prob": 0.5,
            "dropout": 0.2,
            "activation": "tanh",
        }


@pytest.fixture(params=columns("noisy_gcn"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def test_tanh_at_a_nan_without_an_upstream_gradient(column):
    """Gradients are 0, though the bias is not a number."""
    given = contract.converted(TestNoisyGcn.cases["dense layer, tanh"](), torch.float32, column.device)
    given["bias"] = torch.full_like(given["bias"], torch.nan)
    found = TestNoisyGcn.outcome(ops.noisy_gcn, given, gradient=torch.zeros_like)
    assert found["output"].isnan().all()
    for name in set(found) - {"output"}:
        assert (found[name] == 0).all(), name


def test_the_noise_is_that_of_draw_noise(column):
    """With identity weights on the noise and none on the features, the layer gives the noise itself."""
    features = cases.features("sparse", 12, 9).to(device=column.device)
    weight = torch.zeros(9, 5, dtype=torch.float64, device=column.device)
    identity = torch.eye(5, dtype=torch.float64, device=column.device)
    got = ops.noisy_gcn(None, features, weight, identity, num_draws=3, seed=21, noise_prob=0.3, activation="none")
    assert_same_bits(got.cpu() + 0.0, reference.draw_noise(21, 12, 3, 5, 0.3, dtype=torch.float64))


def test_draws_differ_by_their_noise_only(column):
    graph = cases.graph("random").to(device=column.device)
    weight, noise_weight = normal(9, 4, seed=1).to(column.device), normal(3, 4, seed=2).to(column.device)
    options = {"num_draws": 3, "seed": 2}
    noisy = ops.noisy_gcn(graph.propagation, graph.features, weight, noise_weight, **options)
    quiet = ops.noisy_gcn(graph.propagation, graph.features, weight, 0 * noise_weight, **options)
    assert (noisy[:, 0] != noisy[:, 1]).any()
    assert (noisy[:, 1] != noisy[:, 2]).any()
    assert_same_bits(quiet[:, 0], quiet[:, 1])
    assert_same_bits(quiet[:, 1], quiet[:, 2])


def test_each_draw_has_a_dropout_mask_of_its_own(column):
    graph = cases.graph("random", "dense").to(device=column.device)
    weight, none = normal(9, 4, seed=1).to(column.device), normal(0, 4).to(column.device)
    got = ops.noisy_gcn(graph.propagation, graph.features, weight, none, num_draws=2, seed=2, dropout=0.5)
    assert (got[:, 0] != got[:, 1]).any()


def test_fewer_draws_are_the_first_of_more(column):
    graph = cases.graph("random").to(device=column.device)
    weight, noise_weight = normal(9, 4, seed=1).to(column.device), normal(3, 4, seed=2).to(column.device)

    def draws(count):
        return ops.noisy_gcn(
            graph.propagation, graph.features, weight, noise_weight, num_draws=count, seed=2, dropout=0.2
        ).cpu()

    assert_close(draws(2), draws(5)[:, :2], terms=40, name="the first draws")


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("place", columns("noisy_gcn", compiled=True, interpreter=False))
def test_where_weights_and_gradients_outgrow_the_caches(place, dropout):
    """Each column is that of a layer that has few of them. On a CPU it has the same bits."""
    features = cases.features("sparse", 700, 700).with_layout("sparse").to(device=place.device, dtype=torch.float32)
    # Whole cache lines, so that results are written past the caches, and a last tile that is narrower.
    width = 4704
    weights = [normal(rows, width, seed=rows).to(place.device, torch.float32) for rows in (700, 5)]
    upstream = normal(700, 2, width, seed=3).to(place.device, torch.float32)

    def outcome(begin, end):
        leaves = [weight[:, begin:end].clone().requires_grad_() for weight in weights]
        output = ops.noisy_gcn(None, features, *leaves, num_draws=2, seed=3, dropout=dropout)
        return [output, *torch.autograd.grad(output, leaves, upstream[..., begin:end])]

    with use_backend(place.backend):
        whole = outcome(0, width)
        for begin, end in ((0, 33), (4694, 4704)):
            for name, all_columns, some in zip(("output", "weight", "noise"), whole, outcome(begin, end), strict=True):
                same = all_columns[..., begin:end].detach().contiguous()
                assert_close(same, some.detach().double(), terms=1400, name=f"{name}, columns {begin} to {end}")
                # The gradient of the noise's weights is a product of the BLAS.
                if place.backend == "cpu" and name != "noise":
                    assert_same_bits(same, some.detach())


def test_dropout_keeps_the_mean(column):
    """The mean over 400 seeds is the layer without dropout, within five standard errors."""
    graph = cases.graph("path", "dense").to(device=column.device)
    weight, noise_weight = normal(9, 2, seed=1).to(column.device), normal(3, 2, seed=2).to(column.device)
    options = {"num_draws": 400, "noise_prob": 1.0, "activation": "none", "seed": 3}
    plain = ops.noisy_gcn(graph.propagation, graph.features, weight, noise_weight, **options)
    dropped = ops.noisy_gcn(graph.propagation, graph.features, weight, noise_weight, dropout=0.5, **options)
    error = dropped.std(dim=1) / 400**0.5
    assert ((dropped.mean(dim=1) - plain[:, 0]).abs() < 5 * error).all()


def gradient_at_a_nan(device):
    """The gradient of a bias whose first element is not a number, and so nothing of its column; what it should be."""
    given = contract.converted(layer("hub", activation="relu", bias=True)(), torch.float64, device)
    bias = torch.full_like(given["bias"], 1e3)
    bias[0] = torch.nan
    bias.requires_grad_()
    output = ops.noisy_gcn(**{**given, "bias": bias})
    (gradient,) = torch.autograd.grad(output.sum(), bias)
    return gradient, torch.full_like(gradient, output.shape[0] * output.shape[1])


def test_relu_at_a_nan_lets_the_gradient_through(column):
    """As that of torch."""
    assert_same_bits(*gradient_at_a_nan(column.device))
