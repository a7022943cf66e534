"""Semi-implicit graph variational auto-encoders (SeeGera, WWW '23), from the model down to its kernels."""

from . import backends, datasets, ops, reference, tasks
from .backends import use_backend
from .checkpoint import Checkpoint
from .config import SeeGeraConfig
from .graph import Graph
from .model import SeeGera
from .sparse_matrix import SparseMatrix
from .version import __version__ as __version__

backends.load()

__all__ = [
    "Checkpoint",
    "Graph",
    "SeeGera",
    "SeeGeraConfig",
    "SparseMatrix",
    "backends",
    "datasets",
    "ops",
    "reference",
    "tasks",
    "use_backend",
]
