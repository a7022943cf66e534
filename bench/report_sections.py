"""The sections of `make bench` on a CPU: steps, single operations and growth, each figure with its bar."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import floors
import numpy as np
import scipy.sparse
import torch
from bench_top_links import chunks_of_scores
from operations import csr
from report_precision import has_amx, precisions
from reporter import Record
from steps import STEPS, Step, bests, check_same_numbers, configuration, load, medians, peak_of, random_graph

import seegera_fast as sf

# sparse_dot_mkl reads this when it loads MKL. By default MKL's threads keep the cores busy for 200 ms after a product,
# while the next contender is timed. 1 ms is enough to keep them awake between two products.
os.environ.setdefault("KMP_BLOCKTIME", "1")

GIB = 2**30
# Rounds of the steps, by name, where they are more than one.
ROUNDS = {"cora": 7, "cora sampled": 7, "cora J=K=5": 3}


class Bars(NamedTuple):
    """The limits of a figure on processors with AMX, and on others."""

    amx: tuple[float, ...]
    others: float


def limits(bar: float | Bars | None) -> tuple[float, ...]:
    """The limits of a figure on this processor."""
    if isinstance(bar, Bars):
        return bar.amx if has_amx() else (bar.others,)
    return () if bar is None else (bar,)


def with_rates(
    timed: Callable[..., dict[str, float]], calls: dict[str, Callable[[], object]], rounds: int
) -> tuple[dict[str, float], floors.Rates]:
    """The seconds of some calls, and the rates of the machine, measured in turn with them and in the same way.

    Args:
        timed: ``medians`` or ``bests``.
    """
    measured = floors.rate_calls()
    seconds = timed(calls | {kind: call for kind, (_, call) in measured.items()}, rounds)
    return seconds, floors.Rates(**{kind: amount / seconds.pop(kind) for kind, (amount, _) in measured.items()})


def show_rates(record: Record, name: str, rates: floors.Rates) -> None:
    record.row(name, "GFLOP/s of products", rates.product / 1e9)
    record.row(name, "GB/s of copies", rates.copy / 1e9)


def step(record: Record, name: str, bars: dict[str, float | Bars]) -> None:
    dataset, fields = STEPS[name]
    graph, config = load(dataset), configuration(dataset, **fields)
    if "sampled" not in name:
        check_same_numbers(graph, config)
    kinds = [kind for kind in ("sparse", "dense") if kind in bars]
    calls: dict[str, Callable[[], object]] = {kind: Step(kind, graph, config) for kind in ("seegera_fast", *kinds)}
    if kinds == ["dense"] and "sampled" in name:
        # The dense contender has no sampled negatives.
        calls["dense"] = Step("dense", graph, configuration(dataset))
    seconds, rates = with_rates(medians, calls, rounds=ROUNDS.get(name, 1))
    parts = {part: rates.seconds(work) for part, work in floors.step(graph, config).items()}
    floor, work = sum(parts.values()), f"step, {name}"
    for kind, value in seconds.items():
        record.row(work, f"s, {kind}", value)
    record.row(work, "s, floor", floor)
    for limit in limits(bars.get("floor")):
        record.at_most(work, "times its floor", seconds["seegera_fast"] / floor, limit)
    for kind in kinds:
        for limit in limits(bars[kind]):
            record.at_least(work, f"times faster than {kind}", seconds[kind] / seconds["seegera_fast"], limit)
    show_rates(record, work, rates)
    for part, value in parts.items():
        record.row(work, f"s, floor of {part}", value)
    for operator, share in profile(calls["seegera_fast"]).items():
        record.row(work, f"of its time in {operator}", share)


def profile(call: Callable[[], object]) -> dict[str, float]:
    """The ten operators with the largest shares of a step, from torch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        call()
    averages = found.key_averages()
    total = sum(event.self_cpu_time_total for event in averages)
    ranked = sorted(averages, key=lambda event: -event.self_cpu_time_total)[:10]
    return {event.key: round(event.self_cpu_time_total / total, 4) for event in ranked}


