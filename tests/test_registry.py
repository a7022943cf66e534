"""Definitions of operators: names that are wrong or missing fail where the operator is defined, at import."""

import importlib
import inspect

import pytest
import torch
from matrices import BETA
from tolerances import assert_same_bits

from seegera_fast import SparseMatrix, backends, ops
from seegera_fast.registry import OPERATORS, Operator
from seegera_fast.schema import Argument, Parts, Rows, Transposed

pytestmark = BETA


def fake(values):
    return values.new_empty(values.shape)


def define(definition="rows_sum(Tensor values, Constant seed, int count) -> Tensor total", **options):
    return Operator(definition, columns=(), **{"fake": fake, **options})


@pytest.fixture(autouse=True)
def no_trace(monkeypatch):
    """What a test defines is forgotten."""
    monkeypatch.setattr("seegera_fast.registry.OPERATORS", {})


def test_a_sound_definition():
    define(backward={"values": lambda gradient, count: gradient * count})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fake": lambda value: value}, "rows_sum: fake names value, want some of count, seed, values"),
        (
            {"backward": {"value": lambda gradient: gradient}},
            "rows_sum: got gradients of value, want those of values; a tensor without one is a Constant",
        ),
        (
            {"backward": {"values": lambda gradient: gradient, "seed": lambda gradient: gradient}},
            "rows_sum: got gradients of seed, values, want those of values;.*",
        ),
        ({"backward": {}}, "rows_sum: got gradients of , want those of values;.*"),
        (
            {"backward": {"values": lambda upstream: upstream}},
            r"rows_sum: backward\['values'\] names upstream, want some of call, count, gradient, seed, total, values",
        ),
        (
            {
                "backward": {"values": lambda gradient, length: gradient},
                "saved": {"length": lambda vals: vals.shape[0]},
            },
            r"rows_sum: saved\['length'\] names vals, want some of .*",
        ),
        (
            {"backward": {"values": lambda gradient: gradient}, "saved": {"length": lambda values: 1}},
            "rows_sum: saved has length, which backward does not name",
        ),
    ],
)
def test_a_wrong_or_missing_name_fails_at_the_definition(options, message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        define(**options)


def test_a_gradient_operator_is_held_against_its_operation():
    gradient = define(
        "rows_sum_backward(Tensor gradient, int count, bool values_wanted) -> Tensor values",
        fake=lambda gradient: gradient,
    )
    define(backward=gradient)
    other = define("rows_sum_backward(Tensor gradient, int number) -> Tensor values", fake=lambda gradient: gradient)
    with pytest.raises(TypeError, match=r"rows_sum: rows_sum_backward names number, want some of count, gradient, .*"):
        define(backward=other)
    more = define(
        "rows_sum_backward(Tensor gradient) -> (Tensor values, Tensor seed)", fake=lambda gradient: (gradient, gradient)
    )
    with pytest.raises(TypeError, match="rows_sum: got gradients of seed, values, want those of values"):
        define(backward=more)


def test_a_definition_that_is_none():
    with pytest.raises(TypeError, match=r"definition: got 'rows_sum', want 'name\(Type argument, .*"):
        define("rows_sum")


@pytest.mark.parametrize("given", [{"dense": 1}, {"matrix": 1, "dens": 2}, {"matrix": 1, "dense": 2, "more": 3}])
def test_a_call_with_other_names(given):
    operator = inspect.unwrap(ops.sparse_matmul).__globals__["OPERATOR"]
    with pytest.raises(TypeError, match=r"sparse_matmul: got arguments .*, want dense, matrix"):
        operator(backends.CPU, **given)


def test_a_matrix_is_one_entry_of_a_definition():
    argument = Argument("features", "Matrix", optional=True)
    assert argument.schema == (
        "Tensor? features_rowptr, Tensor? features_col, Tensor? features_values, "
        "Tensor? features_rowptr_t, Tensor? features_col_t, Tensor? features_values_t"
    )
    assert Argument("x", "Rows", optional=False).flat == ("x_rowptr", "x_col", "x_values")
    assert Argument("x", "Transposed", optional=False).flat == ("x_rowptr_t", "x_col_t", "x_values_t")
    assert Argument("seed", "Constant", optional=False).schema == "Tensor seed"


def test_what_an_implementation_gets_by_name():
    operator = inspect.unwrap(ops.gcn).__globals__["OPERATOR"]
    tensors = [torch.tensor(float(k)) for k in range(8)]
    named = operator.named((*tensors, None, 0, 1.0, tensors[0], 2, 0), {})
    assert list(named) == [argument.name for argument in operator.arguments]
    assert isinstance(named["propagation"], Parts)
    assert named["propagation"].flipped == Parts(*tensors[3:6], *tensors[:3])
    assert named["weight"] is tensors[7]
    assert operator.named((*[None] * 6, *tensors[:2], None, 0, 1.0, tensors[0], 2, 0), {})["propagation"] is None
    half = (
        inspect.unwrap(ops.gcn)
        .__globals__["_BACKWARD"]
        .named(
            (tensors[0], None, *tensors[:3]),
            {
                "scale": 1.0,
                **dict.fromkeys(
                    (
                        "hidden",
                        "weight",
                        "threshold",
                        "seed",
                        "activation",
                        "precision",
                        "hidden_wanted",
                        "weight_wanted",
                        "bias_wanted",
                    )
                ),
            },
        )
    )
    assert half["propagation"] == Transposed(*tensors[:3])
    assert Rows(*half["propagation"]).rowptr is tensors[0]


LAUNCHED = [
    name
    for name, operator in vars(importlib.import_module("seegera_fast.registry"))["OPERATORS"].items()
    if "triton" in operator.columns
]


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_launcher_has_the_names_of_its_definition(name):
    pytest.importorskip("triton")
    module = importlib.import_module(f"seegera_fast.kernels.triton.{name.removesuffix('_backward')}")
    launcher = inspect.signature(getattr(module, name))
    assert list(launcher.parameters) == [argument.name for argument in OPERATORS[name].arguments]


@pytest.mark.parametrize("enabled", [True, False])
def test_calls_without_gradients_leave_those_of_others(enabled):
    """A mode or a tensor of the user's may compute more, and want gradients of it."""
    matrix = SparseMatrix.from_any(torch.eye(3))
    factor = torch.ones(3, requires_grad=True)

    class Scaled(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            return found * factor if isinstance(function, torch._ops.OpOverload) else found

    with torch.set_grad_enabled(enabled):
        plain = ops.sparse_matmul(matrix, torch.eye(3))
        with Scaled():
            scaled = ops.sparse_matmul(matrix, torch.eye(3))
    assert not plain.requires_grad
    assert plain.grad_fn is None
    assert not plain.is_inference()
    assert scaled.requires_grad == enabled
    # A result that needed no gradient may still be part of what does.
    (plain * factor).sum().backward()
    assert_same_bits(factor.grad, torch.ones(3))
