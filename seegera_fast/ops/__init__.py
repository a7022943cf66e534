"""The operations. Each checks its arguments and then runs on a backend, see :mod:`seegera_fast.backends`.

Each operation has a file of its name in this folder, with a function of that name.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..autocast import without_autocast
from ..support.derived import functions

_OPERATIONS = {name: without_autocast(operation) for name, operation in functions(__name__, __path__).items()}
globals().update(_OPERATIONS)
__all__ = list(_OPERATIONS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...
