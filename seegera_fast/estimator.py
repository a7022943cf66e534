"""SeeGera as an estimator of scikit-learn, for pipelines and searches over parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from . import tasks
from .graph import Graph
from .support import arguments
from .support.frames import check_square
from .support.hints import maker
from .support.naming import named
from .tasks import presets
from .tasks.common import normalized
from .tasks.link_prediction import pair_metrics

# The parameters that are fields of a configuration. None leaves them to the preset.
FIELDS = ("embedding_dim", "hidden_dim", "epochs", "learning_rate", "dropout")
# What a task is given besides fields.
GIVEN = ("graph", "preset", "variant", "seed", "valid", "test", "progress")


class SeeGeraEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Embeds the nodes of a graph, and tells which other nodes they probably have links with.

    A graph is one object, whose rows can't be taken apart. So a search over parameters needs ``cv=[(all, all)]`` with
    ``all`` the numbers of all nodes: each candidate is fitted to the graph without a share ``valid`` of its links, and
    :meth:`score` is the AUC on those. scikit-learn's searches take no Graph, but its matrix and its features:
    ``search.fit(graph.adjacency.to_scipy(), features=graph.features)``.

    Args:
        variant: "v1" (independent), "v2" (correlated) or "v3" (correlated, with masking).
        preset: one of ``tasks.presets.names("embed")``.
        embedding_dim, hidden_dim, epochs, learning_rate, dropout: fields of the configuration; None: the preset's.
        fields: further fields of SeeGeraConfig or TrainingConfig, by name.
        valid: share of the links that is held out to stop early, to calibrate the probabilities, and for
            :meth:`score`; 0: none, and all epochs are run.
        normalize_features: divide each row of the features by the sum of its absolute values.
        weighted: keep the edge weights of a matrix in the propagation matrix; a Graph has its own.
        device: the device to train on.
        random_state: an int, a ``numpy.random.RandomState``, or None: seed of the split, the weights and all draws.
        verbose: above 0, progress is shown.

    Attributes:
        embedding_: float32 ``[n, embedding_dim]``: mean embeddings of the nodes, given all links.
        model_: the trained :class:`seegera_fast.SeeGera`. Its default graph is the one that it was trained on.
        graph_: the whole :class:`seegera_fast.Graph`.
        n_features_in_: the number of nodes.
        n_iter_: number of epochs.

    Example:
        >>> import seegera_fast as sf
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> graph = sf.datasets.load("digits")
        >>> embed = sf.SeeGeraEstimator(epochs=2, embedding_dim=16, random_state=0)
        >>> pipeline = make_pipeline(embed, LogisticRegression()).fit(graph, graph.labels)
        >>> pipeline.predict(graph).shape
        (1797,)
        >>> embed.predict_links([[0, 1], [0, 2]]).shape
        (2,)
    """

    def __init__(
        self,
        variant: str = "v3",
        preset: str = presets.DEFAULT,
        *,
        embedding_dim: int | None = None,
        hidden_dim: int | None = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        dropout: float | None = None,
        fields: Mapping[str, Any] | None = None,
        valid: float = 0.1,
        normalize_features: bool = False,
        weighted: bool = False,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.variant = variant
        self.preset = preset
        self.embedding_dim = embedding_dim
        self.hidden_dim = hidden_dim
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.fields = fields
        self.valid = valid
        self.normalize_features = normalize_features
        self.weighted = weighted
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, features: Any = None) -> SeeGeraEstimator:
        """Trains on a graph.

        Args:
            X: ``n x n`` adjacency, in any form that :class:`seegera_fast.Graph` takes; or a Graph.
            y: left alone, as a pipeline hands it on. A matrix is refused where there is no ``features``, since it may
                be meant as these.
            features: ``n x l``; None: those of the Graph, else the identity.

        Raises:
            TypeError, ValueError: the graph or a parameter is not of the right kind or out of range.
            seegera_fast.training.TrainingFailure: a number became NaN or infinite.
        """
        valid = arguments.probability("valid", self.valid)
        fields = {} if self.fields is None else self.fields
        arguments.instance("fields", fields, Mapping)
        taken = [name for name in GIVEN if name in fields]
        if taken:
            raise ValueError(f"fields: got {taken[0]!r}, want names of fields of SeeGeraConfig or TrainingConfig")
        given = {name: getattr(self, name) for name in FIELDS if getattr(self, name) is not None}
        graph = self._graph(X, y, features, fitting=True)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        options = {"normalize_features": self.normalize_features, **fields, **given}
        run = (graph, self.preset, self.variant, seed)
        with named({"graph": "X"}):
            if valid:
                result = tasks.link_prediction(*run, valid, 0.0, progress=self.verbose > 0, **options)
            else:
                result = tasks.embed(*run, progress=self.verbose > 0, **options)
        self.graph_, self.model_, self.n_iter_ = graph, result.model, result.epochs
        self.n_features_in_ = graph.num_nodes
        if isinstance(X, (Graph, torch.Tensor)):
            # Those of an earlier fit, which scikit-learn drops where it looks at a matrix.
            vars(self).pop("feature_names_in_", None)
        self._normalizes = result.fields["normalize_features"]
        self.embedding_ = self._embed(graph)
        return self

    @property
    def _n_features_out(self) -> int:
        """The number of columns of :meth:`transform`, which get_feature_names_out and set_output ask for."""
        return self.embedding_.shape[1]

    def fit_transform(self, X: Any, y: Any = None, *, features: Any = None) -> np.ndarray:
        """Trains on a graph as :meth:`fit` does, and returns ``embedding_``."""
        return self.fit(X, y, features=features).embedding_

    def transform(self, X: Any, features: Any = None) -> np.ndarray:
        """Embeds the nodes of a graph, float32 ``[n, embedding_dim]``.

        Args:
            X: as in :meth:`fit`: a matrix with as many nodes, or a Graph with any, and the features of that of ``fit``.
            features: None: those of the Graph, or of the graph of :meth:`fit`.
        """
        check_is_fitted(self)
        graph = self._graph(X, None, features)
        with named({"graph": "X" if features is None else "features"}):
            return self._embed(graph)

    def predict_links(self, pairs: Any) -> np.ndarray:
        """Probabilities of links, ``[m]``; calibrated if ``model_.calibration`` is there.

        Args:
            pairs: ``[m, 2]``, numbers of nodes of the graph of :meth:`fit`.

        Raises:
            sklearn.exceptions.NotFittedError: before :meth:`fit`.
            TypeError, ValueError: ``pairs`` of a wrong kind or shape, or numbers that are not nodes.
        """
        check_is_fitted(self)
        calibrated = self.model_.calibration is not None
        return self.model_.link_scores(pairs, self._seen(self.graph_), calibrated=calibrated).cpu().numpy()

    def score(self, X: Any, y: Any = None, *, features: Any = None) -> float:
        """The AUC of the links of a graph that training has not seen, against as many pairs without a link.

        Args:
            X: as in :meth:`fit`, with as many nodes: the same graph, some of whose links were held out, or another with
                further links.
        """
        check_is_fitted(self)
        graph = self._graph(X, y, features)
        if graph.num_nodes != self.n_features_in_:
            raise ValueError(f"X: got {graph.num_nodes} nodes, want {self.n_features_in_}, as in fit")
        edges, seen = graph.edges(), self.model_.graph.edges()
        rows = edges.new_tensor([graph.num_nodes, 1])
        new = edges[~torch.isin((edges * rows).sum(dim=1), (seen * rows).sum(dim=1))]
        absent = graph.adjacency.non_edges
        if not 0 < len(new) <= absent.count:
            raise ValueError(
                f"X: has {len(new)} links that training has not seen, and {absent.count} pairs without a link; want at "
                "least one, and as many pairs (valid above 0 holds links out)"
            )
        # The same pairs for each call and each candidate of a search.
        ranks = np.random.default_rng(0).choice(absent.count, len(new), replace=False)
        return pair_metrics(self.model_.embed(), new, absent.pairs(torch.from_numpy(ranks).to(edges.device)))[0]

    def _graph(self, X: Any, y: Any, features: Any, *, fitting: bool = False) -> Graph:
        """The graph of a method's arguments, which its errors name."""
        if features is None and y is not None and _dimensions(y) == 2:
            raise ValueError(
                "y: got a matrix, want a vector, which is left alone, or features= if these are the features"
            )
        weighted = arguments.flag("weighted", self.weighted)
        device = arguments.device("device", self.device)
        with named({"adjacency": "X"}):
            if isinstance(X, Graph):
                graph = X if features is None else X.with_features(features)
            else:
                if not isinstance(X, torch.Tensor):
                    X = self._validated(X, fitting)
                if features is None and not fitting:
                    features = self.graph_.features
                graph = Graph(X, features, weighted=weighted)
        return graph.to(device, dtype=None if fitting else self.graph_.dtype)

    def _validated(self, X: Any, fitting: bool) -> Any:
        if maker(X):
            raise TypeError(f"X: got {arguments.shown(X)}, want a matrix or a Graph{maker(X)}")
        check_square("X", X)
        try:
            return validate_data(self, X, reset=fitting, accept_sparse=True, ensure_non_negative=True)
        except (TypeError, ValueError) as error:
            # scikit-learn's messages repeat what they refuse.
            reason = str(error)
            reason = reason if len(reason) < 800 else f"{reason[:400]} ... {reason[-400:]}"
            raise type(error)(f"X: {reason}") from error

    def _seen(self, graph: Graph) -> Graph:
        """The graph as the model sees it."""
        return normalized(graph, self._normalizes)

    def _embed(self, graph: Graph) -> np.ndarray:
        return self.model_.embed(self._seen(graph)).cpu().numpy()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _dimensions(y: Any) -> int:
    """Sparse matrices, which NumPy does not take, say it themselves."""
    return y.ndim if hasattr(y, "ndim") else arguments.array("y", y).ndim
