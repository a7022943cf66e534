"""The log density of samples under a mixture per row, log Omega."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator


def _fake(z, means):
    return z.new_empty(z.shape[1]), z.new_empty(z.shape[0], z.shape[1], means.shape[1] - z.shape[1] + 1)


def fake_gradients(z, means, log_var):
    return tuple(operand.new_empty(operand.shape) for operand in (z, means, log_var))


_BACKWARD = Operator(
    "mixture_density_backward(Tensor z, Tensor means, Tensor log_var, Tensor weights, Tensor gradient)"
    " -> (Tensor z, Tensor means, Tensor log_var)",
    columns=("cpu", "triton"),
    fake=fake_gradients,
)

# The second result is the weights of the components, [n, J, K + 1]. With them backward reads its operands only once.
OPERATOR = Operator(
    "mixture_density(Tensor z, Tensor means, Tensor log_var) -> (Tensor density, Constant weights)",
    columns=("cpu", "triton"),
    fake=_fake,
    backward=_BACKWARD,
)


def mixture_density(z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
    """``log Omega_j = sum_i log 1/(K + 1) sum_k N(z_ij; mu_ik, exp(log_var_ik))`` (Eq. reweight), for J samples.

    The components of sample j are the K extra draws ``means[:, :K]`` and the draw it comes from, ``means[:, K + j]``.

    Args:
        z: ``[n, J, d]``.
        means: ``[n, K + J, d]``.
        log_var: ``[n, 1 or K + J, d]``.

    Returns:
        ``[J]``, with normalising constants, computed by a logsumexp, so that it is finite at any d. Differentiable in
        all three arguments.

        A log variance outside of [-30, 30] counts as the nearer end, and gets no gradient.
        A component whose squares overflow has density 0 in that row, and no gradient there. If all components of a row
        overflow, the value is minus infinity and the row's gradients are 0.
        A sample whose upstream gradient is 0 gives gradients of 0, even where an operand is infinite or NaN.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype or device.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> z, means, log_var = torch.zeros(4, 2, 3), torch.zeros(4, 5, 3), torch.zeros(4, 1, 3)  # J = 2, K = 3
        >>> sf.ops.mixture_density(z, means, log_var)
        tensor([-11.0273, -11.0273])
    """
    checks.mixture(z, means, log_var)
    backend = backends.choose("mixture_density", z.device)
    if backend is backends.REFERENCE:
        return reference.mixture_density(z, means, log_var)
    return OPERATOR(backend, z=z, means=means, log_var=log_var)[0]
