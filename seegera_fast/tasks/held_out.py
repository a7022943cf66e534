"""Splits of links, features and nodes: their held-out parts, which are checked whoever made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import pyg
from ..edge_keys import among, keys_of
from ..graph import Graph
from ..support import arguments

PARTS = ("valid_pos", "valid_neg", "test_pos", "test_neg")
LEAK, NO_PAIRS = "the split leaks", "got no pairs"
# What to tell PyTorch Geometric where a message has these words.
REMEDIES = {LEAK: "is_undirected=True", NO_PAIRS: "neg_sampling_ratio=1.0"}
# What a message calls what is held out, what should not be there, and what is wanted.
LINK_WORDS = ("pairs", "edges, not pairs without a link", "each edge in one part, in either direction")
CELL_WORDS = ("entries", "not zero in the whole matrix", "each entry in one part")


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """Held-out links, and pairs without a link. :func:`split_links` makes one, and so can you: it is checked.

    Attributes:
        train: the graph without the held-out links.
        valid_pos, test_pos: int64 ``[m, 2]``: the held-out edges, ``i < k``. They may be given in either direction.
        valid_neg, test_neg: int64 ``[m, 2]``: pairs ``i < k`` that are not edges of the whole graph.
        more_neg: int64 ``[m, 2]``: further pairs like those of ``valid_neg``, with which probabilities are calibrated
            more exactly; None: there are none.

    Raises:
        TypeError: not a graph, or pairs that are not integers.
        ValueError: a wrong shape or node number, held-out edges without pairs to tell them from, or a split that leaks:
            a held-out edge is an edge of the training graph or is held out twice, in either direction, or a pair
            without a link is an edge.
    """

    train: Graph
    valid_pos: torch.Tensor
    valid_neg: torch.Tensor
    test_pos: torch.Tensor
    test_neg: torch.Tensor
    more_neg: torch.Tensor | None = None

    def __post_init__(self) -> None:
        arguments.instance("train", self.train, Graph)
        for name in self.parts:
            object.__setattr__(self, name, _pairs(name, getattr(self, name), self.train))
        edges = keys_of(self.train.edges(), self.train.num_nodes)
        _refuse_leaks(self, edges, self.train.num_nodes, LINK_WORDS)
        for part in ("valid", "test"):
            if len(getattr(self, f"{part}_pos")) and not len(getattr(self, f"{part}_neg")):
                raise ValueError(f"{part}_neg: {NO_PAIRS}, want pairs without a link, as many as {part}_pos has edges")

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts that there are, without the training graph."""
        return PARTS if self.more_neg is None else (*PARTS, "more_neg")

    @classmethod
    def from_pyg(cls, train: Any, valid: Any, test: Any, **options: Any) -> LinkSplit:
        """Takes over a split of PyTorch Geometric: ``from_pyg(*RandomLinkSplit(is_undirected=True)(data))``.

        Args:
            train, valid, test: the three parts. The edges of ``train`` become the training graph, and the pairs in
                ``edge_label_index`` of the others are held out, or those in ``pos_edge_label_index`` and
                ``neg_edge_label_index``. Those of a node with itself are left out, as self-loops are.
            options: further arguments of :meth:`seegera_fast.Graph.from_pyg`.

        Raises:
            TypeError: a part is not a ``Data``.
            ValueError: a part has no such pairs, ``train`` has pairs to learn that are not among its edges
                (``disjoint_train_ratio``), or the split leaks, as it does with ``is_undirected=False``.

        Example:
            >>> import torch
            >>> import seegera_fast as sf
            >>> from torch_geometric.data import Data
            >>> from torch_geometric.transforms import RandomLinkSplit
            >>> edges = torch.combinations(torch.arange(12))[::2].T
            >>> data = Data(edge_index=torch.cat([edges, edges.flip(0)], dim=1), num_nodes=12)
            >>> parts = RandomLinkSplit(num_val=0.1, num_test=0.2, is_undirected=True)(data)
            >>> split = sf.tasks.LinkSplit.from_pyg(*parts)
            >>> split.train.num_edges, len(split.valid_pos), len(split.test_pos)
            (24, 3, 6)
        """
        parts = {"train": train, "valid": valid, "test": test}
        pairs = {name: pyg.pairs_of_part(name, data) for name, data in parts.items()}
        least = max((int(each.max()) + 1 for both in pairs.values() for each in both if each.numel()), default=0)
        graph = Graph.from_pyg(pyg.without_pairs(train, least), **options)
        learned = keys_of(_pairs("train", pairs["train"][0], graph), graph.num_nodes)
        if not torch.isin(learned, keys_of(graph.edges(), graph.num_nodes)).all():
            raise ValueError(
                "train: has pairs in edge_label_index that are no edges in edge_index, want disjoint_train_ratio=0"
            )
        try:
            return cls(graph, *pairs["valid"], *pairs["test"])
        except ValueError as error:
            remedy = next((remedy for words, remedy in REMEDIES.items() if words in str(error)), None)
            if remedy is None:
                raise
            raise ValueError(f"{error}: RandomLinkSplit({remedy}) makes such parts") from None


