"""Every operation in readable, dense, plain PyTorch: the definition of correct.

The functions take the arguments of their namesakes in ``seegera_fast.ops``, in any floating type, unchecked, and
are differentiated by autograd. They run wherever no kernel does.
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