def memory(record: Record) -> None:
    code = (
        "graph, config = load('cora'), configuration('cora', num_importance_samples=5, num_mixture_samples=5)\n"
        "step = Step({kind!r}, graph, config)\nmeasure(step)\n"
    )
    above = {kind: peak_of(code.format(kind=kind))["above"] for kind in ("seegera_fast", "sparse", "dense")}
    for kind, value in above.items():
        record.row("memory, cora J=K=5", f"GiB above the start, {kind}", value / GIB)
    for kind, bar in (("dense", 0.2), ("sparse", 0.5)):
        record.at_most("memory, cora J=K=5", f"of that of {kind}", above["seegera_fast"] / above[kind], bar)


def physics(record: Record) -> None:
    found = peak_of("step = Step('seegera_fast', load('physics'), configuration('physics'))\nmeasure(step)\n")
    record.row("step, physics, all pairs", "s, seegera_fast", found["seconds"])
    record.row("step, physics, all pairs", "GiB above the start", found["above"] / GIB)
    record.at_most("step, physics, all pairs", "GiB resident", found["peak"] / GIB, 6)


def link_likelihood(record: Record) -> None:
    for name in ("cora", "computers"):
        adjacency = load(name).adjacency
        for dim, bars in ((512, Bars((1.15,), 1.1)), (64, 1.7)):
            z = (torch.randn(adjacency.shape[0], 1, dim) / dim**0.25).requires_grad_()

            def call(z=z, adjacency=adjacency) -> None:
                z.grad = None
                sf.ops.link_likelihood(z, adjacency, pos_weight=10.0).sum().backward()

            work = floors.link_likelihood(adjacency.shape[0], dim)
            against_floor(
                record, f"link_likelihood, {adjacency.shape[0]:,} nodes, d = {dim}", call, work, *limits(bars)
            )


def against_floor(record: Record, name: str, call: Callable[[], object], work: floors.Work, *bars: float) -> None:
    """The best time of some calls, over the floor at the best rates of as many rounds."""
    seconds, rates = with_rates(bests, {"seegera_fast": call}, rounds=10)
    floor = rates.seconds(work)
    record.row(name, "s, seegera_fast", seconds["seegera_fast"])
    record.row(name, "s, floor", floor)
    for bar in bars:
        record.at_most(name, "times its floor", seconds["seegera_fast"] / floor, bar)
    show_rates(record, name, rates)


def top_links(record: Record) -> None:
    nodes, dim, k = 34_493, 512, 10
    adjacency, z = random_graph(nodes).adjacency, torch.randn(nodes, dim) / dim**0.25
    calls: dict[str, Callable[[], object]] = {
        "seegera_fast": lambda: sf.ops.top_links(z, adjacency, k),
        "chunks of torch.mm and torch.topk": lambda: chunks_of_scores(z, adjacency, k),
    }
    seconds, rates = with_rates(medians, calls, rounds=3)
    name, floor = f"top_links, {nodes:,} nodes, d = {dim}, k = {k}", rates.seconds(floors.top_links(nodes, dim, k))
    for kind, value in seconds.items():
        record.row(name, f"s, {kind}", value)
    record.row(name, "s, floor", floor)
    ours, plain = seconds.values()
    record.at_most(name, "times its floor", ours / floor, 1.4)
    record.at_least(name, "times faster than chunks of torch.mm and torch.topk", plain / ours, 1.5)
    code = (
        f"graph, z = random_graph({nodes}), torch.randn({nodes}, {dim})\n"
        f"measure(lambda: sf.ops.top_links(z, graph.adjacency, {k}))\n"
    )
    record.at_most(name, "GiB above the start", peak_of(code)["above"] / GIB, 1)
    show_rates(record, name, rates)


