"""Semi-implicit graph variational auto-encoders (SeeGera, WWW '23), from the model down to its kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import backends, datasets, ops, reference, tasks
from .backends import use_backend
from .batches import Batches
from .checkpoint import Checkpoint
from .config import SeeGeraConfig
from .graph import Graph
from .model import SeeGera
from .sparse_matrix import SparseMatrix
from .training import TrainingConfig, TrainingFailure
from .version import __version__ as __version__

if TYPE_CHECKING:
    from .estimator import SeeGeraEstimator

backends.load()

__all__ = [
    "Batches",
    "Checkpoint",
    "Graph",
    "SeeGera",
    "SeeGeraConfig",
    "SeeGeraEstimator",
    "SparseMatrix",
    "TrainingConfig",
    "TrainingFailure",
    "backends",
    "datasets",
    "ops",
    "reference",
    "tasks",
    "use_backend",
]


def __getattr__(name: str) -> Any:
    # Imported when it is asked for, because scikit-learn takes a second to import.
    if name == "SeeGeraEstimator":
        from .estimator import SeeGeraEstimator

        return SeeGeraEstimator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
