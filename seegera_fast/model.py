"""The SeeGera model, made of the operations in ``seegera_fast.ops``."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from . import checks, ops
from .capture import CapturedStep
from .config import SeeGeraConfig, checked_fields
from .convert import FLOATING
from .graph import Graph
from .masking import mask_features, mask_structure
from .nn import Decoded, Decoder, Encoder, Head, InnerProductDecoder
from .objective import Output, Posterior, Targets, bound
from .ops.feature_likelihood import LIKELIHOODS
from .seeds import Site, derive_seed, seed_tensor
from .sparse_matrix import SparseMatrix
from .support.atomic import written_aside
from .support.kept import lasting
from .support.pieces import pieces

FORMAT = "seegera_fast.SeeGera/1"


class SeeGera(nn.Module):
    """The semi-implicit graph variational auto-encoder of the paper.

    Args:
        graph: the graph that sets the sizes, and the default graph of the methods below.
        config: the configuration; None: the defaults.
        seed: seed of the initial weights, and of the draws in calls without a seed.
        options: fields of :class:`SeeGeraConfig`; they override those of ``config``.

    Raises:
        TypeError: an unknown field; the message names the most similar ones.
        ValueError: a field is out of range, "bernoulli" with features outside [0, 1], or too many negatives.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> model = sf.SeeGera(graph, embedding_dim=16, hidden_dim=16, structure_masking_rate=0.2)
        >>> optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        >>> for epoch in range(1, 4):
        ...     optimizer.zero_grad()
        ...     model(graph, warmup=min(epoch / 300, 1)).loss.backward()
        ...     optimizer.step()
        >>> model.embed().shape
        torch.Size([1797, 16])
        >>> model.link_scores(torch.tensor([[0, 1], [0, 2]])).shape
        torch.Size([2])
        >>> model.save("model.safetensors")
        >>> model = sf.SeeGera.load("model.safetensors", graph)
    """

    @lasting
    def __init__(self, graph: Graph, config: SeeGeraConfig | None = None, *, seed: int = 0, **options: Any) -> None:
        super().__init__()
        if not isinstance(graph, Graph):
            raise TypeError(f"graph: got {type(graph).__name__}, want a seegera_fast.Graph")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"seed: got {seed!r}, want an int")
        checks.seed(seed, None)
        checked_fields(options, [field.name for field in fields(SeeGeraConfig)])
        self.config = replace(config or SeeGeraConfig(), **options)
        self.seed = seed
        self.num_nodes, self.num_features = graph.num_nodes, graph.num_features
        self._check_targets(graph)
        self._graph: Graph | None = graph
        self._steps = 0
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed would also seed the GPUs.
            torch.default_generator.manual_seed(seed)
            self._build()
        self.to(device=graph.device, dtype=graph.dtype)
        self._prepare(graph)

    def _prepare(self, graph: Graph) -> None:
        """Computes what the graph keeps for the steps, so that torch.compile finds it there in its first one."""
        _ = graph.propagation, graph.edges(), graph.features.parts
        if self.config.feature_side and self.config.variant == "correlated":
            _ = graph.features.row_normalized.parts
        if self.config.negatives != "all":
            _ = graph.adjacency.non_edges

    def _build(self) -> None:
        config = self.config
        widths = (config.hidden_dim, config.embedding_dim)

        def encoder(in_dim: int, noise_dim: int, layers: int, kind: str) -> Encoder:
            return Encoder(in_dim, noise_dim, *widths, layers, kind=kind, noise_prob=config.noise_prob)

        variance_noise = config.noise_dim if config.noisy_variance else 0
        self.node_mean = encoder(self.num_features, config.noise_dim, config.encoder_layers, config.encoder)
        self.node_log_var = encoder(self.num_features, variance_noise, config.encoder_layers, config.encoder)
        if not config.feature_side:
            return
        if config.variant == "independent":
            self.feature_mean = encoder(self.num_nodes, config.noise_dim, 2, "mlp")
            self.feature_log_var = encoder(self.num_nodes, variance_noise, 2, "mlp")
        else:
            self.feature_mean = Head(config.embedding_dim, *widths)
            self.feature_log_var = Head(config.embedding_dim, *widths)
        if config.decoder == "inner_product":
            self.decoder: nn.Module = InnerProductDecoder()
        else:
            self.decoder = Decoder(
                config.embedding_dim,
                config.hidden_dim,
                self.num_features,
                config.decoder_layers,
                kind=config.decoder,
                feature_embeddings=config.feature_embeddings,
                has_log_var=LIKELIHOODS[config.likelihood].has_log_var,
            )

    def _check_targets(self, graph: Graph) -> None:
        """Raises a ValueError if the likelihood can't take the features, or there are too few non-edges to draw."""
        name, likelihood = self.config.likelihood, LIKELIHOODS[self.config.likelihood]
        if self.config.feature_side and not likelihood.takes_any:
            low, high = graph.features.value_range
            if low < likelihood.low or high > likelihood.high:
                others = " and ".join(f'"{other}"' for other, entry in LIKELIHOODS.items() if entry.takes_any)
                raise ValueError(
                    f'likelihood: got "{name}" with features from {low:g} to {high:g}, want values in '
                    f"[{likelihood.low:g}, {likelihood.high:g}]; {others} take any"
                )
        negatives, available = self.config.negatives, graph.adjacency.non_edge_count
        if negatives != "all":
            drawn = graph.num_edges if negatives == "edges" else negatives
            if not 1 <= drawn <= available:
                raise ValueError(f'negatives: got {negatives!r} ({drawn}), want "all" or 1 to {available} non-edges')

    def _checked(self, graph: Graph | None) -> Graph:
        if graph is None:
            graph = self._graph
            if graph is None:
                raise ValueError("graph: got none, and the model was loaded without one")
        elif graph is not self._graph:
            if not isinstance(graph, Graph):
                raise TypeError(f"graph: got {type(graph).__name__}, want a seegera_fast.Graph")
            if (graph.num_nodes, graph.num_features) != (self.num_nodes, self.num_features):
                raise ValueError(
                    f"graph: has {graph.num_nodes} nodes and {graph.num_features} features, want {self.num_nodes} and "
                    f"{self.num_features}, those of the model"
                )
        return graph

    def forward(
        self, graph: Graph | None = None, *, seed: int | torch.Tensor | None = None, warmup: float | torch.Tensor = 1.0
    ) -> Output:
        """Draws psi and the embeddings, and computes the loss.

        In training mode, edges and features are masked (v3) and dropout is applied, both with new draws at each call.

        Args:
            graph: a graph of the model's sizes; None: the graph that the model was built with.
            seed: seed of all draws: an int, or an int64 tensor of one element. None: a new one at each call.
            warmup: factor t of the regularising terms, in [0, 1].

        Raises:
            TypeError, ValueError: a graph of other sizes, "bernoulli" with features outside [0, 1], too many negatives,
                or a seed of another kind.
        """
        graph = self._checked(graph)
        self._check_targets(graph)
        if seed is None:
            seed = self._next_seed_as_tensor() if torch.compiler.is_compiling() else self.next_seed()
        if torch.compiler.is_compiling() and isinstance(seed, int):
            # torch.compile can't compute with all 64 bits of a number that differs from call to call.
            seed = seed_tensor(seed, graph.device)
        checks.seed(seed, graph.device)
        config = self.config
        propagation, features, visible_edges = graph.propagation, graph.features, graph.num_edges
        if self.training:
            mask_seed = derive_seed(seed, Site.STRUCTURE_MASK)
            propagation, visible_edges = mask_structure(graph, config.structure_masking_rate, mask_seed)
            features = mask_features(features, config.feature_masking_rate, derive_seed(seed, Site.FEATURE_MASK))
        draws = config.num_mixture_samples + config.num_importance_samples
        nodes, feature_rows = self.encode(propagation, features, draws, derive_seed(seed, Site.ENCODER))
        z_nodes, z_features = self._sample(nodes, feature_rows, derive_seed(seed, Site.SAMPLES))
        decoder_seed = derive_seed(seed, Site.DECODER)
        z_links, decoded = self._decode(propagation, features, z_nodes, z_features, decoder_seed)
        return bound(
            config,
            Targets(graph.adjacency, features, features is not graph.features, visible_edges),
            [(z_nodes, nodes)] if feature_rows is None else [(z_nodes, nodes), (z_features, feature_rows)],
            z_links,
            decoded,
            warmup=warmup,
            seed=derive_seed(seed, Site.NEGATIVES),
        )

    def next_seed(self) -> int:
        """The seed of the next step without one: derived from the model's seed, the number of such steps, and the rank.

        With torch.distributed each rank draws its own numbers; rank 0 draws those of a run in one process.
        """
        seed = derive_seed(self.seed, self._steps)
        self._steps += 1
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if distributed else 0
        return derive_seed(seed, Site.RANK, rank) if rank else seed

    @torch.compiler.disable
    def _next_seed_as_tensor(self) -> torch.Tensor:
        # torch.compile would compile a number anew for each step.
        return seed_tensor(self.next_seed(), torch.device("cpu"))

    def capture(self, optimizer: torch.optim.Optimizer, graph: Graph | None = None) -> CapturedStep:
        """Records a training step (forward, backward and the optimiser's step) as a CUDA graph.

        A call ``step(seed=..., warmup=...)`` of the result has the same draws and the same effect as an eager step,
        without the time that Python takes. The optimiser's settings, such as its learning rate, are recorded too.

        Args:
            optimizer: of the model's parameters, such as ``torch.optim.Adam(..., fused=True, capturable=True)``.
            graph: see :meth:`forward`.

        Raises:
            TypeError, ValueError: ``optimizer`` is not an optimiser or not capturable, or the model is not on a GPU.
        """
        graph = self._checked(graph)
        self._check_targets(graph)
        return CapturedStep(self, optimizer, graph)

    @property
    def graph(self) -> Graph | None:
        """The default graph of the methods; None: the model was loaded without one."""
        return self._graph

    def encode(
        self, propagation: SparseMatrix, features: SparseMatrix, num_draws: int, seed: int | torch.Tensor
    ) -> tuple[Posterior, Posterior | None]:
        """Draws psi for the nodes and, with a feature side, for the features (Eq. psi_1, psi_2, cor)."""
        config = self.config
        rate = config.dropout if self.training else 0.0
        variance_draws = num_draws if config.noisy_variance else 1
        # With a noisy variance both branches read the same noisy input, so they have the same seed.
        noisy_log_var = Site.MEAN if config.noisy_variance else Site.LOG_VAR

        mean_seed = derive_seed(seed, Site.NODES, Site.MEAN)
        log_var_seed = derive_seed(seed, Site.NODES, noisy_log_var)
        mean = self.node_mean(propagation, features, num_draws, rate, mean_seed)
        log_var = self.node_log_var(propagation, features, variance_draws, rate, log_var_seed)
        nodes = Posterior(mean, log_var)
        if not config.feature_side:
            return nodes, None

        mean_seed = derive_seed(seed, Site.FEATURES, Site.MEAN)
        if config.variant == "independent":
            log_var_seed = derive_seed(seed, Site.FEATURES, noisy_log_var)
            by_feature = features.transposed
            feature_mean = self.feature_mean(None, by_feature, num_draws, rate, mean_seed)
            feature_log_var = self.feature_log_var(None, by_feature, variance_draws, rate, log_var_seed)
        else:
            log_var_seed = derive_seed(seed, Site.FEATURES, Site.LOG_VAR)
            feature_mean = self.feature_mean(ops.feature_average(features, mean), rate, mean_seed)
            feature_log_var = self.feature_log_var(ops.feature_average(features, log_var), rate, log_var_seed)
        return nodes, Posterior(feature_mean, feature_log_var)

    def _sample(
        self, nodes: Posterior, features: Posterior | None, seed: int | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        samples = self.config.num_importance_samples

        def draw(posterior: Posterior, site: int) -> torch.Tensor:
            mean, log_var = posterior
            log_var = log_var if log_var.shape[1] == 1 else log_var[:, -samples:]
            return ops.reparameterize(mean[:, -samples:], log_var, derive_seed(seed, site))

        return draw(nodes, Site.NODES), None if features is None else draw(features, Site.FEATURES)

    def _decode(
        self,
        propagation: SparseMatrix,
        features: SparseMatrix,
        z_nodes: torch.Tensor,
        z_features: torch.Tensor | None,
        seed: int | torch.Tensor,
    ) -> tuple[torch.Tensor, Decoded | None]:
        """The node samples for the link decoder, after dropout, and the output of the feature decoder."""
        rate = self.config.dropout if self.training else 0.0
        if rate > 0:
            z_nodes = ops.dropout(z_nodes, rate, derive_seed(seed, Site.NODE_DROPOUT))
        if z_features is None:
            return z_nodes, None
        if rate > 0:
            z_features = ops.dropout(z_features, rate, derive_seed(seed, Site.FEATURE_DROPOUT))
        decoder_seed = derive_seed(seed, Site.FEATURE_DECODER)
        return z_nodes, self.decoder(propagation, features, z_nodes, z_features, rate, decoder_seed)

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.train(training)

    def embed(self, graph: Graph | None = None, seed: int | torch.Tensor = 0) -> torch.Tensor:
        """Mean embeddings of the nodes, ``[n, d]``: the mean of mu over J draws of the noise, without dropout."""
        graph = self._checked(graph)
        checks.seed(seed, graph.device)
        with self._evaluating():
            draws = self.config.num_importance_samples
            return self.node_mean(graph.propagation, graph.features, draws, 0.0, seed).mean(dim=1)

    def link_scores(
        self, pairs: torch.Tensor, graph: Graph | None = None, seed: int | torch.Tensor = 0
    ) -> torch.Tensor:
        """Probabilities ``sigmoid(mu_i . mu_k)`` of links, ``[m]``, for the pairs of nodes in ``pairs`` ``[m, 2]``.

        Raises:
            TypeError, ValueError: the pairs are not integers, have another shape, or are out of range.
        """
        pairs = _integers("pairs", pairs, self.node_mean.first.weight.device)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(f"pairs: got shape {tuple(pairs.shape)}, want [m, 2]")
        _check_range("pairs", pairs, self.num_nodes)
        embedding = self.embed(graph, seed)
        return torch.sigmoid(pair_products(embedding, pairs)).to(embedding.dtype)

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
        if not self.config.feature_side:
            raise ValueError("feature_side: got False, and only a model with a feature side reconstructs features")
        graph = self._checked(graph)
        checks.seed(seed, graph.device)
        rows, cols = _integers("rows", rows, graph.device), _integers("cols", cols, graph.device)
        if rows.ndim != 1 or rows.shape != cols.shape:
            raise ValueError(f"rows, cols: got shapes {tuple(rows.shape)} and {tuple(cols.shape)}, want one [m]")
        _check_range("rows", rows, self.num_nodes)
        _check_range("cols", cols, self.num_features)
        with self._evaluating():
            draws = self.config.num_importance_samples
            nodes, features = self.encode(graph.propagation, graph.features, draws, derive_seed(seed, Site.ENCODER))
            z_nodes, z_features = self._sample(nodes, features, derive_seed(seed, Site.SAMPLES))
            decoder_seed = derive_seed(seed, Site.DECODER)
            _, decoded = self._decode(graph.propagation, graph.features, z_nodes, z_features, decoder_seed)
            return LIKELIHOODS[self.config.likelihood].mean(_entries(decoded, rows, cols)).mean(dim=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes weights, configuration and sizes to a safetensors file, which appears once it is complete."""
        header = {
            "format": FORMAT,
            "config": json.dumps(asdict(self.config)),
            "seed": str(self.seed),
            "num_nodes": str(self.num_nodes),
            "num_features": str(self.num_features),
        }
        content = safetensors.torch.save(
            {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}, header
        )
        with written_aside(pathlib.Path(path)) as file:
            file.write(content)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], graph: Graph | None = None, device: torch.device | str = "cpu"
    ) -> SeeGera:
        """Reads a model written by :meth:`save`.

        Args:
            graph: the default graph of the methods; None: each call needs a graph.
            device: the device of the weights, if no graph is given; with a graph, the graph's device is taken.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file was not written by :meth:`save`, or the graph has other sizes.
        """
        if pathlib.Path(path).is_dir():
            raise ValueError(f"path: {path} is a folder, want a file of SeeGera.save")
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except safetensors.SafetensorError as error:
            raise ValueError(f"path: {path} is not a safetensors file ({error})") from error
        if header.get("format") != FORMAT:
            raise ValueError(f"path: {path} has format {header.get('format')!r}, want {FORMAT!r}")
        missing = [key for key in ("config", "seed", "num_nodes", "num_features") if key not in header]
        if missing:
            raise ValueError(f"path: {path} lacks {', '.join(missing)} in its header, want a file of SeeGera.save")
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        try:
            config = json.loads(header["config"])
            checked_fields(config, [field.name for field in fields(SeeGeraConfig)])
            model.config = SeeGeraConfig(**config)
            model.seed = int(header["seed"])
            model.num_nodes, model.num_features = int(header["num_nodes"]), int(header["num_features"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"path: {path} has a header that isn't that of a model ({error})") from error
        model._graph, model._steps = None, 0
        with torch.random.fork_rng(devices=[]):
            model._build()
        _check_state(path, state, model.state_dict())
        model.to(device=device if graph is None else graph.device, dtype=next(iter(state.values())).dtype)
        model.load_state_dict(state)
        if graph is not None:
            model._graph = model._checked(graph)
        return model


def _check_state(path: str | os.PathLike[str], found: dict[str, torch.Tensor], model: dict[str, torch.Tensor]) -> None:
    """Raises a ValueError if the tensors of a file are not those of a model with its configuration."""
    for name in {**model, **found}:
        if name not in found:
            raise ValueError(f"path: {path} lacks the tensor {name}")
        if name not in model:
            raise ValueError(f"path: {path} has a tensor {name}, which its configuration has not")
        if found[name].shape != model[name].shape or found[name].dtype not in FLOATING:
            raise ValueError(
                f"path: {path} has {name} as {found[name].dtype} {tuple(found[name].shape)}, want torch.float32 or "
                f"torch.float64 {tuple(model[name].shape)}"
            )


def pair_products(embedding: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """``e_i . e_k`` for pairs ``[m, 2]`` of rows of ``[n, d]``, in float64, where float32 numbers do not overflow."""
    products = [embedding[low].double().mul_(embedding[high]).sum(dim=1) for low, high in pieces(embedding, *pairs.t())]
    return torch.cat(products) if products else embedding.new_zeros(0, dtype=torch.float64)


def _entries(decoded: Decoded, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
    """The entries (rows, cols) of ``hidden @ weight``, ``[m, J]``."""
    weight = decoded.weight if decoded.weight.ndim == 3 else decoded.weight[None]
    by_feature = weight.permute(2, 0, 1).contiguous()  # [l, 1 or J, h]
    hidden = decoded.hidden
    entries = [(hidden[row] * by_feature[col]).sum(dim=2) for row, col in pieces(hidden, rows, cols)]
    return torch.cat(entries) if entries else hidden.new_zeros(0, hidden.shape[1])


def _integers(name: str, index: Any, device: torch.device) -> torch.Tensor:
    """Converts node or feature numbers to int64, because torch would take a uint8 or bool tensor for a mask."""
    try:
        index = torch.as_tensor(index, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"{name}: got {type(index).__name__} that is no tensor of integers ({error})") from None
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise TypeError(f"{name}: got {index.dtype}, want integers")
    return index.to(torch.int64)


def _check_range(name: str, index: torch.Tensor, size: int) -> None:
    if index.numel() and not (int(index.min()) >= 0 and int(index.max()) < size):
        raise ValueError(f"{name}: got numbers from {int(index.min())} to {int(index.max())}, want 0 to {size - 1}")
