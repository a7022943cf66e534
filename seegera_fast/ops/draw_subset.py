"""A random subset of an exact size."""

from __future__ import annotations

from typing import Any

import torch

from .. import backends, checks, reference
from ..reference.random import STREAMS
from ..registry import Operator
from ..seeds import seed_tensor


def _fake(seed, count):
    return seed.new_empty(count, dtype=torch.bool)


OPERATOR = Operator(
    "draw_subset(Tensor seed, int stream, int count, int chosen) -> Tensor drawn",
    columns=("cpu", "cuda", "triton"),
    fake=_fake,
)


def draw(seed: torch.Tensor, count: int, chosen: int, stream: str) -> torch.Tensor:
    """``draw_subset`` without checks, on the device of the seed."""
    backend = backends.choose("draw_subset", seed.device)
    if backend is backends.REFERENCE:
        return reference.draw_subset(seed, count, chosen, stream=stream)
    return OPERATOR(backend, seed=seed, stream=STREAMS[stream], count=count, chosen=chosen)


def draw_subset(
    seed: int | torch.Tensor, count: int, chosen: int, *, stream: str = "edges", device: Any = None
) -> torch.Tensor:
    """Draws a subset of exactly ``chosen`` of ``count`` elements; all such subsets have the same probability.

    Each element gets a random 62-bit key. The elements with the smallest keys are chosen; of equal keys, the first.

    Args:
        seed: an int, or an int64 tensor of one element.
        count, chosen: sizes, at least 0.
        stream: "edges" or "entries"; the same seed gives independent draws for the two.
        device: the device of the result; None: that of ``seed`` if it is a tensor, else torch's default.

    Returns:
        bool ``[count]``: True for the chosen elements.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, or ``chosen`` is larger than ``count``.

    Example:
        >>> import seegera_fast as sf
        >>> int(sf.ops.draw_subset(0, count=10, chosen=3).sum())
        3
    """
    device = None if device is None else checks.device("device", device)
    seed = checks.seed(seed, device)
    count = checks.whole("count", count, most=checks.MOST_NUMBERS)
    chosen = checks.whole("chosen", chosen, most=count)
    checks.choice("stream", stream, ("edges", "entries"))
    return draw(seed_tensor(seed, device), count, chosen, stream)
