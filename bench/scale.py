"""Measures what the library does with graphs that outgrow a memory or a processor, against bars.

    python bench/scale.py                               everything, to runs/scale: one to two hours on two cores
    python bench/scale.py --only build batches          the sections whose names hold one of these words
    python bench/scale.py --small                       a rehearsal with small graphs, which judges nothing
    python bench/scale.py --list                        names the sections

The random graphs are those of block_model.py: communities, degrees by a power law, 256 sparse features. Writes
report.json and report.md, and prints the bars with their figures. Nothing else should run meanwhile. Each measurement
of memory has a process of its own; "above the map" is what of it does not lie in mapped files.

Exit status: 0 all is well; 3 a bar was missed; 4 something could not be measured (the first that applies).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scale_processes
import scipy.sparse
import torch
from block_model import BlockModel
from report import add_section_options, chosen_sections, measure
from reporter import Record
from sklearn.metrics import roc_auc_score

import seegera_fast as sf
from seegera_fast.batches import PartBatches, Step, WholeGraph
from seegera_fast.distributed import Processes
from seegera_fast.steps import EagerSteps, run_epoch

GIB = 2**30
MODEL = {"negatives": "edges", "patience": None, "progress": False}


class Sizes(NamedTuple):
    """Nodes and edges of the random graphs, and numbers of epochs."""

    import_nodes: int = 2_000_000
    import_edges: int = 40_000_000
    import_parts: int = 512
    build_nodes: int = 1_000_000
    build_edges: int = 10_000_000
    batch_nodes: int = 300_000
    batch_edges: int = 3_000_000
    accuracy_epochs: int = 30
    accuracy_seeds: int = 5
    physics_epochs: int = 60
    # Data sets, widths and numbers of parts.
    ordered: tuple[tuple[str, int, int], ...] = (("computers", 512, 32), ("physics", 512, 64))


SMALL = Sizes(20_000, 200_000, 32, 10_000, 100_000, 6_000, 60_000, 2, 1, 2, (("cora", 16, 4),))


class Conditions(NamedTuple):
    """What a section is given: sizes, and a folder for its files, which later runs find again."""

    sizes: Sizes
    work: Path


# --- processes -------------------------------------------------------------------------------------------------------


def run(function: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    """Calls a function of this module in a new process, and returns the mapping that it returns."""
    program = "import sys, json; sys.path.insert(0, sys.argv[1]); import scale; scale.answer(sys.argv[2], sys.argv[3])"
    command = [sys.executable, "-c", program, str(Path(__file__).parent), function.__name__, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{function.__name__}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def answer(name: str, arguments: str) -> None:
    print(json.dumps(globals()[name](*json.loads(arguments))))


class Used(NamedTuple):
    """What a call used: seconds, the peak resident bytes, and the peak of those that are not of mapped files."""

    seconds: float
    peak: int
    anonymous: int
    result: Any


def used(call: Callable[[], Any]) -> Used:
    """Calls and measures. The peaks are those of the whole process."""
    with _watched() as peaks:
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
    return Used(seconds, peaks["VmRSS"], peaks["RssAnon"], result)


@contextlib.contextmanager
def _watched() -> Iterator[dict[str, int]]:
    """Reads the memory of this process every 20 ms."""
    peaks, ended = {"VmRSS": 0, "RssAnon": 0}, threading.Event()

    def read() -> None:
        lines = Path("/proc/self/status").read_text().splitlines()
        for name, _, value in (line.partition(":") for line in lines):
            if name in peaks:
                peaks[name] = max(peaks[name], int(value.split()[0]) * 1024)

    def watch() -> None:
        while not ended.wait(0.02):
            read()

    watcher = threading.Thread(target=watch, daemon=True)
    read()
    watcher.start()
    try:
        yield peaks
    finally:
        ended.set()
        watcher.join()
        read()


# --- the sections ----------------------------------------------------------------------------------------------------


def build(record: Record, conditions: Conditions) -> None:
    sizes = conditions.sizes
    work = f"{sizes.build_nodes:,} nodes, {sizes.build_edges:,} edges"
    for name, found in run(build_alone, sizes.build_nodes, sizes.build_edges).items():
        record.at_most(f"{name}, {work}", "s", found["seconds"], 5)
        record.at_most(f"{name}, {work}", "GiB above the start", found["above"] / GIB, 2)


def build_alone(nodes: int, edges: int) -> dict[str, Any]:
    model = BlockModel(nodes, edges)
    one_way = torch.from_numpy(np.concatenate(list(model.edges())).T.copy())
    edge_index = torch.cat([one_way, one_way.flip(0)], dim=1)
    features, before = model.features(), used(lambda: None).peak
    made = used(lambda: sf.Graph.from_edge_index(edge_index, features))
    graph, between = made.result, used(lambda: None).peak
    split = used(lambda: sf.tasks.split_links(graph))
    return {
        "Graph.from_edge_index": {"seconds": made.seconds, "above": made.peak - before},
        "split_links": {"seconds": split.seconds, "above": split.peak - between},
    }


def batches(record: Record, conditions: Conditions) -> None:
    sizes = conditions.sizes
    work = f"{sizes.batch_nodes:,} nodes, {sizes.batch_edges:,} edges, d = 64, 64 parts, 4 a batch"
    turns = [run(batches_alone, sizes.batch_nodes, sizes.batch_edges, kind) for kind in ("whole", "batches") * 2]
    whole, parts = turns[0::2], turns[1::2]
    seconds = {
        name: statistics.median(turn["seconds"] for turn in group)
        for name, group in (("whole", whole), ("batches", parts))
    }
    above = {
        name: statistics.median(turn["above"] for turn in group)
        for name, group in (("whole", whole), ("batches", parts))
    }
    for name in seconds:
        record.row(work, f"s an epoch, {name}", seconds[name])
        record.row(work, f"GiB above the graph, {name}", above[name] / GIB)
    record.at_most(
        work, "epoch of batches, times a step of the whole graph", seconds["batches"] / seconds["whole"], 1.15
    )
    record.at_most(work, "memory of batches, times that of the whole graph", above["batches"] / above["whole"], 1 / 3)
    record.row(work, "s, partition", parts[0]["partition"])
    for width, bar in ((64, None), (128, 0.05)):
        work = f"{sizes.batch_nodes:,} nodes, {sizes.batch_edges:,} edges, d = {width}, 64 parts, 4 a batch"
        found = run(making_alone, sizes.batch_nodes, sizes.batch_edges, width)
        record.row(work, "s an epoch of batches that are there already", found["ready"])
        figure = "of it that making the batches adds"
        if bar is None:
            record.row(work, figure, found["share"])
        else:
            record.at_most(work, figure, found["share"], bar)


def batches_alone(nodes: int, edges: int, kind: str) -> dict[str, float]:
    """The median seconds of an epoch, and the bytes above those of the graph."""
    graph = BlockModel(nodes, edges).graph()
    chosen, partition = None, 0.0
    if kind == "batches":
        cut = used(lambda: sf.Batches(parts=64).part_of(graph))
        chosen, partition = sf.Batches(parts=cut.result, per_batch=4), cut.seconds
    _give_back()
    before = used(lambda: None).peak
    fields = {**MODEL, "embedding_dim": 64, "hidden_dim": 64, "epochs": 3}
    trained = used(lambda: sf.tasks.embed(graph, batches=chosen, **fields))
    seconds = [entry["seconds"] for entry in trained.result.history]
    return {"seconds": statistics.median(seconds[1:]), "above": trained.peak - before, "partition": partition}


def _give_back() -> None:
    """Gives the system the memory that was freed, so that what is used from here on counts."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Ready:
    """The batches of an epoch, made before it. What its first epoch computes of them, such as transposes, is kept."""

    def __init__(self, source: PartBatches) -> None:
        self.graph, self.count, self.per_step = source.graph, source.count, source.per_step
        self._batches = [make() for step in source.steps(0, 1) for make in step]

    def steps(self, seed: int, epoch: int) -> Iterator[Step]:
        return ([lambda batch=batch: batch] for batch in self._batches)


