"""``out [n, S, d] = activation(A dropout(H) W + b)``, and its gradients.

Dense products are torch's (cuBLAS). Dropout writes its result once for the product to read; backward draws the mask
again. All draws go through the propagation at once, on the narrower side of W; bias and activation follow
in one pass over the result.

Floor, lines = n S: forward 2 lines h d operations of the dense product and 2 nnz S min(h, d) of the propagation,
backward twice the first and 2 nnz S d. Memory: H, out and between them a buffer [n, S, min(h, d)] written and read
once; with dropout one [n, S, h] besides.
"""

from __future__ import annotations

import torch

from seegera_fast.schema import Parts, Transposed

from .common import layer
from .common.dropout import drop_lines
from .common.layer import finish, gradient_of_sums, product, product_over_lines
from .common.lines import with_contiguous_lines
from .common.propagation import propagated


def dropped(
    hidden: torch.Tensor, threshold: int, scale: float, seed: torch.Tensor, gradient: torch.Tensor | None = None
) -> torch.Tensor:
    """``dropout(H)``; H itself where the rate is 0. ``gradient``, that of the result, becomes that of H in place."""
    if scale == 1:
        return hidden
    out = hidden.new_empty(hidden.shape)
    drop_lines(with_contiguous_lines(hidden), out, threshold, scale, seed, gradient=gradient)
    return out


def gcn(
    propagation: Parts | None,
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    threshold: int,
    scale: float,
    seed: torch.Tensor,
    activation: int,
    precision: int,
) -> torch.Tensor:
    """``[n, S, d]``; see ``ops.gcn``. The transpose serves the backward pass."""
    left = dropped(hidden, threshold, scale, seed)
    if weight.shape[1] <= weight.shape[0]:
        out = propagated(propagation, product(left, weight, precision))
    else:
        out = product(propagated(propagation, left), weight, precision)
    finish(out, out, bias, activation)
    return out


def gcn_backward(
    gradient: torch.Tensor,
    output: torch.Tensor | None,
    propagation: Transposed | None,
    hidden: torch.Tensor,
    weight: torch.Tensor,
    threshold: int,
    scale: float,
    seed: torch.Tensor,
    activation: int,
    precision: int,
    hidden_wanted: bool,
    weight_wanted: bool,
    bias_wanted: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of hidden, weight and bias, each empty where it is not computed."""
    inner, width = weight.shape
    of_hidden = hidden.new_empty((0, hidden.shape[1], inner))
    of_weight = weight.new_empty((inner if weight_wanted else 0, width if weight_wanted else 0))
    of_sums, of_bias = gradient_of_sums(gradient, output, activation, summed=bias_wanted)
    of_bias = of_bias.reshape(width if bias_wanted else 0)
    if not (hidden_wanted or weight_wanted):
        return of_hidden, of_weight, of_bias
    of_product = propagated(propagation, of_sums)
    if hidden_wanted:
        of_hidden = product(of_product, weight.t(), precision)
    if weight_wanted:
        left = dropped(hidden, threshold, scale, seed, of_hidden if hidden_wanted else None)
        product_over_lines(left, of_product, of_weight, precision)
    elif scale != 1:
        drop_lines(of_hidden, of_hidden, threshold, scale, seed)
    return of_hidden, of_weight, of_bias


def ahead_of_time() -> list[tuple]:
    """What ``gcn`` and ``gcn_backward`` launch of the layers' kernels: see tests/ahead_of_time.py."""
    return layer.ahead_of_time(noise_dim=0)
