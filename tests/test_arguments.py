"""Arguments of wrong kinds: every public function takes them or names them in a TypeError or ValueError."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pathlib
import re
import types

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_objects import SMALL, graph
from torch._subclasses import FakeTensorMode
from valid_calls import calls
from wrong_kinds import candidates, check, nested, state

import seegera_fast as sf
from seegera_fast import ops

# --- what is public --------------------------------------------------------------------------------------------------

ROOT = pathlib.Path(__file__).resolve().parents[1]


def parameters(function):
    """The names of the parameters, without that of the object."""
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def is_record(value):
    """Whether a class only holds what a function returns."""
    checked = "__post_init__" in vars(value)
    return issubclass(value, Exception) or (dataclasses.is_dataclass(value) and not checked)


def members(name, value):
    """The public functions of a module or class, and the value itself if it can be called, by name."""
    if isinstance(value, types.ModuleType):
        # Of a module without a list, the pages of the API name what is public.
        for member in getattr(value, "__all__", ()):
            yield from members(f"{name}.{member}" if name else member, getattr(value, member))
    elif inspect.isclass(value):
        if not is_record(value):
            yield name, value
        for member, content in vars(value).items():
            if not member.startswith("_") and isinstance(content, (types.FunctionType, classmethod, staticmethod)):
                yield f"{name}.{member}", getattr(value, member)
        if "__call__" in vars(value):
            yield f"{name}.__call__", value.__call__
    else:
        yield name, value


def documented():
    """The names on the pages of the API."""
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md"))
    return re.findall(r"^::: seegera_fast\.(\S+)", pages, flags=re.MULTILINE)


def public():
    """Every public function, class and method with parameters, by name."""
    found = dict(members("", sf))
    for name in documented():
        value = functools.reduce(getattr, name.split("."), sf)
        found.update(members(name, value))
    return {name: value for name, value in found.items() if parameters(value)}


# --- properties ------------------------------------------------------------------------------------------------------

NAMES = sorted(public())


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """Strings and numbers that are taken for a path make their files here."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("arguments")


def test_every_public_function_is_called_with_every_argument(folder):
    assert sorted(calls(folder)) == NAMES
    for name, value in public().items():
        variadic = [
            entry.name for entry in inspect.signature(value).parameters.values() if entry.kind == entry.VAR_KEYWORD
        ]
        missing = {*parameters(value)} - {*calls(folder)[name][1]} - {*variadic}
        assert not missing, f"{name}: {missing}"


@pytest.mark.parametrize("name", NAMES)
def test_a_valid_call(name, folder):
    function, arguments = calls(folder)[name]
    function(**arguments)


@pytest.mark.parametrize("name", NAMES)
def test_one_argument_of_any_kind(name, folder):
    faults = []
    for argument, valid in calls(folder)[name][1].items():
        for kind in candidates(valid):
            try:
                check(name, {argument: kind}, folder)
            except AssertionError as error:
                faults.append(str(error))
    assert not faults, "\n".join([f"{len(faults)} faults", *faults])


