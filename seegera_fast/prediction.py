"""What a trained model says about a graph: embeddings, links and features, and how sure it is of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, NamedTuple, overload

import numpy as np
import torch

from . import checks, ops
from .blocks import embed_in_blocks
from .calibration import Calibration
from .config import SeeGeraConfig
from .distributed import Processes
from .graph import Graph
from .nn import Decoded
from .ops.feature_likelihood import LIKELIHOODS
from .scores import entries, largest_entries, pair_products
from .seeds import Site, derive_seed
from .sides import AUTO, two_sides
from .support import arguments
from .support.progress import phase

# So many draws of the embeddings are in memory at once. Changing it changes the results of ``draws``.
DRAWS_AT_ONCE = 8


class Uncertain(NamedTuple):
    """Numbers whose value is uncertain: mean and standard deviation over draws from the posterior, each ``[m]``."""

    mean: torch.Tensor
    deviation: torch.Tensor


class Links(NamedTuple):
    """Links that are not there yet, the most probable ones first.

    Attributes:
        pairs: int64 ``[m, 2]``: the two nodes.
        probabilities: ``[m]``.
    """

    pairs: torch.Tensor
    probabilities: torch.Tensor


class Attributes(NamedTuple):
    """Features that the nodes probably have, the most probable ones first: the same length ``m`` each.

    Attributes:
        nodes, features: int64 ``[m]``: the number of the node and of the feature.
        values: ``[m]``: expected values; for "bernoulli" they are probabilities.
    """

    nodes: torch.Tensor
    features: torch.Tensor
    values: torch.Tensor


class Prediction:
    """The methods of :class:`SeeGera` that predict. They leave the model as it is, so threads may share one."""

    config: SeeGeraConfig
    # Also of models that earlier versions have pickled.
    calibration: Calibration | None = None
    feature_names: tuple[str, ...] | None = None
    identity_features: bool = False
    node_digest: str | None = None
    weighted: bool | None = None
    normalize_features: bool | None = None
    num_nodes: int
    num_features: int

    @overload
    def embed(
        self,
        graph: Graph | None = None,
        seed: int | torch.Tensor = 0,
        *,
        out: str | os.PathLike[str] | np.ndarray | torch.Tensor | None = None,
        rows_at_once: int | None = None,
        progress: bool = False,
        shared: Literal[False] = False,
    ) -> torch.Tensor: ...

    @overload
    def embed(
        self,
        graph: Graph | None = None,
        seed: int | torch.Tensor = 0,
        *,
        out: str | os.PathLike[str] | np.ndarray | torch.Tensor | None = None,
        rows_at_once: int | None = None,
        progress: bool = False,
        shared: bool,
    ) -> torch.Tensor | None: ...

    def embed(
        self,
        graph: Graph | None = None,
        seed: int | torch.Tensor = 0,
        *,
        out: str | os.PathLike[str] | np.ndarray | torch.Tensor | None = None,
        rows_at_once: int | None = None,
        progress: bool = False,
        shared: bool = False,
    ) -> torch.Tensor | None:
        """Mean embeddings of the nodes, ``[n, d]``: the mean of mu over J draws of the noise, without dropout.

        With ``out`` or ``rows_at_once`` the layers are computed some rows at a time, so that besides the graph only two
        matrices with a row for each node are there at once. With a path as ``out`` these are in files too: what is in
        memory is then a block of rows, the noise ``[n, J, c]``, one more number for each node, and what the system
        keeps of the files. The numbers are the same, up to the rounding of products with dense matrices.

        Args:
            graph: a graph with the model's features and any nodes; None: the graph that the model was built with.
            seed: seed of the noise, which a node's number picks.
            out: where the embeddings are written: a tensor or NumPy array ``[n, d]``, which may be a memory map; or the
                path of a ``.npy`` file, which appears once it is complete. Then the result is mapped from the file.
            rows_at_once: so many rows are computed at once; None: as many as take some 64 MB.
            progress: show on standard error what is done, and what is left of the time.
            shared: the processes of torch.distributed compute the rows together: each of them calls this, and gets all
                embeddings. With a path as ``out`` the first process writes the file, and the others get None.

        Raises:
            TypeError, ValueError: another kind of argument; a graph with other features, or with variant "independent"
                other nodes; an ``out`` of another shape, dtype or device, or read-only; or a path without ``.npy``.
            OSError: the file can't be written; the message names it.

        Example:
            >>> import seegera_fast as sf
            >>> graph = sf.datasets.load("digits")
            >>> model = sf.SeeGera(graph, embedding_dim=16, hidden_dim=16)
            >>> model.embed(out="digits.npy", rows_at_once=500).shape
            torch.Size([1797, 16])
        """
        graph = self._checked(graph)
        seed = checks.seed(seed, graph.device)
        progress = arguments.flag("progress", progress)
        draws = self.config.num_importance_samples
        processes = Processes.current() if arguments.flag("shared", shared) else Processes()
        if out is not None or rows_at_once is not None or processes.size > 1:
            given = {"out": out, "rows_at_once": rows_at_once, "progress": progress, "processes": processes}
            return embed_in_blocks(self.node_mean, graph, draws, seed, **given)
        with torch.no_grad(), phase("embedding", show=progress):
            return self.node_mean(graph.propagation, graph.features, draws, 0.0, seed).mean(dim=1)

    @overload
    def link_scores(
        self,
        pairs: torch.Tensor,
        graph: Graph | None = None,
        seed: int | torch.Tensor = 0,
        draws: None = None,
        *,
        calibrated: bool = False,
    ) -> torch.Tensor: ...

    @overload
    def link_scores(
        self,
        pairs: torch.Tensor,
        graph: Graph | None = None,
        seed: int | torch.Tensor = 0,
        *,
        draws: int,
        calibrated: bool = False,
    ) -> Uncertain: ...

    def link_scores(
        self,
        pairs: torch.Tensor,
        graph: Graph | None = None,
        seed: int | torch.Tensor = 0,
        draws: int | None = None,
        *,
        calibrated: bool = False,
    ) -> torch.Tensor | Uncertain:
        """Probabilities ``sigmoid(mu_i . mu_k)`` of links, ``[m]``, for the pairs of nodes in ``pairs`` ``[m, 2]``.

        Args:
            draws: None: the probabilities of the mean embeddings. A number S, at least 2: the mean and the standard
                deviation (with S - 1 in its denominator) of ``sigmoid(z_i . z_k)`` over S draws of the embeddings from
                the posterior: noise, and then ``z = mu + sigma * epsilon``. The deviation says how sure the model is.
            calibrated: apply the model's :class:`Calibration` in place of the plain sigmoid.

        Returns:
            ``[m]``, or with ``draws`` the pair ``mean``, ``deviation``, both ``[m]``.

        Raises:
            TypeError, ValueError: the pairs are not integers, have another shape, or are out of range; or ``draws`` is
                below 2; or the model has no calibration.

        Example:
            >>> import seegera_fast as sf
            >>> model = sf.SeeGera(sf.datasets.load("digits"), embedding_dim=16, hidden_dim=16)
            >>> mean, deviation = model.link_scores([[0, 1], [0, 2]], draws=64)
            >>> mean.shape, deviation.shape
            (torch.Size([2]), torch.Size([2]))
        """
        if draws is not None:
            draws = arguments.whole("draws", draws, least=2, most=arguments.MOST_DRAWS, wanted="an int or None")
        graph = self._checked(graph)
        pairs = arguments.integers("pairs", pairs, graph.device, graph.num_nodes, of_nodes=True)
        if pairs.numel() == 0:
            pairs = pairs.new_empty(0, 2)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(f"pairs: got shape {tuple(pairs.shape)}, want [m, 2]")
        probability = self._probability(calibrated)
        if draws is not None:
            return self._uncertain_links(pairs, graph, seed, draws, probability)
        embedding = self.embed(graph, seed)
        return probability(pair_products(embedding, pairs)).to(embedding.dtype)

    def _probability(self, calibrated: bool) -> Callable[[torch.Tensor], torch.Tensor]:
        """How inner products become probabilities."""
        if not arguments.flag("calibrated", calibrated):
            return torch.sigmoid
        if self.calibration is None:
            raise ValueError(
                "calibrated: got True, and the model has no calibration: link_prediction with links held "
                "out for validation makes one, where larger scores are more probably links there"
            )
        return self.calibration

    @torch.no_grad()
    def _uncertain_links(
        self,
        pairs: torch.Tensor,
        graph: Graph,
        seed: int | torch.Tensor,
        draws: int,
        probability: Callable[[torch.Tensor], torch.Tensor],
    ) -> Uncertain:
        seed = checks.seed(seed, graph.device)
        mean = torch.zeros(pairs.shape[0], dtype=torch.float64, device=graph.device)
        squares = torch.zeros_like(mean)
        # Welford's recurrence: a deviation that is small beside the mean keeps its digits.
        for draw in range(draws):
            if draw % DRAWS_AT_ONCE == 0:
                samples = self._node_samples(graph, derive_seed(seed, draw // DRAWS_AT_ONCE))
            value = probability(pair_products(samples[:, draw % DRAWS_AT_ONCE], pairs))
            difference = value - mean
            mean += difference / (draw + 1)
            squares += difference * (value - mean)
        deviation = (squares / (draws - 1)).sqrt()
        return Uncertain(mean.to(graph.dtype), deviation.to(graph.dtype))

    def _node_samples(self, graph: Graph, seed: int | torch.Tensor) -> torch.Tensor:
        """``[n, DRAWS_AT_ONCE, d]``: embeddings of the nodes from the posterior, each with noise of its own."""
        encoder_seed = derive_seed(seed, Site.ENCODER)
        nodes = self._encode_nodes(graph.propagation, graph.features, DRAWS_AT_ONCE, 0.0, encoder_seed)
        return self._draw(nodes, derive_seed(seed, Site.SAMPLES, Site.NODES), DRAWS_AT_ONCE)

    def top_links(
        self,
        k: int,
        nodes: torch.Tensor | None = None,
        graph: Graph | None = None,
        seed: int | torch.Tensor = 0,
        *,
        per_node: bool = True,
        known: Graph | None = None,
        sides: torch.Tensor | str | None = None,
        calibrated: bool = False,
    ) -> Links:
        """The most probable links that are not there yet, see :func:`seegera_fast.ops.top_links`.

        After ``link_prediction`` the model's own graph lacks the links that were held out: give the whole ``graph``.

        Args:
            k: so many links for each node, or in all.
            nodes: integers ``[m]``: only links of these nodes; None: of all.
            graph: the graph whose nodes are embedded; see :meth:`embed`.
            per_node: True: k links for each node, node by node, with the node in the first column of the pairs. False:
                the k most probable links of the whole graph, ``i < j``.
            known: a graph with all links that are there; None: ``graph``. After ``link_prediction`` the model's own
                graph lacks the links that were held out.
            sides: for bipartite graphs, integers or booleans ``[n]``: only links between nodes with different ones;
                none of nodes with a negative number. "auto": the two sides of ``graph``, which its edges tell, as in
                :func:`seegera_fast.tasks.split_links`.
            calibrated: see :meth:`link_scores`.

        Returns:
            The pairs and their probabilities, those of :meth:`link_scores`. There are fewer where fewer links are
            missing.

        Raises:
            TypeError, ValueError: an argument of a wrong kind, size or range, or ``k`` is above the number of other
                nodes, or of pairs; or "auto" and a graph that is not bipartite.

        Example:
            >>> import seegera_fast as sf
            >>> model = sf.SeeGera(sf.datasets.load("digits"), embedding_dim=16, hidden_dim=16)
            >>> model.top_links(3, nodes=[5]).pairs.shape
            torch.Size([3, 2])
        """
        graph = self._checked(graph)
        arguments.instance("known", known, Graph, optional=True)
        known = graph if known is None else known.to(graph.device, graph.dtype)
        n = graph.num_nodes
        if n == 1:
            raise ValueError("graph: has one node, want at least two, between which there may be a link")
        if known.num_nodes != n:
            raise ValueError(f"known: has {known.num_nodes} nodes, want {n}, those of graph")
        per_node = arguments.flag("per_node", per_node)
        k = arguments.whole("k", k, least=1, most=n - 1 if per_node else n * (n - 1) // 2)
        if nodes is not None:
            nodes = arguments.integers("nodes", nodes, graph.device, n, of_nodes=True)
            if nodes.ndim != 1:
                raise ValueError(f"nodes: got shape {tuple(nodes.shape)}, want [m]")
        if isinstance(sides, str):
            arguments.choice("sides", sides, (AUTO,))
            sides = torch.from_numpy(two_sides(graph))
        if sides is not None:
            sides = arguments.integers("sides", sides, graph.device, marks=True)
        probability = self._probability(calibrated)
        with torch.no_grad():
            embedding = self.embed(graph, seed)
            asked = embedding
            if sides is not None and sides.shape == (n,):
                # NaN is never suggested.
                asked = embedding.masked_fill(sides[:, None] < 0, torch.nan)
            _, links = ops.top_links(asked, known.adjacency, k, per_node=per_node, nodes=nodes, sides=sides)
            if per_node:
                first = torch.arange(n, device=graph.device) if nodes is None else nodes
                links = torch.stack([first[:, None].expand_as(links), links], dim=2).flatten(0, 1)
            pairs = links[links[:, 1] >= 0]
            # Scores of float32 would round different products to one.
            return Links(pairs, probability(pair_products(embedding, pairs)).to(embedding.dtype))

    def reconstruct_features(
        self, rows: torch.Tensor, cols: torch.Tensor, graph: Graph | None = None, seed: int | torch.Tensor = 0
    ) -> torch.Tensor:
        """Predicts some entries of the feature matrix, from sampled embeddings, averaged over the samples.

        Args:
            rows, cols: integers ``[m]``: the node and the feature of each entry.

        Returns:
            ``[m]``: expected values; for "bernoulli" they are probabilities.

        Raises:
            TypeError, ValueError: the model has no feature side; ``rows`` or ``cols`` are not integers or out of range.
        """
        graph, seed = self._to_reconstruct(graph, seed)
        rows = arguments.integers("rows", rows, graph.device, graph.num_nodes, of_nodes=True)
        cols = arguments.integers("cols", cols, graph.device, self.num_features)
        if rows.ndim != 1 or rows.shape != cols.shape:
            raise ValueError(f"rows, cols: got shapes {tuple(rows.shape)} and {tuple(cols.shape)}, want one [m]")
        with torch.no_grad():
            decoded = self._reconstructed(graph, seed)
            return LIKELIHOODS[self.config.likelihood].mean(entries(decoded, rows, cols)).mean(dim=1)

    def top_attributes(
        self,
        k: int,
        nodes: torch.Tensor | None = None,
        graph: Graph | None = None,
        seed: int | torch.Tensor = 0,
    ) -> Attributes:
        """The most probable missing attributes of each node: entries that are 0 in its features, largest value first.

        The values are those of :meth:`reconstruct_features`. Of equal ones the feature of the smaller number comes
        first. The n x l matrix is never stored. After ``attribute_inference`` the model's own graph lacks the
        entries that were hidden: give the whole ``graph``.

        Args:
            k: so many per node, or fewer where fewer entries are 0.
            nodes: integers ``[m]``: the nodes; None: all.

        Returns:
            The suggestions, node by node.

        Raises:
            TypeError, ValueError: the model has no feature side; ``k`` is not an int from 1 to the number of features,
                or ``nodes`` are not integers or out of range.

        Example:
            >>> import seegera_fast as sf
            >>> model = sf.SeeGera(sf.datasets.load("digits"), embedding_dim=16, hidden_dim=16)
            >>> found = model.top_attributes(3, nodes=[5])
            >>> found.nodes.tolist()
            [5, 5, 5]
        """
        graph, seed = self._to_reconstruct(graph, seed)
        k = arguments.whole("k", k, least=1, most=self.num_features)
        if nodes is None:
            nodes = torch.arange(graph.num_nodes, device=graph.device)
        nodes = arguments.integers("nodes", nodes, graph.device, graph.num_nodes, of_nodes=True)
        if nodes.ndim != 1:
            raise ValueError(f"nodes: got shape {tuple(nodes.shape)}, want [m]")
        with torch.no_grad():
            decoded = self._reconstructed(graph, seed)
            mean = LIKELIHOODS[self.config.likelihood].mean
            return Attributes(*largest_entries(decoded, mean, graph.features, nodes, k))

    def _to_reconstruct(self, graph: Graph | None, seed: int | torch.Tensor) -> tuple[Graph, int | torch.Tensor]:
        if not self.config.feature_side:
            raise ValueError("feature_side: got False, and only a model with a feature side reconstructs features")
        graph = self._checked(graph)
        return graph, checks.seed(seed, graph.device)

    def _reconstructed(self, graph: Graph, seed: int | torch.Tensor) -> Decoded:
        """The factors of the features, from sampled embeddings. The model stays in its mode: threads may use it."""
        draws, encoder_seed = self.config.num_importance_samples, derive_seed(seed, Site.ENCODER)
        nodes, features = self._encode(graph.propagation, graph.features, draws, 0.0, encoder_seed)
        z_nodes, z_features = self._sample(nodes, features, derive_seed(seed, Site.SAMPLES))
        decoder_seed = derive_seed(seed, Site.DECODER)
        return self._decode(graph.propagation, graph.features, z_nodes, z_features, 0.0, decoder_seed)[1]
