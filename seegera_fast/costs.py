"""The costs of a backend's kernels, by which an operation with two forms chooses one."""

from __future__ import annotations

from typing import NamedTuple


class Costs(NamedTuple):
    """Costs of kernels, in units of a multiply-add of a dense product.

    Attributes:
        sparse: cost of a multiply-add of the sparse products of feature_likelihood.
        entry: cost of an entry of a tile of its outputs.
        averaging: cost of a multiply-add of the sparse products of decoder_input.
    """

    sparse: float
    entry: float
    averaging: float
