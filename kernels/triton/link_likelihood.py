"""log p(A | Z) under p_ik = sigmoid(z_i . z_k), with its gradient for an upstream of one.

All pairs: the sum of softplus(s) over s = z z^T knows no labels. Its forms (FORMS) have no more memory than the
gradient and a chunk of scores: link_likelihood_fused.py for narrow rows, link_likelihood_chunks.py for
the others. A link has another term: link_likelihood_pairs.py adds pos_weight softplus(-s) and takes the
softplus(s) of the dense sum away again. The diagonal is left out of the dense sum.

Sampled negatives: link_likelihood_pairs.py takes the drawn pairs beside the links.

Every sum has a fixed order, with partial sums in float64: equal inputs give equal bits.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from . import link_likelihood_chunks, link_likelihood_fused, link_likelihood_pairs
from .common import OPTIONS, compiled_as
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
    """The forms that these rows can take, the one that they do take first."""
    wanted = {"fused": prefers_fused(z), "tiled": prefers_tiles(z), "library": True}
    return [form for form in FORMS if wanted[form]]


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
    with_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The value ``[samples]`` and its gradient for an upstream of one, ``[samples, nodes, width]``.

    Both are in the type of z, or in float32 where z is float16 or bfloat16.

    Args:
        z: ``[nodes, samples, width]``, any strides.
        rowptr: links, symmetric: ``[nodes + 1]`` int64.
        col: int64.
        gaps: ``[edges]`` int64: non-edges before each edge; not looked at for all pairs.
        pos_weight: ``[1]`` float64.
        seed: ``[1]`` int64.
        self_loops: count the pairs (i, i).
        negatives: how many non-edges to draw; 0: all pairs.
        with_gradient: without, the gradient has no rows.
    """
    form = usable_forms(z)[0]
    return run(z, rowptr, col, gaps, pos_weight, seed, self_loops, negatives, with_gradient, form)


@triton.jit
def scale_kernel(
    gradient,  # [samples, nodes, width]
    upstream,  # [samples]
    out,  # [nodes, samples, width]
    count,
    nodes,
    samples,
    width,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    column = place % width
    sample = place // width % samples
    row = place // width // samples
    unit = tl.load(gradient + (sample * nodes + row) * width + column, mask=inside, other=0.0)
    tl.store(out + place, unit * tl.load(upstream + sample, mask=inside, other=0.0), mask=inside)


def scale_block(count: int, device: str) -> int:
    """Numbers of a program that scales."""
    return min(2**18, triton.next_power_of_2(count)) if device == "cpu" else 1024


def link_likelihood_backward(unit: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of z, ``[nodes, samples, width]``: that for an upstream of one, times ``gradient`` ``[samples]``."""
    samples, nodes, width = unit.shape
    out = unit.new_empty((nodes, samples, width))
    if out.numel() == 0:
        return out
    block = scale_block(out.numel(), unit.device.type)
    with torch.cuda.device_of(unit):
        scale_kernel[triton.cdiv(out.numel(), block),](
            unit.contiguous(),
            gradient.contiguous(),
            out,
            out.numel(),
            nodes,
            samples,
            width,
            BLOCK=block,
            **OPTIONS,
        )
    return out


def ahead_of_time() -> list[tuple]:
    """What ``link_likelihood`` and its gradient launch on a GPU: see sparse_matmul.py."""
    parts = (link_likelihood_fused, link_likelihood_chunks, link_likelihood_pairs)
    entries = [entry for part in parts for entry in part.ahead_of_time()]
    for element in ("fp32", "fp64"):
        # Triton compiles a number that is 1 into the kernel.
        constants = {"BLOCK": scale_block(1, "cuda"), "samples": 1}
        types = dict.fromkeys(("gradient", "upstream", "out"), f"*{element}") | {"width": "i32:16"}
        entries.append(compiled_as(element, scale_kernel, constants, types))
    return entries
