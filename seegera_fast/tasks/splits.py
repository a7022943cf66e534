"""Random splits of links, features and nodes: disjoint parts of exact sizes, the same for the same seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import checks, pyg
from ..graph import Graph
from ..sampling import ZeroEntries, share
from ..sparse_matrix import SparseMatrix
from ..support import arguments
from .sides import AUTO, NonEdgesAcross

PARTS = ("valid_pos", "valid_neg", "test_pos", "test_neg")


@dataclass(frozen=True)
class LinkSplit:
    """Held-out links, and pairs without a link. :func:`split_links` makes one, and so can you: it is checked.

    Attributes:
        train: the graph without the held-out links.
        valid_pos, test_pos: int64 ``[m, 2]``: the held-out edges, ``i < k``. They may be given in either direction.
        valid_neg, test_neg: int64 ``[m, 2]``: pairs ``i < k`` that are not edges of the whole graph.

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

    def __post_init__(self) -> None:
        arguments.instance("train", self.train, Graph)
        for name in PARTS:
            object.__setattr__(self, name, _pairs(name, getattr(self, name), self.train))
        seen = _keys(self.train.edges(), self.train)
        for part in ("valid", "test"):
            name = f"{part}_pos"
            held_out = _keys(getattr(self, name), self.train)
            self._refuse(name, torch.isin(held_out, seen), "in the training graph or in another part")
            different, counts = held_out.unique(return_counts=True)
            self._refuse(name, torch.isin(held_out, different[counts > 1]), "held out twice")
            seen = torch.cat([seen, held_out])
        for part in ("valid", "test"):
            name = f"{part}_neg"
            absent = getattr(self, name)
            self._refuse(name, torch.isin(_keys(absent, self.train), seen), "edges, not pairs without a link")
            if not absent.shape[0] and getattr(self, f"{part}_pos").shape[0]:
                raise ValueError(f"{name}: got no pairs, want pairs without a link, as many as {part}_pos has edges")

    def _refuse(self, name: str, wrong: torch.Tensor, what: str) -> None:
        if wrong.any():
            low, high = getattr(self, name)[wrong][0].tolist()
            raise ValueError(
                f"{name}: the split leaks: {int(wrong.sum())} pairs, of which one is ({low}, {high}), are {what}; want "
                "each edge in one part, in either direction"
            )

    @classmethod
    def from_pyg(cls, train: Any, valid: Any, test: Any, **options: Any) -> LinkSplit:
        """Takes over a split of PyTorch Geometric: ``from_pyg(*RandomLinkSplit(is_undirected=True)(data))``.

        Args:
            train, valid, test: the three parts. The edges of ``train`` become the training graph, and the pairs in
                ``edge_label_index`` of the others are held out, or those in ``pos_edge_label_index`` and
                ``neg_edge_label_index``.
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
        graph = Graph.from_pyg(pyg.without_pairs(train), **options)
        learned = _keys(_pairs("train", pairs["train"][0], graph), graph)
        if not torch.isin(learned, _keys(graph.edges(), graph)).all():
            raise ValueError(
                "train: has pairs in edge_label_index that are no edges in edge_index, want disjoint_train_ratio=0"
            )
        try:
            return cls(graph, *pairs["valid"], *pairs["test"])
        except ValueError as error:
            raise ValueError(f"{error}: RandomLinkSplit(is_undirected=True) makes such parts") from None


@dataclass(frozen=True)
class FeatureSplit:
    """Hidden non-zero entries of the features, and equally many zero entries.

    Attributes:
        train: the graph without the hidden entries.
        valid_pos, test_pos: int64 ``[m, 2]``: row and column of the hidden entries.
        valid_values, test_values: ``[m]``: values of the hidden entries.
        valid_neg, test_neg: int64 ``[m, 2]``: row and column of entries that are zero in the whole matrix.
    """

    train: Graph
    valid_pos: torch.Tensor
    valid_values: torch.Tensor
    valid_neg: torch.Tensor
    test_pos: torch.Tensor
    test_values: torch.Tensor
    test_neg: torch.Tensor


@dataclass(frozen=True)
class NodeSplit:
    """The labelled nodes of each part: int64 ``[k]`` node numbers, ascending."""

    train: torch.Tensor
    valid: torch.Tensor
    test: torch.Tensor


def split_links(graph: Graph, valid: float = 0.2, test: float = 0.1, seed: int = 0, *, sides: Any = None) -> LinkSplit:
    """Holds out ``floor(valid * edges)`` and ``floor(test * edges)`` undirected edges.

    The pairs without a link are drawn without replacement from all non-edges of the whole graph. No edge or pair is in
    two parts, in either direction.

    Args:
        graph: the whole graph.
        valid, test: ratios in [0, 1) with a sum below 1; 0 leaves that part empty.
        seed: an int.
        sides: of a bipartite graph, such as one of users and items: draw only pairs across its two sides, as its edges
            are. ``[n]``: 0, 1, or -1 for a node on no side, which is in no pair. "auto": found from the edges; of each
            connected part the smallest node number is on side 0, and a node without edges is on no side. None: pairs
            of any nodes.

    Raises:
        TypeError: an argument of a wrong kind.
        ValueError: a ratio out of range, too few non-edges, or edges that do not join the two sides.

    Example:
        >>> import seegera_fast as sf
        >>> split = sf.tasks.split_links(sf.datasets.load("digits"), valid=0.2, test=0.1)
        >>> split.test_pos.shape, split.test_neg.shape
        (torch.Size([1233, 2]), torch.Size([1233, 2]))
        >>> split.train.num_edges
        8639
    """
    checks.graph(graph)
    _check_ratios(valid=valid, test=test)
    generator = _generator(seed)
    if isinstance(sides, str):
        arguments.choice("sides", sides, (AUTO,))
    edges, absent = graph.edges(), graph.adjacency.non_edges if sides is None else NonEdgesAcross(graph, sides)
    num_valid, num_test = (share(ratio, graph.num_edges) for ratio in (valid, test))
    kind = "non-edges" if sides is None else "non-edges across its sides"
    ranks = _ranks(generator, absent.count, num_valid + num_test, f"graph: has {graph.num_edges} edges", kind)
    negatives = absent.pairs(ranks.to(graph.device))
    order = torch.from_numpy(generator.permutation(graph.num_edges)).to(graph.device)
    hidden = num_valid + num_test
    return LinkSplit(
        train=graph.with_edges(edges[order[hidden:]]),
        valid_pos=edges[order[:num_valid]],
        valid_neg=negatives[:num_valid],
        test_pos=edges[order[num_valid:hidden]],
        test_neg=negatives[num_valid:],
    )


def split_features(graph: Graph, valid: float = 0.1, test: float = 0.2, seed: int = 0) -> FeatureSplit:
    """Hides ``floor(valid * nnz)`` and ``floor(test * nnz)`` of the non-zero features.

    Equally many zero entries are drawn, without replacement, from all entries that are zero in the whole matrix.

    Args:
        graph: the whole graph.
        valid, test: ratios in [0, 1) with a sum below 1; 0 leaves that part empty.
        seed: an int.

    Raises:
        TypeError: an argument of a wrong kind.
        ValueError: a ratio out of range, or too few zero entries.

    Example:
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> split = sf.tasks.split_features(graph, valid=0.1, test=0.2)
        >>> split.train.features.nnz + len(split.valid_pos) + len(split.test_pos) == graph.features.nnz
        True
    """
    checks.graph(graph)
    _check_ratios(valid=valid, test=test)
    generator = _generator(seed)
    features = graph.features
    num_valid, num_test = (share(ratio, features.nnz) for ratio in (valid, test))
    absent = ZeroEntries(features.row, features.col, features.shape)
    hidden = num_valid + num_test
    ranks = _ranks(generator, absent.count, hidden, f"features: have {features.nnz} non-zero entries", "zero entries")
    negatives = absent.cells(ranks.to(graph.device))
    order = torch.from_numpy(generator.permutation(features.nnz)).to(graph.device)
    cells = torch.stack([features.row, features.col], dim=1)[order[:hidden]]
    values = features.values[order[:hidden]]
    return FeatureSplit(
        train=graph.with_features(_keep(features, order[hidden:].sort().values)),
        valid_pos=cells[:num_valid],
        valid_values=values[:num_valid],
        valid_neg=negatives[:num_valid],
        test_pos=cells[num_valid:],
        test_values=values[num_valid:],
        test_neg=negatives[num_valid:],
    )


def split_nodes(graph: Graph, train: float = 0.1, valid: float = 0.1, seed: int = 0) -> NodeSplit:
    """Draws ``floor(train * k)`` and ``floor(valid * k)`` of the k nodes with a known label; the rest is the test part.

    Args:
        graph: a graph with labels.
        train, valid: ratios in [0, 1) with a sum below 1; 0 leaves that part empty.
        seed: an int.

    Raises:
        TypeError: an argument of a wrong kind.
        ValueError: a ratio out of range, or no labels.

    Example:
        >>> import seegera_fast as sf
        >>> split = sf.tasks.split_nodes(sf.datasets.load("digits"), train=0.1, valid=0.1)
        >>> len(split.train), len(split.valid), len(split.test)
        (179, 179, 1439)
    """
    checks.graph(graph)
    _check_ratios(train=train, valid=valid)
    generator = _generator(seed)
    known = torch.nonzero(_known(graph)).flatten()
    count = known.shape[0]
    num_train, num_valid = (share(ratio, count) for ratio in (train, valid))
    order = torch.from_numpy(generator.permutation(count)).to(known.device)
    parts = order.split([num_train, num_valid, count - num_train - num_valid])
    return NodeSplit(*(known[part.sort().values].to(graph.device) for part in parts))


def public_split(graph: Graph) -> NodeSplit:
    """The split in ``graph.masks``, without the nodes whose label is unknown.

    Raises:
        TypeError: ``graph`` is not a Graph.
        ValueError: the graph has no labels, a mask is missing, or two masks have a node in common.
    """
    checks.graph(graph)
    known = _known(graph)
    missing = [part for part in ("train", "valid", "test") if part not in graph.masks]
    if missing:
        raise ValueError(f"graph: has no mask {' or '.join(map(repr, missing))}, want a public split in graph.masks")
    masks = [graph.masks[part].to(known.device) for part in ("train", "valid", "test")]
    shared = int((torch.stack(masks).sum(dim=0) > 1).sum())
    if shared:
        raise ValueError(f"graph: {shared} nodes are in more than one of the masks train, valid and test")
    return NodeSplit(*(torch.nonzero(mask & known).flatten().to(graph.device) for mask in masks))


def check_split_of(graph: Graph, split: LinkSplit) -> None:
    """Checks that a split is one of a graph: all edges are its edges, and no pair without a link is."""
    arguments.instance("split", split, LinkSplit)
    if graph.num_nodes != split.train.num_nodes:
        raise ValueError(f"split: has {split.train.num_nodes} nodes, want those of graph: {graph.num_nodes}")
    edges = _keys(graph.edges(), graph)
    for name, pairs in {"train": split.train.edges(), **{name: getattr(split, name) for name in PARTS}}.items():
        absent = name.endswith("neg")
        pairs = pairs.to(graph.device)
        wrong = torch.isin(_keys(pairs, graph), edges, invert=not absent)
        if wrong.any():
            low, high = pairs[wrong][0].tolist()
            raise ValueError(
                f"split: {name} has ({low}, {high}), which is {'an' if absent else 'no'} edge of graph, want a split "
                "of this graph"
            )


def _check_ratios(**ratios: Any) -> None:
    for name, ratio in ratios.items():
        arguments.probability(name, ratio)
    if sum(ratios.values()) >= 1:
        got = " and ".join(f"{name} {ratio}" for name, ratio in ratios.items())
        raise ValueError(f"{', '.join(ratios)}: got {got}, want ratios with a sum below 1")


def _generator(seed: Any) -> np.random.Generator:
    return np.random.default_rng(arguments.whole("seed", seed, least=None) % 2**64)


def _ranks(generator: np.random.Generator, count: int, size: int, present: str, absent: str) -> torch.Tensor:
    """int64 ``[size]``: different numbers below ``count``, in random order."""
    if size > count:
        raise ValueError(f"{present} and {count} {absent}; want {size} {absent}, one per held-out one")
    return torch.from_numpy(generator.choice(count, size=size, replace=False).astype(np.int64))


def _keep(matrix: SparseMatrix, entries: torch.Tensor) -> SparseMatrix:
    """The matrix with only the entries whose numbers are given, in ascending order."""
    rowptr = torch.zeros_like(matrix.rowptr)
    rowptr[1:] = torch.bincount(matrix.row[entries], minlength=matrix.shape[0]).cumsum(0)
    return SparseMatrix(rowptr, matrix.col[entries], matrix.values[entries], matrix.shape)


def _pairs(name: str, pairs: Any, graph: Graph) -> torch.Tensor:
    """int64 ``[m, 2]``: pairs of different nodes, the smaller number first."""
    found = arguments.integers(name, pairs, graph.device, below=graph.num_nodes)
    if found.numel() == 0:
        return found.new_empty(0, 2)
    if found.ndim != 2 or found.shape[1] != 2:
        raise ValueError(f"{name}: got shape {tuple(found.shape)}, want [number of pairs, 2]")
    if (found[:, 0] == found[:, 1]).any():
        raise ValueError(f"{name}: got a pair of a node with itself, want pairs of two nodes")
    return found.sort(dim=1).values


def _keys(pairs: torch.Tensor, graph: Graph) -> torch.Tensor:
    """int64 ``[m]``: a number for each pair."""
    return pairs[:, 0] * graph.num_nodes + pairs[:, 1]


def _known(graph: Graph) -> torch.Tensor:
    if graph.labels is None:
        reason = f" ({graph.unlabelled})" if graph.unlabelled else ""
        raise ValueError(f"graph: has no labels{reason}, want a graph with labels=")
    return graph.labels >= 0
