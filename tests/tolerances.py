"""The tolerance of comparisons, which all tests share."""

from __future__ import annotations

import math

import torch

# The rounding error of a sum of k terms with random signs grows like sqrt(k) units of the last digit. The margin covers
# the constants: each term has a few roundings, and exponentials are accurate to a few units.
MARGIN = 8.0


def relative_error(dtype: torch.dtype, terms: int = 1) -> float:
    """The error allowed to a number of magnitude 1 that is a sum of ``terms`` terms.

    The result is rounded to ``dtype``; sums are taken in float32 at least.
    """
    unit = torch.finfo(dtype).eps
    accumulated = min(unit, torch.finfo(torch.float32).eps)
    return MARGIN * (unit + math.sqrt(terms) * accumulated)


def assert_close(actual: torch.Tensor, expected64: torch.Tensor, *, terms: int = 1, name: str = "result") -> None:
    """Asserts that ``actual`` equals the expected float64 numbers up to the rounding of its dtype.

    An element may differ by ``relative_error`` times the sum of its magnitude and the largest magnitude of the tensor,
    because terms that cancel leave their rounding errors. If all expected numbers are zero, the actual ones must be.

    Args:
        actual: any floating-point dtype, any device.
        expected64: float64, the same shape, finite.
        terms: number of summands of an element.
        name: name of the tensor in the message of a failure.
    """
    assert expected64.dtype == torch.float64, f"{name}: the expected values are {expected64.dtype}, want torch.float64"
    assert actual.shape == expected64.shape, f"{name}: shape {tuple(actual.shape)}, want {tuple(expected64.shape)}"
    assert expected64.isfinite().all(), f"{name}: the expected values are not finite"
    if actual.numel() == 0:
        return
    got, want = actual.detach().to("cpu", torch.float64), expected64.detach().cpu()
    bad = (~got.isfinite()).sum().item()
    assert bad == 0, f"{name}: {bad} of {got.numel()} values are NaN or infinite"
    allowed = relative_error(actual.dtype, terms) * (want.abs() + want.abs().max())
    excess = (got - want).abs() - allowed
    at = excess.argmax().item()
    assert excess.max() <= 0, (
        f"{name}: element {at} of {tuple(got.shape)} is {got.reshape(-1)[at].item()!r}, want "
        f"{want.reshape(-1)[at].item()!r} within {allowed.reshape(-1)[at].item():.3g} ({actual.dtype}, {terms} terms)"
    )


# Where a tanh or a sigmoid is saturated, or large terms cancel, what is left of a small number is rounding errors. So
# results of a whole program are held against the largest of them. A mistake in a kernel is far above this.
PROGRAM = 1e-7


def assert_program_close(
    actual: dict[str, torch.Tensor], expected64: dict[str, torch.Tensor], loss: float = 0.0
) -> None:
    """Asserts that the results of a whole program in float64 are equal up to rounding, against the largest of them.

    Args:
        loss: of gradients, the loss. Samples are weighted by the exponential of differences of numbers as large as it,
            whose absolute rounding errors are the weights' relative ones.
    """
    assert actual.keys() == expected64.keys()
    error = PROGRAM + 8 * torch.finfo(torch.float64).eps * abs(loss)
    allowed = error * max(value.abs().max().item() for value in expected64.values() if value.numel())
    for name, want in expected64.items():
        got = actual[name]
        assert got.dtype == want.dtype == torch.float64, f"{name}: {got.dtype}, want torch.float64"
        assert got.shape == want.shape, f"{name}: shape {tuple(got.shape)}, want {tuple(want.shape)}"
        excess = (got - want).abs().nan_to_num(nan=math.inf)
        worst = excess.max().item() if want.numel() else 0.0
        assert worst <= allowed, f"{name}: differs by {worst:.3g}, want at most {allowed:.3g}"


# Of results whose float32 products were rounded to the precision of that name: the norm of what they are off by, over
# their own.
PRODUCTS = {"highest": 2e-6, "high": 2e-5, "medium": 1e-2}


def assert_norm_close(actual: torch.Tensor, expected64: torch.Tensor, precision: str, *, name: str = "result") -> None:
    """Asserts that ``actual`` is as near to the expected float64 numbers as a precision of products promises."""
    got = actual.detach().to("cpu", torch.float64)
    error, size = (got - expected64).norm().item(), expected64.norm().item()
    assert error <= PRODUCTS[precision] * size, f"{name}: off by {error:.3g} of {size:.3g} at {precision}"


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor, *, name: str = "result") -> None:
    """Asserts that dtype, shape and all bits are equal: -0 differs from 0, and a NaN equals itself."""
    assert actual.dtype == expected.dtype, f"{name}: {actual.dtype}, want {expected.dtype}"
    assert actual.shape == expected.shape, f"{name}: shape {tuple(actual.shape)}, want {tuple(expected.shape)}"
    if not actual.numel():
        return
    got, want = (tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in (actual, expected))
    different = (got != want).reshape(actual.numel(), -1).any(dim=1).sum().item()
    assert different == 0, f"{name}: {different} of {actual.numel()} values differ in their bits"