@dataclass(frozen=True, eq=False)
class FeatureSplit:
    """Hidden non-zero entries of the features, and zero entries. :func:`split_features` makes one, and so can you.

    Attributes:
        train: the graph without the hidden entries.
        valid_pos, test_pos: int64 ``[m, 2]``: row and column of the hidden entries.
        valid_values, test_values: ``[m]``: values of the hidden entries.
        valid_neg, test_neg: int64 ``[m, 2]``: row and column of entries that are zero in the whole matrix.

    Raises:
        TypeError: not a graph, or numbers of a wrong kind.
        ValueError: a wrong shape or number, or a split that leaks: a hidden entry is in the training graph or is hidden
            twice, or an entry that should be zero is not.
    """

    train: Graph
    valid_pos: torch.Tensor
    valid_values: torch.Tensor
    valid_neg: torch.Tensor
    test_pos: torch.Tensor
    test_values: torch.Tensor
    test_neg: torch.Tensor

    def __post_init__(self) -> None:
        arguments.instance("train", self.train, Graph)
        features = self.train.features
        for name in PARTS:
            object.__setattr__(self, name, _cells(name, getattr(self, name), features.shape, self.train.device))
        for part in ("valid", "test"):
            values = _values(f"{part}_values", getattr(self, f"{part}_values"), self.train)
            if values.shape != (len(getattr(self, f"{part}_pos")),):
                raise ValueError(
                    f"{part}_values: got shape {tuple(values.shape)}, want one value per row of {part}_pos"
                )
            object.__setattr__(self, f"{part}_values", values)
        width = features.shape[1]
        _refuse_leaks(self, features.row * width + features.col, width, CELL_WORDS)


@dataclass(frozen=True, eq=False)
class NodeSplit:
    """The labelled nodes of each part: int64 ``[k]`` node numbers, ascending.

    :func:`split_nodes` and :func:`public_split` make one, and so can you.

    Raises:
        TypeError: a part has no integers.
        ValueError: a wrong shape, a negative number, or a node that is in two parts or twice in one.
    """

    train: torch.Tensor
    valid: torch.Tensor
    test: torch.Tensor

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test"):
            given = getattr(self, name)
            device = given.device if isinstance(given, torch.Tensor) else torch.device("cpu")
            part = arguments.integers(name, given, device, of_nodes=True).sort().values
            if part.ndim != 1:
                raise ValueError(f"{name}: got shape {tuple(part.shape)}, want node numbers [k]")
            if part.numel() and part[0] < 0:
                raise ValueError(f"{name}: got {int(part[0])}, want node numbers of 0 and above")
            object.__setattr__(self, name, part)
        every = torch.cat([part.cpu() for part in (self.train, self.valid, self.test)])
        nodes, counts = every.unique(return_counts=True)
        if (counts > 1).any():
            node = int(nodes[counts > 1][0])
            raise ValueError(f"train, valid, test: {LEAK}: node {node} is there twice, want each node in one part")


def check_link_split_of(graph: Graph, split: LinkSplit) -> None:
    """Checks that a split is one of a graph: all edges are its edges, and no pair without a link is."""
    arguments.instance("split", split, LinkSplit)
    if graph.num_nodes != split.train.num_nodes:
        raise ValueError(f"split: has {split.train.num_nodes} nodes, want those of graph: {graph.num_nodes}")
    edges = keys_of(graph.edges(), graph.num_nodes)
    for name, pairs in {"train": split.train.edges(), **{name: getattr(split, name) for name in split.parts}}.items():
        absent = name.endswith("neg")
        pairs = pairs.to(graph.device)
        wrong = torch.isin(keys_of(pairs, graph.num_nodes), edges, invert=not absent)
        if wrong.any():
            low, high = pairs[wrong][0].tolist()
            raise ValueError(
                f"split: {name} has ({low}, {high}), which is {'an' if absent else 'no'} edge of graph, want a split "
                "of this graph"
            )


