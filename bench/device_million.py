"""One million nodes, for bench/device.py: a step with sampled negatives, and operations limited by memory."""

from __future__ import annotations

import pickle
from pathlib import Path

import floors
import steps
import torch
from device_measure import DEVICE, DRY, GIB, Machine, Record, normal, peak_of, release
from device_plan import BARS
from device_steps import time_steps

import seegera_fast as sf

# Number of nodes of the largest generated graph, which has ten edges per node.
LARGEST = 2_000 if DRY else 1_000_000


def prepare(file: str) -> int:
    """Makes the largest graph, which takes the host about 20 seconds, and writes it to a file."""
    graph = steps.random_graph(LARGEST, degree=20, features=256)
    aside = Path(f"{file}.part")
    aside.write_bytes(pickle.dumps(graph, protocol=5))
    aside.replace(file)
    return 0


def largest(prepared: Path) -> sf.Graph:
    """Reads the largest graph, or makes it if there is no file."""
    if prepared.is_file():
        return pickle.loads(prepared.read_bytes()).to(DEVICE)
    return steps.random_graph(LARGEST, degree=20, features=256).to(DEVICE)


def million(record: Record, machine: Machine) -> None:
    width = 16 if DRY else 256
    graph = largest(machine.prepared)
    name = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, d = {width}"
    config = sf.SeeGeraConfig(embedding_dim=width, hidden_dim=width, negatives="edges")
    step = steps.Step("seegera_fast", graph, config)
    # The memory includes the graph, and what the graph caches in the first step.
    start = 0 if DRY else torch.cuda.memory_allocated()
    record.row(name, "GiB, sampled step", (start + peak_of(step)) / GIB, BARS["million memory"])
    record.row(name, "ms, sampled step, eager", 1000 * steps.medians({"": step}, 1 if DRY else 3)[""])
    del step
    release()
    nodes, propagation = graph.num_nodes, graph.propagation
    values, upstream = normal(nodes, 1, width).requires_grad_(), normal(nodes, 1, width)
    spread = normal(nodes, 1, width, scale=0.1).requires_grad_()
    means = normal(nodes, 2, width).requires_grad_()
    dense = values.detach()[:, 0]
    flat = 4.0 * nodes * width

    def gradients(output: torch.Tensor, *leaves: torch.Tensor) -> object:
        return torch.autograd.grad(output, leaves, upstream if output.ndim == 3 else None)

    # The bytes that have to be moved. For each non-zero a row of the dense matrix is read, because with random columns
    # no row is in the cache.
    calls = {
        "sparse_matmul": (
            propagation.nnz * (12.0 + 4 * width) + 8 * nodes + flat,
            lambda: sf.ops.sparse_matmul(propagation, dense),
        ),
        "reparameterize": (6 * flat, lambda: gradients(sf.ops.reparameterize(values, spread, 3), values, spread)),
        "dropout": (4 * flat, lambda: gradients(sf.ops.dropout(values, 0.3, 3), values)),
        "mixture_density": (
            floors.mixture_density(nodes, width, 1, 1).moved,
            lambda: gradients(sf.ops.mixture_density(values, means, spread).sum(), values, means, spread),
        ),
    }
    for operation, (moved, call) in calls.items():
        with record.part(f"{name}, {operation}"):
            achieved = moved / machine.clock.seconds({"": call}, 0.5)[""] / machine.rate("copy")
            record.row(f"{name}, {operation}", "of the copy rate", achieved, BARS["million rate"])
    if record.left() > 10 and not DRY:
        time_steps(record, f"step, {name}, sampled", graph, config, ("captured",))
