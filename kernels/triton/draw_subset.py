"""``out [count]`` is true for exactly ``chosen`` elements: those of the smallest random keys, the first where equal.

Key of element i: 62 bits of counter i of the stream. torch sorts them on the device, stably. Floor: count
Philox counters, and the passes of a radix sort over count keys of 8 bytes with their positions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.random import words_at


@triton.jit
def key_kernel(
    seed,  # [1] int64
    keys,  # [count] int64
    stream,
    count,
    BLOCK: tl.constexpr,
):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first, second, _, _ = words_at(tl.load(seed), stream, element, 0, 0)
    key = (first.to(tl.int64) << 30) ^ (second >> 2).to(tl.int64)
    tl.store(keys + element, key, mask=element < count)


@triton.jit
def mark_kernel(
    order,  # [count] int64: the elements by their keys
    out,  # [count] bytes
    count,
    chosen,
    BLOCK: tl.constexpr,
):
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = position < count
    element = tl.load(order + position, mask=inside, other=0)
    tl.store(out + element, (position < chosen).to(tl.uint8), mask=inside)


def block_size(device: str) -> int:
    """Elements of a program: few large ones in the interpreter, where one costs milliseconds whatever it does."""
    return 2**15 if device == "cpu" else 512


def draw_subset(seed: torch.Tensor, stream: int, count: int, chosen: int) -> torch.Tensor:
    """bool ``[count]``; see ``ops.draw_subset``."""
    out = seed.new_empty(count, dtype=torch.bool)
    if count == 0:
        return out
    block = block_size(seed.device.type)
    grid = (triton.cdiv(count, block),)
    keys = seed.new_empty(count)
    with torch.cuda.device_of(seed):
        key_kernel[grid](seed, keys, stream, count, BLOCK=block, **OPTIONS)
        order = torch.argsort(keys, stable=True)
        mark_kernel[grid](order, out.view(torch.uint8), count, chosen, BLOCK=block, **OPTIONS)
    return out


def ahead_of_time() -> list[tuple]:
    """What ``draw_subset`` launches on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    types = {"seed": "*i64", "keys": "*i64", "order": "*i64", "out": "*u8"}
    constants = {"BLOCK": block_size("cuda")}
    return [compiled_as("any", kernel, constants, types) for kernel in (key_kernel, mark_kernel)]
