"""Layers of the model: parameters and calls of operations, nothing n x n and nothing n x l."""

from .decoder import Decoded, Decoder, InnerProductDecoder
from .layers import Encoder, Head, Layer, NoisyLayer

__all__ = ["Decoded", "Decoder", "Encoder", "Head", "InnerProductDecoder", "Layer", "NoisyLayer"]
