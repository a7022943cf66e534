"""``out = values * scale`` where word (row, draw, column) of the dropout stream has reached a threshold, else 0.

The gradient is the same operation on the upstream gradient. Kernel and floor: common/dropout.py.
"""

from __future__ import annotations

import torch

from .common import dropout as lines
from .common.dropout import drop_lines
from .common.lines import with_contiguous_lines


def dropout(values: torch.Tensor, threshold: int, scale: float, seed: torch.Tensor) -> torch.Tensor:
    """``[n, S, d]``, contiguous; see ``ops.dropout``."""
    out = values.new_empty(values.shape)
    drop_lines(with_contiguous_lines(values), out, threshold, scale, seed)
    return out


def ahead_of_time() -> list[tuple]:
    """What ``dropout`` launches on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    return lines.ahead_of_time()
