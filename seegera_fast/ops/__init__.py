"""The operations: checks, then the backend that runs them. See :mod:`seegera_fast.backends` for the choice."""

from .component_log_density import component_log_density
from .decoder_input import decoder_input
from .draw_noise import draw_noise
from .dropout import dropout
from .feature_average import feature_average
from .feature_likelihood import feature_likelihood
from .gcn import gcn
from .importance_bound import importance_bound
from .link_likelihood import link_likelihood
from .mixture_density import mixture_density
from .noisy_gcn import noisy_gcn
from .reparameterize import reparameterize
from .sparse_matmul import sparse_matmul

__all__ = [
    "component_log_density",
    "decoder_input",
    "draw_noise",
    "dropout",
    "feature_average",
    "feature_likelihood",
    "gcn",
    "importance_bound",
    "link_likelihood",
    "mixture_density",
    "noisy_gcn",
    "reparameterize",
    "sparse_matmul",
]
