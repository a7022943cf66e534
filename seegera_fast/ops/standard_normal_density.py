"""The log density of samples under the prior, summed over rows."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator


def _fake(z):
    return z.new_empty(z.shape[1])


def _fake_backward(z):
    return z.new_empty(z.shape)


_BACKWARD = Operator(
    "standard_normal_density_backward(Tensor z, Tensor gradient) -> Tensor z",
    columns=("cpu", "triton"),
    fake=_fake_backward,
    draws=({"z": 1, "gradient": 0}, (1,)),
)

OPERATOR = Operator(
    "standard_normal_density(Tensor z) -> Tensor density",
    columns=("cpu", "triton"),
    fake=_fake,
    backward=_BACKWARD,
    draws=({"z": 1}, (0,)),
)


def standard_normal_density(z: torch.Tensor) -> torch.Tensor:
    """``log N(Z_j; 0, I) = -1/2 (sum_i ||z_ij||^2 + n d log(2 pi))``: the log prior of J samples (Eq. reweight).

    Args:
        z: ``[n, J, d]``.

    Returns:
        ``[J]``, with the normalising constant. Differentiable in ``z``; the gradient is ``-z``. If a square overflows,
        the value is minus infinity. A sample whose upstream gradient is 0 gets a gradient of 0, even where it is
        infinite or NaN.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype or device.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> z = torch.zeros(3, 2, 4)
        >>> sf.ops.standard_normal_density(z)  # -0.5 * 3 * 4 * log(2 pi), for each of two samples
        tensor([-11.0273, -11.0273])
    """
    checks.tensor("z", z, ndim=3)
    checks.on_device("z", z)
    checks.positive("z's number of samples", z.shape[1])
    backend = backends.choose("standard_normal_density", z.device)
    if backend is backends.REFERENCE:
        return reference.standard_normal_density(z)
    return OPERATOR(backend, z=z)
