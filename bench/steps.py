"""What several benchmarks use: data sets, settings, a step of each contender, and clocks."""

from __future__ import annotations

import contextlib
import gc
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from baselines import Dense, Sparse

import seegera_fast as sf
from seegera_fast.tasks import presets

# Settings of training steps, by name: fields that override the paper's preset for link prediction.
STEPS = {
    "cora": ("cora", {}),
    "cora sampled": ("cora", {"negatives": "edges"}),
    "cora J=K=5": ("cora", {"num_importance_samples": 5, "num_mixture_samples": 5}),
    "computers": ("computers", {}),
    "computers sampled": ("computers", {"negatives": "edges"}),
    "physics": ("physics", {}),
}


def load(name: str) -> sf.Graph:
    """Reads a data set, and downloads it if it is missing."""
    return sf.datasets.load(name)


def configuration(dataset: str, **fields) -> sf.SeeGeraConfig:
    """The v3 link preset of a data set."""
    known = sf.SeeGeraConfig.__dataclass_fields__
    preset = presets.load("link_prediction", dataset, "v3")
    return sf.SeeGeraConfig(**{name: value for name, value in preset.items() if name in known} | fields)


def random_graph(nodes: int, degree: int = 10, features: int = 256, seed: int = 0) -> sf.Graph:
    """A random graph with a fixed mean degree, and 16 binary features per node."""
    generator = np.random.default_rng(seed)
    ends = generator.integers(0, nodes, (2, nodes * degree // 2))
    ends = np.concatenate([ends, ends[::-1]], axis=1)
    adjacency = scipy.sparse.csr_matrix((np.ones(ends.shape[1]), (ends[0], ends[1])), (nodes, nodes))
    adjacency.data[:] = 1
    columns = generator.integers(0, features, (nodes, 16))
    rows = np.repeat(np.arange(nodes), 16)
    matrix = scipy.sparse.csr_matrix((np.ones(rows.size), (rows, columns.ravel())), (nodes, features))
    matrix.data[:] = 1
    return sf.Graph(adjacency, matrix)


class Step:
    """A training step of the library or of a contender, including masking and the optimiser."""

    def __init__(self, contender: str, graph: sf.Graph, config: sf.SeeGeraConfig) -> None:
        model = sf.SeeGera(graph, config)
        self.module = {"seegera_fast": lambda: model, "dense": lambda: Dense(model, graph)}.get(
            contender, lambda: Sparse(model, graph)
        )()
        self.graph, self.ours, self.steps = graph, contender == "seegera_fast", 0
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=1e-3, fused=contender != "dense")

    def __call__(self) -> float:
        self.optimizer.zero_grad()
        self.steps += 1
        loss = self.module(self.graph, seed=self.steps).loss if self.ours else self.module(*self.module.prepare())
        loss.backward()
        self.optimizer.step()
        return float(loss)


def check_same_numbers(graph: sf.Graph, config: sf.SeeGeraConfig) -> None:
    """Compares loss and gradients of library and contenders, for the same weights and draws, without masks and dropout.

    Raises:
        RuntimeError: they differ.
    """
    from dataclasses import replace

    config = replace(config, dropout=0.0, structure_masking_rate=0.0, feature_masking_rate=0.0, negatives="all")
    model = sf.SeeGera(graph, config)
    output = model(graph, seed=3, warmup=0.5)
    output.loss.backward()
    for kind in (Dense, Sparse):
        contender = kind(model, graph) if kind is Dense else kind(model, graph, compiled=False)
        contender.seed = 3
        loss = contender(*contender.prepare(), 0.5)
        loss.backward()
        errors = {"loss": abs(float(loss.detach()) / float(output.loss.detach()) - 1)}
        for name, parameter in model.named_parameters():
            if parameter.numel():
                scale = parameter.grad.norm().clamp_min(1e-12)
                errors[name] = float((contender.weight(name).grad - parameter.grad).norm() / scale)
        worst = max(errors, key=errors.get)
        if not errors[worst] < 1e-3:
            raise RuntimeError(f"{kind.__name__} and seegera_fast differ: {worst} by {errors[worst]:.1e}")


def in_turn(
    calls: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each call in some rounds, taken in turn (A B A B), after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if turn:
                times[name].append(clock() - start)
    return times


def medians(
    calls: dict[str, Callable[[], object]], rounds: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds of each call; see :func:`in_turn`."""
    return {name: statistics.median(values) for name, values in in_turn(calls, rounds, clock).items()}


def bests(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest seconds of each call; see :func:`in_turn`."""
    return {name: min(values) for name, values in in_turn(calls, rounds).items()}


def peak_of(code: str, timeout: float = 900) -> dict[str, float]:
    """Runs code that calls ``measure(call)`` in a new process; returns seconds, and bytes above the start."""
    header = "import sys; sys.path.insert(0, sys.argv[1])\nfrom steps import *\n"
    answer = subprocess.run(
        [sys.executable, "-c", header + code, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if answer.returncode:
        raise RuntimeError(f"a measurement failed: {answer.stderr.strip()[-2000:]}")
    seconds, above, peak = map(float, answer.stdout.split()[-3:])
    return {"seconds": seconds, "above": above, "peak": peak}


def measure(call: Callable[[], object]) -> None:
    """Prints the seconds of a call, the resident bytes that it added at its peak, and the peak itself."""
    gc.collect()
    with contextlib.suppress(OSError):
        # Resets the peak of the process on Linux, so that imports and reading the data don't count.
        Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    peak = _status("VmHWM")
    print(seconds, peak - before, peak)


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes, on systems that have that file."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
