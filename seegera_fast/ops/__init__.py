"""The operations: checks, then the backend that runs them. See :mod:`seegera_fast.backends` for the choice.

An operation is a file in here, and the function of its name in it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..support.derived import functions

_OPERATIONS = functions(__name__, __path__)
globals().update(_OPERATIONS)
__all__ = list(_OPERATIONS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., torch.Tensor]: ...