# Pairs of epochs that are compared, after some in which memory is taken for the first time.
TURNS, WARM_TURNS = 20, 4


def making_alone(nodes: int, edges: int, width: int) -> dict[str, float]:
    """By how much an epoch is longer than one whose batches are there already, as a share of the latter."""
    graph = BlockModel(nodes, edges).graph()
    made = PartBatches(graph, sf.Batches(parts=64, per_batch=4), Processes.current(), averaging=True)
    found = in_turn(graph, {"made": made, "ready": Ready(made)}, width, structure_masking_rate=0.2, prepare=False)
    return {"share": found["ratio"] - 1, "ready": found["ready"]}


def in_turn(
    graph: sf.Graph, sources: Mapping[str, Any], width: int, turns: int = TURNS, **fields: Any
) -> dict[str, float]:
    """Epochs of two sources of batches in turn: the median seconds of both, and the "ratio" of the first to the other.

    Args:
        turns: pairs of epochs that are compared.
    """
    model = sf.SeeGera(graph, negatives="edges", embedding_dim=width, hidden_dim=width, **fields)
    steps, processes = EagerSteps(model, torch.optim.Adam(model.parameters(), fused=True)), Processes.current()
    taken: list[list[float]] = []
    for turn in range(WARM_TURNS + turns):
        seconds = {}
        # Each is the first one in every second turn, and each turn is a pair, as the machine's pace changes in between.
        for name in list(sources)[:: 1 if turn % 2 == 0 else -1]:
            start = time.perf_counter()
            run_epoch(model, steps, sources[name], 0, 1, 1.0, lambda done, count: None, processes)
            seconds[name] = time.perf_counter() - start
        taken.append([seconds[name] for name in sources])
    columns = zip(*taken[WARM_TURNS:], strict=True)
    found = {name: statistics.median(column) for name, column in zip(sources, columns, strict=True)}
    return found | {"ratio": statistics.median(first / other for first, other in taken[WARM_TURNS:])}


