"""``out [n, S, h] = activation(A dropout([X | eps_s]) W + b)`` for S draws of the noise, and the gradients of W and b.

``[X | eps] W = X W_x + eps W_e`` is never joined, and A is applied to each side separately: ``P = A X W_x`` and the
small ``A eps_s``, [n, S, c], whose product of rank c with W_e is added in the pass that ends in bias and activation.
Without dropout the draws share P, [n, h], and backward adds up the draws before it goes through A and X.

With dropout each draw has a separate mask over the entries of X, which backward draws again: noisy_gcn_dropped.py.

Floor, without dropout: 2 nnz(X) h + 2 nnz(A) h operations, once for all draws, forward and again backward; out written
once, and read again in backward with its gradient. With dropout, X costs S times as much, less what is dropped, and A
works on [n, S, h]. X is by rows here however dense it is, even where a third of its entries is not zero, as in Photo
and Computers: only the CPU has the dense layout.
"""

from __future__ import annotations

import torch

from seegera_fast.schema import Parts

from . import noisy_gcn_dropped
from .common import layer
from .common.csr_product import Matrix
from .common.dropout import drop_lines
from .common.layer import finish, gradient_of_sums
from .common.propagation import flipped, propagated
from .draw_noise import draw_noise
from .noisy_gcn_dropped import kept_product


def propagated_noise(
    propagation: Matrix | None,
    rows: int,
    draws: int,
    noise_dim: int,
    first_column: int,
    noise_threshold: int,
    threshold: int,
    scale: float,
    seed: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """``A dropout(eps)``, ``[n, S, c]``.

    Args:
        first_column: l, where the noise begins in the lines that the mask of dropout is drawn for.
    """
    noise = draw_noise(seed, rows, draws, noise_dim, noise_threshold, dtype)
    if scale != 1:
        drop_lines(noise, noise, threshold, scale, seed, first_column)
    return propagated(propagation, noise)


def noisy_gcn(
    propagation: Parts | None,
    features: Parts,
    weight: torch.Tensor,
    noise_weight: torch.Tensor,
    bias: torch.Tensor | None,
    num_draws: int,
    seed: torch.Tensor,
    noise_threshold: int,
    threshold: int,
    scale: float,
    activation: int,
    precision: int,
) -> torch.Tensor:
    """``[n, S, h]``; see ``ops.noisy_gcn``. The transposes serve the backward pass.

    Args:
        precision: not read, as X is by rows and its products are sparse; nor in backward.
    """
    rows, (num_columns, width) = features.rowptr.numel() - 1, weight.shape
    noise_dim = noise_weight.shape[0]
    noise = propagated_noise(
        propagation,
        rows,
        num_draws,
        noise_dim,
        num_columns,
        noise_threshold,
        threshold,
        scale,
        seed,
        weight.dtype,
    )
    out = weight.new_empty((rows, num_draws, width))
    if scale != 1:
        kept_product(features, weight.contiguous(), out, threshold, scale, seed)
        sums = out = propagated(propagation, out)
    else:
        sums = propagated(propagation, propagated(features, weight))
    finish(sums, out, bias, activation, noise, noise_weight)
    return out


def noisy_gcn_backward(
    gradient: torch.Tensor,
    output: torch.Tensor | None,
    propagation: Parts | None,
    features: Parts,
    noise_dim: int,
    seed: torch.Tensor,
    noise_threshold: int,
    threshold: int,
    scale: float,
    activation: int,
    precision: int,
    weight_wanted: bool,
    bias_wanted: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of weight, noise_weight and bias; the first and the last are empty where they are not computed."""
    rows, draws, width = gradient.shape
    num_columns = features.rowptr_t.numel() - 1
    noise = propagated_noise(
        propagation,
        rows,
        draws,
        noise_dim,
        num_columns,
        noise_threshold,
        threshold,
        scale,
        seed,
        gradient.dtype,
    )
    of_sums, summed = gradient_of_sums(gradient, output, activation, noise=noise, added=scale == 1)
    of_weight = gradient.new_empty((num_columns if weight_wanted else 0, width))
    if weight_wanted:
        of_product = propagated(flipped(propagation), of_sums)
        if scale != 1:
            kept_product(features.flipped, of_product, of_weight, threshold, scale, seed)
        else:
            of_weight = propagated(features.flipped, of_product)
    # The results of an operator must not share memory.
    of_bias = summed[noise_dim].clone() if bias_wanted else gradient.new_empty(0)
    return of_weight, summed[:noise_dim], of_bias


def ahead_of_time() -> list[tuple]:
    """What ``noisy_gcn`` and ``noisy_gcn_backward`` launch on a GPU: see tests/ahead_of_time.py."""
    return layer.ahead_of_time(noise_dim=5) + noisy_gcn_dropped.ahead_of_time()
