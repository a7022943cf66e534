"""The logistic regression of node classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional

from ..autocast import without_autocast
from ..support import arguments
from .held_out import NodeSplit

# The gradient of the classifier is clipped to this norm.
MAX_NORM = 3.0


@dataclass(frozen=True)
class ClassifierConfig:
    """Settings of the logistic regression.

    Attributes:
        epochs: number of epochs, each on all training nodes.
        learning_rate, weight_decay: settings of Adam.
        dropout: rate in [0, 1) on the embeddings.

    Raises:
        TypeError, ValueError: a field is of a wrong kind or out of range.
    """

    epochs: int = 500
    learning_rate: float = 1e-2
    weight_decay: float = 0.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        checked = {
            "epochs": arguments.whole("classifier_epochs", self.epochs, least=1, most=arguments.MOST_INT),
            "learning_rate": arguments.non_negative("classifier_learning_rate", self.learning_rate),
            "weight_decay": arguments.non_negative("classifier_weight_decay", self.weight_decay),
            "dropout": arguments.probability("classifier_dropout", self.dropout),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


class Fit(NamedTuple):
    """A classifier: weight ``[d, classes]``, bias ``[classes]``, and accuracies, None for an empty part."""

    weight: torch.Tensor
    bias: torch.Tensor
    valid_accuracy: float | None
    test_accuracy: float | None


@without_autocast
@torch.enable_grad()
def fit_classifier(
    embedding: torch.Tensor, labels: torch.Tensor, split: NodeSplit, config: ClassifierConfig, seed: int
) -> Fit:
    """Trains a logistic regression on fixed embeddings ``[n, d]`` and scores it at its best validation epoch.

    If several epochs are equally good, the last of them is taken: on a few hundred nodes ties are common, and later
    weights are trained for longer. Without validation nodes, the last epoch is taken.
    """
    num_classes = int(labels.max()) + 1
    weight = embedding.new_zeros(embedding.shape[1], num_classes, requires_grad=True)
    bias = embedding.new_zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)
    generator = torch.Generator(embedding.device).manual_seed(seed)
    inputs, targets = embedding[split.train], labels[split.train]
    valid_inputs, valid_targets = embedding[split.valid], labels[split.valid]
    best, best_accuracy = (weight.detach(), bias.detach()), None
    for _ in range(config.epochs):
        optimizer.zero_grad()
        functional.cross_entropy(_dropout(inputs, config.dropout, generator) @ weight + bias, targets).backward()
        torch.nn.utils.clip_grad_norm_([weight, bias], MAX_NORM)
        optimizer.step()
        if split.valid.shape[0]:
            accuracy = _accuracy(valid_inputs, valid_targets, weight, bias)
            if best_accuracy is None or accuracy >= best_accuracy:
                best, best_accuracy = (weight.detach().clone(), bias.detach().clone()), accuracy
    test_accuracy = None
    if split.test.shape[0]:
        test_accuracy = _accuracy(embedding[split.test], labels[split.test], *best)
    return Fit(*best, best_accuracy, test_accuracy)


def _dropout(inputs: torch.Tensor, rate: float, generator: torch.Generator) -> torch.Tensor:
    if rate == 0:
        return inputs
    kept = torch.empty_like(inputs).bernoulli_(1 - rate, generator=generator)
    return inputs * kept / (1 - rate)


def _accuracy(inputs: torch.Tensor, targets: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> float:
    with torch.no_grad():
        predicted = (inputs @ weight + bias).argmax(dim=1)
        return float((predicted == targets).double().mean())