def feature_likelihood(record: Record) -> None:
    features = load("cs").features
    dense = features.to_dense()
    hidden = torch.randn(features.shape[0], 1, 512).mul_(0.1).requires_grad_()
    weight = torch.randn(512, features.shape[1]).mul_(0.1).requires_grad_()
    values = {}

    def ours() -> None:
        value = sf.ops.feature_likelihood(hidden, weight, features, likelihood="mse").sum()
        torch.autograd.grad(value, (hidden, weight))
        values["seegera_fast"] = float(value.detach())

    def materialised() -> None:
        squares = (dense - hidden[:, 0] @ weight).square().sum(dtype=torch.float64)
        torch.autograd.grad(squares, (hidden, weight))
        values["materialised"] = -float(squares.detach()) - dense.numel() * 0.5 * float(np.log(np.pi))

    seconds = medians({"seegera_fast": ours, "materialised": materialised}, rounds=3)
    name = "feature_likelihood, mse on cs"
    for kind, value in seconds.items():
        record.row(name, f"s, {kind}", value)
    record.at_least(name, "times faster than materialised", seconds["materialised"] / seconds["seegera_fast"], 6)
    difference = abs(values["seegera_fast"] / values["materialised"] - 1)
    record.at_most(name, "relative difference of the values", difference, 1e-5)


def matrices() -> Iterator[tuple[str, sf.SparseMatrix]]:
    """Names and matrices: a large random one, and the propagation matrices and features of data sets."""
    generator = np.random.default_rng(0)
    rows = np.repeat(np.arange(200_000), 15)
    large = scipy.sparse.csr_matrix((np.ones(rows.size), (rows, generator.integers(0, 200_000, rows.size))))
    yield "random 200,000 x 15", sf.SparseMatrix.from_any(large)
    for name in ("cora", "cs", "physics"):
        graph = load(name)
        yield f"{name} propagation", graph.propagation
        yield f"{name} features, by rows", graph.features.row_normalized
        yield f"{name} features, by columns", graph.features.transposed.row_normalized


