"""The activations of the layers, by name."""

import torch

# Operators take the index, which kernels/cpu/common/activation.h repeats.
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "none": lambda values: values}
