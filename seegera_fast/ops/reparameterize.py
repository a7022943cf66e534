"""Samples of the posterior."""

from __future__ import annotations

import torch

from .. import backends, checks, reference
from ..registry import Operator
from ..seeds import seed_tensor


def _fake(mean):
    return mean.new_empty(mean.shape)


def _fake_backward(log_var):
    return log_var.new_empty(log_var.shape)


Operator(
    "reparameterize_backward(Tensor gradient, Tensor log_var, Tensor seed) -> Tensor log_var",
    columns=("cpu", "triton"),
    fake=_fake_backward,
)


def _log_var_gradient(call, gradient, log_var, seed):
    return call("reparameterize_backward", gradient=gradient, log_var=log_var, seed=seed)


OPERATOR = Operator(
    "reparameterize(Tensor mean, Tensor log_var, Constant seed) -> Tensor sample",
    columns=("cpu", "triton"),
    fake=_fake,
    backward={"mean": lambda gradient: gradient, "log_var": _log_var_gradient},
)


def reparameterize(mean: torch.Tensor, log_var: torch.Tensor, seed: int | torch.Tensor) -> torch.Tensor:
    """``mean + exp(log_var / 2) * N(0, I)``.

    Args:
        mean: ``[n, J, d]``.
        log_var: logarithm of the variance, ``[n, 1 or J, d]``. Outside of [-30, 30] it counts as the nearer end, and
            gets no gradient: there the standard deviation is 3.1e-7 or 3.3e6, and float32 loses either the noise or
            the mean in its rounding.
        seed: an int, or an int64 tensor of one element.

    Returns:
        ``[n, J, d]``. Differentiable in ``mean`` and ``log_var``. The normal numbers are not stored: backward draws
        them again from the seed.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype or device.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> mean, log_var = torch.zeros(4, 2, 3), torch.zeros(4, 1, 3)
        >>> sample = sf.ops.reparameterize(mean, log_var, seed=0)
        >>> torch.equal(sample, sf.ops.reparameterize(mean, log_var, seed=0))
        True
    """
    checks.drawn("mean", mean)
    checks.positive("mean's number of samples", mean.shape[1])
    checks.draws_of("log_var", log_var, mean)
    checks.same_kind(mean=mean, log_var=log_var)
    seed = checks.seed(seed, mean.device)
    backend = backends.choose("reparameterize", mean.device)
    if backend is backends.REFERENCE:
        return reference.reparameterize(mean, log_var, seed)
    return OPERATOR(backend, mean=mean, log_var=log_var, seed=seed_tensor(seed, mean.device))
