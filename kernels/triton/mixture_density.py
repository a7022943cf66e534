"""``log Omega_j = sum_i logsumexp_k log N(z_ij; mu_ik, exp(log_var_ik)) - log(K + 1)``, and its gradient.

Forward keeps the weights of the components, ``[n, J, K + 1]``, so that backward reads the operands once and sums no
density again. Floors: common/mixture.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as, mixture
from .common.mixture import row_densities, row_gradients
from .common.sums import sum_rows


@triton.jit
def weigh_kernel(
    densities,  # [n, J, K + 1] float64
    weights,  # [n, J, K + 1]: softmax over the components, zeros where all densities are 0
    partial,  # [blocks of rows, J] float64: sums of the rows' log mixtures
    rows,
    samples,
    components,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COMPONENTS: tl.constexpr,
):
    """Programs: for each sample all blocks of rows."""
    program = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    block, sample = program % blocks, program // blocks
    row = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    inside = row < rows
    # Past the end the last row is read again, but neither written nor counted.
    line = ((tl.minimum(row, rows - 1) * samples + sample) * components)[:, None]
    # Finite, so that it can be subtracted: where all densities are 0, so are the exponentials and their sum.
    highest = tl.full((BLOCK_ROWS,), -1.7976931348623157e308, dtype=tl.float64)
    for start in range(0, components, BLOCK_COMPONENTS):
        component = start + tl.arange(0, BLOCK_COMPONENTS)[None, :]
        density = tl.load(densities + line + component, mask=component < components, other=float("-inf"))
        highest = tl.maximum(highest, tl.max(density, axis=1))
    total = tl.zeros((BLOCK_ROWS,), dtype=tl.float64)
    for start in range(0, components, BLOCK_COMPONENTS):
        component = start + tl.arange(0, BLOCK_COMPONENTS)[None, :]
        density = tl.load(densities + line + component, mask=component < components, other=float("-inf"))
        total += tl.sum(tl.exp(density - highest[:, None]), axis=1)
    divisor = tl.where(total == 0.0, 1.0, total)[:, None]
    for start in range(0, components, BLOCK_COMPONENTS):
        component = start + tl.arange(0, BLOCK_COMPONENTS)[None, :]
        density = tl.load(densities + line + component, mask=component < components, other=float("-inf"))
        weight = (tl.exp(density - highest[:, None]) / divisor).to(weights.dtype.element_ty)
        tl.store(weights + line + component, weight, mask=inside[:, None] & (component < components))
    value = highest + tl.log(total) - tl.log(tl.cast(components, tl.float64))
    tl.store(partial + block * samples + sample, tl.sum(tl.where(inside, value, 0.0), axis=0))


def block_sizes(rows: int, components: int) -> dict[str, int]:
    block_components = min(triton.next_power_of_2(components), 32)
    return {
        "BLOCK_ROWS": min(512 // block_components, triton.next_power_of_2(rows)),
        "BLOCK_COMPONENTS": block_components,
    }


def mixture_density(z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The densities ``[J]``, see ``ops.mixture_density``, and the weights of the components ``[n, J, K + 1]``."""
    densities = row_densities(z, means, log_var)
    rows, samples, components = densities.shape
    weights = z.new_empty((rows, samples, components))
    if rows == 0:
        return z.new_zeros(samples), weights
    blocks = block_sizes(rows, components)
    number = triton.cdiv(rows, blocks["BLOCK_ROWS"])
    partial = densities.new_empty((number, samples))
    with torch.cuda.device_of(z):
        weigh_kernel[(number * samples,)](densities, weights, partial, rows, samples, components, **blocks, **OPTIONS)
    return sum_rows(partial, z.dtype), weights


def mixture_density_backward(
    z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor, weights: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients like the first three; ``gradient`` ``[J]``."""
    return row_gradients(z, means, log_var, weights, gradient)


def ahead_of_time() -> list[tuple]:
    """What the launchers launch on a GPU, to be compiled without one: see tests/ahead_of_time.py."""
    entries = mixture.ahead_of_time(weighted=True)
    types = {"densities": "*fp64", "partial": "*fp64", "rows": "i32", "samples": "i32", "components": "i32"}
    for dtype in ("fp32", "fp64"):
        types["weights"] = f"*{dtype}"
        entries.append(compiled_as(f"{dtype} K 1", weigh_kernel, block_sizes(20000, 2), types))
    return entries
