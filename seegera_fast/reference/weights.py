"""A term of weight 0 counts nothing, in value and gradients, even where it is infinite or NaN."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch


def weighted(weight, values) -> torch.Tensor:
    """``weight * values``, and 0 where the weight, a number or a tensor, is 0."""
    return torch.where(torch.as_tensor(weight == 0, device=values.device), 0.0, weight * values)


def term(function: Callable[..., torch.Tensor], *operands: torch.Tensor | None) -> torch.Tensor:
    """``function(*operands)``. Where the upstream gradient is 0, so are those of the operands.

    Automatic differentiation alone multiplies that 0 by a local gradient, which gives NaN where it is infinite or NaN.

    Args:
        operands: their leading dimensions are those of the result, element by element.
    """
    unused: list[torch.Tensor] = []

    # A gradient that is None stands for zeros.
    def note(gradient: torch.Tensor | None) -> None:
        if gradient is not None:
            unused[:] = [gradient.detach() == 0]

    def gate(gradient: torch.Tensor | None) -> torch.Tensor | None:
        if gradient is None:
            return None
        mask = unused[0]
        return torch.where(mask.reshape(mask.shape + (1,) * (gradient.ndim - mask.ndim)), 0.0, gradient)

    gated = [None if operand is None else operand.view_as(operand) for operand in operands]
    for operand in gated:
        if operand is not None and operand.requires_grad:
            operand.register_hook(gate)
    result = function(*gated)
    if result.requires_grad:
        result.register_hook(note)
    return result


def logsumexp(values: torch.Tensor, dim: int) -> torch.Tensor:
    """As ``torch.logsumexp``. Of nothing but minus infinity it is minus infinity, with a gradient of 0, not NaN.

    The weights in the gradient add up to 1 also where the values are so large that the result rounds ``log`` away.
    """
    largest = values.detach().amax(dim=dim, keepdim=True)
    nothing = largest == -math.inf
    largest = largest.masked_fill(~largest.isfinite(), 0.0)
    shifted = torch.logsumexp((values - largest).masked_fill(nothing, 0.0), dim) + largest.squeeze(dim)
    return shifted.masked_fill(nothing.squeeze(dim), -math.inf)
