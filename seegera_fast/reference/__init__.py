"""Every operation in readable, dense, plain PyTorch: the definition of correct.

The functions take the arguments of their namesakes in ``seegera_fast.ops``, in any floating type, unchecked, and
are differentiated by autograd. They run wherever no kernel does.
"""

from ..backends import REFERENCE
from .component_log_density import component_log_density
from .decoder_input import decoder_input
from .draw_noise import draw_noise
from .draw_subset import draw_subset
from .dropout import dropout
from .feature_average import feature_average
from .feature_likelihood import feature_likelihood
from .gcn import gcn
from .importance_bound import importance_bound
from .link_likelihood import link_likelihood
from .mask_edges import mask_edges
from .mask_entries import mask_entries
from .mixture_density import mixture_density
from .noisy_gcn import noisy_gcn
from .reparameterize import reparameterize
from .sparse_matmul import sparse_matmul

__all__ = [
    "component_log_density",
    "decoder_input",
    "draw_noise",
    "draw_subset",
    "dropout",
    "feature_average",
    "feature_likelihood",
    "gcn",
    "importance_bound",
    "link_likelihood",
    "mask_edges",
    "mask_entries",
    "mixture_density",
    "noisy_gcn",
    "reparameterize",
    "sparse_matmul",
]

REFERENCE.others.extend(__all__)