def locality(record: Record, conditions: Conditions) -> None:
    """Steps on the whole graph, with its nodes as they are given and in the order of its parts."""
    sizes = conditions.sizes
    wanted = [(None, width, 64) for width in (64, 128)]
    for data, width, parts in [*wanted, *sizes.ordered]:
        name = data or f"{sizes.batch_nodes:,} nodes, {sizes.batch_edges:,} edges"
        work = f"{name}, d = {width}, all of {parts} parts in a batch"
        found = run(locality_alone, data, sizes.batch_nodes, sizes.batch_edges, width, parts)
        record.row(work, "s a step, nodes as given", found["given"])
        record.row(work, "s a step, in the order of the parts", found["parts"])
        record.row(work, "times faster in the order of the parts", found["ratio"])
        record.row(work, "s, partition", found["partition"])


def locality_alone(data: str | None, nodes: int, edges: int, width: int, parts: int) -> dict[str, float]:
    graph = BlockModel(nodes, edges).graph() if data is None else sf.datasets.load(data)
    cut = used(lambda: sf.Batches(parts=parts).part_of(graph))
    ordered = PartBatches(graph, sf.Batches(cut.result, per_batch=parts), Processes.current())
    sources = {"given": WholeGraph(), "parts": ordered}
    likelihood = "bernoulli" if data is None else "mse"
    return in_turn(graph, sources, width, turns=6, likelihood=likelihood) | {"partition": cut.seconds}


