"""Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC '11), the same bits on every backend.

A number is computed from its position and never stored. The key is the seed, the counter is (row, column // 4, stream
and draw), and the column modulo 4 picks one of the four words. So a kernel can compute any part of a draw in any order.
"""

from __future__ import annotations

import math

import torch

# Each use has its stream, so that the same seed gives independent numbers in different uses.
NOISE, DROPOUT, NORMAL, NEGATIVES, EDGES, ENTRIES = range(6)
STREAMS = {"edges": EDGES, "entries": ENTRIES}

_WORD = 0xFFFFFFFF


def philox(counter: tuple[torch.Tensor, ...], key: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Philox 4x32-10 on int64 tensors that hold 32-bit words: four counter words, two key words -> four words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # The int64 product of two words may wrap around, but its 64 bits are right.
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c2 = ((second >> 32) & _WORD) ^ c1 ^ k0, ((first >> 32) & _WORD) ^ c3 ^ k1
        c1, c3 = second & _WORD, first & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


def words_at(
    seed: torch.Tensor, stream: int, row: torch.Tensor, draw: torch.Tensor | int, group: torch.Tensor | int
) -> torch.Tensor:
    """The four words of column group ``group`` at (row, draw): int64, broadcast shape + ``[4]``."""
    row, draw, group = (torch.as_tensor(x, dtype=torch.int64, device=seed.device) for x in (row, draw, group))
    row, draw, group = torch.broadcast_tensors(row, draw, group)
    key = (seed & _WORD, (seed >> 32) & _WORD)
    counter = (row & _WORD, (row >> 32) & _WORD, group, draw + (stream << 24))
    return torch.stack(philox(counter, key), dim=-1)


def words(seed: torch.Tensor, stream: int, num_rows: int, num_draws: int, num_columns: int) -> torch.Tensor:
    """Random words: int64 ``[num_rows, num_draws, num_columns]``, each in ``[0, 2^32)``."""
    row, draw, group = (torch.arange(k, device=seed.device) for k in (num_rows, num_draws, -(-num_columns // 4)))
    grid = words_at(seed, stream, row[:, None, None], draw[None, :, None], group[None, None, :])
    return grid.flatten(2)[:, :, :num_columns]


def threshold(probability: float) -> int:
    """The number such that a random word is below it with ``probability``."""
    return round(probability * 2**32)


def normals(seed: torch.Tensor, num_rows: int, num_draws: int, num_columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Standard normal numbers ``[num_rows, num_draws, num_columns]`` (Box-Muller on 24-bit uniforms)."""
    even = num_columns + num_columns % 2
    bits = words(seed, NORMAL, num_rows, num_draws, even) >> 8
    # 24 bits are no number of float16.
    wide = torch.promote_types(dtype, torch.float32)
    first, second = bits[:, :, 0::2].to(wide), bits[:, :, 1::2].to(wide)
    radius = torch.sqrt(-2.0 * torch.log((first + 1) * 2.0**-24))
    angle = second * (2.0 * math.pi * 2.0**-24)
    pairs = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=-1).to(dtype)
    return pairs.reshape(num_rows, num_draws, even)[:, :, :num_columns]


def integers(seed: torch.Tensor, stream: int, count: int, below: int) -> torch.Tensor:
    """Uniform integers: int64 ``[count]`` in ``[0, below)``: the high half of a 64-bit draw times ``below``."""
    pair = words_at(seed, stream, torch.arange(count, device=seed.device), 0, 0)
    high, low = pair[:, 0], pair[:, 1]
    below_high, below_low = below >> 32, below & _WORD
    carry = ((low * below_low) >> 32) & _WORD
    middle = low * below_high + carry
    cross = high * below_low
    carry = ((middle & _WORD) + (cross & _WORD)) >> 32
    return high * below_high + ((middle >> 32) & _WORD) + ((cross >> 32) & _WORD) + carry


def bernoulli(
    seed: torch.Tensor, num_rows: int, num_draws: int, noise_dim: int, prob: float, dtype: torch.dtype
) -> torch.Tensor:
    """Zeros and ones ``[num_rows, num_draws, noise_dim]``; a one has probability ``prob``."""
    return (words(seed, NOISE, num_rows, num_draws, noise_dim) < threshold(prob)).to(dtype)


def dropout(values: torch.Tensor, rate: float, seed: torch.Tensor) -> torch.Tensor:
    """Inverted dropout over ``[n, S, d]``: an element is zero with probability ``rate``, else divided by 1 - rate."""
    if rate == 0.0:
        return values
    kept = words(seed, DROPOUT, *values.shape) >= threshold(rate)
    return torch.where(kept, values, 0.0) / (1.0 - rate)
