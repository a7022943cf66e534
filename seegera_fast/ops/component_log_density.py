"""Log densities of the components of the joint mixture, summed over rows."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator
from .mixture_density import fake_gradients


def _fake(z, means):
    return z.new_empty(z.shape[1], means.shape[1] - z.shape[1] + 1)


_BACKWARD = Operator(
    "component_log_density_backward(Tensor z, Tensor means, Tensor log_var, Tensor gradient)"
    " -> (Tensor z, Tensor means, Tensor log_var)",
    columns=("cpu", "triton"),
    fake=fake_gradients,
)

OPERATOR = Operator(
    "component_log_density(Tensor z, Tensor means, Tensor log_var) -> Tensor densities",
    columns=("cpu", "triton"),
    fake=_fake,
    backward=_BACKWARD,
)


def component_log_density(z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
    """``sum_i log N(z_ij; mu_ik, exp(log_var_ik))`` for each sample j and each of its components k.

    The components of a sample are the K extra draws of psi and the draw that the sample comes from.

    Args:
        z: ``[n, J, d]``.
        means: ``[n, K + J, d]``: the K extra draws first, then the draw of each sample.
        log_var: ``[n, 1 or K + J, d]``.

    Returns:
        ``[J, K + 1]``; column K is the component of the sample's draw. Differentiable in all three arguments.

        A log variance outside of [-30, 30] counts as the nearer end, and gets no gradient.
        A density whose upstream gradient is 0 gives gradients of 0, even where an operand is infinite or NaN.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype or device.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> z, means, log_var = torch.zeros(4, 2, 3), torch.zeros(4, 5, 3), torch.zeros(4, 1, 3)  # J = 2, K = 3
        >>> sf.ops.component_log_density(z, means, log_var).shape
        torch.Size([2, 4])
    """
    checks.mixture(z, means, log_var)
    backend = backends.choose("component_log_density", z.device)
    if backend is backends.REFERENCE:
        return reference.component_log_density(z, means, log_var)
    return OPERATOR(backend, z=z, means=means, log_var=log_var)
