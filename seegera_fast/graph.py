"""The graph of a data set, with its features and labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import scipy.sparse
import torch

from .convert import (
    boolean_mask,
    edges_to_coo,
    node_attribute,
    simple,
    symmetric,
)
from .entries import to_coo
from .labels import class_labels, node_names
from .sparse_matrix import SparseMatrix, matrix_of_csr, row_sums
from .support import arguments
from .support.kept import Keeping, kept, lasting
from .tables import Reading, parts_of_graph


class Graph(Keeping):
    """An undirected graph without self-loops, with features of its nodes.

    Args:
        adjacency: ``n x n``: SciPy (any format), NumPy, torch dense or sparse. The weights of duplicate entries are
            added up, as in SciPy and torch. Self-loops are dropped. A matrix that is not symmetric is made symmetric,
            with a warning: an edge in either direction counts, with the larger of its two weights. All arrays are
            copied.
        features: ``n x l``, the same kinds of matrix. None: the identity (``l = n``).
        labels: class of each node: integers ``[n]`` (negative or NaN: unknown), words (None, NaN or "": unknown), or a
            row of scores or a one-hot row per node (zeros: unknown). Words become numbers in their sorted order, and
            :attr:`classes` keeps them. A row with several largest scores, as multi-hot rows have, is refused.
        weighted: keep edge weights in the propagation matrix. Otherwise all edges count 1, with a warning if the input
            has other weights. The link targets are 0 and 1 either way.
        masks: named boolean vectors ``[n]``, such as a data set's public split ("train", "valid", "test").
        name: name of the graph in messages and files.
        nodes: names of the nodes: ``n`` different integers, or ``n`` different strings. None: they have no names.
        dtype: torch.float32 or torch.float64.

    Attributes:
        labels: int64 ``[n]``, negative: unknown; None: the graph has no labels.
        classes: the names of the classes, where the labels were words: label ``k`` has the name ``classes[k]``. Else
            None.
        nodes: NumPy array ``[n]`` of int64 or of strings (dtype object), or None.
        edge_times: float64 ``[num_edges]``: the time of each row of :meth:`edges`, where :meth:`from_table` read times.
            Else None.

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
        dtype: torch.dtype = torch.float32,
    ) -> None:
        arguments.dtype("dtype", dtype)
        arguments.text("name", name)
        weighted = arguments.flag("weighted", weighted)
        if masks is not None and not isinstance(masks, Mapping):
            raise TypeError(f"masks: got {arguments.shown(masks)}, want a mapping of names to boolean vectors")
        for key in masks or ():
            arguments.text("masks", key)
        coo = to_coo(adjacency, "adjacency")
        if coo.shape[0] != coo.shape[1]:
            raise ValueError(f"adjacency: got shape {coo.shape[0]} x {coo.shape[1]}, want a square matrix")
        num_nodes = coo.shape[0]
        if num_nodes == 0:
            raise ValueError("adjacency: got a graph without nodes, want at least one")
        if coo.nnz and coo.data.min() < 0:
            raise ValueError(f"adjacency: got a negative edge weight ({coo.data.min()}), want weights of 0 and above")
        weights = symmetric(simple(coo, weighted))
        if features is None:
            features = scipy.sparse.identity(num_nodes, format="csr")
        feature_matrix = SparseMatrix.from_any(features, name="features", dtype=dtype)
        if feature_matrix.shape[0] != num_nodes:
            raise ValueError(
                f"features: got {feature_matrix.shape[0]} rows, want one per node: adjacency has {num_nodes} nodes"
            )
        if feature_matrix.shape[1] == 0:
            raise ValueError("features: got no columns, want at least one feature (None stands for the identity)")
        device = feature_matrix.device
        self.name = name
        weighted_adjacency = matrix_of_csr(weights, "adjacency", dtype, hollow=True).to(device=device)
        self._weights: torch.Tensor | None = weighted_adjacency.values if weighted else None
        self.adjacency = weighted_adjacency.with_ones()
        self.features = feature_matrix
        self.labels, self.classes = class_labels(labels, num_nodes)
        self.nodes = node_names(nodes, num_nodes)
        self.edge_times: torch.Tensor | None = None
        self.masks = {key: boolean_mask(key, mask, num_nodes) for key, mask in (masks or {}).items()}

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
        adjacency = edges_to_coo(edge_index, num_nodes, edge_weight, features)
        return cls(adjacency, features, labels, **options)

    @classmethod
    def from_table(
        cls,
        edges: Any,
        features: Any = None,
        labels: Any = None,
        *,
        source: str | int | None = None,
        target: str | int | None = None,
        weight: str | int | None = None,
        time: str | int | None = None,
        node: str | int | None = None,
        label: str | int | None = None,
        categories: Collection[str | int] = (),
        names: bool | None = None,
        header: bool | None = None,
        separator: str | None = None,
        encoding: str | None = None,
        comments: str = "#%",
        weighted: bool | None = None,
        **options: Any,
    ) -> Graph:
        """Makes a graph from tables of edges, of features and of labels, whose nodes may have names.

        A table is a file or in memory. A file is text (CSV, TSV, or split at blanks; plain or ``.gz``), Parquet or
        Arrow (with pyarrow). In memory it is a data frame of pandas, polars or pyarrow, a mapping of columns, or an
        array. Rows without names may also be ``.npy``, ``.npz`` (SciPy) or any matrix, and an adjacency ``.npz``.

        Each row of ``edges`` is an edge. One direction is enough; an edge that is there several times counts once, with
        the largest of its weights and the first of its times. A third column of a text without a header is the weight.
        The nodes are all names in the three tables: integers ascend, words are sorted, and :attr:`nodes` keeps them.
        A node without a row of features has zeros, one without a label is unknown; a warning counts either.

        The nodes have no names where they are numbered from 0: all in ``edges`` are integers from 0 on, and rows of
        features and labels have no names.

        Args:
            edges: two columns of names, which are words or integers.
            features: a row of numbers per node, with its name in the first column. A text without a header whose
                columns are all numbers has no names where the nodes are numbered from 0. None: the identity.
            labels: the same with one integer or word per node (negative or empty: unknown), or one column without
                names. None: no labels.
            source, target, weight, time: columns of ``edges``, by their name or their number from 0. None: the first,
                the second, the one that is called "weight", and none. Times are numbers or dates (ISO 8601; as
                seconds since 1970).
            node, label: the column of the names, and that of the labels. None: the first, and the one that is left or
                is called "label" or "class". Features in the same table leave out the column ``label``.
            categories: columns of words among the features: each word becomes a feature of 0 and 1.
            names: True: nodes have names. False: they are numbers from 0. None: as above.
            header: whether the first line of a text has the names of columns. None: as it looks (its fields are words
                above numbers, or usual names of columns, or names that another argument gives).
            separator: "," or ";" or a tab or " " (blanks). None: as in the first line.
            encoding: of text. None: UTF-8.
            comments: letters with which lines of comment start.
            weighted: None: whether ``weight`` is given.
            options: further arguments of :class:`Graph`. The default name is that of the file of edges.

        Raises:
            OSError: a file can't be read.
            ImportError: a Parquet or Arrow file, and pyarrow is not installed.
            TypeError, ValueError: an argument or a table is wrong; the message names the file and the line.

        Example:
            >>> import seegera_fast as sf
            >>> graph = sf.Graph.from_table({"from": ["Ann", "Bob"], "to": ["Bob", "Eve"]}, name="friends")
            >>> graph
            Graph('friends': 3 nodes, 2 edges, 3 features, torch.float32, cpu)
            >>> graph.nodes[graph.edges()].tolist()
            [['Ann', 'Bob'], ['Bob', 'Eve']]
        """
        reading = Reading(
            source=source,
            target=target,
            weight=weight,
            time=time,
            node=node,
            label=label,
            categories=categories,
            names=names,
            header=header,
            separator=separator,
            encoding=encoding,
            comments=comments,
            weighted=weight is not None if weighted is None else weighted,
        ).checked()
        parts = parts_of_graph(edges, features, labels, reading)
        options = {"name": parts.name, "nodes": parts.nodes, "weighted": reading.weighted, **options}
        with parts.named_errors():
            graph = cls(parts.adjacency, parts.features, parts.labels, **options)
        graph.edge_times = None if parts.edge_times is None else torch.from_numpy(parts.edge_times).to(graph.device)
        return graph

    @classmethod
    def from_pyg(cls, data: Any, **options: Any) -> Graph:
        """A graph from a ``torch_geometric.data.Data``: edge_index, x, y, edge_weight and the masks that it has.

        Example:
            >>> import torch
            >>> import seegera_fast as sf
            >>> from torch_geometric.data import Data
            >>> data = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
            >>> sf.Graph.from_pyg(data, name="path")
            Graph('path': 3 nodes, 2 edges, 4 features, torch.float32, cpu)
        """
        for attribute in ("edge_index", "num_nodes"):
            if not hasattr(data, attribute):
                raise TypeError(
                    f"data: got {type(data).__name__} without {attribute}, want a torch_geometric.data.Data"
                )
        masks = {
            key: getattr(data, attribute)
            for key, attribute in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask"))
            if getattr(data, attribute, None) is not None and getattr(data, attribute).ndim == 1
        }
        return cls.from_edge_index(
            data.edge_index,
            getattr(data, "x", None),
            data.num_nodes,
            getattr(data, "y", None),
            edge_weight=getattr(data, "edge_weight", None),
            **{"masks": masks, **options},
        )

    @classmethod
    def from_networkx(cls, g: Any, features: Any = None, labels: Any = None, **options: Any) -> Graph:
        """Makes a graph from a ``networkx`` graph, with the nodes in the order of ``g.nodes``.

        The weights of parallel edges are added up.

        Args:
            features: a matrix with a row per node, or the name of a node attribute that holds a vector.
            labels: one per node, or the name of a node attribute.

        Example:
            >>> import networkx
            >>> import seegera_fast as sf
            >>> sf.Graph.from_networkx(networkx.path_graph(3), name="path")
            Graph('path': 3 nodes, 2 edges, 3 features, torch.float32, cpu)
        """
        import networkx

        if not isinstance(g, networkx.Graph):
            raise TypeError(f"g: got {arguments.shown(g)}, want a networkx.Graph")
        if isinstance(features, str):
            features = np.asarray([node_attribute(g, node, features, "features") for node in g.nodes])
        if isinstance(labels, str):
            labels = np.asarray([node_attribute(g, node, labels, "labels") for node in g.nodes])
        if g.number_of_nodes() == 0:
            raise ValueError("g: got a graph without nodes, want at least one")
        return cls(networkx.to_scipy_sparse_array(g, nodelist=list(g.nodes)), features, labels, **options)

    @property
    def num_nodes(self) -> int:
        return self.adjacency.shape[0]

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
        """int64 ``[num_edges, 2]``: each undirected edge once, ``i < j``, in ascending order."""
        return self._edges

    @kept
    def _edges(self) -> torch.Tensor:
        row, col = self.adjacency.row, self.adjacency.col
        return torch.stack([row, col], dim=1)[row < col]

    @kept
    def propagation(self) -> SparseMatrix:
        """The matrix of graph convolutions: ``D^-1/2 (A + I) D^-1/2`` with ``D`` the degrees of ``A + I``."""
        return propagation_matrix(*self.with_self_loops())

    def with_self_loops(self) -> tuple[SparseMatrix, torch.Tensor]:
        """``A + I`` with its weights, and int64 ``[nnz]``: each entry's row in :meth:`edges`, -1 for a self-loop."""
        return self._looped

    @kept
    def _looped(self) -> tuple[SparseMatrix, torch.Tensor]:
        adjacency, nodes = self.adjacency, torch.arange(self.num_nodes, device=self.device)
        low, high = torch.minimum(adjacency.row, adjacency.col), torch.maximum(adjacency.row, adjacency.col)
        edges = self.edges()
        keys = edges[:, 0] * self.num_nodes + edges[:, 1]
        edge = torch.searchsorted(keys, low * self.num_nodes + high)
        row, col = torch.cat([adjacency.row, nodes]), torch.cat([adjacency.col, nodes])
        weight = adjacency.values if self._weights is None else self._weights
        order = torch.argsort(row * self.num_nodes + col)
        looped = SparseMatrix(
            adjacency.rowptr + torch.arange(self.num_nodes + 1, device=self.device),
            col[order],
            torch.cat([weight, weight.new_ones(self.num_nodes)])[order],
            adjacency.shape,
            symmetric=True,
        )
        return looped, torch.cat([edge, torch.full_like(nodes, -1)])[order]

    @lasting
    def with_edges(self, edges: torch.Tensor) -> Graph:
        """The graph with only the edges ``[m, 2]``, rows of :meth:`edges`. Features and labels are shared."""
        chosen = arguments.integers("edges", edges, self.device)
        if chosen.numel() == 0:
            chosen = chosen.new_empty(0, 2)
        elif chosen.ndim != 2 or chosen.shape[1] != 2:
            raise ValueError(f"edges: got shape {tuple(chosen.shape)}, want [m, 2]")
        low, high = chosen.min(dim=1).values, chosen.max(dim=1).values
        every = self.edges()
        # A number outside 0 .. n - 1 would give the key of another pair.
        inside = (low >= 0) & (high < self.num_nodes)
        kept = torch.isin(every[:, 0] * self.num_nodes + every[:, 1], low * self.num_nodes + high)
        if not inside.all() or int(kept.sum()) != torch.unique(low * self.num_nodes + high).shape[0]:
            raise ValueError("edges: got pairs that are not edges of this graph, want rows of graph.edges()")
        edge = self.with_self_loops()[1]
        keep = kept[edge[edge >= 0]]
        rowptr = torch.zeros_like(self.adjacency.rowptr)
        rowptr[1:] = torch.bincount(self.adjacency.row[keep], minlength=self.num_nodes).cumsum(0)
        graph = self._copy()
        graph.adjacency = SparseMatrix(
            rowptr,
            self.adjacency.col[keep],
            self.adjacency.values[keep],
            self.adjacency.shape,
            symmetric=True,
            hollow=True,
        )
        graph._weights = None if self._weights is None else self._weights[keep]
        graph.edge_times = None if self.edge_times is None else self.edge_times[kept]
        graph._forget()
        return graph

    @lasting
    def with_features(self, features: Any) -> Graph:
        """The same nodes and edges with other features ``n x l``."""
        matrix = SparseMatrix.from_any(features, name="features", dtype=self.dtype).to(device=self.device)
        if matrix.shape[0] != self.num_nodes:
            raise ValueError(f"features: got {matrix.shape[0]} rows, want one per node: {self.num_nodes}")
        if matrix.shape[1] == 0:
            raise ValueError("features: got no columns, want at least one feature")
        graph = self._copy()
        graph.features = matrix
        return graph

    @lasting
    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> Graph:
        """The graph on another device, or in float32 or float64."""
        graph = self._copy()
        graph.adjacency = self.adjacency.to(device=device, dtype=dtype)
        if self._weights is not None:
            graph._weights = self.adjacency.with_values(self._weights).to(device=device, dtype=dtype).values
        graph.features = self.features.to(device=device, dtype=dtype)
        graph.labels = None if self.labels is None else self.labels.to(device=device)
        graph.edge_times = None if self.edge_times is None else self.edge_times.to(device=device)
        graph.masks = {key: mask.to(device=device) for key, mask in self.masks.items()}
        graph._forget()
        return graph

    def _copy(self) -> Graph:
        graph = Graph.__new__(Graph)
        graph.__dict__.update(self.__dict__)
        return graph


def propagation_matrix(looped: SparseMatrix, edge: torch.Tensor, kept: torch.Tensor | None = None) -> SparseMatrix:
    """``D^-1/2 (A + I) D^-1/2`` of the edges ``kept`` (None: all), from what :meth:`Graph.with_self_loops` returns."""
    rowptr, row, col, weight = looped.rowptr, looped.row, looped.col, looped.values
    if kept is not None:
        # The edge number of a self-loop is -1, which is the index of the last element, True.
        stays = torch.cat([kept, kept.new_ones(1)])[edge]
        row, col, weight = row[stays], col[stays], weight[stays]
        rowptr = torch.zeros_like(rowptr)
        rowptr[1:] = torch.bincount(row, minlength=looped.shape[0]).cumsum(0)
    scale = row_sums(rowptr, weight).rsqrt()
    # Symmetric bit for bit, because the product of the two scales does not depend on their order.
    return SparseMatrix(rowptr, col, weight * (scale[row] * scale[col]), looped.shape, symmetric=True)
