"""The activations of the layers, by name."""

import functools

import torch

from .weights import term

# Operators take the index, which kernels/cpu/common/activation.h repeats.
ACTIVATIONS = {"relu": torch.relu, "tanh": functools.partial(term, torch.tanh), "none": lambda values: values}
