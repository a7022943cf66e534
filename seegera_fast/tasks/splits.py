"""Random splits of links, features and nodes: disjoint parts of exact sizes, the same for the same seed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ..graph import Graph, check_graph
from ..sampling import ZeroEntries, share
from ..sides import AUTO, NonEdgesAcross
from ..sparse_matrix import SparseMatrix
from ..support import arguments
from ..support.kept import lasting
from ..support.warning import warn_outside
from .held_out import FeatureSplit, LinkSplit, NodeSplit

# Further pairs without a link for each edge that is held out for validation, and at most.
MORE, MOST_MORE = 20, 100_000
# Numbers that are looked up at once.
PIECE = 1 << 20


def refuse_unused(function: Callable[..., Any], given: Mapping[str, Any], why: str) -> None:
    """Refuses shares of a task that differ from its defaults and would not be used."""
    for name, value in given.items():
        default = inspect.signature(function).parameters[name].default
        if not (isinstance(value, (int, float)) and value == default):
            raise ValueError(f"{name}: got {arguments.shown(value)}, want nothing where {why}")


@lasting
def split_links(graph: Graph, valid: float = 0.2, test: float = 0.1, seed: int = 0, *, sides: Any = None) -> LinkSplit:
    """Holds out ``floor(valid * edges)`` and ``floor(test * edges)`` undirected edges.

    The pairs without a link are drawn without replacement from all non-edges of the whole graph. No edge or pair is in
    two parts, in either direction. ``more_neg`` has about 20 pairs for each edge that is held out for validation, at
    most 100,000.

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
    check_graph(graph)
    _check_ratios(valid=valid, test=test)
    generator = _generator(seed)
    if isinstance(sides, str):
        arguments.choice("sides", sides, (AUTO,))
    edges, absent = graph.edges(), graph.adjacency.non_edges if sides is None else NonEdgesAcross(graph, sides)
    num_valid, num_test = _shares(graph.num_edges, "edges", valid=valid, test=test)
    kind = "non-edges" if sides is None else "non-edges across its sides"
    ranks = _ranks(generator, absent.count, num_valid + num_test, f"graph: has {graph.num_edges} edges", kind)
    negatives = absent.pairs(ranks.to(graph.device))
    hidden = num_valid + num_test
    chosen = torch.from_numpy(generator.permutation(graph.num_edges)[:hidden].copy()).to(graph.device)
    stays = torch.ones(graph.num_edges, dtype=torch.bool, device=graph.device)
    stays[chosen] = False
    positives = edges[chosen]
    more = torch.from_numpy(
        generator.choice(absent.count, min(MORE * num_valid, MOST_MORE, absent.count), replace=False)
    )
    return LinkSplit(
        train=graph._keep_edges(torch.nonzero(stays).flatten()),
        valid_pos=positives[:num_valid],
        valid_neg=negatives[:num_valid],
        test_pos=positives[num_valid:],
        test_neg=negatives[num_valid:],
        more_neg=absent.pairs(_without(more, ranks).to(graph.device)) if num_valid else None,
    )


@lasting
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
    check_graph(graph)
    _check_ratios(valid=valid, test=test)
    generator = _generator(seed)
    features = graph.features
    num_valid, num_test = _shares(features.nnz, "features that are not 0", valid=valid, test=test)
    absent = ZeroEntries(features.row, features.col, features.shape)
    hidden = num_valid + num_test
    ranks = _ranks(generator, absent.count, hidden, f"features: have {features.nnz} non-zero entries", "zero entries")
    negatives = absent.cells(ranks.to(graph.device))
    order = torch.from_numpy(generator.permutation(features.nnz)).to(graph.device)
    cells = torch.stack([features.row, features.col], dim=1)[order[:hidden]]
    values = features.values[order[:hidden]]
    return FeatureSplit(
        train=graph.with_features(_keep(features, order[hidden:].sort().values), graph.feature_names),
        valid_pos=cells[:num_valid],
        valid_values=values[:num_valid],
        valid_neg=negatives[:num_valid],
        test_pos=cells[num_valid:],
        test_values=values[num_valid:],
        test_neg=negatives[num_valid:],
    )