# Fewer examples than of other properties: there are as many of these tests as public functions.
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=max(10, settings.default.max_examples // 8))
@given(data=st.data())
def test_several_arguments_of_any_kinds(name, data, folder):
    arguments = calls(folder)[name][1]
    chosen = data.draw(st.sets(st.sampled_from(sorted(arguments)), min_size=1, max_size=3))
    check(name, {key: data.draw(st.sampled_from(sorted(candidates(arguments[key])))) for key in sorted(chosen)}, folder)


# --- what was once another error, and what NumPy's numbers are -------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "arguments", "error", "message"),
    [
        ("Graph.with_edges", {"edges": None}, TypeError, "edges: got NoneType"),
        ("SeeGera.load", {"graph": 3}, TypeError, "graph: got int, want a seegera_fast.Graph"),
        ("Graph", {"masks": "all"}, TypeError, "masks: got 'all', want a mapping of names to boolean vectors"),
        ("Graph", {"weighted": torch.ones(2)}, TypeError, "weighted: got Tensor, want True or False"),
        ("SeeGera", {"config": torch.ones(2)}, TypeError, "config: got Tensor, want a seegera_fast.SeeGeraConfig"),
        (
            "ops.link_likelihood",
            {"self_loops": scipy.sparse.eye(6)},
            TypeError,
            "self_loops: got dia_matrix, want True",
        ),
        ("ops.noisy_gcn", {"num_draws": 2**64}, ValueError, "num_draws: got 18446744073709551616, want 1 to 16777216"),
        ("ops.draw_noise", {"num_draws": 2**64}, ValueError, "num_draws: got 18446744073709551616"),
        (
            "ops.dropout",
            {"values": torch.ones(0, 2**24 + 1, 1)},
            ValueError,
            "values: got shape .* at most 16777216 dr",
        ),
        ("ops.gcn", {"hidden": torch.ones(0, 2**24 + 1, 1)}, ValueError, "hidden: got shape .* at most 16777216 draws"),
        (
            "ops.reparameterize",
            {"mean": torch.ones(0, 2**24 + 1, 1)},
            ValueError,
            "mean: got shape .* at most 16777216",
        ),
        ("SeeGera.encode", {"num_draws": 2**64}, ValueError, "num_draws: got 18446744073709551616"),
        ("SeeGeraConfig", {"num_mixture_samples": 2**24}, ValueError, "num_mixture_samples: got 16777216, want 0"),
        ("SeeGera.forward", {"warmup": 2**64}, ValueError, r"warmup: got 18446744073709551616, want .* \[0, 1\]"),
        ("SeeGera.forward", {"warmup": -0.5}, ValueError, r"warmup: got -0\.5, want a number in \[0, 1\]"),
        ("SeeGera.forward", {"warmup": True}, TypeError, "warmup: got True, want a number"),
        ("SeeGera.forward", {"warmup": float("nan")}, ValueError, "warmup: got nan, want a number"),
        ("capture.CapturedStep.__call__", {"warmup": 2**64}, ValueError, "warmup: got 18446744073709551616"),
        ("capture.CapturedStep.__call__", {"seed": torch.tensor(3)}, TypeError, "seed: got Tensor, want an int"),
        ("ops.importance_bound", {"warmup": 10**400}, ValueError, "warmup: got an int of 1329 bits, want a finite"),
        ("ops.dropout", {"values": torch.ones(6, 2, 3, device="meta")}, ValueError, "values: is on meta"),
        ("ops.standard_normal_density", {"z": torch.ones(6, 2, 3, device="meta")}, ValueError, "z: is on meta"),
        ("ops.dropout", {"values": nested(torch.ones(2, 3))}, TypeError, "values: got a nested tensor, want a dense"),
        ("ops.dropout", {"seed": nested([1])}, TypeError, "seed: got torch.float32|seed: got a nested tensor"),
        (
            "ops.link_likelihood",
            {"pos_weight": torch.ones(1).to_mkldnn()},
            TypeError,
            "pos_weight: got a tensor of layo",
        ),
        ("ops.mask_edges", {"edge": nested([1, 2])}, TypeError, "edge: got a nested tensor"),
        ("Graph", {"adjacency": torch.ones(6, 6, device="meta")}, ValueError, "adjacency: is on meta"),
        (
            "Graph",
            {"features": torch.ones(6, 6).to_mkldnn()},
            TypeError,
            "features: got a tensor of layout torch._mkldnn",
        ),
        ("Graph", {"labels": nested([1], [2])}, TypeError, "labels: got a nested tensor"),
        ("Graph.to", {"device": "meta"}, ValueError, "device: got 'meta', want a device of this machine"),
        ("Graph.to", {"device": "gpu"}, ValueError, "device: got 'gpu', want a device of this machine"),
        ("SeeGera.save", {"path": "a\0b"}, ValueError, r"path: got 'a\\x00b', want a path without NUL"),
        ("use_backend", {"backend": ["cpu"]}, TypeError, "backend: got list, want one of 'cpu'"),
        ("TrainingConfig", {"epochs": 10**5000}, ValueError, "epochs: got an int of 16610 bits"),
        ("tasks.node_classification", {"public": torch.ones(2)}, TypeError, "public: got Tensor, want True or False"),
        ("tasks.link_prediction", {"progress": "no"}, TypeError, "progress: got 'no', want True or False"),
        ("reference.gcn", {"activation": "gelu"}, ValueError, "activation: got 'gelu', want one of"),
        ("reference.dropout", {"rate": "0.5"}, TypeError, "rate: got '0.5', want a number"),
    ],
)
def test_a_wrong_kind_is_named(function, arguments, error, message, folder):
    called, valid = calls(folder)[function]
    before = state({**valid, **arguments})
    with pytest.raises(error, match=f"^{message}"):
        called(**{**valid, **arguments})
    assert state({**valid, **arguments}) == before


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_numpy_are_numbers(name, folder):
    """Scalars and arrays without dimensions stand for the plain values that they hold, in every argument."""
    function, arguments = calls(folder)[name]
    kinds = {bool: np.bool_, int: np.int64, float: np.float64}
    for wrap in (lambda value: value, np.asarray):
        given = {
            key: wrap(kinds[type(value)](value)) if type(value) in kinds else value for key, value in arguments.items()
        }
        function(**given)


def test_a_configuration_keeps_plain_numbers():
    """What is written to a file as JSON, and what names a run, has no numbers of NumPy."""
    config = sf.SeeGeraConfig(embedding_dim=np.int64(8), dropout=np.float32(0.5), noisy_variance=np.bool_(True))
    assert [type(value) for value in (config.embedding_dim, config.dropout, config.noisy_variance)] == [
        int,
        float,
        bool,
    ]
    assert config == sf.SeeGeraConfig(embedding_dim=8, dropout=0.5, noisy_variance=True)
    training = sf.TrainingConfig(epochs=np.int32(3), learning_rate=np.float64(0.5))
    assert type(training.epochs) is int
    assert type(training.learning_rate) is float


def test_a_seed_of_numpy_gives_the_draws_of_the_same_int():
    first, second = (sf.SeeGera(graph(), seed=seed, **SMALL) for seed in (3, np.int64(3)))
    assert torch.equal(first(seed=-5).loss, second(seed=np.int64(-5)).loss)
    assert torch.equal(ops.draw_subset(np.uint8(7), 20, 5), ops.draw_subset(7, 20, 5))


def test_a_refused_step_is_not_counted():
    model = sf.SeeGera(graph(), **SMALL)
    with pytest.raises(TypeError, match="warmup: got 'x', want a number"):
        model(warmup="x")
    assert model.next_seed() == sf.SeeGera(graph(), **SMALL).next_seed()


def test_fake_tensors_are_tensors():
    with FakeTensorMode():
        assert ops.dropout(torch.ones(6, 2, 3), 0.5, 3).shape == (6, 2, 3)
