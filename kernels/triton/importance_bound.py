"""``logsumexp_j (log_likelihood_j + warmup (log_prior_j - log_mixture_j)) - log J``, and its gradient.

J numbers: the cost is that of the launch. There is one, of one program, instead of the eight of the plain form.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.math import weighted

ONE_WARP = {**OPTIONS, "num_warps": 1}


@triton.jit
def terms(log_likelihood, log_prior, log_mixture, factor, sample, samples):
    """The exponents of some samples in float64; past the end -inf."""
    inside = sample < samples
    likelihood = tl.load(log_likelihood + sample, mask=inside, other=float("-inf")).to(tl.float64)
    prior = tl.load(log_prior + sample, mask=inside, other=0.0).to(tl.float64)
    mixture = tl.load(log_mixture + sample, mask=inside, other=0.0).to(tl.float64)
    return likelihood + weighted(factor, prior - mixture)


@triton.jit
def highest_and_sum(log_likelihood, log_prior, log_mixture, factor, samples, BLOCK: tl.constexpr):
    """The largest exponent, or 0 where all are -inf, and the sum of the exponentials of all less that."""
    largest = tl.full((BLOCK,), float("-inf"), dtype=tl.float64)
    for start in range(0, samples, BLOCK):
        sample = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, terms(log_likelihood, log_prior, log_mixture, factor, sample, samples))
    highest = tl.max(largest, axis=0)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    total = tl.zeros((BLOCK,), dtype=tl.float64)
    for start in range(0, samples, BLOCK):
        sample = start + tl.arange(0, BLOCK)
        total += tl.exp(terms(log_likelihood, log_prior, log_mixture, factor, sample, samples) - highest)
    return highest, tl.sum(total, axis=0)


@triton.jit
def bound_kernel(
    log_likelihood,  # [J], as the next two
    log_prior,
    log_mixture,
    warmup,  # [1] float64
    out,  # [1]
    samples,
    BLOCK: tl.constexpr,
):
    factor = tl.load(warmup)
    highest, total = highest_and_sum(log_likelihood, log_prior, log_mixture, factor, samples, BLOCK)
    bound = highest + tl.log(total) - tl.log(tl.cast(samples, tl.float64))
    tl.store(out, bound.to(out.dtype.element_ty))


@triton.jit
def gradient_kernel(
    log_likelihood,
    log_prior,
    log_mixture,
    warmup,
    upstream,  # [1]
    likelihood_out,  # [J], as the next two
    prior_out,
    mixture_out,
    samples,
    BLOCK: tl.constexpr,
):
    factor = tl.load(warmup)
    highest, total = highest_and_sum(log_likelihood, log_prior, log_mixture, factor, samples, BLOCK)
    scale = tl.load(upstream).to(tl.float64)
    scale = tl.where(scale == 0.0, 0.0, scale / tl.where(total == 0.0, 1.0, total))
    for start in range(0, samples, BLOCK):
        sample = start + tl.arange(0, BLOCK)
        term = terms(log_likelihood, log_prior, log_mixture, factor, sample, samples)
        slope = weighted(scale, tl.exp(term - highest))
        inside = sample < samples
        tl.store(likelihood_out + sample, slope.to(likelihood_out.dtype.element_ty), mask=inside)
        tl.store(prior_out + sample, weighted(factor, slope).to(prior_out.dtype.element_ty), mask=inside)
        tl.store(mixture_out + sample, weighted(-factor, slope).to(mixture_out.dtype.element_ty), mask=inside)


def block_size(samples: int) -> int:
    return min(triton.next_power_of_2(samples), 256)


def importance_bound(
    log_likelihood: torch.Tensor, log_prior: torch.Tensor, log_mixture: torch.Tensor, warmup: torch.Tensor
) -> torch.Tensor:
    """A scalar; see ``ops.importance_bound``. ``warmup``: one float64 number."""
    operands = [operand.contiguous() for operand in (log_likelihood, log_prior, log_mixture)]
    samples = log_likelihood.shape[0]
    out = log_likelihood.new_empty(())
    with torch.cuda.device_of(log_likelihood):
        bound_kernel[(1,)](*operands, warmup, out, samples, BLOCK=block_size(samples), **ONE_WARP)
    return out


def importance_bound_backward(
    log_likelihood: torch.Tensor,
    log_prior: torch.Tensor,
    log_mixture: torch.Tensor,
    warmup: torch.Tensor,
    gradient: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of the three vectors."""
    operands = [operand.contiguous() for operand in (log_likelihood, log_prior, log_mixture)]
    samples = log_likelihood.shape[0]
    out = tuple(log_likelihood.new_empty(samples) for _ in range(3))
    with torch.cuda.device_of(log_likelihood):
        gradient_kernel[(1,)](*operands, warmup, gradient, *out, samples, BLOCK=block_size(samples), **ONE_WARP)
    return out


def ahead_of_time() -> list[tuple]:
    """What the launchers launch on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    entries = []
    for dtype in ("fp32", "fp64"):
        types = {"warmup": "*fp64", "samples": "i32"}
        for kernel in (bound_kernel, gradient_kernel):
            constants = {"BLOCK": block_size(5)}
            entries.append(compiled_as(f"{dtype} J 5", kernel, constants, types, default=f"*{dtype}", options=ONE_WARP))
    return entries
