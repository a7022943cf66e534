"""gcn: drop, multiply, propagate, activate."""

import cases
import contract
import pytest
import slow
import torch
from cases import normal
from contract import columns, refuse
from tolerances import assert_close, assert_same_bits

from seegera_fast import SparseMatrix, backends, ops, use_backend
from seegera_fast.registry import Operator


def layer(
    name="random",
    h=5,
    d=4,
    *,
    draws=2,
    dropout=0.0,
    activation="tanh",
    bias=True,
    dense=False,
    scale=1.0,
    layout="sparse",
):
    def arguments():
        graph = cases.graph(name)
        return {
            "propagation": None if dense else graph.propagation.with_layout(layout),
            "hidden": scale * normal(graph.num_nodes, draws, h),
            "weight": normal(h, d, seed=1) / h**0.5,
            "bias": normal(d, seed=2) if bias else None,
            "dropout": dropout,
            "seed": 6,
            "activation": activation,
        }

    return arguments


CASES = {
    **{f"{name}, {act}": layer(name, activation=act) for name in cases.GRAPHS for act in ("relu", "tanh", "none")},
    **{f"h {h}": layer("path", h=h, bias=False) for h in cases.WIDTHS},
    **{f"d {d}": layer("path", d=d) for d in cases.WIDTHS},
    **{f"dense layer, {act}": layer("path", dense=True, activation=act) for act in ("relu", "tanh", "none")},
    **{f"dropout {rate}": layer("hub", dropout=rate, activation="relu") for rate in (0.3, 0.9)},
    "dense layer with dropout, without bias": layer("hub", dense=True, bias=False, dropout=0.4),
    **{f"dropout, h {h}": layer("path", h=h, dropout=0.3) for h in (64, 130, 1030)},
    "dropout, A before W": layer("hub", d=9, dropout=0.3, activation="relu"),
    "dense layout": layer("complete", layout="dense", dropout=0.2),
    "dense layout, A before W": layer("complete", d=9, layout="dense", activation="none", bias=False),
    "one draw": layer(draws=1, activation="relu", bias=False),
    "no outputs": layer(d=0),
    "large values": layer(scale=1e4, activation="none", dropout=0.3),
    "saturated": layer("no_edges", h=1, scale=1e7),
}

DIFFERENTIABLE = ("hidden", "weight", "bias")

REFUSALS = [
    *(refusal for name in DIFFERENTIABLE for refusal in contract.tensor_refusals(name)),
    *contract.DATA_SEED_REFUSALS,
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
    refuse(
        "two dimensions", ValueError, r"hidden: got shape \(12, 10\), want 3 dimensions", hidden=lambda t: t.flatten(1)
    ),
    refuse("rows of W", ValueError, r"weight: got shape \(4, 4\), want \[5, any\]", weight=lambda t: t[1:]),
    refuse("length of the bias", ValueError, r"bias: got shape \(3,\), want \[4\]", bias=lambda t: t[1:]),
    refuse("activation", ValueError, "activation: got 'gelu', want one of 'relu', 'tanh', 'none'", activation="gelu"),
    refuse(
        "two dtypes",
        TypeError,
        "weight: got torch.float32 where hidden is torch.float64, want one dtype",
        weight=lambda t: t.float(),
    ),
    refuse(
        "two dtypes of the matrix",
        TypeError,
        "propagation: got torch.float32 where hidden is torch.float64, want one dtype",
        propagation=lambda m: m.to(dtype=torch.float32),
    ),
    refuse(
        "two devices", ValueError, "bias: is on meta and hidden on cpu, want one device", bias=lambda t: t.to("meta")
    ),
]


class TestGcn(contract.MultipliedOperation, contract.SeededOperation, contract.DrawnOperation):
    operation = "gcn"
    differentiable = DIFFERENTIABLE
    cases = CASES
    smooth = ("path, tanh", "dropout 0.3", "dense layer with dropout, without bias", "one_node, none")
    typical = ("dropout 0.3", "hub, relu", "dense layer, tanh", "dropout, A before W", "dense layout")
    conditioned = typical
    # The gradient of the weight is a product over all draws: of an infinite one with 0 it is NaN.
    drawn, fills = typical, ("huge",)
    refusals = REFUSALS

    @staticmethod
    def first_draw(arguments):
        return [arguments["hidden"][:, 0]]

    @staticmethod
    def draws_of(output):
        return output.transpose(0, 1)

    @staticmethod
    def slow(propagation, hidden, weight, bias, dropout, seed, activation):
        """Propagates before it multiplies, draw by draw."""
        dropped = hidden * slow.keep(seed, tuple(hidden.shape), dropout)
        per_draw = []
        for s in range(hidden.shape[1]):
            mixed = dropped[:, s].numpy() if propagation is None else propagation.to_scipy() @ dropped[:, s].numpy()
            per_draw.append(torch.from_numpy(mixed @ weight.numpy() + (0 if bias is None else bias.numpy())))
        result = torch.stack(per_draw, dim=1)
        return {
            "relu": lambda x: x.clamp(min=0),
            "tanh": lambda x: 1 - 2 / (torch.exp(2 * x) + 1),
            "none": lambda x: x,
        }[activation](result)

    @staticmethod
    def terms(arguments):
        hidden, weight = arguments["hidden"], arguments["weight"]
        return hidden.shape[0] * (1 + hidden.shape[1]) + sum(weight.shape)

    @staticmethod
    def large():
        return {
            "propagation": cases.large_graph().propagation,
            "hidden": normal(700, 3, 60),
            "weight": normal(60, 35, seed=1) / 60**0.5,
            "bias": normal(35, seed=2),
            "dropout": 0.2,
            "seed": 6,
            "activation": "tanh",
        }


