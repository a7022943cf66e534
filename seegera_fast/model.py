"""The SeeGera model, made of the operations in ``seegera_fast.ops``."""

from __future__ import annotations

import copy
import os
import pathlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import IO, Any

import torch
from torch import nn

from . import checks, matching, model_file, ops, precision
from .backends import REFERENCE, Lease
from .capture import CapturedStep
from .config import SeeGeraConfig, checked_fields
from .distributed import Processes
from .graph import Graph, check_graph
from .masking import mask_features, mask_structure
from .model_file import ModelHeader
from .nn import Decoded, Decoder, Encoder, Head, InnerProductDecoder
from .objective import Output, Posterior, Targets, bound, check_targets
from .ops.feature_likelihood import LIKELIHOODS
from .prediction import Prediction
from .seeds import Site, derive_seed, seed_tensor
from .sparse_matrix import SparseMatrix
from .support import arguments, tensor_file
from .support.atomic import written_aside
from .support.eager import eagerly
from .support.kept import lasting


class SeeGera(Prediction, nn.Module):
    """The semi-implicit graph variational auto-encoder of the paper.

    Args:
        graph: the graph that sets the features, and the default graph of the methods below. They take any other graph
            with these features too; with variant "independent" it has to have the same nodes.
        config: the configuration; None: the defaults.
        seed: seed of the initial weights, and of the draws in calls without a seed.
        prepare: True: what steps on the whole graph need is computed now; False: at its first use, as is better where
            the model is trained in batches.
        options: fields of :class:`SeeGeraConfig`; they override those of ``config``.

    Attributes:
        calibration: how inner products become calibrated probabilities; None: not known. ``link_prediction`` sets
            it where there is a validation part, and the model's file keeps it.
        feature_names: the names of the features, if the graph has them; a graph with other names is refused.
        weighted: whether the edges of the graph have weights. A graph where it is otherwise is warned of.
        normalize_features: whether the task that trained the model divided each row of the features by the sum of its
            absolute values; None: not known. A graph of other features is warned of.

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
    def __init__(
        self,
        graph: Graph,
        config: SeeGeraConfig | None = None,
        *,
        seed: int = 0,
        prepare: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        check_graph(graph)
        if config is not None and not isinstance(config, SeeGeraConfig):
            raise TypeError(f"config: got {checks.shown(config)}, want a seegera_fast.SeeGeraConfig")
        if isinstance(seed, torch.Tensor):
            raise TypeError("seed: got a tensor, want an int")
        seed = checks.seed(seed, None)
        prepare = arguments.flag("prepare", prepare)
        checked_fields(options, [field.name for field in fields(SeeGeraConfig)])
        config = replace(config or SeeGeraConfig(), **options)
        self._begin(model_file.header_of(config, seed, graph), lease=Lease())
        check_targets(self.config, graph)
        self._graph = graph
        # A generator of its own, so that models that threads build at the same time don't draw each other's numbers.
        self._build(torch.Generator("cpu").manual_seed(seed))
        self.to(device=graph.device, dtype=graph.dtype)
        if prepare:
            self._prepare(graph)

    def _prepare(self, graph: Graph) -> None:
        """Computes what the graph keeps for the steps, so that torch.compile finds it there in its first one."""
        _ = graph.propagation, graph.edges(), graph.features.parts, graph.features.value_range, graph.features.value_sum
        if self.config.feature_side and self.config.variant == "correlated":
            _ = graph.features.row_normalized.parts
        if self.config.negatives != "all":
            _ = graph.adjacency.non_edges

    def _begin(self, header: ModelHeader, lease: Lease | None) -> None:
        """Sets what a model has besides its layers."""
        for entry in fields(header):
            setattr(self, entry.name, getattr(header, entry.name))
        self._graph: Graph | None = None
        self._steps, self._lease = 0, lease

    def _build(self, start: torch.Generator | None) -> None:
        """Makes the layers. Without a generator, their weights have no values yet."""
        config = self.config
        widths = (config.hidden_dim, config.embedding_dim)

        def encoder(in_dim: int, noise_dim: int, layers: int, kind: str, output: str) -> Encoder:
            given = {"kind": kind, "noise_prob": config.noise_prob, "output": output}
            return Encoder(start, in_dim, noise_dim, *widths, layers, **given)

        variance_noise = config.noise_dim if config.noisy_variance else 0
        nodes = (config.encoder_layers, config.encoder, config.encoder_output)
        self.node_mean = encoder(self.num_features, config.noise_dim, *nodes)
        self.node_log_var = encoder(self.num_features, variance_noise, *nodes)
        if not config.feature_side:
            return
        if config.variant == "independent":
            self.feature_mean = encoder(self.num_nodes, config.noise_dim, 2, "mlp", "linear")
            self.feature_log_var = encoder(self.num_nodes, variance_noise, 2, "mlp", "linear")
        else:
            self.feature_mean = Head(start, config.embedding_dim, *widths)
            self.feature_log_var = Head(start, config.embedding_dim, *widths)
        if config.decoder == "inner_product":
            self.decoder: nn.Module = InnerProductDecoder()
        else:
            self.decoder = Decoder(
                start,
                config.embedding_dim,
                config.hidden_dim,
                self.num_features,
                config.decoder_layers,
                kind=config.decoder,
                feature_embeddings=config.feature_embeddings,
                has_log_var=LIKELIHOODS[config.likelihood].has_log_var,
            )

    def _checked(self, graph: Graph | None) -> Graph:
        if graph is None:
            graph = self._graph
            if graph is None:
                raise ValueError("graph: got none, and the model was loaded without one")
        elif graph is not self._graph:
            matching.check_graph(self, graph)
        matching.check_kind(self.node_mean.first.weight, graph)
        return graph

    def _apply(self, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> SeeGera:
        """Moves or converts the weights, for ``to``, ``double`` and their like. The model's own graph follows."""
        super()._apply(function, recurse)
        graph, weight = self._graph, self.node_mean.first.weight
        if graph is not None and matching.should_follow(graph, weight):
            self._graph = graph.to(device=weight.device, dtype=weight.dtype)
            if "propagation" in graph.__dict__:
                self._prepare(self._graph)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> SeeGera:
        """A model with its own weights. The graph, which nothing changes, is shared."""
        copied = memo[id(self)] = type(self).__new__(type(self))
        if self._graph is not None:
            memo[id(self._graph)] = self._graph
        copied.__dict__.update(copy.deepcopy(self.__getstate__(), memo))
        return copied

    def forward(
        self,
        graph: Graph | None = None,
        *,
        seed: int | torch.Tensor | None = None,
        warmup: float | torch.Tensor = 1.0,
        whole: Graph | None = None,
    ) -> Output:
        """Draws psi and the embeddings, and computes the loss.

        In training mode, edges and features are masked (v3) and dropout is applied, both with new draws at each call.

        Args:
            graph: a graph with the model's features and any nodes; None: the graph that the model was built with.
            seed: seed of all draws: an int, or an int64 tensor of one element. None: a new one at each call.
            warmup: factor t of the regularising terms, in [0, 1].
            whole: the graph that ``graph`` is a part of, as a batch is; None: it is no part. With scaling "sum" the
                bound of the part then estimates that of the whole. No more non-edges are drawn than the part has.

        Raises:
            TypeError, ValueError: a graph with other features, or with variant "independent" other nodes; "bernoulli"
                with features outside [0, 1], too many negatives, or a seed or a factor of another kind or out of range.
        """
        graph = self._checked(graph)
        if torch.compiler.is_compiling() and precision.backend_of(graph.device) is REFERENCE:
            return eagerly(self.forward, graph, seed=seed, warmup=warmup, whole=whole)
        arguments.instance("whole", whole, Graph, optional=True)
        check_targets(self.config, graph, whole)
        warmup = checks.rate("warmup", warmup)
        if seed is None:
            seed = eagerly(self._next_seed_as_tensor) if torch.compiler.is_compiling() else self.next_seed()
        elif torch.compiler.is_compiling() and isinstance(seed, int):
            # torch.compile can't compute with all 64 bits of a number that differs from call to call.
            seed = seed_tensor(seed, graph.device)
        seed = checks.seed(seed, graph.device)
        config = self.config
        if self.training:
            mask_seed = derive_seed(seed, Site.STRUCTURE_MASK)
            propagation, visible_edges = mask_structure(graph, config.structure_masking_rate, mask_seed)
            features = mask_features(graph.features, config.feature_masking_rate, derive_seed(seed, Site.FEATURE_MASK))
        else:
            propagation, features, visible_edges = graph.propagation, graph.features, graph.num_edges
        draws = config.num_mixture_samples + config.num_importance_samples
        rate = self._dropout
        nodes, feature_rows = self._encode(propagation, features, draws, rate, derive_seed(seed, Site.ENCODER))
        z_nodes, z_features = self._sample(nodes, feature_rows, derive_seed(seed, Site.SAMPLES))
        z_links, decoded = self._decode(
            propagation, features, z_nodes, z_features, rate, derive_seed(seed, Site.DECODER)
        )
        return bound(
            config,
            Targets(graph.adjacency, features, features is not graph.features, visible_edges, whole),
            [(z_nodes, nodes)] if feature_rows is None else [(z_nodes, nodes), (z_features, feature_rows)],
            z_links,
            decoded,
            warmup=warmup,
            seed=derive_seed(seed, Site.NEGATIVES),
        )

    def next_seed(self) -> int:
        """The seed of the next step without one: derived from the model's seed, the number of such steps, and the rank.

        With torch.distributed each rank draws its own numbers; rank 0 draws those of a run in one process.

        Raises:
            RuntimeError: a backward pass is running, as in torch.utils.checkpoint, which computes a step twice.
        """
        if torch._C._current_graph_task_id() != -1:
            raise RuntimeError(
                "seed: got none in a backward pass, where a step that is computed again would draw other numbers; want "
                "the seed of the forward pass: model(seed=...)"
            )
        seed = derive_seed(self.seed, self._steps)
        self._steps += 1
        rank = Processes.current().rank
        return derive_seed(seed, Site.RANK, rank) if rank else seed

    def _next_seed_as_tensor(self) -> torch.Tensor:
        # torch.compile would compile a number anew for each step.
        return seed_tensor(self.next_seed(), torch.device("cpu"))

    def capture(self, optimizer: torch.optim.Optimizer, graph: Graph | None = None) -> CapturedStep:
        """Records a training step (forward, backward and the optimiser's step) as CUDA graphs.

        A call ``step(seed=..., warmup=...)`` of the result has the same draws and the same effect as an eager step,
        without the time that Python takes. The optimiser's settings, such as its learning rate, are recorded too.

        Args:
            optimizer: of the model's parameters, such as ``torch.optim.Adam(..., fused=True, capturable=True)``.
            graph: see :meth:`forward`.

        Raises:
            TypeError, ValueError: ``optimizer`` is not an optimiser or not capturable, or the model is not on a GPU.
        """
        graph = self._checked(graph)
        check_targets(self.config, graph)
        return CapturedStep(self, optimizer, graph)

    @property
    def graph(self) -> Graph | None:
        """The default graph of the methods; None: the model was loaded without one."""
        return self._graph

    def encode(
        self, propagation: SparseMatrix, features: SparseMatrix, num_draws: int, seed: int | torch.Tensor
    ) -> tuple[Posterior, Posterior | None]:
        """Draws psi for the nodes and, with a feature side, for the features (Eq. psi_1, psi_2, cor).

        Raises:
            TypeError, ValueError: an argument of a wrong kind, size or range.
        """
        checks.sparse("features", features)
        nodes = self.num_nodes if matching.fixed_nodes(self.config) else features.shape[0]
        if features.shape != (nodes, self.num_features):
            raise ValueError(f"features: got shape {features.shape}, want ({nodes}, {self.num_features})")
        return self._encode(propagation, features, num_draws, self._dropout, checks.seed(seed, features.device))

    @property
    def _dropout(self) -> float:
        return self.config.dropout if self.training else 0.0

    def _encode(
        self, propagation: SparseMatrix, features: SparseMatrix, num_draws: int, rate: float, seed: int | torch.Tensor
    ) -> tuple[Posterior, Posterior | None]:
        nodes = self._encode_nodes(propagation, features, num_draws, rate, seed)
        if not self.config.feature_side:
            return nodes, None
        return nodes, self._encode_features(features, nodes, num_draws, rate, seed)

    def _encode_nodes(
        self, propagation: SparseMatrix, features: SparseMatrix, num_draws: int, rate: float, seed: int | torch.Tensor
    ) -> Posterior:
        variance_draws = num_draws if self.config.noisy_variance else 1
        mean_seed = derive_seed(seed, Site.NODES, Site.MEAN)
        log_var_seed = derive_seed(seed, Site.NODES, self._log_var_site)
        mean = self.node_mean(propagation, features, num_draws, rate, mean_seed)
        log_var = self.node_log_var(propagation, features, variance_draws, rate, log_var_seed)
        return Posterior(mean, log_var)

    @property
    def _log_var_site(self) -> int:
        """With a noisy variance both branches read the same noisy input, so they have the same seed."""
        return Site.MEAN if self.config.noisy_variance else Site.LOG_VAR

    def _encode_features(
        self, features: SparseMatrix, nodes: Posterior, num_draws: int, rate: float, seed: int | torch.Tensor
    ) -> Posterior:
        config = self.config
        mean_seed = derive_seed(seed, Site.FEATURES, Site.MEAN)
        if config.variant == "independent":
            variance_draws = num_draws if config.noisy_variance else 1
            log_var_seed = derive_seed(seed, Site.FEATURES, self._log_var_site)
            by_feature = features.transposed
            feature_mean = self.feature_mean(None, by_feature, num_draws, rate, mean_seed)
            feature_log_var = self.feature_log_var(None, by_feature, variance_draws, rate, log_var_seed)
        else:
            log_var_seed = derive_seed(seed, Site.FEATURES, Site.LOG_VAR)
            feature_mean = self.feature_mean(ops.feature_average(features, nodes.mean), rate, mean_seed)
            feature_log_var = self.feature_log_var(ops.feature_average(features, nodes.log_var), rate, log_var_seed)
        return Posterior(feature_mean, feature_log_var)

    def _sample(
        self, nodes: Posterior, features: Posterior | None, seed: int | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        z_nodes = self._draw(nodes, derive_seed(seed, Site.NODES))
        return z_nodes, None if features is None else self._draw(features, derive_seed(seed, Site.FEATURES))

    def _draw(self, posterior: Posterior, seed: int | torch.Tensor, samples: int | None = None) -> torch.Tensor:
        """One embedding for each of the last ``samples`` draws of psi; None: J."""
        mean, log_var = posterior
        samples = self.config.num_importance_samples if samples is None else samples
        log_var = log_var if log_var.shape[1] == 1 else log_var[:, -samples:]
        return ops.reparameterize(mean[:, -samples:], log_var, seed)

    def _decode(
        self,
        propagation: SparseMatrix,
        features: SparseMatrix,
        z_nodes: torch.Tensor,
        z_features: torch.Tensor | None,
        rate: float,
        seed: int | torch.Tensor,
    ) -> tuple[torch.Tensor, Decoded | None]:
        """The node samples for the link decoder, after dropout, and the output of the feature decoder."""
        if rate > 0:
            z_nodes = ops.dropout(z_nodes, rate, derive_seed(seed, Site.NODE_DROPOUT))
        if z_features is None:
            return z_nodes, None
        if rate > 0:
            z_features = ops.dropout(z_features, rate, derive_seed(seed, Site.FEATURE_DROPOUT))
        seed = derive_seed(seed, Site.FEATURE_DECODER)
        return z_nodes, self.decoder(propagation, features, z_nodes, z_features, rate, seed)

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Writes weights, configuration and sizes in the safetensors format. The same model gives the same bytes.

        Args:
            path: a file, which appears once it is complete; or a binary file that is open for writing.

        Raises:
            TypeError, ValueError: ``path`` is neither, or a weight could not be read again: it is on meta, has NaN or
                infinite numbers, is not float32 or float64, or is none that the configuration has, as those of a pruned
                layer or of a layer that was added. Nothing is written then.
            OSError: the file can't be written; the message names it.
        """
        header = ModelHeader(**{entry.name: getattr(self, entry.name) for entry in fields(ModelHeader)})
        weights = self.state_dict()
        with torch.device("meta"):
            expected = SeeGera._without_values(header).state_dict()
        opened = hasattr(path, "write")
        with nullcontext(path) if opened else written_aside(pathlib.Path(arguments.path("path", path))) as file:
            model_file.write(file, header, weights, expected)

    @classmethod
    def _without_values(cls, header: ModelHeader) -> SeeGera:
        """A model without a graph, whose weights have no values yet."""
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        model._begin(header, lease=None)
        model._build(None)
        return model

    @classmethod
    @lasting
    def load(
        cls, path: str | os.PathLike[str], graph: Graph | None = None, device: torch.device | str = "cpu"
    ) -> SeeGera:
        """Reads a model written by :meth:`save`.

        Args:
            graph: the default graph of the methods, with the features of the training and any nodes; None: each call
                needs a graph.
            device: the device of the weights, if no graph is given; with a graph, the graph's device is taken.

        Raises:
            TypeError: an argument of a wrong kind.
            FileNotFoundError: there is no such file.
            ValueError: the file was not written by :meth:`save`, or has NaN or infinite weights; the graph has other
                features, or other nodes where the model knows its nodes one by one, or too many for the file's number
                of draws. The message names the file and the fault.
        """
        path = arguments.path("path", path)
        if graph is not None:
            check_graph(graph)
        device = arguments.device("device", device)
        try:
            file = tensor_file.read(pathlib.Path(path))
            header = model_file.read_header(file)
            try:
                model = cls._without_values(header)
            except RuntimeError:
                raise ValueError(f"{file.path} has widths in its header that no tensor can have") from None
            weights = model_file.read_weights(file, model.state_dict())
            if graph is not None:
                model_file.check_draws(file, header, graph)
        except ValueError as error:
            raise ValueError(f"path: {error}, want a file of SeeGera.save") from error
        model.load_state_dict(weights, assign=True)
        model._lease = Lease()
        model.to(device if graph is None else graph.device)
        if graph is not None:
            try:
                model._graph = model._checked(graph)
            except ValueError as error:
                raise ValueError(f"{error} in {path}") from None
        return model
