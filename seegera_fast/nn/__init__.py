"""Layers of the model. They hold parameters and call operations; they make no n x n and no dense n x l matrix."""

from .decoder import Decoded, Decoder, InnerProductDecoder
from .layers import Encoder, Head, Layer, NoisyLayer

__all__ = ["Decoded", "Decoder", "Encoder", "Head", "InnerProductDecoder", "Layer", "NoisyLayer"]
