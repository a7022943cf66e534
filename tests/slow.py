"""Random numbers in Python integers: Philox 4x32-10 written from its publication, one number at a time."""

from __future__ import annotations

import math

import torch

MASK = 0xFFFFFFFF
STREAMS = {"noise": 0, "dropout": 1, "normal": 2, "negatives": 3}


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Ten rounds of Philox 4x32 (Salmon et al., SC '11, section 3.3)."""
    left = [0xD2511F53, 0xCD9E8D57]
    bump = [0x9E3779B9, 0xBB67AE85]
    words, keys = list(counter), list(key)
    for _ in range(10):
        high, low = zip(*(divmod(m * words[2 * i], 2**32) for i, m in enumerate(left)), strict=True)
        words = [high[1] ^ words[1] ^ keys[0], low[1], high[0] ^ words[3] ^ keys[1], low[0]]
        keys = [(k + b) & MASK for k, b in zip(keys, bump, strict=True)]
    return tuple(words)


def word(seed: int, stream: str, row: int, draw: int, column: int) -> int:
    """The 32 bits at one position."""
    key = (seed & MASK, (seed >> 32) & MASK)
    counter = (row & MASK, row >> 32, column // 4, (STREAMS[stream] << 24) + draw)
    return philox(counter, key)[column % 4]


def _each(shape: tuple[int, ...], value) -> torch.Tensor:
    rows = [[[value(i, s, c) for c in range(shape[2])] for s in range(shape[1])] for i in range(shape[0])]
    return torch.tensor(rows, dtype=torch.float64).reshape(shape)


def noise(seed: int, shape: tuple[int, int, int], prob: float) -> torch.Tensor:
    """Zeros and ones ``[n, S, c]``."""
    return _each(shape, lambda *at: float(word(seed, "noise", *at) < prob * 2**32))


def keep(seed: int, shape: tuple[int, int, int], rate: float) -> torch.Tensor:
    """Factors of inverted dropout ``[n, S, d]``: 0 or 1 / (1 - rate)."""
    return _each(shape, lambda *at: float(word(seed, "dropout", *at) >= rate * 2**32) / (1 - rate))


def normals(seed: int, shape: tuple[int, int, int]) -> torch.Tensor:
    """Box-Muller: columns 2 m and 2 m + 1 are the cosine and the sine of the same radius and angle."""

    def value(row: int, draw: int, column: int) -> float:
        even = column - column % 2
        first, second = (word(seed, "normal", row, draw, even + k) // 256 for k in (0, 1))
        radius = math.sqrt(-2 * math.log((first + 1) / 2**24))
        angle = 2 * math.pi * second / 2**24
        return radius * (math.sin(angle) if column % 2 else math.cos(angle))

    return _each(shape, value)


def integers(seed: int, stream: str, count: int, below: int) -> list[int]:
    """Numbers in ``[0, below)`` from 64 bits each."""
    return [((word(seed, stream, i, 0, 0) << 32 | word(seed, stream, i, 0, 1)) * below) >> 64 for i in range(count)]
