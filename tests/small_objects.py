"""A small graph, a model of it, and other small objects that public functions take."""

from __future__ import annotations

import functools
import types

import networkx
import numpy as np
import torch

import seegera_fast as sf

EDGES = np.array([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])
SMALL = {"embedding_dim": 2, "hidden_dim": 3}


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
