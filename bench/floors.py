"""Floors: the least time that an operation needs, from the numbers of its arithmetic operations and bytes.

The floor of an operation is ``max(operations / product rate, bytes / copy rate)``, if inputs are read once and outputs
are written once. The floor of a step is the sum of the floors of the products and densities that it has to compute.
Both rates are measured in the run that uses them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import torch


class Work(NamedTuple):
    """A number of floating-point operations (a multiply-add is two), and of bytes read and written."""

    operations: float
    moved: float


def total(*works: Work) -> Work:
    """The sum of works that are done one after the other."""
    return Work(*map(sum, zip(*works, strict=True)))


class Rates(NamedTuple):
    """Rates of the machine: operations per second in a matrix product, bytes read and written per second in a copy."""

    product: float
    copy: float

    def seconds(self, work: Work) -> float:
        return max(work.operations / self.product, work.moved / self.copy)


def best_seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """The shortest time of some calls, after one that is not counted."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def rate_calls(
    dtype: torch.dtype = torch.float32, device: str = "cpu", size: int = 2048, copied: int = 2**28
) -> dict[str, tuple[float, Callable[[], object]]]:
    """A product of square matrices and a copy: for each the number of operations or bytes, and the call."""
    left, right = torch.randn(2, size, size, dtype=dtype, device=device)
    out = torch.empty_like(left)
    source = torch.zeros(copied // dtype.itemsize, dtype=dtype, device=device)
    target = torch.zeros_like(source)
    return {
        "product": (2 * size**3, lambda: torch.mm(left, right, out=out)),
        "copy": (2 * source.numel() * dtype.itemsize, lambda: target.copy_(source)),
    }


def product(rows: float, inner: float, cols: float, *, with_gradients: bool = True, size: int = 4) -> Work:
    """``[rows, inner] @ [inner, cols]``. The gradients of the two factors are two more products."""
    times = 3 if with_gradients else 1
    return Work(times * 2.0 * rows * inner * cols, times * size * (rows * inner + inner * cols + rows * cols))


def sparse_matmul(nnz: float, rows: float, cols: float, width: float, *, with_gradients: bool = True) -> Work:
    times = 2 if with_gradients else 1
    return Work(times * 2.0 * nnz * width, times * (12.0 * nnz + 4.0 * width * (rows + cols)))


def link_likelihood(num_nodes: float, dim: float, samples: int = 1) -> Work:
    """All pairs, value and gradient: each pair once for the score, and once for each of its two gradients."""
    return Work(samples * 3.0 * num_nodes**2 * dim, samples * 8.0 * num_nodes * dim)


def sampled_link_likelihood(pairs: float, num_nodes: float, dim: float, samples: int = 1) -> Work:
    return Work(samples * 6.0 * pairs * dim, samples * 8.0 * num_nodes * dim)


def top_links(num_nodes: float, dim: float, k: int = 10) -> Work:
    """Each pair once for the score."""
    return Work(num_nodes**2 * dim, 4.0 * num_nodes * dim + 12.0 * num_nodes * k)


def feature_likelihood(
    num_nodes: float, num_features: float, hidden: float, nnz: float, likelihood: str, samples: int = 1
) -> Work:
    """Value and gradients: three products over all cells, or for mse products of Gram matrices if these are cheaper."""
    cells = 6.0 * num_nodes * num_features * hidden
    if likelihood == "mse":
        # Two symmetric Gram matrices, a product with each for the gradients, and two passes over the non-zeros.
        cells = min(cells, 3.0 * (num_nodes + num_features) * hidden**2 + 4.0 * nnz * hidden)
    return Work(samples * cells, samples * 8.0 * hidden * (num_nodes + num_features))


def mixture_density(rows: float, dim: float, samples: int, extra: int, variances: int = 1) -> Work:
    """Two reads of the operands and one write of the gradients."""
    operands = rows * dim * (samples + samples + extra + variances)
    return Work(6.0 * rows * dim * samples * (extra + 1), 12.0 * operands)


def step(graph, config) -> dict[str, Work]:
    """The parts of a training step of a correlated model with convolutions, forward and backward.

    Args:
        graph: the training graph.
        config: a SeeGeraConfig with encoder and decoder "gcn".
    """
    n, l, d, h = graph.num_nodes, graph.num_features, config.embedding_dim, config.hidden_dim
    samples, extra = config.num_importance_samples, config.num_mixture_samples
    draws = samples + extra
    kept = 2 * (graph.num_edges - int(config.structure_masking_rate * graph.num_edges)) + n
    # If X is dense enough, its products are dense products.
    feature_entries = n * l if graph.features.nnz > 0.1 * n * l else graph.features.nnz
    widths = [h] * (config.encoder_layers - 1) + [d]
    parts = {}

    def add(name: str, work: Work) -> None:
        parts[name] = total(parts.get(name, Work(0.0, 0.0)), work)

    # Without dropout, X W and its propagation are computed once for all draws; with dropout, for each draw.
    shared = 1 if config.dropout == 0 else draws
    add("encoder, first layer", sparse_matmul(feature_entries, n, l, (shared + 1) * widths[0]))
    add("encoder, propagation", sparse_matmul(kept, n, n, (shared + 1) * widths[0]))
    for before, after in itertools.pairwise(widths):
        add("encoder, further layers", product((draws + 1) * n, before, after))
        add("encoder, propagation", sparse_matmul(kept, n, n, (draws + 1) * after))
    add("feature averages", sparse_matmul(feature_entries, n, l, (draws + 1) * d))
    add("feature heads", product((draws + 1) * l, d, h))
    add("feature heads", product((draws + 1) * l, h, d))
    add("feature averages", sparse_matmul(feature_entries, n, l, samples * d))
    if config.decoder_layers > 1:
        add("decoder", product(samples * n, d, h))
        # Dropout acts on the averages, so they have to be computed before the product with the weight.
        add("decoder", product(samples * (l if config.dropout == 0 else n), d, h))
        for _ in range(config.decoder_layers - 2):
            add("decoder", product(samples * n, h, h))
    inputs = h if config.decoder_layers > 1 else 2 * d
    add("decoder, propagation", sparse_matmul(kept, n, n, samples * (config.decoder_layers - 1) * h + samples * inputs))
    add(
        "feature_likelihood",
        feature_likelihood(n, l, inputs, graph.features.nnz, config.likelihood, samples),
    )
    if config.negatives == "all":
        add("link_likelihood", link_likelihood(n, d, samples))
    else:
        negatives = graph.num_edges if config.negatives == "edges" else config.negatives
        add("link_likelihood", sampled_link_likelihood(graph.num_edges + negatives + n, n, d, samples))
    add("mixture_density", mixture_density(n + l, d, samples, extra))
    return parts
