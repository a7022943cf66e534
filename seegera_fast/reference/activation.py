"""The activations of the layers, by name."""

import torch

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "none": lambda values: values}
