"""Two processes against one, and a run on many ranks on paper: sections of bench/scale.py.

python bench/scale_processes.py 300000 3000000 128     one process, or one of those that torchrun starts
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import floors
import numpy as np
import torch
from block_model import BlockModel
from reporter import Record

import seegera_fast as sf
from seegera_fast.distributed import connected
from seegera_fast.partition import part_sizes

PARTS, PER_BATCH, EPOCHS = 64, 4, 6
FIELDS = {"negatives": "edges", "patience": None, "evaluate_after": EPOCHS}
# The graph on paper has so many batches of the size that was measured, each of PER_BATCH parts.
PAPER_BATCHES, RANKS = 2048, (1, 8, 64, 512)


class Network(NamedTuple):
    """What is assumed of a network: bytes per second of each rank, and seconds of a message."""

    name: str
    rate: float
    latency: float


NETWORKS = (Network("10 Gbit/s, 30 us", 1.25e9, 30e-6), Network("100 Gbit/s, 5 us", 12.5e9, 5e-6))


def processes(record: Record, nodes: int, edges: int, widths: Sequence[int] = (64, 128)) -> None:
    """One process of one thread, and two of them, in turn, with the same batches and steps."""
    for width in widths:
        work = f"{nodes:,} nodes, {edges:,} edges, d = {width}, {PARTS} parts, {PER_BATCH} a batch, 2 batches a step"
        turns = [_run(count, nodes, edges, width) for count in (1, 2, 1, 2)]
        one, two = (min(turn["seconds"] for turn in turns[first::2]) for first in (0, 1))
        record.row(work, "s an epoch, one process of one thread", one)
        record.row(work, "s an epoch, two processes of one thread", two)
        losses = [np.array(turn["losses"]) for turn in turns[:2]]
        record.at_most(work, "relative difference of the losses", float(np.abs(losses[1] / losses[0] - 1).max()), 1e-4)
        record.at_least(work, "times faster with two processes", one / two, 1.7)


def ranks(record: Record, nodes: int, edges: int, width: int = 128) -> None:
    """Seconds of an epoch on many ranks: the floors, the sizes of parts that were measured, and assumed networks."""
    graph = BlockModel(nodes, edges).graph()
    model = sf.SeeGera(graph, embedding_dim=width, hidden_dim=width, negatives="edges")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    sizes = part_sizes(sf.Batches(parts=PARTS).part_of(graph), graph.adjacency)
    rates = floors.Rates(*(amount / floors.best_seconds(call) for amount, call in floors.rate_calls().values()))
    work = f"{PAPER_BATCHES} batches of {PER_BATCH} / {PARTS} of {nodes:,} nodes and {edges:,} edges, d = {width}"
    record.row(work, "parameters", parameters)
    record.row(work, "MB a step and rank", 8 * parameters / 1e6)
    seconds = _batch_floors(sizes, graph, model.config, rates)
    record.row(work, "s, floor of a batch, mean", float(seconds.mean()))
    for count in RANKS:
        slowest = seconds[: len(seconds) // count * count].reshape(-1, count).max(axis=1)
        record.row(
            work, f"largest batch of a step over the mean, {count} ranks", float(slowest.mean() / seconds.mean())
        )
        for network in NETWORKS:
            exchange = reduce_seconds(parameters, count, network)
            total = PAPER_BATCHES / count * (float(slowest.mean()) + exchange)
            record.row(work, f"ms, exchange of a step, {count} ranks, {network.name}", 1000 * exchange)
            record.row(work, f"s an epoch, {count} ranks, {network.name}", total)
            alone = PAPER_BATCHES * float(seconds.mean())
            record.row(work, f"of ideal, {count} ranks, {network.name}", alone / total / count)


def reduce_seconds(parameters: int, ranks: int, network: Network) -> float:
    """A ring all-reduce: each rank sends and receives its part of 8 bytes a parameter, in 2 (ranks - 1) messages."""
    moved = 8 * parameters * (ranks - 1) / ranks
    return moved / network.rate + 2 * (ranks - 1) * network.latency


def _batch_floors(sizes: Any, graph: sf.Graph, config: sf.SeeGeraConfig, rates: floors.Rates) -> np.ndarray:
    """``[PAPER_BATCHES]``: the floors of batches of parts that are drawn as an epoch draws them."""
    random = np.random.default_rng(0)
    epochs = -(-PAPER_BATCHES * PER_BATCH // len(sizes.nodes))
    drawn = np.concatenate([random.permutation(len(sizes.nodes)) for _ in range(epochs)])
    found = []
    for parts in drawn[: PAPER_BATCHES * PER_BATCH].reshape(-1, PER_BATCH):
        share = sizes.nodes[parts].sum() / graph.num_nodes
        batch = SimpleNamespace(
            num_nodes=int(sizes.nodes[parts].sum()),
            num_edges=int(sizes.links[parts].sum()),
            num_features=graph.num_features,
            features=SimpleNamespace(nnz=share * graph.features.nnz),
        )
        found.append(rates.seconds(floors.total(*floors.step(batch, config).values())))
    return np.array(found)


def _run(count: int, nodes: int, edges: int, width: int) -> dict[str, Any]:
    """Trains in so many processes of one thread each."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", f"{count}"] if count > 1 else []
    command = [sys.executable, *launcher, __file__, f"{nodes}", f"{edges}", f"{width}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{count} processes: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _trained(nodes: int, edges: int, width: int) -> None:
    """Trains in this process, which may be one of several; the first prints what it found."""
    torch.set_num_threads(1)
    graph = BlockModel(nodes, edges).graph()
    with connected(torch.device("cpu")) as group:
        batches = sf.Batches(parts=PARTS, per_batch=PER_BATCH, per_step=2)
        fields = {**FIELDS, "epochs": EPOCHS, "embedding_dim": width, "hidden_dim": width}
        history = sf.tasks.embed(graph, batches=batches, progress=False, **fields).history
        if group.first:
            # The first epoch makes what later ones find. Of the others the fastest one was disturbed the least.
            seconds = min(entry["seconds"] for entry in history[1:])
            print(json.dumps({"seconds": seconds, "losses": [entry["loss"] for entry in history]}))


if __name__ == "__main__":
    _trained(*map(int, sys.argv[1:]))
