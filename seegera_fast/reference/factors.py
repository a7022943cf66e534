"""Factors that come as a number or as a tensor of one element."""

import torch


def factor(value, like: torch.Tensor):
    """A number, or a scalar tensor of the type of ``like``: it changes neither the shape nor the type of a product."""
    return value.reshape(()).to(like.dtype) if isinstance(value, torch.Tensor) else value
