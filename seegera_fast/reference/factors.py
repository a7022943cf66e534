"""Factors that are a number or a tensor of one element."""

import torch


def factor(value, like: torch.Tensor):
    """Makes a tensor of one element a scalar with the dtype of ``like``, so that a product keeps shape and dtype."""
    return value.reshape(()).to(like.dtype) if isinstance(value, torch.Tensor) else value