@pytest.fixture(params=columns("gcn"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def test_defaults(column):
    """No bias, no dropout, ReLU."""
    graph = cases.graph("random").to(device=column.device)
    hidden, weight = normal(17, 2, 5).to(column.device), normal(5, 4, seed=1).to(column.device)
    explicit = ops.gcn(graph.propagation, hidden, weight, bias=None, dropout=0.0, seed=0, activation="relu")
    assert_same_bits(ops.gcn(graph.propagation, hidden, weight), explicit)
    assert explicit.min() == 0


def test_the_gradient_of_relu_at_zero_is_zero(column):
    """Rows of zeros give an output of exactly zero, from which nothing flows back."""
    hidden = torch.zeros(12, 2, 5, dtype=torch.float64, device=column.device).requires_grad_()
    weight = normal(5, 4).to(column.device).requires_grad_()
    matrix = cases.graph("hub").propagation.to(device=column.device)
    output = ops.gcn(matrix, hidden, weight)
    for gradient in torch.autograd.grad(output.sum(), [hidden, weight]):
        assert (gradient == 0).all()


def test_relu_at_a_nan_lets_the_gradient_through(column):
    """As that of torch: the gradient of a bias that is not a number counts the lines."""
    given = contract.converted(layer("hub", activation="relu")(), torch.float64, column.device)
    bias = torch.full_like(given["bias"], torch.nan).requires_grad_()
    output = ops.gcn(**{**given, "bias": bias})
    (gradient,) = torch.autograd.grad(output.sum(), bias)
    assert_same_bits(gradient, torch.full_like(gradient, output.shape[0] * output.shape[1]))


def test_tanh_at_a_nan_without_an_upstream_gradient(column):
    """The gradient of a bias that is not a number is 0."""
    given = contract.converted(layer("hub", activation="tanh")(), torch.float32, column.device)
    bias = torch.full_like(given["bias"], torch.nan).requires_grad_()
    output = ops.gcn(**{**given, "bias": bias})
    (gradient,) = torch.autograd.grad(output, bias, torch.zeros_like(output))
    assert (gradient == 0).all()


def test_two_identity_layers_move_two_steps(column):
    """On a path, two propagations reach the neighbours of neighbours and no further."""
    matrix = cases.graph("path").propagation.to(device=column.device)
    start = torch.zeros(6, 1, 1, dtype=torch.float64, device=column.device)
    start[0] = 1
    one = torch.eye(1, dtype=torch.float64, device=column.device)
    after = ops.gcn(matrix, ops.gcn(matrix, start, one), one)
    assert (after.flatten() > 0).tolist() == [True, True, True, False, False, False]


def test_a_rectangular_matrix_is_refused():
    matrix = SparseMatrix.from_any(torch.ones(3, 4), dtype=torch.float64)
    with pytest.raises(ValueError, match=r"propagation: got shape \(3, 4\), want \(3, 3\)"):
        ops.gcn(matrix, normal(3, 1, 2), normal(2, 2))


@pytest.mark.skipif(
    not (backends.interpreted() and backends.info()["cpu"]["available"]),
    reason="needs Triton's interpreter and the CPU library",
)
def test_the_cuda_library_propagates_where_it_is_chosen(monkeypatch):
    """On a CPU the operator of the compiled columns stands in for the CUDA library's."""
    matrix = cases.graph("random").propagation
    hidden, weight = normal(17, 2, 5).requires_grad_(), normal(5, 4, seed=1)
    ran, call = [], Operator.__call__

    def run(operator, backend, **arguments):
        ran.append((operator.name, backend.name))
        return call(operator, backend, **arguments)

    monkeypatch.setattr(Operator, "__call__", run)
    with use_backend("triton"):
        want = ops.gcn(matrix, hidden, weight)
        assert ran == [("gcn", "triton")]
        monkeypatch.setattr(backends.TRITON, "steps", backends.CUDA)
        got = ops.gcn(matrix, hidden, weight)
        torch.autograd.grad(got.sum(), hidden)
    assert ran.count(("sparse_matmul", "cuda")) == 2
    assert_close(got.detach(), want.detach(), terms=17)
