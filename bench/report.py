"""Measures the library against its floors and two contenders, and prints a table with the bar beside each figure.

    python bench/report.py [--out DIR] [--only WORD ...] [--list]

Writes report.json, report.md and pictures to DIR (runs/bench). Exit status 1 where a bar is missed. Nothing else
should run on the machine meanwhile: the rates of a product and of a copy are measured along, and most figures are
ratios.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import bench_sparse_matmul
import floors
import numpy as np
import torch
from cases import STEPS, Step, check_same_numbers, configuration, load, medians, peak_of
from tqdm import tqdm

import seegera_fast as sf

GIB = 2**30


@dataclass
class Row:
    """One figure beside its bar."""

    work: str
    figure: str
    measured: float
    bar: str
    met: bool

    @classmethod
    def at_most(cls, work: str, figure: str, measured: float, bar: float) -> Row:
        return cls(work, figure, measured, f"<= {bar:g}", measured <= bar)

    @classmethod
    def at_least(cls, work: str, figure: str, measured: float, bar: float) -> Row:
        return cls(work, figure, measured, f">= {bar:g}", measured >= bar)


class Report:
    """The measurements, in the order of the table; each gives its rows and may add to ``extra`` what pictures need."""

    def __init__(self) -> None:
        self.extra: dict[str, object] = {}

    def step(self, name: str, bars: dict[str, float]) -> Iterator[Row]:
        dataset, fields = STEPS[name]
        graph, config = load(dataset), configuration(dataset, **fields)
        if "sampled" not in name:
            check_same_numbers(graph, config)
        wanted = [kind for kind in ("sparse", "dense") if kind in bars]
        calls: dict[str, Callable[[], object]] = {kind: Step(kind, graph, config) for kind in ("seegera_fast", *wanted)}
        if wanted == ["dense"] and "sampled" in name:
            # The contender knows all pairs only.
            calls["dense"] = Step("dense", graph, configuration(dataset))
        # The rates are taken in turn with the contenders, and as medians like them.
        measured = floors.rate_calls()
        rounds = 3 if dataset == "cora" else 1
        seconds = medians(calls | {name: call for name, (_, call) in measured.items()}, rounds)
        rates = floors.Rates(**{name: amount / seconds.pop(name) for name, (amount, _) in measured.items()})
        parts = floors.step(graph, config)
        floor = sum(map(rates.seconds, parts.values()))
        self.extra[f"step, {name}"] = {
            "seconds": seconds,
            "floor": floor,
            "rates": rates._asdict(),
            "floor parts": {part: rates.seconds(work) for part, work in parts.items()},
            "profile": profile(calls["seegera_fast"]),
        }
        if "floor" in bars:
            yield Row.at_most(f"step, {name}", "times its floor", seconds["seegera_fast"] / floor, bars["floor"])
        for kind in wanted:
            ratio = seconds[kind] / seconds["seegera_fast"]
            yield Row.at_least(f"step, {name}", f"times faster than {kind}", ratio, bars[kind])

    def memory(self) -> Iterator[Row]:
        code = (
            "graph, config = load('cora'), configuration('cora', num_importance_samples=5, num_mixture_samples=5)\n"
            "step = Step({kind!r}, graph, config)\nmeasure(step)\n"
        )
        above = {kind: peak_of(code.format(kind=kind))["above"] for kind in ("seegera_fast", "sparse", "dense")}
        self.extra["memory, cora J=K=5"] = above
        for kind, bar in (("dense", 0.2), ("sparse", 0.5)):
            ratio = above["seegera_fast"] / above[kind]
            yield Row.at_most("memory, cora J=K=5", f"of that of {kind}", ratio, bar)

    def physics(self) -> Iterator[Row]:
        code = "step = Step('seegera_fast', load('physics'), configuration('physics'))\nmeasure(step)\n"
        result = peak_of(code)
        self.extra["step, physics"] = result
        yield Row.at_most("step, physics, all pairs", "GiB resident", result["peak"] / GIB, 6)

    def link_likelihood(self) -> Iterator[Row]:
        for name in ("cora", "computers"):
            adjacency = load(name).adjacency
            for dim, bar in ((512, 1.15), (64, 1.7)):
                z = (torch.randn(adjacency.shape[0], 1, dim) / dim**0.25).requires_grad_()

                def call(z=z, adjacency=adjacency) -> None:
                    z.grad = None
                    sf.ops.link_likelihood(z, adjacency, pos_weight=10.0).sum().backward()

                work = floors.link_likelihood(adjacency.shape[0], dim)
                yield self._against_floor(f"link_likelihood, {adjacency.shape[0]:,} nodes, d = {dim}", call, work, bar)

    def _against_floor(self, name: str, call: Callable[[], object], work: floors.Work, bar: float) -> Row:
        """The best of some calls over the floor at the best rates around them."""
        rates = [floors.measure_rates()]
        seconds = floors.best_seconds(call)
        rates.append(floors.measure_rates())
        best = floors.Rates(max(r.product for r in rates), max(r.copy for r in rates))
        self.extra[name] = {"seconds": seconds, "floor": best.seconds(work), "rates": best._asdict()}
        return Row.at_most(name, "times its floor", seconds / best.seconds(work), bar)

    def feature_likelihood(self) -> Iterator[Row]:
        features = load("cs").features
        dense = features.to_dense()
        hidden = torch.randn(features.shape[0], 1, 512).mul_(0.1).requires_grad_()
        weight = torch.randn(512, features.shape[1]).mul_(0.1).requires_grad_()
        values = {}

        def ours() -> None:
            value = sf.ops.feature_likelihood(hidden, weight, features, likelihood="mse").sum()
            torch.autograd.grad(value, (hidden, weight))
            values["ours"] = float(value.detach())

        def materialised() -> None:
            squares = (dense - hidden[:, 0] @ weight).square().sum(dtype=torch.float64)
            torch.autograd.grad(squares, (hidden, weight))
            values["plain"] = -float(squares.detach()) - dense.numel() * 0.5 * float(np.log(np.pi))

        seconds = medians({"ours": ours, "plain": materialised}, rounds=3)
        name = "feature_likelihood, mse on cs"
        self.extra[name] = seconds
        yield Row.at_least(name, "times faster than materialised", seconds["plain"] / seconds["ours"], 6)
        difference = abs(values["ours"] / values["plain"] - 1)
        yield Row.at_most(name, "relative difference of the values", difference, 1e-5)

    def sparse_matmul(self) -> Iterator[Row]:
        figures = {}
        for name, matrix in bench_sparse_matmul.matrices():
            worst: dict[str, tuple[float, int]] = {}
            for width in (64, 128, 256, 512, 1024):
                dense = torch.randn(matrix.shape[1], width)
                calls = bench_sparse_matmul.contenders(matrix, dense)
                # A call of a tenth of a millisecond now and then waits for a thread to wake.
                seconds = medians(calls, rounds=3 if matrix.nnz * width > 2**26 else 31)
                figures[f"{name}, width {width}"] = seconds
                for kind in seconds.keys() - {"seegera_fast"}:
                    ratio = seconds[kind] / seconds["seegera_fast"]
                    worst[kind] = min(worst.get(kind, (float("inf"), 0)), (ratio, width))
            for kind, (ratio, width) in sorted(worst.items()):
                yield Row.at_least(f"sparse_matmul, {name}", f"times faster than {kind} (width {width})", ratio, 1)
        self.extra["sparse_matmul"] = figures
        for kind, module in (("MKL", "sparse_dot_mkl"), ("DGL", "dgl")):
            if importlib.util.find_spec(module) is None:
                print(f"{kind} is not installed and was not compared", file=sys.stderr)
        yield from self.gather_floor()

    def gather_floor(self) -> Iterator[Row]:
        """A row read from memory for each non-zero, against rows of the same matrix copied by index."""
        name, matrix = next(bench_sparse_matmul.matrices())
        for width in (64, 512):
            dense = torch.randn(matrix.shape[1], width)
            # In pieces, so that the copies stay in a cache and only the reads count.
            pieces = matrix.col.split(2**20 // width)
            target = torch.empty(len(pieces[0]), width)
            calls = {
                "ours": lambda dense=dense: sf.ops.sparse_matmul(matrix, dense),
                "gather": lambda dense=dense, pieces=pieces, target=target: [
                    torch.index_select(dense, 0, piece, out=target[: len(piece)]) for piece in pieces
                ],
            }
            seconds = medians(calls, rounds=3)
            ratio = seconds["ours"] / seconds["gather"]
            yield Row.at_most(f"sparse_matmul, {name}, width {width}", "times the gather floor", ratio, 2)

    def mixture_density(self) -> Iterator[Row]:
        rows, dim, samples, extra = 34_493, 512, 5, 5
        operands = [torch.randn(rows, draws, dim, requires_grad=True) for draws in (samples, samples + extra, 1)]
        work = floors.mixture_density(rows, dim, samples, extra)
        for operand in operands:
            operand.grad = torch.zeros_like(operand)

        def call() -> None:
            torch.autograd.grad(sf.ops.mixture_density(*operands).sum(), operands)

        yield self._against_floor("mixture_density, 34,493 rows, d = 512, J = K = 5", call, work, 1.5)

    def growth(self) -> Iterator[Row]:
        """Exponents of time and memory in n, from n = 2k to 64k at fixed degree; the contenders as far as they get."""
        sizes = {
            "sampled pairs": ("seegera_fast", [2, 4, 8, 16, 32, 64]),
            "all pairs": ("seegera_fast", [2, 4, 8, 16, 32, 64]),
            "sparse, all pairs": ("sparse", [2, 4, 8]),
            "dense, all pairs": ("dense", [2, 4, 8]),
        }
        fields = {"embedding_dim": 64, "hidden_dim": 64}
        found: dict[str, dict[str, list[float]]] = {}
        for kind, (contender, thousands) in sizes.items():
            negatives = "edges" if kind == "sampled pairs" else "all"
            times, memory = [], []
            for size in tqdm(thousands, desc=f"growth, {kind}", disable=None, leave=False):
                code = (
                    f"graph = random_graph({size * 1000})\n"
                    f"step = Step({contender!r}, graph, sf.SeeGeraConfig(negatives={negatives!r}, **{fields!r}))\n"
                    "step(); measure(step)\n"
                )
                times.append(peak_of(code)["seconds"])
                fresh = code.replace("step(); measure", "measure")
                memory.append(peak_of(fresh)["above"])
            found[kind] = {"nodes": [size * 1000 for size in thousands], "seconds": times, "bytes": memory}
        self.extra["growth"] = found
        for kind, power in (("sampled pairs", 1.0), ("all pairs", 2.0)):
            series = found[kind]
            exponent = _slope(series["nodes"][2:], series["seconds"][2:])
            yield Row.at_most(f"growth of time, {kind}", "exponent of n", exponent, power + 0.2)
            exponent = _slope(series["nodes"][2:], series["bytes"][2:])
            yield Row.at_most(f"growth of memory, {kind}", "exponent of n", exponent, 1.2)


def _slope(x: list[float], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def profile(step: Callable[[], object]) -> dict[str, float]:
    """Shares of a step by operator, the largest ten, from torch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as record:
        step()
    averages = record.key_averages()
    total = sum(event.self_cpu_time_total for event in averages)
    ranked = sorted(averages, key=lambda event: -event.self_cpu_time_total)[:10]
    return {event.key: round(event.self_cpu_time_total / total, 4) for event in ranked}


