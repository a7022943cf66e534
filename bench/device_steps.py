"""Training steps, for bench/device.py: eager, recorded, compiled, and of the contenders in plain PyTorch."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator

import floors
import steps
import torch
from device_measure import DEVICE, DRY, GIB, Machine, Record, peak_of, release, synchronize
from device_plan import BARS
from reporter import Bar

import seegera_fast as sf


def data_set(record: Record, name: str) -> sf.Graph | None:
    """A data set on the device; None: its files are missing."""
    try:
        return sf.datasets.load(name, download=False).to(DEVICE)
    except (OSError, ImportError) as error:
        record.note(f"{name}: {error}")
        return None


def cora(record: Record) -> tuple[str, sf.Graph]:
    graph = None if DRY else data_set(record, "cora")
    if graph is not None:
        return "cora", graph
    nodes, features = (60, 40) if DRY else (2708, 1433)
    return "random graph of Cora's size", steps.random_graph(nodes, degree=4, features=features).to(DEVICE)


def configuration(dataset: str, **fields) -> sf.SeeGeraConfig:
    small = {"embedding_dim": 16, "hidden_dim": 16} if DRY else {}
    return steps.configuration(dataset, **small, **fields)


@contextlib.contextmanager
def quiet_compiler(kind: str) -> Iterator[None]:
    """In the block of a rehearsal, torch.compile compiles nothing for a contender."""
    with torch.compiler.set_stance("force_eager") if DRY and kind != "compiled" else contextlib.nullcontext():
        yield


class Captured:
    """A training step as a CUDA graph."""

    def __init__(self, graph: sf.Graph, config: sf.SeeGeraConfig) -> None:
        model = sf.SeeGera(graph, config)
        self.step = model.capture(torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=True))

    def __call__(self) -> float:
        return float(self.step().loss)


class Compiled:
    """A training step compiled by torch.compile. Its seeds are in slots, so that it is compiled once."""

    def __init__(self, graph: sf.Graph, config: sf.SeeGeraConfig) -> None:
        model = sf.SeeGera(graph, config).train()
        self.slots = sf.seeds.SeedSlots(torch.device(DEVICE))
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        self.forward = torch.compile(model, fullgraph=True, backend="eager" if DRY else "inductor")
        # The first step gives each site its slot, and builds what the graph caches.
        model(graph, seed=self.slots.root).loss.backward()
        self.graph, self.steps = graph, 0

    def __call__(self) -> float:
        self.steps += 1
        self.slots.fill(self.steps)
        self.optimizer.zero_grad()
        loss = self.forward(self.graph, seed=self.slots.root).loss
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def make_step(kind: str, graph: sf.Graph, config: sf.SeeGeraConfig) -> Callable[[], float]:
    ours = {"captured": Captured, "compiled": Compiled}
    if kind in ours:
        return ours[kind](graph, config)
    return steps.Step("seegera_fast" if kind == "eager" else kind, graph, config)


def time_steps(
    record: Record, name: str, graph: sf.Graph, config: sf.SeeGeraConfig, kinds: tuple[str, ...], bar: Bar | None = None
) -> dict[str, float]:
    """Measures the time of a step, including Python and reading the loss, and its memory, for each kind of step.

    Returns:
        Kind -> seconds.
    """
    ready: dict[str, Callable[[], float]] = {}
    for kind in kinds:
        if kind == "captured" and DRY:
            record.note("a captured step needs a GPU: not rehearsed")
            continue
        if record.left() < 5 and not DRY:
            record.note(f"{name}, {kind}: no time left")
            continue

        made = {}

        def begin(kind: str = kind, made: dict[str, Callable[[], float]] = made) -> None:
            made[kind] = make_step(kind, graph, config)
            for _ in range(2):
                loss = made[kind]()
            if not math.isfinite(loss):
                raise RuntimeError(f"the loss is {loss}")

        with record.part(f"{name}, {kind}"), quiet_compiler(kind):
            record.row(name, f"GiB above the graph, {kind}", peak_of(begin) / GIB)
            ready |= made
    times: dict[str, list[float]] = {kind: [] for kind in ready}
    end = time.monotonic() + min(10.0, record.left() / 3)
    turn = 0
    while ready and turn < (1 if DRY else 11) and (turn < 2 or time.monotonic() < end):
        turn += 1
        for kind, step in ready.items():
            with quiet_compiler(kind):
                synchronize()
                start = time.perf_counter()
                step()
                times[kind].append(time.perf_counter() - start)
    seconds = {kind: statistics.median(values) for kind, values in times.items()}
    for kind, value in seconds.items():
        record.row(name, f"ms, {kind}", 1000 * value)
    best = "captured" if "captured" in seconds else "eager"
    for kind in ("dense", "sparse"):
        if best in seconds and kind in seconds:
            own_bar = bar if (best, kind) == ("captured", "dense") else None
            record.row(name, f"times faster than {kind}, {best}", seconds[kind] / seconds[best], own_bar)
    return seconds


def train(record: Record, name: str, graph: sf.Graph, config: sf.SeeGeraConfig) -> None:
    """Measures an epoch of a training without validation, which records its step by itself."""
    with record.part(f"{name}, training"):
        settings = sf.training.TrainingConfig(epochs=3 if DRY else 40, patience=None)
        found = sf.training.train(sf.SeeGera(graph, config), settings, progress=False)
        record.row(
            name, "ms, epoch of a training", 1000 * statistics.median(epoch["seconds"] for epoch in found.history)
        )


def step_cora(record: Record, machine: Machine) -> None:
    name, graph = cora(record)
    config = configuration("cora")
    with record.part("the same numbers"):
        steps.check_same_numbers(graph, config)
    seconds = time_steps(record, f"step, {name}", graph, config, ("eager", "dense", "captured"), BARS["step"])
    floor = sum(map(machine.floor, floors.step(graph, config).values()))
    for kind in ("captured", "eager"):
        if kind in seconds:
            record.row(f"step, {name}", f"times its floor, {kind}", seconds[kind] / floor)
    train(record, f"step, {name}", graph, config)
    # Measured separately, because torch.compile takes long for this contender.
    best = "eager" if DRY else "captured"
    time_steps(record, f"step, {name}, beside the careful form", graph, config, (best, "sparse"))
    if record.left() > 15 or DRY:
        sampled = configuration("cora", negatives="edges")
        time_steps(record, f"step, {name}, sampled", graph, sampled, ("eager", "captured"))


def data_sets(record: Record, machine: Machine) -> None:
    if DRY:
        record.note("data sets are not read in a rehearsal")
        return
    graphs = {}
    for name in ("photo", "computers", "physics", "citeseer", "cs", "pubmed"):
        graphs[name] = data_set(record, name) if record.left() > 5 else None
        if graphs[name] is not None:
            time_steps(record, f"step, {name}", graphs[name], configuration(name), ("eager", "captured"))
            release()
    # The contenders' n x n tensors are made on the host, which takes longer than all of the above. Not for Physics.
    for name in ("photo", "computers", "citeseer", "cs", "pubmed"):
        if graphs[name] is not None and record.left() > 12:
            kinds = ("captured", "dense", "sparse")
            time_steps(record, f"step, {name}, contenders", graphs[name], configuration(name), kinds)
            release()


def compiled(record: Record, machine: Machine) -> None:
    name, graph = cora(record)
    time_steps(record, f"step, {name}", graph, configuration("cora"), ("eager", "compiled"))


def growth(record: Record, machine: Machine) -> None:
    width = 16 if DRY else 256
    for nodes in (200, 400) if DRY else (10_000, 100_000):
        graph = steps.random_graph(nodes, degree=20, features=256).to(DEVICE)
        config = sf.SeeGeraConfig(embedding_dim=width, hidden_dim=width, negatives="edges")
        time_steps(record, f"step, {nodes:,} nodes, sampled", graph, config, ("eager", "captured"))
        release()
