"""Batches: parts of a graph that are trained on one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch

from . import ops, pyg
from .checkpoint import digest
from .config import SeeGeraConfig
from .distributed import Processes
from .graph import Graph
from .partition import METHODS, is_number
from .seeds import Site, derive_seed
from .support import arguments


class Batch(NamedTuple):
    """What a forward pass in training is given: the seed of its draws, and further arguments of the model by name."""

    seed: int
    arguments: Mapping[str, Any]


# The batches of one step of the optimiser. Each is made when it is called for.
Step = list[Callable[[], Batch]]


@dataclass(frozen=True, eq=False)
class Batches:
    """Trains on parts of the graph, so that memory is needed for a few parts at a time (Cluster-GCN).

    The nodes are cut into parts with few links between them. In each epoch the parts are shuffled, and every
    ``per_batch`` of them make a batch: the subgraph of their nodes, with the links inside and between these parts. If
    ``per_batch`` does not divide the number of parts, the last batch has fewer. With ``per_batch`` equal to the number
    of parts there is one batch: the whole graph, with its nodes in the order of the parts. Its steps have the loss of
    the whole graph, and on a CPU they are faster.

    Attributes:
        parts: so many parts are made, of the links that are trained on; those of ``graph.parts`` are taken if there are
            as many. Or integers ``[n]``, the part of each node. Or None: ``graph.parts``.
        per_batch: number of parts of a batch.
        per_step: number of batches of a step of the optimiser, which takes the mean of their gradients; None: as many
            as there are processes.
        method: "metis", "streaming" or "auto", see :meth:`Graph.with_parts`.

    Raises:
        TypeError, ValueError: an attribute is of a wrong kind or out of range.

    Example:
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> batches = sf.Batches(parts=8, per_batch=2, method="streaming")
        >>> result = sf.tasks.link_prediction(graph, epochs=2, embedding_dim=16, batches=batches)
        >>> 0 <= result.auc <= 1
        True
    """

    parts: int | torch.Tensor | None = None
    per_batch: int = 1
    per_step: int | None = None
    method: str = "auto"

    def __post_init__(self) -> None:
        parts = self.parts
        if parts is not None:
            if is_number(parts):
                parts = arguments.whole("parts", parts, least=1, wanted="an int, integers or None")
            else:
                parts = arguments.integers("parts", parts, torch.device("cpu"), own=True)
                if parts.ndim != 1:
                    raise ValueError(f"parts: got shape {tuple(parts.shape)}, want [n], the part of each node")
        per_batch = arguments.whole("per_batch", self.per_batch, least=1)
        if self.per_step is not None:
            per_step = arguments.whole("per_step", self.per_step, least=1, wanted="an int or None")
            object.__setattr__(self, "per_step", per_step)
        arguments.choice("method", self.method, METHODS)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "per_batch", per_batch)
        if isinstance(parts, int):
            _check_per_batch(per_batch, parts)

    def part_of(self, graph: Graph) -> torch.Tensor:
        """Int64 ``[n]`` on the CPU: the part of each node of a graph, checked.

        Raises:
            ValueError: parts of another graph, parts without nodes or links, fewer parts than ``per_batch``, or more
                than nodes.
        """
        arguments.instance("graph", graph, Graph)
        part = graph._partition(self._given(graph), self.method)
        _check_per_batch(self.per_batch, int(part.max()) + 1)
        return part

    def _given(self, graph: Graph) -> int | torch.Tensor:
        """The number of parts to make, or the parts."""
        given = self.parts
        if given is None and graph.parts is None:
            raise ValueError("parts: got None and a graph without parts, want a number of parts, or the parts")
        if given is None or (
            isinstance(given, int) and graph.parts is not None and int(graph.parts.max()) + 1 == given
        ):
            return graph.parts
        return given

    def _shared_parts(self, graph: Graph, processes: Processes) -> torch.Tensor:
        """What :meth:`part_of` gives, made in the first process, of which the others may have another METIS."""
        with processes.together():
            given = self._given(graph)
        if processes.size > 1:
            of = given if isinstance(given, int) else digest((given,))
            processes.require_same({"parts": of, "per_batch": self.per_batch, "per_step": self.per_step})
        return processes.broadcast(lambda: self.part_of(graph))


def _check_per_batch(per_batch: int, parts: int) -> None:
    if per_batch > parts:
        raise ValueError(f"per_batch: got {arguments.shown(per_batch)}, want at most {parts}, the number of parts")


def takes_whole(batches: Any, graph: Graph) -> bool:
    """Whether each step is on the whole graph: without batches, or with all parts in one."""
    if not isinstance(batches, Batches):
        return batches is None
    given = batches._given(graph)
    return batches.per_batch == (given if isinstance(given, int) else int(given.max()) + 1)


def check_batches(batches: Any, config: SeeGeraConfig) -> None:
    """Checks the argument ``batches`` of a task, as far as that takes no time.

    Raises:
        TypeError: neither :class:`Batches` nor something that can be iterated anew in each epoch.
        ValueError: the model is one that can't be trained in batches.
    """
    if batches is None:
        return
    if not isinstance(batches, Batches):
        # Of what can be iterated, texts, mappings and arrays hold no Data.
        array = isinstance(batches, torch.Tensor) or hasattr(batches, "shape") or hasattr(batches, "__array__")
        if array or isinstance(batches, (str, bytes, Mapping)) or not isinstance(batches, Iterable):
            raise TypeError(
                f"batches: got {arguments.shown(batches)}, want a seegera_fast.Batches, or a loader of Data"
            )
        if isinstance(batches, Iterator):
            raise TypeError(
                f"batches: got a {type(batches).__name__}, which has an end, want what can be iterated in each epoch, "
                "such as a loader or a list"
            )
    if config.feature_side and config.variant == "independent":
        raise ValueError(
            'batches: got some with variant "independent" (v1), whose feature encoder has a weight for each node, want '
            'None; models of variant "correlated" (v2, v3) can be trained in batches'
        )


class WholeGraph:
    """The whole graph as the only batch of each epoch."""

    facts: Mapping[str, Any] = {}
    count: int | None = 1
    per_step = 1
    steps_per_epoch: int | None = 1

    def steps(self, seed: int, epoch: int) -> Iterator[Step]:
        yield [partial(Batch, derive_seed(seed, epoch), {})]

    def repeated(self) -> Mapping[str, Any] | None:
        """The arguments of the model if they are the same in each step; None: they are not."""
        return {}


class PartBatches:
    """The batches of one run that are made of parts of its graph.

    Args:
        averaging: see :func:`source_of`.

    Attributes:
        facts: what determines the batches besides the seed, by name.
        count: number of batches of an epoch.
    """

    def __init__(self, graph: Graph, batches: Batches, processes: Processes, *, averaging: bool = False) -> None:
        self._averaging = averaging
        part = batches._shared_parts(graph, processes)
        self.graph, self._lean = graph, _without_names(graph)
        self.parts = int(part.max()) + 1
        self.per_batch, self.per_step = batches.per_batch, batches.per_step or processes.size
        # The nodes part by part; those of part p are at starts[p] to starts[p + 1] - 1.
        self._nodes = torch.argsort(part, stable=True)
        self._starts = [0, *torch.bincount(part).cumsum(0).tolist()]
        if graph.folder is None:
            # A copy in this order has the rows of a part one after the other, and a batch is read in a third of the
            # time. A graph in a folder may be larger than the memory.
            with processes.together():
                self._lean = self._lean.subgraph(self._nodes)
            self._nodes = torch.arange(graph.num_nodes, device=part.device)
        self.count = -(-self.parts // self.per_batch)
        # The batch of all parts, which each epoch trains on.
        self._all: Graph | None = None
        self.steps_per_epoch = -(-self.count // self.per_step)
        self.facts = {
            "parts": self.parts,
            "per_batch": self.per_batch,
            "per_step": self.per_step,
            "partition": digest((part,)),
        }

    def order(self, seed: int, epoch: int) -> list[int]:
        """The parts in the order in which the batches of an epoch take them."""
        generator = torch.Generator("cpu").manual_seed(derive_seed(seed, epoch, Site.BATCHES))
        return torch.randperm(self.parts, generator=generator, device="cpu").tolist()

    def subgraph(self, parts: Iterable[int]) -> Graph:
        """The subgraph of some parts. Its nodes are in the order of the parts, and within a part ascending."""
        nodes = [self._nodes[self._starts[part] : self._starts[part + 1]] for part in sorted(parts)]
        return self._lean.subgraph(torch.cat(nodes).to(self.graph.device))

    def steps(self, seed: int, epoch: int) -> Iterator[Step]:
        order = self.order(seed, epoch)
        for begin in range(0, self.count, self.per_step):
            numbers = range(begin, min(begin + self.per_step, self.count))
            yield [partial(self._batch, seed, epoch, number, self._chosen(order, number)) for number in numbers]

    def repeated(self) -> Mapping[str, Any] | None:
        """See :meth:`WholeGraph.repeated`."""
        return self._batch(0, 0, 0, list(range(self.parts))).arguments if self.count == 1 else None

    def _chosen(self, order: list[int], number: int) -> list[int]:
        return order[number * self.per_batch : (number + 1) * self.per_batch]

    def _batch(self, seed: int, epoch: int, number: int, parts: list[int]) -> Batch:
        return _batch(seed, epoch, number, self._graph_of(parts), self.graph)

    def _graph_of(self, parts: list[int]) -> Graph:
        if self.count > 1:
            return _made_ready(self.subgraph(parts), self._averaging)
        if self._all is None:
            # Of a graph in memory, the copy in the order of the parts has all of them.
            graph = self._lean if self.graph.folder is None else self.subgraph(parts)
            self._all = _made_ready(graph, self._averaging)
        return self._all


class LoadedBatches:
    """The batches of one run that a loader of PyTorch Geometric, or another iterable of its ``Data``, gives.

    A ``Data`` with ``n_id`` names nodes of the graph, and the batch is the subgraph of these nodes. Another one is
    taken as it is, for tasks that hold nothing out of the graph. In several processes each goes over the whole loader,
    and takes its own batches of it; it must be the same in all of them.

    Args:
        numbered: every ``Data`` must have ``n_id``, and so has the links and features that the task trains on.
        per_step: number of batches of a step.
        averaging: see :func:`source_of`.
    """

    def __init__(
        self, graph: Graph, loader: Iterable[Any], numbered: bool, per_step: int, *, averaging: bool = False
    ) -> None:
        self._averaging = averaging
        self.graph, self._lean = graph, _without_names(graph)
        self.loader, self.numbered, self.per_step = loader, numbered, per_step
        self.count = self.steps_per_epoch = None
        if hasattr(loader, "__len__"):
            self.count = len(loader)
            self.steps_per_epoch = -(-self.count // self.per_step)
        self.facts = {
            "loader": type(loader).__name__,
            "per_step": self.per_step,
            "batches": self.count,
            "first_batch": self._digest_of_first(),
        }

    def _digest_of_first(self) -> str:
        """Makes a batch, so that a loader of something else is refused before the first step. Returns its digest."""
        with _Draws(self.loader, 0):
            first = next(iter(self.loader), None)
        if first is None:
            raise ValueError("batches: got a loader without any batch, want at least one")
        graph = self.graph_of(first)
        numbers, links = graph.node_numbers, (graph.adjacency.rowptr, graph.adjacency.col)
        return digest(links if numbers is None else (numbers,))

    def graph_of(self, data: Any) -> Graph:
        """The graph of a batch.

        Raises:
            TypeError: not a ``Data``.
            ValueError: it has other features than the graph, or no ``n_id``, ``x`` or edge weights where needed.
        """
        name = "batches"
        try:
            numbers = getattr(data, "n_id", None)
            if numbers is not None:
                return self._numbered(data, numbers)
            if self.numbered:
                raise ValueError(
                    "data: has no n_id, want the numbers of its nodes in the graph, by which the task finds the links "
                    "and features that are not held out"
                )
            weighted = self.graph.weights is not None
            found = Graph.from_pyg(data, labels=None, weighted=weighted, dtype=self.graph.dtype)
            if getattr(data, "x", None) is None:
                # Its nodes would be numbered anew, and so would the features of a graph that has none of its own.
                raise ValueError(
                    "data: has neither n_id nor x, want n_id, the numbers of its nodes in the graph, by which the task "
                    "finds their features"
                )
            if weighted and not pyg.has_weights(data):
                raise ValueError(
                    "data: has no edge weights, and the graph has; want data.edge_weight, or data.n_id, by which the "
                    "weights are taken from the graph"
                )
            if found.num_features != self.graph.num_features:
                raise ValueError(self._other_features(found.num_features))
            return found.to(self.graph.device)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from error

    def _numbered(self, data: Any, numbers: Any) -> Graph:
        width = getattr(getattr(data, "x", None), "shape", (0, self.graph.num_features))[1:]
        if tuple(width) not in ((), (self.graph.num_features,)):
            raise ValueError(self._other_features(width[0]))
        device, nodes = self.graph.device, self.graph.num_nodes
        return self._lean.subgraph(arguments.integers("n_id", numbers, device, nodes, of_nodes=True))

    def _other_features(self, got: int) -> str:
        return f"data: has {got} features, want {self.graph.num_features}, as the graph that the model was built with"

    def steps(self, seed: int, epoch: int) -> Iterator[Step]:
        number, loaded, draws = 0, None, _Draws(self.loader, derive_seed(seed, epoch, Site.BATCHES))
        while True:
            with draws:
                loaded = iter(self.loader) if loaded is None else loaded
                data = list(islice(loaded, self.per_step))
            if not data:
                return
            yield [partial(self._batch, seed, epoch, number + place, one) for place, one in enumerate(data)]
            number += len(data)

    def repeated(self) -> Mapping[str, Any] | None:
        """See :meth:`WholeGraph.repeated`. A loader may give other batches in each epoch."""
        return None

    def _batch(self, seed: int, epoch: int, number: int, data: Any) -> Batch:
        graph = _made_ready(self.graph_of(data), self._averaging)
        return _batch(seed, epoch, number, graph, self.graph)


class _Draws:
    """In its blocks a loader draws from a seed, so that it gives the same batches in each run. No trace is left.

    The generators are torch's own, and those that the loader and its samplers were given.
    """

    def __init__(self, loader: Iterable[Any], seed: int) -> None:
        in_batches = getattr(loader, "batch_sampler", None)
        drawing = (loader, getattr(loader, "sampler", None), in_batches, getattr(in_batches, "sampler", None))
        found = (torch.default_generator, *(getattr(one, "generator", None) for one in drawing))
        # In a block the states that the generators had before it, and between two blocks those to go on from.
        self._states = {
            generator: torch.Generator(generator.device).manual_seed(seed).get_state()
            for generator in found
            if isinstance(generator, torch.Generator)
        }

    def __enter__(self) -> None:
        self._exchange()

    def __exit__(self, *error: object) -> None:
        self._exchange()

    def _exchange(self) -> None:
        for generator, state in self._states.items():
            self._states[generator] = generator.get_state()
            generator.set_state(state)


def _without_names(graph: Graph) -> Graph:
    """The graph with what a step reads, so that nothing else is made for each batch."""
    lean = graph._copy()
    lean.nodes = lean.labels = lean.sides = lean.edge_times = lean.feature_names = None
    lean.masks = {}
    return lean


Source = WholeGraph | PartBatches | LoadedBatches


def _made_ready(graph: Graph, averaging: bool) -> Graph:
    """The graph of a batch, with the forms of its features that steps average by, if they do."""
    if averaging:
        # With none removed, this only makes the normalised forms.
        graph.features = ops.mask_entries(graph.features, 0, 0)
    return graph


def _batch(seed: int, epoch: int, number: int, graph: Graph, whole: Graph) -> Batch:
    return Batch(derive_seed(seed, epoch, Site.BATCHES, number), {"graph": graph, "whole": whole})


def source_of(graph: Graph, batches: Any, *, numbered: bool = False, averaging: bool = False) -> Source:
    """The batches of a run, from the argument ``batches`` of its task.

    Args:
        graph: the graph that is trained on.
        numbered: see :class:`LoadedBatches`.
        averaging: whether steps average by the features as they are (Eq. cor, the decoder's input). What they read for
            that, the transpose and the normalised forms, is then made with the batch, in one pass; the same numbers, up
            to rounding on a GPU.
    """
    if batches is None:
        return WholeGraph()
    processes = Processes.current()
    if isinstance(batches, Batches):
        return PartBatches(graph, batches, processes, averaging=averaging)
    with processes.together():
        return LoadedBatches(graph, batches, numbered, processes.size, averaging=averaging)
