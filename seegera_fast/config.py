"""The configuration of a SeeGera model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .ops.feature_likelihood import LIKELIHOODS
from .support import arguments
from .support.hints import nearest

_CHOICES = {
    "variant": ("correlated", "independent"),
    "encoder": ("gcn", "mlp"),
    "decoder": ("gcn", "mlp", "inner_product"),
    "encoder_output": ("linear", "relu"),
    "likelihood": tuple(LIKELIHOODS),
    "mixture": ("per_node", "joint"),
    "scaling": ("mean", "sum"),
}
# A step holds J and K draws of every row at once, so many more of them are a mistake.
MOST_SAMPLES = 2**16
# The least and the largest value of an int; those of fields that are not named here are 1 and MOST_INT.
_LIMITS = {
    "noise_dim": (0, arguments.MOST_INT),
    "num_mixture_samples": (0, MOST_SAMPLES),
    "num_importance_samples": (1, MOST_SAMPLES),
}


@dataclass(frozen=True)
class SeeGeraConfig:
    """The configuration of a SeeGera model. The defaults are those of the authors' released program, where it and the
    paper differ, without masking. Tasks start from a preset, whose fields replace them.

    Attributes:
        variant: "correlated" (v2: feature embeddings come from node embeddings, Eq. cor) or "independent" (v1, Eq.
            psi_2). v3 is "correlated" with a masking rate above 0.
        embedding_dim, hidden_dim: widths d and h.
        encoder: "gcn" or "mlp".
        decoder: the decoder of the features: "gcn", "mlp" or "inner_product".
        encoder_layers, decoder_layers: numbers of layers L1 and L2, at least 1.
        encoder_output: "relu": ReLU after the last layer of the nodes' means and log variances, as in the released
            program where the encoder is one graph convolution. It keeps the variances at 1 and above.
        noise_dim, noise_prob: width c of the Bernoulli noise, and the probability of a one.
        noisy_variance: True: the noise enters the variance branch too, as the paper's text has it.
        num_importance_samples, num_mixture_samples: J (at least 1) and K (at least 0), each at most 65,536.
        dropout: rate in [0, 1) on the input of every layer, and on the samples before both decoders.
        likelihood: the likelihood of the features: "bernoulli" (values in [0, 1]), "mse", "gaussian" or
            "mse_relu": "mse" of the decoder's output after a ReLU, as in the released program where the decoder is one
            graph convolution. The log variances of "gaussian" and of the posterior are kept in [-30, 30].
        mixture: the mixture Omega: "per_node" (released program) or "joint" (the paper's equation to the letter).
        scaling: "mean" (released program) or "sum" (the paper's bound).
        structure_masking_rate, feature_masking_rate: alpha_1 and alpha_2, in [0, 1).
        negatives: non-edges in the link term: "all", or how many to draw in each step; "edges" draws as many as the
            graph has edges.
        feature_embeddings: False: features are decoded from node embeddings alone (the paper's _nf).
        feature_side: False: no feature embeddings, no feature decoder and none of their terms; the encoder still reads
            the features. This is SIG-VAE, and with noise_dim 0 and K 0 it is VGAE.

    Raises:
        TypeError, ValueError: a field is of a wrong kind or out of range.

    Example:
        >>> import seegera_fast as sf
        >>> sf.SeeGeraConfig(variant="independent", embedding_dim=64).decoder
        'gcn'
        >>> sf.SeeGeraConfig(encoder="cnn")
        Traceback (most recent call last):
            ...
        ValueError: encoder: got 'cnn', want one of 'gcn', 'mlp'
    """

    variant: str = "correlated"
    embedding_dim: int = 512
    hidden_dim: int = 512
    encoder: str = "gcn"
    decoder: str = "gcn"
    encoder_layers: int = 2
    decoder_layers: int = 2
    encoder_output: str = "linear"
    noise_dim: int = 5
    noise_prob: float = 0.5
    noisy_variance: bool = False
    num_importance_samples: int = 1
    num_mixture_samples: int = 1
    dropout: float = 0.0
    likelihood: str = "bernoulli"
    mixture: str = "per_node"
    scaling: str = "mean"
    structure_masking_rate: float = 0.0
    feature_masking_rate: float = 0.0
    negatives: str | int = "all"
    feature_embeddings: bool = True
    feature_side: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            # A number of NumPy is kept as Python's, which can be written to a file. The class is frozen for others.
            object.__setattr__(self, field.name, _checked(field.name, field.type, getattr(self, field.name)))
        if self.decoder == "inner_product" and LIKELIHOODS[self.likelihood].has_log_var:
            raise ValueError(
                f'likelihood: got "{self.likelihood}" with decoder "inner_product", which has no variances'
            )
        if self.decoder == "inner_product" and not self.feature_embeddings:
            raise ValueError('feature_embeddings: got False with decoder "inner_product", which is made of them')


def _checked(name: str, kind: str, value: Any) -> Any:
    """The value of a field; ``kind`` is the field's type."""
    if name == "variant" and isinstance(value, str) and value in ("v1", "v2", "v3"):
        raise ValueError(
            f"variant: got {value!r}, which is a variant of a task; want of a model 'independent' (v1) or 'correlated' "
            "(v2, and v3, which has a structure_masking_rate above 0)"
        )
    if name in _CHOICES:
        return arguments.choice(name, value, _CHOICES[name])
    if kind == "bool":
        return arguments.flag(name, value)
    if kind == "float":
        return arguments.probability(name, value, one=name == "noise_prob")
    if name == "negatives" and isinstance(value, str):
        if value not in ("all", "edges"):
            raise ValueError(f'negatives: got {arguments.shown(value)}, want "all", "edges" or an int')
        return value
    least, most = _LIMITS.get(name, (1, arguments.MOST_INT))
    return arguments.whole(name, value, least=least, most=most)


def checked_fields(given: dict[str, Any], known: list[str]) -> None:
    """Raises a TypeError for a field that is not known; the message names the most similar known ones."""
    for name in given:
        if name not in known:
            raise TypeError(f"{name}: is not a field of the configuration; {nearest(name, known)}")
