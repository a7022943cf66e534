"""The tasks: each splits a graph, trains a model, and scores it."""

from . import presets
from .attribute_inference import AttributeInferenceResult, attribute_inference
from .embed import EmbedResult, embed
from .held_out import FeatureSplit, LinkSplit, NodeSplit
from .link_prediction import LinkPredictionResult, link_prediction
from .node_classification import NodeClassificationResult, node_classification
from .splits import public_split, split_features, split_links, split_nodes

__all__ = [
    "AttributeInferenceResult",
    "EmbedResult",
    "FeatureSplit",
    "LinkPredictionResult",
    "LinkSplit",
    "NodeClassificationResult",
    "NodeSplit",
    "attribute_inference",
    "embed",
    "link_prediction",
    "node_classification",
    "presets",
    "public_split",
    "split_features",
    "split_links",
    "split_nodes",
]