def files(record: Record, conditions: Conditions) -> None:
    """A text file becomes a folder, on which a model is trained."""
    sizes, work = conditions.sizes, conditions.work
    name = f"{sizes.import_nodes:,} nodes, {sizes.import_edges:,} edges"
    text, features, folder = work / "edges.txt", work / "features.npz", work / "graph"
    if not features.exists():
        model = BlockModel(sizes.import_nodes, sizes.import_edges)
        model.write(text)
        scipy.sparse.save_npz(features, model.features())
    found = run(import_alone, str(text), str(features), str(folder))
    record.at_most(f"import, {name}", "min", found["seconds"] / 60, 10)
    record.at_most(f"import, {name}", "GiB resident", found["peak"] / GIB, 6)
    record.row(f"import, {name}", "MB of text", text.stat().st_size / 1e6)
    found = run(folder_alone, str(folder), sizes.import_nodes, sizes.import_edges, sizes.import_parts)
    work_name = f"{name}, d = 128, {sizes.import_parts} parts, 4 a batch, from the folder"
    for figure in ("s, partition", "s an epoch", "AUC after 3 epochs", "AUC of the true probabilities"):
        record.row(work_name, figure, found[figure])
    record.at_most(work_name, "GiB above the map", found["above"] / GIB, 4)
    way = (found["AUC after 3 epochs"] - 0.5) / (found["AUC of the true probabilities"] - 0.5)
    record.at_least(work_name, "of the way from 0.5 to the AUC of the true probabilities", way, 0.9)


def import_alone(text: str, features: str, folder: str) -> dict[str, float]:
    command = [sys.executable, "-m", "seegera_fast", "import", text, "--features", features, "--out", folder, "--quiet"]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=sys.stderr)
    import resource

    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {"seconds": time.perf_counter() - start, "peak": peak}


def folder_alone(folder: str, nodes: int, edges: int, parts: int) -> dict[str, float]:
    """Three epochs on a graph in a folder; AUC on links that the model has not seen."""
    graph = sf.Graph.open(folder)
    partition = used(lambda: sf.Batches(parts=parts).part_of(graph))
    chosen = sf.Batches(parts=partition.result, per_batch=4)
    fields = {**MODEL, "embedding_dim": 128, "hidden_dim": 128, "epochs": 3, "learning_rate": 0.003}
    trained = used(lambda: sf.tasks.embed(graph, batches=chosen, **fields))
    pairs, linked = unseen_pairs(graph, BlockModel(nodes, edges), 100_000)
    scores = trained.result.model.link_scores(torch.from_numpy(pairs), graph)
    seconds = [entry["seconds"] for entry in trained.result.history]
    return {
        "s, partition": partition.seconds,
        "s an epoch": statistics.median(seconds),
        "above": trained.anonymous,
        "AUC after 3 epochs": roc_auc_score(linked, scores.numpy()),
        "AUC of the true probabilities": roc_auc_score(linked, BlockModel(nodes, edges).log_rate(pairs)),
    }