def sparse_products(matrix: sf.SparseMatrix, dense: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Name -> a call that computes ``matrix @ dense``, including those of MKL and DGL if they are installed."""
    plain = csr(matrix)
    calls = {"seegera_fast": lambda: sf.ops.sparse_matmul(matrix, dense), "torch CSR": lambda: plain @ dense}
    if importlib.util.find_spec("sparse_dot_mkl"):
        from sparse_dot_mkl import dot_product_mkl

        ours, array = matrix.to_scipy(), dense.numpy()
        calls["MKL"] = lambda: dot_product_mkl(ours, array)
    if importlib.util.find_spec("dgl"):
        import dgl

        graph = dgl.create_block((matrix.col, matrix.row), num_src_nodes=matrix.shape[1], num_dst_nodes=matrix.shape[0])
        weight = matrix.values[:, None]
        calls["DGL"] = lambda: dgl.ops.u_mul_e_sum(graph, dense, weight)
    want = calls["seegera_fast"]()
    for call in calls.values():
        torch.testing.assert_close(torch.as_tensor(call()), want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))
    return calls


def sparse_matmul(record: Record) -> None:
    for name, matrix in matrices():
        worst: dict[str, tuple[float, int]] = {}
        for width in (64, 128, 256, 512, 1024):
            calls = sparse_products(matrix, torch.randn(matrix.shape[1], width))
            # Short calls get many rounds: they wait for a thread to wake up now and then, and the machine is slower for
            # tens of milliseconds at a time.
            first = min(medians(calls, rounds=1).values())
            seconds = medians(calls, rounds=min(max(int(0.25 / first), 3), 501))
            for kind, value in seconds.items():
                record.row(f"sparse_matmul, {name}, width {width}", f"s, {kind}", value)
            for kind in seconds.keys() - {"seegera_fast"}:
                ratio = seconds[kind] / seconds["seegera_fast"]
                worst[kind] = min(worst.get(kind, (float("inf"), 0)), (ratio, width))
        for kind, (ratio, width) in sorted(worst.items()):
            record.at_least(f"sparse_matmul, {name}", f"times faster than {kind} (width {width})", ratio, 1)
    for kind, module in (("MKL", "sparse_dot_mkl"), ("DGL", "dgl")):
        if importlib.util.find_spec(module) is None:
            record.note(f"{kind} is not installed and was not compared")
    gather_floor(record)


def gather_floor(record: Record) -> None:
    """The product with a large random matrix, which reads a row per non-zero, against copying these rows by index."""
    name, matrix = next(matrices())
    for width in (64, 512):
        dense = torch.randn(matrix.shape[1], width)
        # Copied in pieces, so that the copies stay in a cache and only the reads take time.
        pieces = matrix.col.split(2**20 // width)
        target = torch.empty(len(pieces[0]), width)
        calls = {
            "ours": lambda dense=dense: sf.ops.sparse_matmul(matrix, dense),
            "gather": lambda dense=dense, pieces=pieces, target=target: [
                torch.index_select(dense, 0, piece, out=target[: len(piece)]) for piece in pieces
            ],
        }
        seconds = medians(calls, rounds=3)
        work = f"sparse_matmul, {name}, width {width}"
        record.at_most(work, "times the gather floor", seconds["ours"] / seconds["gather"], 2)


def mixture_density(record: Record) -> None:
    rows, dim, samples, extra = 34_493, 512, 5, 5
    operands = [torch.randn(rows, draws, dim, requires_grad=True) for draws in (samples, samples + extra, 1)]
    work = floors.mixture_density(rows, dim, samples, extra)
    for operand in operands:
        operand.grad = torch.zeros_like(operand)

    def call() -> None:
        torch.autograd.grad(sf.ops.mixture_density(*operands).sum(), operands)

    against_floor(record, "mixture_density, 34,493 rows, d = 512, J = K = 5", call, work, 1.5, 2.0)


def growth(record: Record) -> None:
    """Exponents of time and memory in n, from n = 2k to 64k at fixed degree, for the contenders as far as they fit."""
    sizes = {
        "sampled pairs": ("seegera_fast", [2, 4, 8, 16, 32, 64]),
        "all pairs": ("seegera_fast", [2, 4, 8, 16, 32, 64]),
        "sparse, all pairs": ("sparse", [2, 4, 8]),
        "dense, all pairs": ("dense", [2, 4, 8]),
    }
    fields = {"embedding_dim": 64, "hidden_dim": 64}
    found: dict[str, list[tuple[int, float, float]]] = {}
    for kind, (contender, thousands) in sizes.items():
        negatives = "edges" if kind == "sampled pairs" else "all"
        found[kind] = []
        for nodes in (1000 * size for size in thousands):
            code = (
                f"graph = random_graph({nodes})\n"
                f"step = Step({contender!r}, graph, sf.SeeGeraConfig(negatives={negatives!r}, **{fields!r}))\n"
                "step(); measure(step)\n"
            )
            seconds = peak_of(code)["seconds"]
            above = peak_of(code.replace("step(); measure", "measure"))["above"]
            record.row(f"growth, {kind}", "seconds a step", seconds, nodes=nodes)
            record.row(f"growth, {kind}", "bytes above the start", above, nodes=nodes)
            found[kind].append((nodes, seconds, above))
    for kind, power in (("sampled pairs", 1.0), ("all pairs", 2.0)):
        nodes, seconds, above = zip(*found[kind][2:], strict=True)
        record.at_most(f"growth of time, {kind}", "exponent of n", slope(nodes, seconds), power + 0.2)
        record.at_most(f"growth of memory, {kind}", "exponent of n", slope(nodes, above), 1.2)


def slope(x: tuple[float, ...], y: tuple[float, ...]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


# The sections, by name, in the order of the report.
SECTIONS: dict[str, Callable[[Record], None]] = {
    "step, cora": lambda record: step(
        record, "cora", {"floor": Bars((1.25, 1.35), 1.15), "sparse": Bars((2.4,), 2.2), "dense": 6}
    ),
    "step, cora sampled": lambda record: step(record, "cora sampled", {"floor": Bars((1.35, 1.5), 1.25), "dense": 7.5}),
    "step, cora J=K=5": lambda record: step(record, "cora J=K=5", {"floor": Bars((1.25, 1.35), 1.2), "dense": 9}),
    "memory, cora J=K=5": memory,
    "step, computers": lambda record: step(record, "computers", {"dense": 8}),
    "step, computers sampled": lambda record: step(record, "computers sampled", {"dense": 15}),
    "step, physics": physics,
    "precision": precisions,
    "link_likelihood": link_likelihood,
    "top_links": top_links,
    "feature_likelihood": feature_likelihood,
    "sparse_matmul": sparse_matmul,
    "mixture_density": mixture_density,
    "growth": growth,
}
