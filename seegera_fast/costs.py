"""What a column says of its kernels, for operations that have two forms to choose from."""

from __future__ import annotations

from typing import NamedTuple


class Costs(NamedTuple):
    """What kernels cost, in the time of a multiply-add of a dense product: where an operation has two forms.

    Attributes:
        sparse: one multiply-add of the sparse products of feature_likelihood.
        entry: one entry of a tile of its outputs.
        averaging: one multiply-add of the sparse products of decoder_input.
    """

    sparse: float
    entry: float
    averaging: float
