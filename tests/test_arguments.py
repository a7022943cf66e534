"""Arguments of wrong kinds: every public function takes them or names them in a TypeError or ValueError."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import fractions
import functools
import inspect
import pathlib
import re
import types
import warnings
from unittest import mock

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from cases import normal
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

import seegera_fast as sf
from seegera_fast import backends, ops, tasks
from seegera_fast.capture import CapturedStep
from seegera_fast.checkpoint_file import Course, State
from seegera_fast.datasets.arrays import RawGraph
from seegera_fast.datasets.registry import DATA_SETS, DataSet
from seegera_fast.seeds import SeedSlots

ROOT = pathlib.Path(__file__).resolve().parents[1]

# --- what is public --------------------------------------------------------------------------------------------------


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


# --- valid calls -----------------------------------------------------------------------------------------------------

EDGES = np.array([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])
SMALL = {"embedding_dim": 2, "hidden_dim": 3}
QUICK = {**SMALL, "epochs": 1, "progress": False}


@functools.cache
def graph():
    """A ring of five nodes and one node without edges."""
    masks = {name: torch.arange(6) % 3 == number for number, name in enumerate(("train", "valid", "test"))}
    return sf.Graph.from_edge_index(
        np.concatenate([EDGES, EDGES[::-1]], axis=1),
        np.eye(6, 4) + 0.5 * np.eye(6, 4, -2),
        6,
        [0, 1, 0, 1, 0, 1],
        masks=masks,
        dtype=torch.float64,
    )


@functools.cache
def model():
    return sf.SeeGera(graph(), dropout=0.2, structure_masking_rate=0.3, **SMALL)


def estimator():
    return sf.SeeGeraEstimator(**SMALL, valid=0.2, epochs=1, fields={"likelihood": "mse"}, random_state=0)


@functools.cache
def fitted():
    return estimator().fit(graph())


@functools.cache
def networks():
    return networkx.path_graph(4)


@functools.cache
def data():
    return types.SimpleNamespace(edge_index=torch.from_numpy(EDGES), num_nodes=6)


def part(*pairs):
    """A part of a link split of PyTorch Geometric: a pair with a link, and one without."""
    return types.SimpleNamespace(
        **vars(data()), edge_label_index=torch.tensor(pairs).T, edge_label=1 - torch.arange(len(pairs))
    )


def saved(folder):
    path = folder / "saved.safetensors"
    if not path.exists():
        model().save(path)
    return path


def saved_graph(folder):
    path = folder / "saved_graph"
    if not path.exists():
        graph().save(path)
    return path


def replay(method="__call__", **arguments):
    """A call of a recorded step. Only a GPU records one, so the replay is left out."""
    step = CapturedStep.__new__(CapturedStep)
    step.model, step._modules, step._kept = model(), [], (torch.optim.SGD(model().parameters()), graph())
    step._children, step._recorded = [], []
    step._slots, step._warmup = SeedSlots(torch.device("cpu")), torch.ones((), dtype=torch.float64)
    step._addresses, step._output = list, None
    step._gradients = step._update = types.SimpleNamespace(replay=lambda: None)
    before = model()._steps
    getattr(step, method)(**arguments)
    model()._steps = before


def record(function, **arguments):
    """A recording, which is refused on a CPU after the arguments were checked."""
    try:
        function(**arguments)
    except ValueError as error:
        if not str(error).startswith("model: is on cpu"):
            raise


def load(**arguments):
    """``datasets.load``, where digits are a small graph."""
    raw = RawGraph(networkx.to_scipy_sparse_array(networks()), scipy.sparse.identity(4), None, None)
    with mock.patch.dict(DATA_SETS, digits=DataSet("", lambda path: raw)):
        sf.datasets.load(**arguments)


def course():
    config = sf.training.TrainingConfig()
    return Course({"seed": 3}, {}, ("loss",), (), config.evaluates, lambda scores, best: False, config.ended)


def enter(**arguments):
    with sf.use_backend(**arguments):
        pass


def plain_calls(folder):
    g, x = graph(), graph().features
    z, parts = normal(6, 2, 3), {"z": normal(6, 2, 3), "means": normal(6, 5, 3), "log_var": normal(6, 1, 3)}
    vectors = {"log_likelihood": normal(2), "log_prior": normal(2), "log_mixture": normal(2)}
    looped, edge = g.with_self_loops()
    return {
        "sparse_matmul": {"matrix": x, "dense": normal(4, 2)},
        "feature_average": {"features": x, "values": normal(6, 2, 3), "to": "features"},
        "noisy_gcn": {
            "propagation": g.propagation,
            "features": x,
            "weight": normal(4, 3),
            "noise_weight": normal(2, 3),
            "num_draws": 2,
            "seed": 3,
            "bias": normal(3),
            "noise_prob": 0.5,
            "dropout": 0.1,
            "activation": "relu",
        },
        "gcn": {
            "propagation": g.propagation,
            "hidden": normal(6, 2, 4),
            "weight": normal(4, 3),
            "bias": normal(3),
            "dropout": 0.1,
            "seed": 3,
            "activation": "tanh",
        },
        "decoder_input": {
            "features": x,
            "z_nodes": normal(6, 2, 3),
            "z_features": normal(4, 2, 3),
            "weight": normal(6, 3),
            "dropout": 0.1,
            "seed": 3,
        },
        "reparameterize": {"mean": normal(6, 2, 3), "log_var": normal(6, 1, 3), "seed": 3},
        "link_likelihood": {
            "z": z,
            "adjacency": g.adjacency,
            "pos_weight": 2.0,
            "self_loops": True,
            "negatives": 3,
            "seed": 3,
            "reduction": "sum",
        },
        "top_links": {
            "z": normal(6, 3),
            "adjacency": g.adjacency,
            "k": 2,
            "per_node": True,
            "nodes": torch.tensor([4, 1]),
            "sides": torch.tensor([0, 1, 0, 1, 0, 1]),
        },
        "feature_likelihood": {
            "hidden": normal(6, 2, 3),
            "weight": normal(3, 4),
            "features": x,
            "likelihood": "gaussian",
            "pos_weight": 2.0,
            "log_var_weight": normal(3, 4),
            "reduction": "mean",
        },
        "standard_normal_density": {"z": z},
        "mixture_density": parts,
        "component_log_density": parts,
        "importance_bound": {**vectors, "warmup": 0.5},
        "draw_noise": {
            "seed": 3,
            "num_rows": 6,
            "num_draws": 2,
            "noise_dim": 3,
            "prob": 0.5,
            "dtype": torch.float32,
            "device": "cpu",
        },
        "induced_subgraph": {"adjacency": g.adjacency, "nodes": torch.tensor([4, 1, 0]), "weighted": True},
        "select_rows": {"matrix": x, "rows": torch.tensor([4, 1, 4])},
        "add_self_loops": {"adjacency": g.adjacency},
        "draw_subset": {"seed": 3, "count": 9, "chosen": 4, "stream": "edges", "device": "cpu"},
        "dropout": {"values": z, "rate": 0.5, "seed": 3},
        "mask_edges": {"looped": looped, "edge": edge, "num_removed": 2, "seed": 3},
        "mask_entries": {"matrix": x, "num_removed": 2, "seed": 3},
    }


@functools.cache
def calls(folder):
    """A valid call of every public function: what is called, and its arguments."""
    g, x = graph(), graph().features
    a = g.adjacency.to_scipy()
    options = {"name": "ring", "weighted": True, "masks": {"train": torch.ones(6, dtype=torch.bool)}}
    ratios = {"valid": 0.2, "test": 0.2, "seed": 3}
    task = {"preset": "default", "variant": "v3", "seed": 3, "checkpoint": None, "normalize_features": False}
    task["batches"] = sf.Batches(2, method="streaming")
    halves = [0, 0, 0, 1, 1, 1]
    optimizer = torch.optim.Adam(model().parameters())
    matrix = x.to_scipy()
    dense = {"adjacency": g.adjacency.to_dense(), "features": matrix, "labels": [0, 1, 0, 1, 0, 1]}
    found = {f"ops.{name}": (getattr(ops, name), arguments) for name, arguments in plain_calls(folder).items()}
    found |= {
        f"reference.{name}": (getattr(sf.reference, name), arguments) for name, arguments in plain_calls(folder).items()
    }
    return found | {
        "use_backend": (enter, {"backend": "reference"}),
        "Batches": (sf.Batches, {"parts": 2, "per_batch": 2, "per_step": 1, "method": "streaming"}),
        "Batches.part_of": (sf.Batches(halves).part_of, {"graph": g}),
        "Checkpoint": (sf.Checkpoint, {"path": folder / "run.safetensors", "every": 3, "resume": True}),
        "Checkpoint.save": (
            sf.Checkpoint(folder / "saved.checkpoint").save,
            {"state": State(1, [], None, {}, {}, 0.5, None), "course": course(), "lock": None},
        ),
        "Checkpoint.begin": (sf.Checkpoint(folder / "none.safetensors").begin, {"course": course()}),
        "Graph": (
            sf.Graph,
            {**dense, **options, "nodes": list("abcdef"), "feature_names": list("wxyz"), "dtype": torch.float64},
        ),
        "Graph.from_edge_index": (
            sf.Graph.from_edge_index,
            {
                "edge_index": EDGES,
                "features": matrix,
                "num_nodes": 6,
                "labels": [0, 1, 0, 1, 0, 1],
                "edge_weight": [1.0, 2.0, 1.0, 1.0, 1.0],
                **options,
            },
        ),
        "Graph.from_table": (
            sf.Graph.from_table,
            {
                "edges": {"from": list("abb"), "to": list("bca"), "w": [1.0, 2.0, 1.0], "t": [3, 2, 1]},
                "features": {"name": list("abc"), "size": [1.0, 2.0, 3.0], "kind": list("xyx")},
                "labels": {"name": list("abc"), "class": list("xyx"), "other": [1, 2, 3]},
                "source": "from",
                "target": 1,
                "weight": "w",
                "time": "t",
                "node": 0,
                "label": "class",
                "categories": ["kind"],
                "names": True,
                "header": True,
                "separator": ",",
                "encoding": "utf-8",
                "comments": "#",
                "weighted": True,
                "name": "graph",
                "dtype": torch.float64,
            },
        ),
        "Graph.from_pyg": (
            sf.Graph.from_pyg,
            {"data": data(), "features": "x", "labels": "y", "split": None, **options},
        ),
        "Graph.from_networkx": (
            sf.Graph.from_networkx,
            {"g": networks(), "features": np.eye(4), "labels": [0, 1, 0, 1], "weight": None, "name": "path"},
        ),
        "Graph.subgraph": (g.subgraph, {"nodes": [4, 1, 0]}),
        "Graph.save": (g.save, {"folder": folder / "graph"}),
        "Graph.open": (sf.Graph.open, {"folder": saved_graph(folder), "verify": True}),
        "Graph.with_edges": (g.with_edges, {"edges": g.edges()[:3]}),
        "Graph.with_parts": (g.with_parts, {"parts": halves, "method": "streaming"}),
        "Graph.with_features": (g.with_features, {"features": matrix, "feature_names": list("wxyz")}),
        "Graph.to": (g.to, {"device": "cpu", "dtype": torch.float32}),
        "SparseMatrix.with_layout": (x.with_layout, {"layout": "dense"}),
        "SparseMatrix.with_values": (x.with_values, {"values": x.values * 2}),
        "SparseMatrix.with_all_values": (
            x.with_all_values,
            {"values": (x.values,) * 2, "by_row": (x.values,) * 2, "by_column": (x.values,) * 2},
        ),
        "SparseMatrix.to": (x.to, {"device": "cpu", "dtype": torch.float32}),
        "SparseMatrix.from_any": (
            sf.SparseMatrix.from_any,
            {"matrix": matrix, "name": "matrix", "dtype": torch.float64},
        ),
        "SparseMatrix.from_edge_index": (
            sf.SparseMatrix.from_edge_index,
            {"edge_index": EDGES, "num_nodes": 6, "dtype": torch.float64},
        ),
        "SparseMatrix": (
            sf.SparseMatrix,
            {
                "rowptr": x.rowptr,
                "col": x.col,
                "values": x.values,
                "shape": x.shape,
                "symmetric": False,
                "hollow": False,
            },
        ),
        "SeeGera": (
            sf.SeeGera,
            {
                "graph": g,
                "config": sf.SeeGeraConfig(),
                "seed": 3,
                "prepare": True,
                "dropout": 0.1,
                "negatives": 3,
                "noise_dim": 2,
                "noisy_variance": True,
                "likelihood": "mse",
                **SMALL,
            },
        ),
        "SeeGeraEstimator": (
            sf.SeeGeraEstimator,
            {
                "variant": "v3",
                "preset": "default",
                "embedding_dim": 2,
                "hidden_dim": 3,
                "epochs": 1,
                "learning_rate": 0.1,
                "dropout": 0.1,
                "fields": {"likelihood": "mse"},
                "valid": 0.0,
                "normalize_features": False,
                "weighted": False,
                "device": "cpu",
                "random_state": 0,
                "verbose": 0,
            },
        ),
        "SeeGeraEstimator.fit": (estimator().fit, {"X": a, "y": None, "features": matrix}),
        "SeeGeraEstimator.fit_transform": (estimator().fit_transform, {"X": a, "y": None, "features": matrix}),
        "SeeGeraEstimator.transform": (fitted().transform, {"X": a, "features": matrix}),
        "SeeGeraEstimator.predict_links": (fitted().predict_links, {"pairs": [[0, 1]]}),
        "SeeGeraEstimator.score": (fitted().score, {"X": a, "y": None, "features": matrix}),
        "calibration.Calibration": (sf.calibration.Calibration, {"slope": 1.5, "intercept": -1.0, "scale": 2.0}),
        "calibration.Calibration.__call__": (sf.calibration.Calibration(1.5, -1.0, 2.0), {"products": torch.rand(3)}),
        "SeeGera.forward": (model().forward, {"graph": g, "seed": 3, "warmup": 0.5, "whole": g}),
        "SeeGera.capture": (functools.partial(record, model().capture), {"optimizer": optimizer, "graph": g}),
        "SeeGera.encode": (
            model().encode,
            {"propagation": g.propagation, "features": x, "num_draws": 2, "seed": 3},
        ),
        "prediction.Prediction.embed": (
            model().embed,
            {"graph": g, "seed": 3, "out": folder / "e.npy", "rows_at_once": 4, "progress": False, "shared": False},
        ),
        "prediction.Prediction.link_scores": (
            model().link_scores,
            {"pairs": [[0, 1], [1, 2]], "graph": g, "seed": 3, "draws": 2, "calibrated": False},
        ),
        "prediction.Prediction.top_links": (
            model().top_links,
            {
                "k": 2,
                "nodes": [0, 3],
                "graph": g,
                "seed": 3,
                "per_node": True,
                "known": g,
                "sides": None,
                "calibrated": False,
            },
        ),
        "prediction.Prediction.top_attributes": (
            model().top_attributes,
            {"k": 2, "nodes": [0, 3], "graph": g, "seed": 3},
        ),
        "prediction.Prediction.reconstruct_features": (
            model().reconstruct_features,
            {"rows": [0, 1], "cols": [1, 2], "graph": g, "seed": 3},
        ),
        "SeeGera.save": (model().save, {"path": folder / "model.safetensors"}),
        "SeeGera.load": (sf.SeeGera.load, {"path": saved(folder), "graph": g, "device": "cpu"}),
        "SeeGeraConfig": (sf.SeeGeraConfig, dataclasses.asdict(sf.SeeGeraConfig())),
        "training.TrainingConfig": (
            sf.training.TrainingConfig,
            dataclasses.asdict(sf.training.TrainingConfig(epochs=3)),
        ),
        "training.TrainingConfig.warmup": (sf.training.TrainingConfig().warmup, {"epoch": 3}),
        "training.TrainingConfig.ended": (sf.training.TrainingConfig().ended, {"epoch": 3, "best_epoch": 2}),
        "training.TrainingConfig.evaluates": (sf.training.TrainingConfig().evaluates, {"epoch": 3}),
        "training.TrainingConfig.scheduled": (sf.training.TrainingConfig().scheduled, {"epoch": 3}),
        "capture.CapturedStep": (
            functools.partial(record, CapturedStep),
            {"model": model(), "optimizer": optimizer, "graph": g},
        ),
        "capture.CapturedStep.__call__": (replay, {"seed": 3, "warmup": 0.5}),
        "capture.CapturedStep.gradients": (
            functools.partial(replay, method="gradients"),
            {"seed": 3, "warmup": 0.5},
        ),
        "datasets.load": (
            load,
            {
                "name": "digits",
                "root": folder,
                "normalize_features": False,
                "download": False,
                "dtype": torch.float32,
                "progress": False,
            },
        ),
        "tasks.link_prediction": (
            tasks.link_prediction,
            {"graph": g, **ratios, "sides": None, "split": tasks.split_links(g), **task, **QUICK},
        ),
        "tasks.attribute_inference": (
            tasks.attribute_inference,
            {"graph": g, **ratios, "split": None, **task, **QUICK, "likelihood": "mse"},
        ),
        "tasks.node_classification": (
            tasks.node_classification,
            {
                "graph": g,
                "train": 0.5,
                "valid": 0.2,
                "public": False,
                "split": None,
                "classifier_epochs": 1,
                "classifier_dropout": 0.1,
                **task,
                **QUICK,
                "likelihood": "mse",
            },
        ),
        "tasks.embed": (tasks.embed, {"graph": g, **task, **QUICK}),
        "tasks.split_links": (tasks.split_links, {"graph": g, **ratios, "sides": None}),
        "tasks.FeatureSplit": (
            tasks.FeatureSplit,
            {
                "train": g,
                "valid_pos": [[0, 2]],
                "valid_values": [1.5],
                "valid_neg": [[1, 3]],
                "test_pos": np.array([[3, 0]]),
                "test_values": torch.tensor([2.0]),
                "test_neg": torch.tensor([[2, 1]]),
            },
        ),
        "tasks.NodeSplit": (tasks.NodeSplit, {"train": [0, 2], "valid": np.array([3]), "test": torch.tensor([1])}),
        "tasks.LinkSplit": (
            tasks.LinkSplit,
            {
                "train": g,
                "valid_pos": [[0, 2]],
                "valid_neg": [[1, 3]],
                "test_pos": np.array([[3, 0]]),
                "test_neg": torch.tensor([[2, 4]]),
                "more_neg": [[1, 5]],
            },
        ),
        "tasks.LinkSplit.from_pyg": (
            tasks.LinkSplit.from_pyg,
            {"train": part([0, 1]), "valid": part([0, 2], [1, 3]), "test": part([3, 0], [2, 4]), "name": "ring"},
        ),
        "tasks.split_features": (tasks.split_features, {"graph": g, **ratios}),
        "tasks.split_nodes": (tasks.split_nodes, {"graph": g, "train": 0.5, "valid": 0.2, "seed": 3}),
        "tasks.public_split": (tasks.public_split, {"graph": g}),
        "tasks.presets.names": (tasks.presets.names, {"task": "link_prediction"}),
        "tasks.presets.load": (
            tasks.presets.load,
            {"task": "link_prediction", "name": "cora", "variant": "v3"},
        ),
    }


# --- wrong kinds -----------------------------------------------------------------------------------------------------


class Strange:
    """An object that nothing knows."""

    def __repr__(self):
        return "Strange()"


def nested(*rows, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.as_tensor(row) for row in rows], **options)


@functools.cache
def pool():
    """Values of many kinds, by name. None, small numbers and short strings are right for some arguments."""
    values = {
        "None": None,
        "True": True,
        "an empty string": "",
        "a word": "abc",
        "all": "all",
        "a long string": "x" * 10**5,
        "NUL in a string": "a\0b",
        "a digit": "3",
        "bytes": b"abc",
        "-1": -1,
        "2^63": 2**63,
        "2^64": 2**64,
        "-2^64": -(2**64),
        "10^400": 10**400,
        "10^5000": 10**5000,
        "3.0": 3.0,
        "-0.5": -0.5,
        "1e308": 1e308,
        "NaN": float("nan"),
        "infinity": float("inf"),
        "complex": 1 + 2j,
        "Decimal": decimal.Decimal("0.5"),
        "Fraction": fractions.Fraction(1, 2),
        "a list": [1, 2],
        "an empty list": [],
        "ragged lists": [[1, 2], [3]],
        "a list in a list": ["all"],
        "a tuple": (1, 2),
        "a mapping": {"abc": 3},
        "a mapping of 1": {1: [True]},
        "a set": {1, 2},
        "a range": range(2),
        "an object": Strange(),
        "a type": int,
        "a function": len,
        "a date": datetime.date(2020, 1, 1),
        "Ellipsis": ...,
        "np.int64": np.int64(2),
        "np.uint64": np.uint64(2**63),
        "np.float32": np.float32(0.5),
        "np.float64 NaN": np.float64("nan"),
        "np.bool_": np.bool_(True),
        "np.str_": np.str_("abc"),
        "np.complex64": np.complex64(1j),
        "np.timedelta64": np.timedelta64(3, "ns"),
        "np.datetime64": np.datetime64("2020-01-01"),
        "array without dimensions": np.array(2),
        "float array without dimensions": np.array(0.5),
        "bool array without dimensions": np.array(True),
        "string array without dimensions": np.array("all"),
        "array": np.array([1, 2]),
        "array of one": np.array([1]),
        "array of strings": np.array(["a", "b"]),
        "array of objects": np.array([None, {}], dtype=object),
        "array of objects, square": np.full((6, 6), None),
        "array of dates": np.array(["2020-01-01"] * 6, dtype="datetime64[D]"),
        "structured array": np.zeros(6, dtype=[("a", int), ("b", float)]),
        "masked array": np.ma.masked_array(np.ones((6, 6)), mask=np.eye(6)),
        "big integers": [2**70] * 6,
        "large floats": np.full(6, 1e300),
        "uint64 beyond int64": np.full(6, 2**63, dtype=np.uint64),
        "SciPy matrix": scipy.sparse.identity(6, format="csr"),
        "Graph": graph(),
        "SparseMatrix": sf.SparseMatrix.from_any(np.eye(6)),
        "SeeGeraConfig": sf.SeeGeraConfig(),
        "Path": pathlib.Path("abc"),
        "networkx graph": networks(),
        "torch.Size": torch.Size([2]),
        "torch.dtype": torch.float16,
        "NumPy type": np.float32,
        "torch.device": torch.device("cpu"),
        "torch.device meta": torch.device("meta"),
        "cuda:99": "cuda:99",
        "xla": "xla",
        "generator": torch.Generator(),
        "tensor": torch.ones(6, dtype=torch.float64),
        "tensor of two": torch.ones(2),
        "bool tensor": torch.ones(6, dtype=torch.bool),
        "scalar tensor": torch.tensor(0.5),
        "int scalar tensor": torch.tensor(2),
        "bool scalar tensor": torch.tensor(True),
        "bfloat16 tensor": torch.ones(6, 6, dtype=torch.bfloat16),
    }
    return values | {f"square {name}": change(torch.ones(6, 6)) for name, change in CHANGES.items()}


# What may come of a tensor, by name.
CHANGES = {
    "on meta": lambda t: t.to("meta"),
    "mkldnn": lambda t: t.float().to_mkldnn() if t.numel() else t.float(),
    "nested": lambda t: nested(t, t),
    "jagged": lambda t: nested(t, t, layout=torch.jagged),
    "quantized": lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.quint8),
    "COO": lambda t: t.to_sparse(),
    "CSR": lambda t: t.reshape(t.shape[0], -1).to_sparse_csr() if t.ndim else t.to_sparse(),
    "complex": lambda t: t.to(torch.complex64),
    "conjugate": lambda t: t.to(torch.complex64).conj(),
    "of truth": lambda t: t != 0,
    "float16": lambda t: t.half(),
    "int8": lambda t: t.to(torch.int8),
    "uint16": lambda t: t.to(torch.uint16),
    "float8": lambda t: t.to(torch.float8_e4m3fn),
    "array": lambda t: t.numpy(),
    "list": lambda t: t.tolist(),
    "flat": lambda t: t.flatten(),
    "one more dimension": lambda t: t[None],
    "needs a gradient": lambda t: t.double().clone().requires_grad_(),
}


def candidates(valid):
    """What replaces an argument, by name: the pool, and other forms of a tensor."""
    found = dict(pool())
    if isinstance(valid, torch.Tensor) and valid.numel():
        found |= {f"itself {name}": functools.partial(change, valid) for name, change in CHANGES.items()}
    return found


# --- what a refusal is -----------------------------------------------------------------------------------------------


def bits(value):
    """What must not change: the elements of a tensor or matrix, and the attributes of an object."""
    if isinstance(value, torch.Tensor):
        unreadable = value.is_nested or value.is_quantized or value.is_meta or value.layout != torch.strided
        return (
            id(value)
            if unreadable
            else (value.dtype, value.detach().resolve_conj().flatten().view(torch.uint8).numpy().tobytes())
        )
    if isinstance(value, sf.SparseMatrix):
        return [bits(part) for part in (value.rowptr, value.col, value.values)] + [value.shape, value.layout]
    if isinstance(value, sf.Graph):
        return [
            bits(part) for part in (value.adjacency, value.features, value.labels, value.masks, value.name, value.nodes)
        ]
    if isinstance(value, torch.nn.Module):
        return [bits(dict(value.state_dict())), value.training, value._steps, bits(value.graph), value.config]
    if isinstance(value, torch.optim.Optimizer):
        return repr(value.state_dict())
    if isinstance(value, dict):
        return {key: bits(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return id(value)


def state(arguments):
    """The arguments, the objects whose methods are called, and what the process shares."""
    shared = [
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_rng_state().numpy().tobytes(),
        backends.forced(),
    ]
    return [bits(arguments), bits(graph()), bits(model()), shared]


SIZED = (torch.Tensor, sf.SparseMatrix)


def plain(value):
    """NumPy's numbers count as Python's."""
    return value.item() if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 else value


def names_one(message, names):
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) for name in names)


def outcome(function, given):
    """The error of a call; None: there was none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**given)
    except Exception as error:
        return error
    return None


