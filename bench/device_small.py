"""Every operation, small: what bench/device.py runs under compute-sanitizer."""

from __future__ import annotations

from collections.abc import Callable

import cases
import numpy as np
import scipy.sparse
import torch
from device_measure import DEVICE, backends_of, normal, synchronize

import seegera_fast as sf


def with_leaves(
    function: Callable[..., torch.Tensor], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Callable[[], object]:
    """Value and gradients of a function of random tensors."""
    leaves = [normal(*shape, dtype=dtype, scale=0.3).requires_grad_() for shape in shapes]
    return lambda: torch.autograd.grad(function(*leaves).sum(), leaves)


def with_hub(base: sf.Graph) -> sf.Graph:
    """The graph with its first node joined to all others."""
    nodes = base.num_nodes
    star = scipy.sparse.coo_matrix((np.ones(nodes), (np.zeros(nodes, dtype=int), np.arange(nodes))), (nodes, nodes))
    links = (base.adjacency.to_scipy() + star + star.T).sign()
    return sf.Graph(links, base.features.to_scipy()).to(DEVICE)


def small_calls() -> dict[str, Callable[[], object]]:
    """Every operation, value and gradients, on a graph with a hub and widths that fill no block; by name.

    Then what only larger ones reach.
    """
    nodes, features, width = 300, 48, 24
    graph = with_hub(cases.random_graph(nodes, degree=6, features=features))
    adjacency, propagation, words = graph.adjacency, graph.propagation, graph.features
    ops = sf.ops

    hidden, output = (nodes, 2, width), (width, features)
    calls = {
        "sparse_matmul": with_leaves(lambda v: ops.sparse_matmul(propagation, v), (nodes, width)),
        "link_likelihood": with_leaves(lambda z: ops.link_likelihood(z, adjacency, pos_weight=3.0), hidden),
        "link_likelihood, sampled": with_leaves(lambda z: ops.link_likelihood(z, adjacency, negatives=50), hidden),
        "noisy_gcn": with_leaves(
            lambda w, v: ops.noisy_gcn(propagation, words, w, v, num_draws=2, seed=3, dropout=0.3),
            (features, width),
            (5, width),
        ),
        "gcn": with_leaves(
            lambda h, w: ops.gcn(propagation, h, w, dropout=0.3, seed=3),
            hidden,
            (width, width),
        ),
        "feature_average": with_leaves(lambda v: ops.feature_average(words, v, to="features"), hidden),
        "feature_average, to nodes": with_leaves(
            lambda v: ops.feature_average(words, v, to="nodes"), (features, 2, width)
        ),
        "decoder_input": with_leaves(
            lambda a, b, w: ops.decoder_input(words, a, b, w, dropout=0.3, seed=3),
            hidden,
            (features, 2, width),
            (2 * width, width),
        ),
        "reparameterize": with_leaves(lambda m, v: ops.reparameterize(m, v, 3), hidden, (nodes, 1, width)),
        "dropout": with_leaves(lambda v: ops.dropout(v, 0.3, 3), hidden),
        "importance_bound": with_leaves(ops.importance_bound, (3,), (3,), (3,)),
        "draw_noise": lambda: ops.draw_noise(3, nodes, 2, 5, device=DEVICE),
        "draw_subset": lambda: ops.draw_subset(3, graph.num_edges, 99, device=DEVICE),
        "mask_edges": lambda: ops.mask_edges(*graph.with_self_loops(), 99, 3),
        "mask_entries": lambda: ops.mask_entries(words, 99, 3),
    }
    for likelihood in ("bernoulli", "mse", "gaussian"):

        def feature_likelihood(h, w, v=None, likelihood=likelihood):
            return ops.feature_likelihood(h, w, words, likelihood=likelihood, log_var_weight=v)

        shapes = (hidden, output, output) if likelihood == "gaussian" else (hidden, output)
        calls[f"feature_likelihood, {likelihood}"] = with_leaves(feature_likelihood, *shapes)
    for operation in ("mixture_density", "component_log_density"):
        function = getattr(ops, operation)
        calls[operation] = with_leaves(function, hidden, (nodes, 5, width), (nodes, 1, width))
    return calls | larger_calls(adjacency)


def larger_calls(adjacency: sf.SparseMatrix) -> dict[str, Callable[[], object]]:
    """What few rows of little width do not reach, the most important first.

    Args:
        adjacency: of the small graph.
    """
    # More rows than a group of the chunked links and a share of the scans have, more features than a chunk of outputs,
    # more links of a node than a program of the links takes.
    nodes, features, width = 4200, 2100, 24
    graph = with_hub(cases.random_graph(nodes, degree=2, features=features))
    ops = sf.ops
    chunked = (nodes, 2, 72)

    def links(z):
        return ops.link_likelihood(z, graph.adjacency, pos_weight=3.0)

    calls = {
        "link_likelihood, chunked": with_leaves(links, chunked),
        "link_likelihood, sampled, a hub": with_leaves(
            lambda z: ops.link_likelihood(z, graph.adjacency, negatives=50), chunked
        ),
    }
    if DEVICE != "cpu":
        # Half precision is for the Triton kernels alone.
        calls["link_likelihood, tiles, bfloat16"] = with_leaves(links, chunked, dtype=torch.bfloat16)
    return calls | {
        "link_likelihood, tiles of columns": with_leaves(
            lambda z: ops.link_likelihood(z, adjacency), (adjacency.shape[0], 1, 520)
        ),
        "link_likelihood, tiles of columns, a hub": with_leaves(links, (nodes, 1, 520)),
        "mask_edges, many rows": lambda: ops.mask_edges(*graph.with_self_loops(), 999, 3),
        "mask_entries, many rows": lambda: ops.mask_entries(graph.features, 999, 3),
        "feature_likelihood, chunks of columns": with_leaves(
            lambda h, w: ops.feature_likelihood(h, w, graph.features), (nodes, 1, width), (width, features)
        ),
    }


def small() -> int:
    """Runs them in each column that is there, a line before each, so that the last line names what stopped."""
    for name, call in small_calls().items():
        operation = name.partition(",")[0]
        for backend in backends_of(operation) or ["reference"]:
            print(f"small: {name}, {backend}", flush=True)
            with sf.use_backend(backend):
                call()
            synchronize()
    print("small: all done", flush=True)
    return 0
