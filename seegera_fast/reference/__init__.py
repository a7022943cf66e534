"""Every operation in plain, dense PyTorch. These functions define what the kernels have to compute.

They take the arguments of the functions of the same names in ``seegera_fast.ops``, without checks, in any floating
dtype. Autograd differentiates them. An operation runs on its reference if it has no kernel for a device.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..backends import REFERENCE
from ..support.derived import functions

_DEFINITIONS = functions(__name__, __path__)
globals().update(_DEFINITIONS)
__all__ = list(_DEFINITIONS)
REFERENCE.others.extend(__all__)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., torch.Tensor]: ...
