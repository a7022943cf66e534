"""One million nodes in bench/device.py: a step with sampled negatives, and the operations that memory bounds."""

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

# Nodes of the largest generated graph; ten edges a node.
LARGEST = 2_000 if DRY else 1_000_000


def prepare(file: str) -> int:
    """Keeps the largest graph, which takes the host some 20 seconds."""
    graph = steps.random_graph(LARGEST, degree=20, features=256)
    aside = Path(f"{file}.part")
    aside.write_bytes(pickle.dumps(graph, protocol=5))
    aside.replace(file)
    return 0


def largest(prepared: Path) -> sf.Graph:
    """The graph that was kept, or a new one where none was."""
    if prepared.is_file():
        return pickle.loads(prepared.read_bytes()).to(DEVICE)
    return steps.random_graph(LARGEST, degree=20, features=256).to(DEVICE)


def million(record: Record, machine: Machine) -> None:
    width = 16 if DRY else 256
    graph = largest(machine.prepared)
    name = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, d = {width}"
    config = sf.SeeGeraConfig(embedding_dim=width, hidden_dim=width, negatives="edges")
    step = steps.Step("seegera_fast", graph, config)
    # The graph is counted too; the first step builds what it keeps.
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

    # Bytes that have to move. A row of the dense matrix is read for each non-zero: random columns leave nothing
    # in the cache.
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