def check(name, replaced, folder):
    """Calls a function with some arguments replaced, and checks how it refuses them if it does."""
    function, arguments = calls(folder)[name]
    values = {}
    for argument, kind in replaced.items():
        value = candidates(arguments[argument])[kind]
        values[argument] = value() if isinstance(value, functools.partial) else value
    given = {**arguments, **values}
    before = state(given)
    error = outcome(function, given)
    if error is None:
        return
    refused = isinstance(error, (TypeError, ValueError))
    # With a value of the right kind, another argument may be named, whose size does not fit.
    same = any(isinstance(plain(value), type(arguments[argument])) for argument, value in values.items())
    named = refused and names_one(str(error), arguments if same else values)
    # No path is wrong by its kind, and the reference leaves sizes to torch.
    elsewhere = isinstance(error, OSError) and {"path", "root", "folder", "edges", "features", "labels"} & {*values}
    sizes = name.startswith("reference.") and any(isinstance(value, SIZED) for value in given.values()) and same
    told = f"{name}({replaced}): {type(error).__name__}: {error}"
    assert named or elsewhere or sizes, told
    assert elsewhere or len(str(error)) < 1000, told
    assert state(given) == before, f"{name}({replaced}) changed something"


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


# --- what was once another error, and what NumPy's numbers are --------------------------------------------------------


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
        ("training.TrainingConfig", {"epochs": 10**5000}, ValueError, "epochs: got an int of 16610 bits"),
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
    training = sf.training.TrainingConfig(epochs=np.int32(3), learning_rate=np.float64(0.5))
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