def sections(report: Report) -> dict[str, Callable[[], Iterator[Row]]]:
    return {
        "step, cora": lambda: report.step("cora", {"floor": 1.25, "sparse": 1.6, "dense": 6}),
        "step, cora sampled": lambda: report.step("cora sampled", {"floor": 1.35, "dense": 7.5}),
        "step, cora J=K=5": lambda: report.step("cora J=K=5", {"floor": 1.25, "dense": 9}),
        "memory, cora J=K=5": report.memory,
        "step, computers": lambda: report.step("computers", {"dense": 8}),
        "step, computers sampled": lambda: report.step("computers sampled", {"dense": 15}),
        "step, physics": report.physics,
        "link_likelihood": report.link_likelihood,
        "feature_likelihood": report.feature_likelihood,
        "sparse_matmul": report.sparse_matmul,
        "mixture_density": report.mixture_density,
        "growth": report.growth,
    }


def machine() -> dict[str, object]:
    processor = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "processor": processor,
        "instruction set": sf.backends.instruction_set(),
        "threads": torch.get_num_threads(),
        "load before": round(os.getloadavg()[0], 2),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "seegera_fast": sf.__version__,
        "python": platform.python_version(),
    }


def draw(rows: list[Row], extra: dict[str, object], folder: Path) -> None:
    """Pictures of what was measured: steps beside those of plain PyTorch, times over floors, and growth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    faster = [row for row in rows if row.figure.startswith("times faster than") and row.work.startswith("step, ")]
    if faster:
        figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(faster) + 1.2))
        names = [f"{row.work.removeprefix('step, ')}, against {row.figure.split()[-1]}" for row in faster]
        bars = axes.barh(names, [row.measured for row in faster], color="#0072B2")
        axes.bar_label(bars, [f"{row.measured:.1f} ×" for row in faster], padding=4)
        axes.axvline(1, color="black", linewidth=1)
        axes.margins(x=0.1)
        axes.invert_yaxis()
        axes.set_xlabel("a training step: times faster than plain PyTorch")
        figure.tight_layout()
        figure.savefig(folder / "speed.png", dpi=130)
    over = [row for row in rows if row.figure == "times its floor"]
    if over:
        figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(over) + 1.5))
        names = [row.work for row in over]
        axes.barh(names, [row.measured for row in over], color="#0072B2")
        for index, row in enumerate(over):
            axes.plot([float(row.bar.split()[1])] * 2, [index - 0.4, index + 0.4], color="#D55E00", linewidth=2)
        axes.axvline(1, color="black", linewidth=1)
        axes.invert_yaxis()
        axes.set_xlabel("time over floor (orange: the bar)")
        figure.tight_layout()
        figure.savefig(folder / "floors.png", dpi=130)
    if "growth" in extra:
        figure, pair = pyplot.subplots(1, 2, figsize=(11, 4.5))
        for axes, quantity, unit in (
            (pair[0], "seconds", "seconds a step"),
            (pair[1], "bytes", "bytes above the start"),
        ):
            for kind, series in extra["growth"].items():
                axes.loglog(series["nodes"], series[quantity], marker="o", label=kind)
            axes.xaxis.set_minor_formatter(ticker.NullFormatter())
            axes.set_xlabel("nodes")
            axes.set_ylabel(unit)
            axes.grid(True, which="both", alpha=0.3)
            axes.legend()
        figure.tight_layout()
        figure.savefig(folder / "growth.png", dpi=130)


# What the pictures of a report show, by file name.
PICTURES = {
    "speed.png": "A training step, times faster than plain PyTorch",
    "floors.png": "Times over their floors",
    "growth.png": "Time and memory of a step over the number of nodes",
}


def page(rows: list[Row], failures: dict[str, str], where: dict[str, object], extra: dict[str, object]) -> str:
    """The table in Markdown, with the rates that floors rest on."""
    lines = ["# Measured against floors and plain PyTorch", "", ", ".join(f"{key}: {where[key]}" for key in where), ""]
    lines += ["| work | figure | measured | bar | |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        mark = "met" if row.met else "**missed**"
        lines.append(f"| {row.work} | {row.figure} | {row.measured:.3g} | {row.bar} | {mark} |")
    lines += ["", *(f"{name}: not measured: {reason}" for name, reason in failures.items())]
    lines += ["What a floor is: bench/floors.py. Who the contenders are: bench/baselines.py.", ""]
    rates = {name: found["rates"] for name, found in extra.items() if "rates" in found}
    if rates:
        lines += ["| rates measured beside | products, GFLOP/s | copies, GB/s |", "| --- | --- | --- |"]
        for name, rate in rates.items():
            lines.append(f"| {name} | {rate['product'] / 1e9:.0f} | {rate['copy'] / 1e9:.1f} |")
        lines.append("")
    return "\n".join(lines)


def write(path: Path, text: str) -> None:
    """Aside first, then renamed into place."""
    aside = path.with_name(path.name + ".part")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder of report.json and the pictures")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="sections whose names hold one of these")
    parser.add_argument("--list", action="store_true", help="names the sections and ends")
    options = parser.parse_args(arguments)
    report = Report()
    chosen = {
        name: section
        for name, section in sections(report).items()
        if not options.only or any(word in name for word in options.only)
    }
    if options.list:
        print("\n".join(chosen))
        return 0
    if not chosen:
        parser.error(f"--only: no section holds {' or '.join(options.only)}; --list names them")
    options.out.mkdir(parents=True, exist_ok=True)
    where = machine()
    print(", ".join(f"{key} {value}" for key, value in where.items()), flush=True)
    rows: list[Row] = []
    failures: dict[str, str] = {}
    start = time.perf_counter()
    for name, section in tqdm(chosen.items(), disable=None, unit="section"):
        try:
            rows.extend(section())
        except (RuntimeError, MemoryError, OSError) as error:
            failures[name] = str(error)
    width = max((len(row.work) for row in rows), default=0)
    for row in rows:
        mark = "met" if row.met else "MISSED"
        print(f"{row.work:<{width}}  {row.measured:>10.4g} {row.figure:<38} {row.bar:>8}  {mark}")
    for name, reason in failures.items():
        print(f"{name}: not measured: {reason}")
    content = {
        "machine": where,
        "seconds": time.perf_counter() - start,
        "rows": [asdict(row) for row in rows],
        "measurements": report.extra,
        "failures": failures,
    }
    write(options.out / "report.json", json.dumps(content, indent=1))
    for name in PICTURES:
        # Those of an earlier run may show what this one has left out.
        (options.out / name).unlink(missing_ok=True)
    draw(rows, report.extra, options.out)
    text = page(rows, failures, where, report.extra)
    pictures = [f"![{title}]({name})\n" for name, title in PICTURES.items() if (options.out / name).exists()]
    write(options.out / "report.md", "\n".join([text, *pictures]))
    return 1 if failures or not all(row.met for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
