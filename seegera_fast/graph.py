"""The graph of a data set, with its features and labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
import torch

from . import backends, networks, ops, pyg
from .compressed import holds
from .convert import (
    boolean_masks,
    edges_to_coo,
    undirected,
    undirected_weights,
    warn_of_lost_edges,
    warn_of_vanished_edges,
)
from .edge_keys import distinct, keys_of, symmetric_structure
from .entries import to_coo
from .graph_files import GraphFiles
from .labels import check_features, class_labels, names_digest, node_names
from .labels import feature_names as names_of_features
from .partition import Partitioned
from .propagation import propagation_matrix
from .sparse_matrix import SparseMatrix, adjacency_of, matrix_of_csr
from .subgraph import Subgraph
from .support import arguments
from .support.frames import check_index, check_square
from .support.hints import maker
from .support.kept import Keeping, kept, lasting
from .support.naming import named
from .tables import FromTable


class Graph(GraphFiles, Keeping, FromTable, Subgraph, Partitioned):
    """An undirected graph without self-loops, with features of its nodes.

    Args:
        adjacency: ``n x n``: SciPy (any format), NumPy, torch dense or sparse, or a data frame of pandas, polars or
            pyarrow, by the order of its rows and columns. The weights of duplicate entries are added up, as in SciPy
            and torch. Self-loops are dropped. A matrix that is not symmetric is made symmetric, with a warning: an edge
            in either direction counts, with the larger of its two weights. All arrays are copied, but those of a
            :class:`SparseMatrix`, which never change.
        features: ``n x l``, the same kinds of matrix. None: the identity (``l = n``).
        labels: class of each node: integers ``[n]`` (negative or NaN: unknown), words (None, NaN or "": unknown), or a
            row of scores or a one-hot row per node (zeros: unknown). Words become numbers in their sorted order, and
            ``classes`` keeps them. A row with several largest scores, as multi-hot rows have, is refused.
        weighted: keep edge weights in the propagation matrix, where an edge of weight 0 vanishes, with a warning.
            Otherwise all edges count 1, also those of weight 0 that a sparse matrix stores, with a warning if the input
            has other weights. The link targets are 0 and 1 either way.
        masks: named boolean vectors ``[n]``, such as a public split, of these names: "train", "valid", "test".
        name: name of the graph in messages and files.
        nodes: names of the nodes: ``n`` different integers, or ``n`` different strings, of which none is empty. None:
            they have no names.
        feature_names: names of the features: ``l`` different strings. None: those of the columns of a data frame;
            else they have no names.
        dtype: torch.float32 or torch.float64.

    Attributes:
        labels: int64 ``[n]``, negative: unknown; None: the graph has no labels.
        classes: the names of the classes, where the labels were words: label ``k`` has the name ``classes[k]``. Else
            None.
        nodes: NumPy array ``[n]`` of int64 or of strings (dtype object), or None.
        feature_names: NumPy array ``[l]`` of strings (dtype object), or None.
        sides: NumPy array ``[n]`` of int64, where ``from_table`` read edges whose two columns have no node in common: 0
            for the nodes of the first, 1 for those of the second, -1 for those without edges. Else None.
        edge_times: float64 ``[num_edges]``: the time of each row of :meth:`edges`, where ``from_table`` read times.
            Else None.
        parts: int64 ``[n]`` on the CPU: the part of each node, see :meth:`seegera_fast.Graph.with_parts`; None: no
            parts.
        data_set: name of the data set, where ``sf.datasets.load`` read the graph: tasks take its preset. Else None.
        node_numbers: int64 ``[n]``: the numbers in the whole graph of the nodes of a
            :meth:`seegera_fast.Graph.subgraph`. Else None.

    Raises:
        TypeError: an argument is of a wrong kind or not numeric.
        ValueError: the adjacency is not square or has no nodes, sizes don't match, a value is NaN, infinite or a
            negative weight, or the pointers and indices of a sparse matrix do not form a matrix of its shape.

    Example:
        >>> import numpy, scipy.sparse
        >>> import seegera_fast as sf
        >>> adjacency = scipy.sparse.coo_array(([1, 1, 1, 1], ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(3, 3))
        >>> graph = sf.Graph(adjacency, features=numpy.eye(3), labels=[0, 0, 1], name="path")
        >>> graph
        Graph('path': 3 nodes, 2 edges, 3 features, torch.float32, cpu)
        >>> graph.edges().tolist()
        [[0, 1], [1, 2]]
    """

    # Why there are no labels, for a message.
    unlabelled: str | None = None
    data_set: str | None = None

    @lasting
    def __init__(
        self,
        adjacency: Any,
        features: Any = None,
        labels: Any = None,
        *,
        weighted: bool = False,
        masks: Mapping[str, Any] | None = None,
        name: str = "graph",
        nodes: Any = None,
        feature_names: Any = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        arguments.dtype("dtype", dtype)
        arguments.text("name", name)
        weighted = arguments.flag("weighted", weighted)
        check_square("adjacency", adjacency)
        coo = to_coo(adjacency, "adjacency")
        if coo.shape[0] != coo.shape[1]:
            raise ValueError(f"adjacency: got shape {coo.shape[0]} x {coo.shape[1]}, want a square matrix")
        num_nodes = coo.shape[0]
        if num_nodes == 0:
            raise ValueError("adjacency: got a graph without nodes, want at least one")
        if coo.nnz and coo.data.min() < 0:
            raise ValueError(f"adjacency: got a negative edge weight ({coo.data.min()}), want weights of 0 and above")
        structure = undirected_weights(coo) if weighted else undirected(coo)
        if features is None:
            features = scipy.sparse.identity(num_nodes, format="csr")
        feature_matrix = SparseMatrix.from_any(features, name="features", dtype=dtype)
        check_features(feature_matrix.shape, num_nodes)
        self.nodes = node_names(nodes, num_nodes)
        for argument, value, axes in (("adjacency", adjacency, 2), ("features", features, 1), ("labels", labels, 1)):
            check_index(argument, value, self.nodes, axes)
        device = feature_matrix.device
        self.name = name
        self._weights: torch.Tensor | None = None
        if weighted:
            weighted_adjacency = matrix_of_csr(structure, "adjacency", dtype, hollow=True).to(device=device)
            self._weights, self.adjacency = weighted_adjacency.values, weighted_adjacency.with_ones()
            warn_of_lost_edges(coo, self.num_edges, dtype)
        else:
            self.adjacency = adjacency_of(*structure, dtype).to(device=device)
        self.features = feature_matrix
        self.labels, self.classes = class_labels(labels, num_nodes)
        self.feature_names = names_of_features(feature_names, features, feature_matrix.shape[1])
        self.edge_times: torch.Tensor | None = None
        self.sides: np.ndarray | None = None
        self.masks = boolean_masks(masks, num_nodes)

    def __repr__(self) -> str:
        return (
            f"Graph({self.name!r}: {self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features, "
            f"{self.dtype}, {self.device})"
        )

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        features: Any = None,
        num_nodes: int | None = None,
        labels: Any = None,
        *,
        edge_weight: Any = None,
        **options: Any,
    ) -> Graph:
        """Makes a graph from ``edge_index`` ``[2, E]``, integer node numbers from 0.

        An edge that is given several times, in one direction or in both, counts once, with the largest of its weights.
        A list of edges of which only some are in both directions is that of a directed graph, and a warning says so.

        Args:
            num_nodes: None: the number of rows of the features, or without features the largest node number plus one.
            edge_weight: ``[E]``; used with ``weighted=True``.
            options: further arguments of :class:`Graph`.

        Raises:
            TypeError: ``num_nodes`` or the node numbers are not integers, or the weights are not real numbers.
            ValueError: a wrong shape, a negative weight, a node number outside ``0 .. num_nodes - 1``, or, without
                ``num_nodes`` and features, a node number that is too large for so few edges (above both 2 million
                and 10 times the number of edges, or beyond 2^31).

        Example:
            >>> import torch
            >>> import seegera_fast as sf
            >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
            >>> sf.Graph.from_edge_index(edge_index, features=torch.rand(3, 4))
            Graph('graph': 3 nodes, 2 edges, 4 features, torch.float32, cpu)
        """
        merge = options.get("weighted", False) is not False
        adjacency = edges_to_coo(edge_index, num_nodes, edge_weight, features, merge=merge)
        adjacency.one_is_enough = True
        with named({"adjacency": "edge_index"}):
            return cls(adjacency, features, labels, **options)

    @classmethod
    def from_pyg(
        cls,
        data: Any,
        *,
        features: Any = pyg.FEATURES,
        labels: Any = pyg.LABELS,
        split: int | None = None,
        **options: Any,
    ) -> Graph:
        """A graph from a ``torch_geometric.data.Data``: its edges, x, y, and the masks that it has.

        The edges are in ``edge_index``, which may be an ``EdgeIndex``, or in ``adj_t`` or ``adj``: a matrix of torch,
        dense or sparse, or of torch_sparse. With ``weighted=True`` the weights are in ``edge_weight``, or in
        ``edge_attr`` if it is one column.

        Args:
            data: one graph with one kind of nodes. A ``Batch`` is taken for one graph.
            features: name of an attribute, or a matrix. None: the identity, as if there is no x.
            labels: name of an attribute, or labels. None: no labels. If y is not one class per node, as in regression
                or where it belongs to the graph, the graph has no labels, with a warning.
            split: of masks ``[n, splits]``, the number of the split to take. None: such masks are left out, with a
                warning.
            options: further arguments of :class:`Graph`.

        Raises:
            TypeError: another kind of data, such as a ``HeteroData``, a ``TemporalData`` or a list; the message says
                what to do.
            ValueError: no edges, a wrong shape or size, several weights per edge, several classes per node, or a part
                of a link split, for which there is :meth:`seegera_fast.tasks.LinkSplit.from_pyg`.

        Example:
            >>> import torch
            >>> import seegera_fast as sf
            >>> from torch_geometric.data import Data
            >>> data = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
            >>> sf.Graph.from_pyg(data, name="path")
            Graph('path': 3 nodes, 2 edges, 4 features, torch.float32, cpu)
        """
        pyg.check_data(data)
        pyg.check_unsplit(data)
        adjacency = pyg.adjacency_of_data(data, arguments.flag("weighted", options.get("weighted", False)))
        missing = "labels=None"
        if isinstance(features, str):
            features = pyg.features_of_data(data, features)
        if isinstance(labels, str):
            labels, missing = pyg.labels_of_data(data, labels, adjacency.shape[0])
        if "masks" not in options:
            options["masks"] = pyg.masks_of_data(data, split)
        elif split is not None:
            raise ValueError(f"split: got {arguments.shown(split)}, want None where masks are given")
        with named({"adjacency": "data"}):
            graph = cls(adjacency, features, labels, **options)
        graph.unlabelled = missing if graph.labels is None else None
        return graph

    @classmethod
    def from_networkx(
        cls, g: Any, features: Any = None, labels: Any = None, *, weight: str | None = networks.WEIGHT, **options: Any
    ) -> Graph:
        """Makes a graph from a ``networkx`` graph, with the nodes in the order of ``g.nodes``.

        The weights of parallel edges are added up. The nodes keep their names if all of them are integers or all are
        strings; else they are called what ``str`` makes of them, if that tells them apart.

        Args:
            features: a matrix with a row per node, or the name of a node attribute that holds a number or a vector.
            labels: one per node, or the name of a node attribute that holds integers or words.
            weight: name of the edge attribute that holds weights, which are used with ``weighted=True``; an edge
                without it weighs 1. None: all edges do.
            options: further arguments of :class:`Graph`.

        Raises:
            TypeError: not a graph of networkx, or weights, features or labels of a wrong kind.
            ValueError: no nodes, an attribute that is not there, or weights, features or labels of wrong values.

        Example:
            >>> import networkx
            >>> import seegera_fast as sf
            >>> graph = sf.Graph.from_networkx(networkx.karate_club_graph(), labels="club", weighted=True)
            >>> graph
            Graph('graph': 34 nodes, 78 edges, 34 features, torch.float32, cpu)
            >>> graph.classes
            ('Mr. Hi', 'Officer')
        """
        import networkx

        if not isinstance(g, networkx.Graph):
            raise TypeError(f"g: got {arguments.shown(g)}, want a networkx.Graph")
        if g.number_of_nodes() == 0:
            raise ValueError("g: got a graph without nodes, want at least one")
        if isinstance(features, str):
            features = networks.rows(networks.node_attribute(g, features, "features"), features)
        if isinstance(labels, str):
            labels = networks.node_attribute(g, labels, "labels")
        options = {"nodes": networks.names_of_nodes(g), **options}
        with named({"adjacency": "g"}):
            return cls(networks.adjacency_of_network(g, weight), features, labels, **options)

    @property
    def num_nodes(self) -> int:
        return self.adjacency.shape[0]

    @kept
    def node_digest(self) -> str | None:
        """A digest of the nodes' names in their order; None: they have no names."""
        return None if self.nodes is None else names_digest(self.nodes)

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def num_edges(self) -> int:
        """The number of undirected edges."""
        return self.adjacency.nnz // 2

    @property
    def weights(self) -> torch.Tensor | None:
        """``[nnz]``: the weight of each entry of the adjacency in the propagation matrix; None: all weights are 1."""
        return self._weights

    @property
    def device(self) -> torch.device:
        return self.adjacency.device

    @property
    def dtype(self) -> torch.dtype:
        return self.adjacency.dtype

    def edges(self) -> torch.Tensor:
        """int64 ``[num_edges, 2]``: each undirected edge once, ``i < j``, in ascending order.

        The graph keeps this tensor: change a clone of it, not the tensor itself.
        """
        return self.adjacency.above

    @kept
    def propagation(self) -> SparseMatrix:
        """The matrix of graph convolutions: ``D^-1/2 (A + I) D^-1/2`` with ``D`` the degrees of ``A + I``."""
        return propagation_matrix(*self.with_self_loops())

    def with_self_loops(self) -> tuple[SparseMatrix, torch.Tensor]:
        """``A + I`` with its weights, and int64 ``[nnz]``: each entry's row in :meth:`edges`, -1 for a self-loop."""
        return self._looped

    @kept
    def _looped(self) -> tuple[SparseMatrix, torch.Tensor]:
        with backends.unforced():
            looped, edge, self.adjacency.above = ops.add_self_loops(self._weighted)
        return looped, edge

    @property
    def _weighted(self) -> SparseMatrix:
        """The adjacency with its weights as values."""
        full = self.adjacency
        if self._weights is None:
            return full
        return SparseMatrix(full.rowptr, full.col, self._weights, full.shape, symmetric=True, hollow=True)

    def _edge_of_entry(self) -> torch.Tensor:
        """int64 ``[nnz]``: the row of :meth:`edges` that each entry of the adjacency belongs to."""
        edge = self.with_self_loops()[1]
        return edge[edge >= 0]

    @lasting
    def with_edges(self, edges: torch.Tensor) -> Graph:
        """The graph with only the edges ``[m, 2]``, rows of :meth:`edges`. Features and labels are shared."""
        chosen = arguments.integers("edges", edges, self.device)
        if chosen.numel() == 0:
            chosen = chosen.new_empty(0, 2)
        elif chosen.ndim != 2 or chosen.shape[1] != 2:
            raise ValueError(f"edges: got shape {tuple(chosen.shape)}, want [m, 2]")
        low, high = torch.minimum(*chosen.T), torch.maximum(*chosen.T)
        # A number outside 0 .. n - 1 would give the key of another pair.
        inside = bool(((low >= 0) & (high < self.num_nodes)).all())
        wanted = distinct(low.mul_(self.num_nodes).add_(high))
        keys = keys_of(self.edges(), self.num_nodes)
        kept = torch.searchsorted(keys, wanted)
        if not inside or not torch.equal(keys[kept[kept < len(keys)]], wanted):
            raise ValueError("edges: got pairs that are not edges of this graph, want rows of graph.edges()")
        return self._keep_edges(kept)

    @lasting
    def _keep_edges(self, kept: torch.Tensor) -> Graph:
        """The graph with only the edges in the rows ``kept`` of :meth:`edges`, int64 ``[m]``, ascending."""
        edges = self.edges()[kept]
        weights = None if self._weights is None else self._weights[self.adjacency.row < self.adjacency.col][kept]
        rowptr, col, weights = symmetric_structure(*edges.T, self.num_nodes, weights)
        graph = self._copy()
        graph.adjacency = SparseMatrix(
            rowptr,
            col,
            self.adjacency.values.new_ones(col.shape[0]),
            self.adjacency.shape,
            symmetric=True,
            hollow=True,
        )
        graph.adjacency.above, graph._weights = edges, weights
        graph.edge_times = None if self.edge_times is None else self.edge_times[kept]
        graph._forget()
        return graph

    @lasting
    def with_features(self, features: Any, feature_names: Any = None) -> Graph:
        """The same nodes and edges with other features ``n x l``, and their names, as a new Graph takes them."""
        matrix = SparseMatrix.from_any(features, name="features", dtype=self.dtype).to(device=self.device)
        check_features(matrix.shape, self.num_nodes)
        check_index("features", features, self.nodes)
        graph = self._copy()
        graph.features = matrix
        graph.feature_names = names_of_features(feature_names, features, matrix.shape[1])
        return graph

    @lasting
    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> Graph:
        """The graph on another device, or in float32 or float64.

        Features and weights that would be zero or subnormal in ``dtype`` are dropped, as a new Graph drops them: edges
        of such weights with a warning.
        """
        weights = self._weights
        if weights is not None and dtype not in (None, self.dtype):
            held = holds(arguments.dtype("dtype", dtype), weights[self.adjacency.row < self.adjacency.col])
            if not bool(held.all()):
                warn_of_vanished_edges(int((~held).sum()), dtype)
                return self._keep_edges(held.nonzero().flatten()).to(device=device, dtype=dtype)
        graph = self._copy()
        graph.adjacency = self.adjacency.to(device=device, dtype=dtype)
        if weights is not None:
            graph._weights = self._weighted.to(device=device, dtype=dtype).values
        graph.features = self.features.to(device=device, dtype=dtype)
        graph.labels = None if self.labels is None else self.labels.to(device=device)
        graph.edge_times = None if self.edge_times is None else self.edge_times.to(device=device)
        graph.masks = {key: mask.to(device=device) for key, mask in self.masks.items()}
        graph.node_numbers = None if self.node_numbers is None else self.node_numbers.to(device=device)
        graph._forget()
        return graph

    def _copy(self) -> Graph:
        graph = Graph.__new__(Graph)
        graph.__dict__.update(self.__dict__)
        graph.masks = dict(self.masks)
        return graph

    def __copy__(self) -> Graph:
        # A pickle, as which copy.copy would take it, does not know the files that the graph is mapped from.
        return self._copy()


def check_graph(value: Any) -> None:
    if not isinstance(value, Graph):
        raise TypeError(f"graph: got {type(value).__name__}, want a seegera_fast.Graph{maker(value)}")
    # What torch.compile traces can't ask the system about files.
    if not torch.compiler.is_compiling():
        value.require_unchanged()