@lasting
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
    check_graph(graph)
    _check_ratios(train=train, valid=valid)
    generator = _generator(seed)
    known = torch.nonzero(labelled(graph)).flatten()
    count = known.shape[0]
    num_train, num_valid = _shares(count, "nodes with a known label", train=train, valid=valid)
    order = torch.from_numpy(generator.permutation(count)).to(known.device)
    parts = order.split([num_train, num_valid, count - num_train - num_valid])
    return NodeSplit(*(known[part.sort().values].to(graph.device) for part in parts))


def has_public_split(graph: Graph) -> bool:
    """Whether ``graph.masks`` say which nodes are for training and which for testing."""
    return {"train", "test"} <= set(graph.masks)


@lasting
def public_split(graph: Graph) -> NodeSplit:
    """The split in ``graph.masks``, without the nodes whose label is unknown.

    The masks are "train", "test" and, where there are nodes for validation, "valid".

    Raises:
        TypeError: ``graph`` is not a Graph.
        ValueError: the graph has no labels, a mask is missing or has another name, or two masks have a node in common.
    """
    check_graph(graph)
    known = labelled(graph)
    parts = ("train", "valid", "test")
    # Nodes for validation may be missing, but not have another name.
    needed = parts if {"val", "val_mask", "validation"} & set(graph.masks) else ("train", "test")
    missing = [part for part in needed if part not in graph.masks]
    if missing:
        found = f"; its masks are {', '.join(map(repr, graph.masks))}" if graph.masks else ""
        raise ValueError(
            f"graph: has no mask {' or '.join(map(repr, missing))}, want a public split in graph.masks{found}"
        )
    masks = [graph.masks.get(part, torch.zeros_like(known)).to(known.device) for part in parts]
    shared = int((torch.stack(masks).sum(dim=0) > 1).sum())
    if shared:
        raise ValueError(f"graph: {shared} nodes are in more than one of the masks train, valid and test")
    return NodeSplit(*(torch.nonzero(mask & known).flatten().to(graph.device) for mask in masks))


def _check_ratios(**ratios: Any) -> None:
    for name, ratio in ratios.items():
        arguments.probability(name, ratio)
    if sum(ratios.values()) >= 1:
        got = " and ".join(f"{name} {ratio}" for name, ratio in ratios.items())
        raise ValueError(f"{', '.join(ratios)}: got {got}, want ratios with a sum below 1")


def _shares(count: int, things: str, **ratios: float) -> list[int]:
    """How many of the things are in each part. A warning names the parts that should have some and are empty."""
    sizes = {name: share(ratio, count) for name, ratio in ratios.items()}
    empty = [f"{name}={ratios[name]:g}" for name, size in sizes.items() if ratios[name] and not size]
    if empty:
        which = "that part is" if len(empty) == 1 else "these parts are"
        warn_outside(f"graph: has too few {things} ({count}) for {' and '.join(empty)}: {which} empty")
    return list(sizes.values())


def _generator(seed: Any) -> np.random.Generator:
    return np.random.default_rng(arguments.whole("seed", seed, least=None) % 2**64)


def _ranks(generator: np.random.Generator, count: int, size: int, present: str, absent: str) -> torch.Tensor:
    """int64 ``[size]``: different numbers below ``count``, in random order."""
    if size > count:
        raise ValueError(f"{present} and {count} {absent}; want {size} {absent}, one per held-out one")
    return torch.from_numpy(generator.choice(count, size=size, replace=False).astype(np.int64))


def _without(numbers: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """The numbers that are not among others, of which there may be many more, ascending."""
    numbers = numbers.sort().values
    stays = torch.ones_like(numbers, dtype=torch.bool)
    for part in others.split(PIECE) if len(numbers) else ():
        place = torch.searchsorted(numbers, part).clamp_(max=len(numbers) - 1)
        stays[place[numbers[place] == part]] = False
    return numbers[stays]


def _keep(matrix: SparseMatrix, entries: torch.Tensor) -> SparseMatrix:
    """The matrix with only the entries whose numbers are given, in ascending order."""
    rowptr = torch.zeros_like(matrix.rowptr)
    rowptr[1:] = torch.bincount(matrix.row[entries], minlength=matrix.shape[0]).cumsum(0)
    return SparseMatrix(rowptr, matrix.col[entries], matrix.values[entries], matrix.shape)


def labelled(graph: Graph) -> torch.Tensor:
    """bool ``[n]``: which nodes have a known label."""
    if graph.labels is None:
        reason = f" ({graph.unlabelled})" if graph.unlabelled else ""
        raise ValueError(f"graph: has no labels{reason}, want a graph with labels=")
    return graph.labels >= 0