def unseen_pairs(graph: sf.Graph, model: BlockModel, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that are no links of the graph: links of another draw, and random ones; and which of them are links."""
    drawn = np.concatenate(list(model.edges(count, draw=1)))
    other = np.random.default_rng(0).integers(0, graph.num_nodes, drawn.shape)
    pairs = np.concatenate([drawn, other[other[:, 0] != other[:, 1]]])
    linked = np.arange(len(pairs)) < len(drawn)
    rowptr, col = graph.adjacency.rowptr.numpy(), graph.adjacency.col.numpy()
    fresh = np.array([b not in col[rowptr[a] : rowptr[a + 1]] for a, b in pairs.tolist()])
    return pairs[fresh], linked[fresh]


def accuracy(record: Record, conditions: Conditions, data: str, parts: int, per_batch: int) -> None:
    """Batches against the whole graph, the same number of epochs."""
    sizes = conditions.sizes
    name = f"{data}, {sizes.accuracy_epochs} epochs, {sizes.accuracy_seeds} seeds, {per_batch} of {parts} parts"
    found: dict[str, list[dict[str, float]]] = {"whole": [], "batches": []}
    for seed in range(sizes.accuracy_seeds):
        found["whole"].append(run(trained_alone, data, sizes.accuracy_epochs, seed, 0, 0))
        found["batches"].append(run(trained_alone, data, sizes.accuracy_epochs, seed, parts, per_batch))
    compare(record, name, found)
    difference = statistics.fmean(
        100 * (whole["auc"] - part["auc"]) for whole, part in zip(found["whole"], found["batches"], strict=True)
    )
    record.at_most(name, "points of AUC that batches lose, mean", difference, 0.5)


def physics(record: Record, conditions: Conditions) -> None:
    epochs = conditions.sizes.physics_epochs
    found = {
        "whole": [run(trained_alone, "physics", epochs, 0, 0, 0)],
        "batches": [run(trained_alone, "physics", max(epochs // 6, 1), 0, 256, 16)],
    }
    name = f"physics, {epochs} epochs of the whole graph, {max(epochs // 6, 1)} of 16 of 256 parts"
    compare(record, name, found)
    whole, part = found["whole"][0], found["batches"][0]
    record.at_most(name, "points of AUC that batches lose", 100 * (whole["auc"] - part["auc"]), 0)
    record.at_most(name, "time of batches, times that of the whole graph", part["seconds"] / whole["seconds"], 1)


def compare(record: Record, name: str, found: Mapping[str, list[dict[str, float]]]) -> None:
    for kind, runs in found.items():
        record.row(name, f"AUC, {kind}", statistics.fmean(100 * entry["auc"] for entry in runs))
        record.row(name, f"s, {kind}", statistics.median(entry["seconds"] for entry in runs))
        record.row(name, f"GiB, {kind}", statistics.median(entry["peak"] for entry in runs) / GIB)


def trained_alone(data: str, epochs: int, seed: int, parts: int, per_batch: int) -> dict[str, float]:
    """Link prediction with the paper's settings for a number of epochs; with 0 parts, on the whole graph."""
    graph = sf.datasets.load(data)
    chosen = sf.Batches(parts=parts, per_batch=per_batch) if parts else None
    # Validation takes as long for both, and is not compared.
    options = {**MODEL, "epochs": epochs, "evaluate_after": epochs}
    trained = used(lambda: sf.tasks.link_prediction(graph, seed=seed, batches=chosen, **options))
    seconds = sum(entry["seconds"] for entry in trained.result.history)
    return {"auc": trained.result.auc, "seconds": seconds, "peak": trained.peak}


def two_processes(record: Record, conditions: Conditions) -> None:
    scale_processes.processes(record, conditions.sizes.batch_nodes, conditions.sizes.batch_edges)


def on_paper(record: Record, conditions: Conditions) -> None:
    scale_processes.ranks(record, conditions.sizes.batch_nodes, conditions.sizes.batch_edges)


SECTIONS = {
    "build": build,
    "batches": batches,
    "locality": locality,
    "files": files,
    # Few large parts of Photo hide most links between parts, and a model learns from them that there are none.
    "accuracy, photo": partial(accuracy, data="photo", parts=128, per_batch=16),
    "accuracy, cs": partial(accuracy, data="cs", parts=32, per_batch=4),
    "physics": physics,
    "processes": two_processes,
    "ranks on paper": on_paper,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/scale"), help="folder of the report (runs/scale)")
    parser.add_argument("--small", action="store_true", help="a rehearsal with small graphs")
    add_section_options(parser)
    options = parser.parse_args(arguments)
    chosen = chosen_sections(parser, options, SECTIONS)
    if not chosen:
        return 0
    work = options.out / ("small" if options.small else "files")
    work.mkdir(parents=True, exist_ok=True)
    conditions = Conditions(SMALL if options.small else Sizes(), work)
    sections = {name: partial(SECTIONS[name], conditions=conditions) for name in chosen}
    return measure(sections, options.out, dry=options.small)


if __name__ == "__main__":
    sys.exit(main())
