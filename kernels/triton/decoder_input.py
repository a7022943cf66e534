"""``out [n, J, h] = dropout([z | zbar]) W`` with ``zbar = N zF``, where N is X with normalised rows; and its gradients.

With W_z and W_f the halves of W,

    out = z W_z + N (zF W_f)                     the features' side of the product first, or
    out = dropout(z) W_z + dropout(zbar) W_f     the average first: with dropout there is no other way

In the second form zbar is a second result, which backward reads. Dense products are torch's (cuBLAS). The dropped
halves are written side by side, [n, J, 2 d], for one product to read; backward draws their mask again.

Floor: 2 J (n + l) d h operations, or 4 n J d h with the average first; 2 nnz J h, or 2 nnz J d. Backward twice that.
"""

from __future__ import annotations

import torch

from seegera_fast.schema import Parts, Transposed

from .common import dropout
from .common.dropout import drop_lines
from .common.layer import add_product, product, product_over_lines
from .common.lines import with_contiguous_lines
from .common.propagation import propagated


def dropped_lines(
    z_nodes: torch.Tensor,
    averaged: torch.Tensor,
    threshold: int,
    scale: float,
    seed: torch.Tensor,
    of_nodes: torch.Tensor | None = None,
    of_averaged: torch.Tensor | None = None,
) -> torch.Tensor:
    """``dropout([z | zbar])``, ``[n, J, 2 d]``. The gradients of its halves become those of z and zbar in place."""
    rows, draws, depth = z_nodes.shape
    joined = z_nodes.new_empty((rows, draws, 2 * depth))
    drop_lines(with_contiguous_lines(z_nodes), joined[:, :, :depth], threshold, scale, seed, 0, of_nodes)
    drop_lines(averaged, joined[:, :, depth:], threshold, scale, seed, depth, of_averaged)
    return joined


def decoder_input(
    weights: Parts,
    z_nodes: torch.Tensor,
    z_features: torch.Tensor,
    weight: torch.Tensor,
    average_first: bool,
    threshold: int,
    scale: float,
    seed: torch.Tensor,
    precision: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``[n, J, h]``, and the average ``[n, J, d]`` where it comes first, else empty; see ``ops.decoder_input``."""
    draws, depth = z_nodes.shape[1:]
    if not average_first:
        out = propagated(weights, product(z_features, weight[depth:], precision))
        add_product(out, z_nodes, weight[:depth], precision)
        return out, z_nodes.new_empty((0, draws, depth))
    averaged = propagated(weights, z_features)
    if scale != 1:
        return product(dropped_lines(z_nodes, averaged, threshold, scale, seed), weight, precision), averaged
    out = product(z_nodes, weight[:depth], precision)
    add_product(out, averaged, weight[depth:], precision)
    return out, averaged


def decoder_input_backward(
    gradient: torch.Tensor,
    weights: Transposed,
    z_nodes: torch.Tensor,
    z_features: torch.Tensor,
    averaged: torch.Tensor,
    weight: torch.Tensor,
    average_first: bool,
    threshold: int,
    scale: float,
    seed: torch.Tensor,
    precision: int,
    z_nodes_wanted: bool,
    z_features_wanted: bool,
    weight_wanted: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of z_nodes, z_features and weight, each empty where it is not computed.

    Args:
        averaged: the second result of ``decoder_input``.
    """
    gradient = gradient.contiguous()
    draws, depth = z_nodes.shape[1:]
    of_nodes = z_nodes.new_empty((0, draws, depth))
    of_features = z_features.new_empty((0, draws, depth))
    of_weight = weight.new_empty((2 * depth if weight_wanted else 0, weight.shape[1]))
    if z_nodes_wanted:
        of_nodes = product(gradient, weight[:depth].t(), precision)
    if average_first:
        of_averaged = product(gradient, weight[depth:].t(), precision) if z_features_wanted else None
        if scale != 1:
            of_both = of_nodes if z_nodes_wanted else None, of_averaged
            if weight_wanted:
                joined = dropped_lines(z_nodes, averaged, threshold, scale, seed, *of_both)
                product_over_lines(joined, gradient, of_weight, precision)
            else:
                for first_column, of_half in zip((0, depth), of_both, strict=True):
                    if of_half is not None:
                        drop_lines(of_half, of_half, threshold, scale, seed, first_column)
        elif weight_wanted:
            product_over_lines(z_nodes, gradient, of_weight[:depth], precision)
            product_over_lines(averaged, gradient, of_weight[depth:], precision)
        if of_averaged is not None:
            of_features = propagated(weights, of_averaged)
        return of_nodes, of_features, of_weight
    if weight_wanted:
        product_over_lines(z_nodes, gradient, of_weight[:depth], precision)
    if z_features_wanted or weight_wanted:
        of_product = propagated(weights, gradient)
        if z_features_wanted:
            of_features = product(of_product, weight[depth:].t(), precision)
        if weight_wanted:
            product_over_lines(z_features, of_product, of_weight[depth:], precision)
    return of_nodes, of_features, of_weight


def ahead_of_time() -> list[tuple]:
    """What ``decoder_input`` launches on a GPU besides sparse_matmul: see tests/ahead_of_time.py."""
    return dropout.ahead_of_time()
