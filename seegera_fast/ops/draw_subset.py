"""An exact number of elements, chosen at random."""

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
    """``draw_subset`` of arguments that have been checked, on the device of the seed."""
    backend = backends.choose("draw_subset", seed.device)
    if backend is backends.REFERENCE:
        return reference.draw_subset(seed, count, chosen, stream=stream)
    return OPERATOR(backend, seed=seed, stream=STREAMS[stream], count=count, chosen=chosen)


def draw_subset(
    seed: int | torch.Tensor, count: int, chosen: int, *, stream: str = "edges", device: Any = None
) -> torch.Tensor:
    """Exactly ``chosen`` of ``count`` elements, every such subset with the same probability.

    They are the elements with the smallest of independent 62-bit keys, the first ones where keys are equal.

    Args:
        seed: an int, or an int64 tensor of one element.
        count, chosen: sizes, 0 and above.
        stream: "edges" or "entries": two independent draws of one seed.
        device: where the subset is made; that of ``seed`` where it is a tensor.

    Returns:
        bool ``[count]``.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, or more chosen than there are.

    Example:
        >>> import seegera_fast as sf
        >>> int(sf.ops.draw_subset(0, count=10, chosen=3).sum())
        3
    """
    checks.seed(seed, None if device is None else torch.device(device))
    checks.whole("count", count)
    checks.whole("chosen", chosen, most=count)
    checks.choice("stream", stream, ("edges", "entries"))
    return draw(seed_tensor(seed, device), count, chosen, stream)
