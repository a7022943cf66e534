"""Cuts rows, or numbers from 0, into pieces of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch

# Number of elements of the gathered rows in a piece. On a CPU such a piece stays in the caches, and its memory is used
# again for the next one. This is five times as fast as pieces of a hundred MB.
CPU_ELEMENTS = 1 << 18
# The same for other devices, where small pieces would leave most of the processor idle. Not measured.
OTHER_ELEMENTS = 1 << 25


def pieces(matrix: torch.Tensor, *numbers: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Splits row numbers into pieces, so that the gathered rows of a piece need bounded memory."""
    if not numbers[0].shape[0]:
        return iter(())
    elements = CPU_ELEMENTS if matrix.device.type == "cpu" else OTHER_ELEMENTS
    size = max(1, elements // max(1, matrix[0].numel()))
    return zip(*(index.split(size) for index in numbers), strict=True)


def even_ranges(count: int, most: int) -> Iterator[range]:
    """Cuts ``range(count)`` into as few ranges of at most ``most`` numbers as there can be, all of about one length."""
    parts = -(-count // most)
    for part in range(parts):
        yield range(part * count // parts, (part + 1) * count // parts)


def spans(count: int, size: int) -> Iterator[tuple[int, int]]:
    """The ends of pieces of ``size`` that make up ``count``."""
    for low in range(0, count, size):
        yield low, min(count, low + size)
