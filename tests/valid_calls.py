"""A valid call of every public function, with every argument. A new function needs one here."""

from __future__ import annotations

import dataclasses
import functools
import types
from unittest import mock

import networkx
import numpy as np
import scipy.sparse
import torch
from cases import normal
from small_objects import EDGES, SMALL, data, estimator, fitted, graph, model, networks, part, saved, saved_graph

import seegera_fast as sf
from seegera_fast import ops, tasks
from seegera_fast.capture import CapturedStep
from seegera_fast.checkpoint_file import Course, State
from seegera_fast.datasets.arrays import RawGraph
from seegera_fast.datasets.registry import DATA_SETS, DataSet
from seegera_fast.seeds import SeedSlots

QUICK = {**SMALL, "epochs": 1, "progress": False}


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
    config = sf.TrainingConfig()
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
        "TrainingConfig": (
            sf.TrainingConfig,
            dataclasses.asdict(sf.TrainingConfig(epochs=3)),
        ),
        "TrainingConfig.warmup": (sf.TrainingConfig().warmup, {"epoch": 3}),
        "TrainingConfig.ended": (sf.TrainingConfig().ended, {"epoch": 3, "best_epoch": 2}),
        "TrainingConfig.evaluates": (sf.TrainingConfig().evaluates, {"epoch": 3}),
        "TrainingConfig.scheduled": (sf.TrainingConfig().scheduled, {"epoch": 3}),
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
            # Without the links that are held out, a part may have none.
            {"graph": g, **ratios, "sides": None, "split": None, **task, **QUICK, "batches": None},
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
