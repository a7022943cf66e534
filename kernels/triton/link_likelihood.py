"""log p(A | Z) under p_ik = sigmoid(z_i . z_k), with its gradient for an upstream of one.

All pairs: the sum of softplus(s) over s = z z^T does not depend on the links. Its forms (FORMS) need no memory besides
the gradient and a chunk of scores: link_likelihood_fused.py for narrow rows, link_likelihood_chunks.py for
the others. A link has another term: link_likelihood_pairs.py adds pos_weight softplus(-s) and takes the
softplus(s) of the dense sum away again. The diagonal is left out of the dense sum.

Sampled negatives: link_likelihood_pairs.py takes the drawn pairs beside the links.

Every sum has a fixed order, with partial sums in float64: equal inputs give equal bits.
"""

from __future__ import annotations

import functools

import torch

from . import link_likelihood_chunks, link_likelihood_fused, link_likelihood_pairs
from .common import scale
from .common.products import operands
from .common.scale import scaled_samples
from .link_likelihood_chunks import LibraryScores, TiledScores, all_pairs_chunked, prefers_tiles
from .link_likelihood_fused import all_pairs_fused, prefers_fused
from .link_likelihood_pairs import add_links, drawn_pairs

# Of the sum over all pairs.
FORMS = {
    "fused": all_pairs_fused,
    "tiled": functools.partial(all_pairs_chunked, TiledScores),
    "library": functools.partial(all_pairs_chunked, LibraryScores),
}


def usable_forms(z: torch.Tensor) -> list[str]:
    """The forms that can take these rows; the first one is used."""
    fits = {"fused": prefers_fused(z), "tiled": prefers_tiles(z), "library": True}
    return [form for form in FORMS if fits[form]]


def run(
    z: torch.Tensor,
    rowptr: torch.Tensor,
    col: torch.Tensor,
    gaps: torch.Tensor,
    pos_weight: torch.Tensor,
    seed: torch.Tensor,
    self_loops: bool,
    negatives: int,
    with_gradient: bool,
    form: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``link_likelihood`` with its form of all pairs."""
    nodes, samples, width = z.shape
    dtype = torch.promote_types(z.dtype, torch.float32)
    gradient = z.new_empty((samples, nodes if with_gradient else 0, width), dtype=dtype)
    if nodes == 0:
        return z.new_zeros(samples, dtype=dtype), gradient
    if z.device.type == "cpu":
        # The interpreter has no products of bfloat16.
        z = z.to(dtype)
    if z.stride(2) != 1 and width > 1:
        z = z.contiguous()
    with torch.cuda.device_of(z):
        total, drawn, weight = 0.0, None, 0.0
        if negatives == 0:
            total = FORMS[form](z, gradient, with_gradient)
        else:
            drawn = drawn_pairs(seed, gaps, negatives, nodes)
            weight = (nodes * (nodes - 1) // 2 - gaps.numel()) / negatives
        total = total + add_links(z, rowptr, col, drawn, pos_weight, gradient, self_loops, weight, with_gradient)
    return total.to(dtype), gradient


def link_likelihood(
    z: torch.Tensor,
    rowptr: torch.Tensor,
    col: torch.Tensor,
    gaps: torch.Tensor,
    pos_weight: torch.Tensor,
    seed: torch.Tensor,
    self_loops: bool,
    negatives: int,
    precision: int,
    with_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The value ``[samples]`` and its gradient for an upstream of one, ``[samples, nodes, width]``.

    Both are in the type of z, or in float32 where z is float16 or bfloat16.

    Args:
        z: ``[nodes, samples, width]``, any strides.
        rowptr: links, symmetric: ``[nodes + 1]`` int64.
        col: int64.
        gaps: ``[edges]`` int64: non-edges before each edge; not read for all pairs.
        pos_weight: ``[1]`` float64.
        seed: ``[1]`` int64.
        self_loops: count the pairs (i, i).
        negatives: how many non-edges to draw; 0: all pairs.
        precision: its index in PRECISIONS; drawn pairs have no dense products.
        with_gradient: without, the gradient has no rows.
    """
    if negatives == 0:
        (z,) = operands(precision, z)
    form = usable_forms(z)[0]
    return run(z, rowptr, col, gaps, pos_weight, seed, self_loops, negatives, with_gradient, form)


def link_likelihood_backward(unit: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of z, ``[nodes, samples, width]``: that for an upstream of one, times ``gradient`` ``[samples]``."""
    return scaled_samples(unit, gradient, by_sample=True)


def ahead_of_time() -> list[tuple]:
    """What ``link_likelihood`` and its gradient launch on a GPU: see tests/ahead_of_time.py."""
    parts = (link_likelihood_fused, link_likelihood_chunks, link_likelihood_pairs, scale)
    return [entry for part in parts for entry in part.ahead_of_time()]
