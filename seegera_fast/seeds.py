"""Seeds: one number from the user, one independent number per place that draws."""

from __future__ import annotations

import torch

_MASK = (1 << 64) - 1


def derive_seed(seed: int | torch.Tensor, *path: int) -> int | torch.Tensor:
    """A seed for the place ``path`` (epoch, layer, ...) under ``seed``, by SplitMix64 steps.

    Args:
        seed: an int, or an int64 tensor of one element, which is never read on the host.
        path: small non-negative ints.

    Returns:
        The same kind as ``seed``; both kinds give the same number.
    """
    for step in path:
        if isinstance(seed, torch.Tensor):
            seed = _mix_tensor(seed + _signed((step + 1) * 0x9E3779B97F4A7C15))
        else:
            seed = _signed(_mix(seed + (step + 1) * 0x9E3779B97F4A7C15))
    return seed


def seed_tensor(seed: int | torch.Tensor, device: torch.device) -> torch.Tensor:
    """The seed as the operators take it: int64 ``[1]``, an int on ``device``, a tensor where it is."""
    if isinstance(seed, torch.Tensor):
        return seed.reshape(1)
    return torch.full((1,), seed, dtype=torch.int64, device=device)


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _mix_tensor(value: torch.Tensor) -> torch.Tensor:
    value = (value ^ _shift(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shift(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shift(value, 31)


def _shift(value: torch.Tensor, by: int) -> torch.Tensor:
    """Logical shift to the right: int64 shifts copy the sign."""
    return (value >> by) & ((1 << (64 - by)) - 1)
