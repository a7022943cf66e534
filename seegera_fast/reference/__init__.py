"""Every operation in plain, dense PyTorch. These functions define what the kernels have to compute.

They take the arguments of the functions of the same names in ``seegera_fast.ops``, in any floating dtype where numbers
are computed with (masks and noise are made for float32 and float64). Only the kinds of the arguments are checked, not
their sizes. Autograd differentiates them. An operation runs on its reference if it has no kernel for a device.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..backends import REFERENCE
from ..support.derived import functions
from .kinds import checked

_DEFINITIONS = {name: checked(function) for name, function in functions(__name__, __path__).items()}
globals().update(_DEFINITIONS)
__all__ = list(_DEFINITIONS)
REFERENCE.others.extend(__all__)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., torch.Tensor]: ...