def check_feature_split_of(graph: Graph, split: FeatureSplit) -> None:
    """Checks that a split is one of a graph: the training features and the hidden entries together are its features."""
    arguments.instance("split", split, FeatureSplit)
    features, train = graph.features, split.train.features
    if features.shape != train.shape:
        raise ValueError(f"split: has features of shape {train.shape}, want those of graph: {features.shape}")
    cells = [torch.stack([train.row, train.col], dim=1), split.valid_pos, split.test_pos]
    keys = torch.cat([keys_of(part.to(graph.device), features.shape[1]) for part in cells])
    values = torch.cat([part.to(graph.device) for part in (train.values, split.valid_values, split.test_values)])
    order = keys.argsort()
    whole = features.row * features.shape[1] + features.col
    if not torch.equal(keys[order], whole):
        raise ValueError("split: its features and its hidden entries together are not the features of graph")
    if not torch.equal(values[order].to(features.dtype), features.values):
        raise ValueError(
            "split: its values are not those of the features of graph; with normalize_features=True, which presets may "
            "have, want a split of graph.with_features(graph.features.row_normalized, graph.feature_names)"
        )


def check_node_split_of(graph: Graph, known: torch.Tensor, split: NodeSplit) -> None:
    """Checks that a split is one of a graph, whose nodes with a known label are ``known``, bool ``[n]``."""
    arguments.instance("split", split, NodeSplit)
    for name in ("train", "valid", "test"):
        part = getattr(split, name).to(known.device)
        if part.numel() and int(part[-1]) >= graph.num_nodes:
            raise ValueError(f"split: {name} has node {int(part[-1])}, want 0 to {graph.num_nodes - 1}")
        if not bool(known[part].all()):
            raise ValueError(f"split: {name} has node {int(part[~known[part]][0])}, whose label is not known")


def _refuse_leaks(split: Any, seen: torch.Tensor, width: int, words: tuple[str, str, str]) -> None:
    """Checks that nothing is in two parts of a split.

    Args:
        seen: int64: the keys of what the training graph has, ascending.
    """
    things, present, wanted = words

    def refuse(name: str, wrong: torch.Tensor, what: str) -> None:
        if wrong.any():
            first, second = getattr(split, name)[wrong][0].tolist()
            raise ValueError(
                f"{name}: {LEAK}: {int(wrong.sum())} {things}, of which one is ({first}, {second}), are "
                f"{what}; want {wanted}"
            )

    known = [seen]
    for name in ("valid_pos", "test_pos"):
        held_out = keys_of(getattr(split, name), width)
        for part in known:
            refuse(name, among(held_out, part), "in the training graph or in another part")
        found = held_out.sort().values
        refuse(name, among(held_out, found[1:][found[1:] == found[:-1]]), "held out twice")
        known.append(found)
    for name in ("valid_neg", "test_neg", "more_neg"):
        if getattr(split, name, None) is None:
            continue
        absent = keys_of(getattr(split, name), width)
        refuse(name, torch.stack([among(absent, part) for part in known]).any(dim=0), present)
        if name == "more_neg":
            refuse(name, among(absent, keys_of(split.test_neg, width).sort().values), "in the test part, too")


def _pairs(name: str, pairs: Any, graph: Graph) -> torch.Tensor:
    """int64 ``[m, 2]``: pairs of different nodes, the smaller number first."""
    found = arguments.integers(name, pairs, graph.device, below=graph.num_nodes, of_nodes=True)
    if found.numel() == 0:
        return found.new_empty(0, 2)
    if found.ndim != 2 or found.shape[1] != 2:
        raise ValueError(f"{name}: got shape {tuple(found.shape)}, want [number of pairs, 2]")
    if (found[:, 0] == found[:, 1]).any():
        raise ValueError(f"{name}: got a pair of a node with itself, want pairs of two nodes")
    return torch.stack([torch.minimum(*found.T), torch.maximum(*found.T)], dim=1)


def _cells(name: str, cells: Any, shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    """int64 ``[m, 2]``: rows and columns of a matrix."""
    found = arguments.integers(name, cells, device, own=True)
    if found.numel() == 0:
        return found.new_empty(0, 2)
    if found.ndim != 2 or found.shape[1] != 2:
        raise ValueError(f"{name}: got shape {tuple(found.shape)}, want [number of entries, 2]")
    outside = ((found < 0) | (found >= found.new_tensor(shape))).any(dim=1)
    if outside.any():
        row, col = found[outside][0].tolist()
        raise ValueError(f"{name}: got row {row}, column {col}, want an entry of a matrix of shape {shape}")
    return found


def _values(name: str, values: Any, graph: Graph) -> torch.Tensor:
    found = arguments.array(name, values)
    if found.dtype.kind not in "iuf":
        raise TypeError(f"{name}: got values of type {found.dtype}, want real numbers")
    numbers = torch.zeros(found.shape, dtype=graph.dtype, device=graph.device)
    return numbers.copy_(torch.from_numpy(found.astype(np.float64)))
