"""Whether a graph is one that a model can take: its features, and for some models its nodes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .config import SeeGeraConfig
from .convert import FLOATING
from .graph import Graph
from .graph import check_graph as require_graph
from .prediction import Prediction
from .sparse_matrix import SparseMatrix
from .support.hints import short, some
from .support.warning import warn_outside


def fixed_nodes(config: SeeGeraConfig) -> bool:
    """Whether a model has weights for single nodes: the feature encoder of v1 reads the columns of X (Eq. psi_2)."""
    return config.feature_side and config.variant == "independent"


def has_identity_features(graph: Graph) -> bool:
    """Whether a graph was given no features, so that each node is a feature of its own, or as good as none."""
    return graph.feature_names is None and features_are_nodes(graph)


def features_are_nodes(graph: Graph) -> bool:
    """Whether no node has a feature but one of its own, which may have the node's name."""
    return graph.num_nodes > 1 and _is_diagonal(graph.features)


def _is_diagonal(matrix: SparseMatrix) -> bool:
    """Whether all entries of a square matrix are on the diagonal, and some are there."""
    square = matrix.shape[0] == matrix.shape[1]
    # Beyond one entry per row the columns need no look.
    return square and 0 < matrix.nnz <= matrix.shape[0] and bool(torch.equal(matrix.col, matrix.row))


def check_graph(model: Prediction, graph: Graph) -> None:
    """Refuses a graph that the weights of a model say nothing about.

    Raises:
        TypeError: not a Graph.
        ValueError: other features, or other nodes where the model knows its nodes one by one.
    """
    require_graph(graph)
    _check_feature_names(model, graph)
    _compare_preparation(model, graph)
    if graph.num_features != model.num_features:
        raise ValueError(
            f"graph: has {graph.num_features} features, want {model.num_features}, those of the model"
            + _why_other_features(model, graph)
        )
    by_node = fixed_nodes(model.config)
    if by_node and graph.num_nodes != model.num_nodes:
        raise ValueError(
            f"graph: has {graph.num_nodes} nodes, want {model.num_nodes}, those of the model: the feature encoder of "
            'variant "independent" (v1) has a weight for each node; models of variant "correlated" (v2, v3) take '
            "graphs with any nodes"
        )
    if model.node_digest is None or graph.num_nodes != model.num_nodes or torch.compiler.is_compiling():
        return
    # The features of a part of a graph say themselves which of its nodes they belong to.
    told_apart = by_node or has_identity_features(graph)
    if told_apart and graph.node_digest not in (None, model.node_digest):
        why = 'variant "independent" (v1) has a weight for each node' if by_node else _EACH_NODE
        raise ValueError(f"graph: its nodes have other names than those of the model, or another order: {why}")


_EACH_NODE = "the model was trained without features, so that each node is a feature of its own"


def _why_other_features(model: Prediction, graph: Graph) -> str:
    """What explains another number of features, if one of the two graphs has no features of its own."""
    if model.identity_features:
        return f": {_EACH_NODE}, and it knows no other nodes; a model for other nodes needs a graph with features"
    if has_identity_features(graph):
        return "; the graph was given none, so that each node is a feature of its own"
    return ""


def _check_feature_names(model: Prediction, graph: Graph) -> None:
    """Refuses a graph whose features have other names, or another order, than those of the model."""
    if model.feature_names is None or graph.feature_names is None:
        return
    names, wanted = graph.feature_names.tolist(), model.feature_names
    # Nearly always, and once for each batch.
    if tuple(names) == wanted:
        return
    without = graph.nodes is not None and names == list(map(str, graph.nodes)) and features_are_nodes(graph)
    if without and model.num_nodes != model.num_features:
        raise ValueError(
            "graph: was given no features, so that each node is a feature of its own, want features= with the "
            f"{len(wanted)} of the model: {some(wanted)}"
        )
    missing, extra = _not_in(names, wanted), _not_in(wanted, names)
    if not missing and not extra:
        number = next(number for number, name in enumerate(names) if name != wanted[number])
        raise ValueError(
            f"graph: has the features of the model in another order (feature {number} is {short(names[number])}, want "
            f"{short(wanted[number])}): put the columns into the order {some(wanted)}"
        )
    found = [f"{word}: {some(others)}" for word, others in (("missing", missing), ("extra", extra)) if others]
    if without:
        found.append("the graph was given none, so that each node is one")
    raise ValueError(f"graph: has other features than the model ({'; '.join(found)}), want its {len(wanted)} features")


def _not_in(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    known = set(names)
    return [name for name in wanted if name not in known]


def _compare_preparation(model: Prediction, graph: Graph) -> None:
    """Warns of a graph whose edges or features were prepared in another way than those of the model's graph."""
    if model.weighted is not None and model.weighted != (graph.weights is not None):
        if model.weighted:
            warn_outside("graph: its edges have no weights, and those in training had: weighted=True keeps them")
        else:
            warn_outside("graph: its edges have weights, and those in training had none: weighted=False drops them")
    if model.normalize_features and not torch.compiler.is_compiling() and not graph.features.may_have_unit_rows:
        warn_outside(
            "graph: its features are not normalised, and those in training were (normalize_features=True): "
            "graph.with_features(graph.features.row_normalized, graph.feature_names) is the graph that is meant"
        )


def should_follow(graph: Graph, weight: torch.Tensor) -> bool:
    """Whether a model's weights have come to be of another kind than its graph, and of one that a graph can have."""
    other = (graph.device, graph.dtype) != (weight.device, weight.dtype)
    return other and weight.dtype in FLOATING and not weight.is_meta


def check_kind(weight: torch.Tensor, graph: Graph) -> None:
    """Refuses a graph of another dtype or on another device than a weight of the model.

    Raises:
        TypeError: another dtype, or a model that is neither float32 nor float64.
        ValueError: another device.
    """
    if weight.dtype not in FLOATING:
        raise TypeError(
            f"model: has weights of {weight.dtype}, want torch.float32 or torch.float64: model.float() or .double()"
        )
    if graph.device != weight.device:
        raise ValueError(f"graph: is on {graph.device}, want {weight.device}, as the model: graph.to({weight.device})")
    if graph.dtype != weight.dtype:
        raise TypeError(f"graph: got {graph.dtype}, want {weight.dtype}, as the model: graph.to(dtype={weight.dtype})")
