"""What bench/device.py has done in processes of its own: a look at the machine, the benchmarks, the small cases.

    python bench/device_sections.py describe              a line of JSON: card, versions, backends
    python bench/device_sections.py sections PLAN         the sections of a JSON file, each of which writes its own file
    python bench/device_sections.py prepare FILE          makes the largest graph and keeps it in a file
    python bench/device_sections.py small                 every operation once, small, for compute-sanitizer

``--dry-run`` before the word: on the CPU, with tiny sizes, by perf_counter.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import importlib.util
import json
import math
import pickle
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import cases
import floors
import numpy as np
import scipy.sparse
import torch

import seegera_fast as sf

DRY = "--dry-run" in sys.argv
DEVICE = "cpu" if DRY else "cuda"
GIB = 2**30

# The per-operation benchmarks take their sizes when they are imported: large enough to fill a card, or a rehearsal's.
cases.NODES, cases.FEATURES, cases.WIDTH = (60, 40, 16) if DRY else (16_384, 1433, 512)

# Nodes of the largest generated graph; ten edges a node.
LARGEST = 2_000 if DRY else 1_000_000
# Products by name: the type of the operands and how float32 is multiplied.
PRODUCTS = {
    "ieee": (torch.float32, "ieee"),
    "tf32": (torch.float32, "tf32"),
    "bf16": (torch.bfloat16, "ieee"),
    "fp16": (torch.float16, "ieee"),
}
OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)


class Record:
    """What a section found, written after each piece: aside, then renamed."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path, self.begun, self.end = path, time.monotonic(), time.monotonic() + seconds
        self.content: dict[str, object] = {"status": "running", "rows": [], "notes": []}
        self.broken: list[str] = []
        self.save()

    def left(self) -> float:
        """Seconds that this section still has."""
        return self.end - time.monotonic()

    def row(self, work: str, figure: str, value: float, bar: str | None = None) -> None:
        """One figure; ``bar`` is the key of the bar that it belongs to."""
        self.content["rows"].append({"work": work, "figure": figure, "value": float(value), "bar": bar})
        self.save()

    def note(self, text: str) -> None:
        self.content["notes"].append(text)
        self.save()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A piece whose failure leaves the others their chance; the section fails in the end."""
        try:
            yield
        except OUT_OF_MEMORY:
            self.note(f"{name}: out of memory")
        except Exception as error:
            self.note(f"{name}: {type(error).__name__}: {str(error)[:500]}")
            self.broken.append("".join(traceback.format_exception(error))[-3000:])
            if device_is_lost(error):
                raise
        release()

    def finish(self, error: BaseException | None = None) -> None:
        if error:
            self.broken.append("".join(traceback.format_exception(error))[-3000:])
        self.content["status"] = "failed" if self.broken else "done"
        if self.broken:
            self.content["error"] = "\n".join(self.broken)[-6000:]
        self.save()

    def save(self) -> None:
        self.content["seconds"] = time.monotonic() - self.begun
        aside = self.path.with_suffix(".part")
        aside.write_text(json.dumps(self.content))
        aside.replace(self.path)


def device_is_lost(error: BaseException) -> bool:
    """Whether nothing more can be run in this process, as after an illegal access."""
    return "CUDA error" in str(error)


# --- Measuring -------------------------------------------------------------------------------------------------------


def synchronize() -> None:
    if not DRY:
        torch.cuda.synchronize()


class Clock:
    """Device seconds of calls, by events, with a cold cache."""

    def __init__(self) -> None:
        # Written between calls, so that no input lies in the L2 cache, which has some 50 MB.
        self.flush = torch.empty(2**20 if DRY else 2**28, dtype=torch.uint8, device=DEVICE)

    def seconds(self, calls: dict[str, Callable[[], object]], wanted: float = 1.0) -> dict[str, float]:
        """Medians, taken in turn (A B A B), after two rounds that are not counted; ``wanted``: seconds in all."""
        ahead = {}
        for name, call in calls.items():
            call()
            synchronize()
            start = time.perf_counter()
            call()
            # How long the host takes to hand the work over.
            ahead[name] = time.perf_counter() - start
            synchronize()
        times: dict[str, list[float]] = {name: [] for name in calls}
        end = time.monotonic() + wanted
        rounds = 0
        while rounds < (1 if DRY else 5) or (rounds < 31 and time.monotonic() < end and not DRY):
            rounds += 1
            for name, call in calls.items():
                times[name].append(self._once(call, ahead[name]))
        return {name: statistics.median(values) for name, values in times.items()}

    def _once(self, call: Callable[[], object], ahead: float) -> float:
        self.flush.zero_()
        if DRY:
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        # The card waits while the host hands the work over, so that gaps between launches are not counted.
        torch.cuda._sleep(int(2e9 * min(2 * ahead, 0.05)))
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000


def peak_of(call: Callable[[], object]) -> float:
    """Bytes of the device's memory above the start at the highest point; 0 in a rehearsal."""
    gc.collect()
    if DRY:
        call()
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before)


def release() -> None:
    gc.collect()
    if not DRY:
        torch.cuda.empty_cache()


@contextlib.contextmanager
def float32_products(how: str) -> Iterator[None]:
    """Float32 products "ieee" or "tf32", in torch and in the library."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = how
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def normal(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    """Random numbers made on the device."""
    return (torch.randn(shape, device=DEVICE) * scale).to(dtype)


def backends_of(operation: str) -> list[str]:
    """The backends that run an operation on this device, the one that is taken by default first."""
    table = sf.backends.info()
    wanted = ("cpu", "reference") if DRY else ("cuda", "triton")
    found = [name for name in wanted if table[name]["available"] and operation in table[name]["operations"]]
    return found[:1] if DRY else found


def rectangular(rows: int, cols: int, degree: int) -> sf.SparseMatrix:
    """A random matrix with a fixed number of entries a row."""
    generator = np.random.default_rng(0)
    place = (np.repeat(np.arange(rows), degree), generator.integers(0, cols, rows * degree))
    return sf.SparseMatrix.from_any(scipy.sparse.csr_matrix((np.ones(rows * degree), place), (rows, cols)))


@contextlib.contextmanager
def quiet_compiler(kind: str) -> Iterator[None]:
    """A rehearsal leaves out what torch.compile would compile for a contender."""
    with torch.compiler.set_stance("force_eager") if DRY and kind != "compiled" else contextlib.nullcontext():
        yield


# --- The sections ----------------------------------------------------------------------------------------------------


class Captured:
    """A training step as a CUDA graph."""

    def __init__(self, graph: sf.Graph, config: sf.SeeGeraConfig) -> None:
        model = sf.SeeGera(graph, config)
        self.step = model.capture(torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=True))

    def __call__(self) -> float:
        return float(self.step().loss)


class Compiled:
    """A training step whose forward and backward torch.compile made; seeds in slots, so that it compiles once."""

    def __init__(self, graph: sf.Graph, config: sf.SeeGeraConfig) -> None:
        model = sf.SeeGera(graph, config).train()
        self.slots = sf.seeds.SeedSlots(torch.device(DEVICE))
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        self.forward = torch.compile(model, fullgraph=True, backend="aot_eager" if DRY else "inductor")
        # The first step gives each place its slot and builds what the graph keeps.
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
    own = {"captured": Captured, "compiled": Compiled}
    if kind in own:
        return own[kind](graph, config)
    return cases.Step("seegera_fast" if kind == "eager" else kind, graph, config)


def time_steps(
    record: Record, name: str, graph: sf.Graph, config: sf.SeeGeraConfig, kinds: tuple[str, ...], bar: str | None = None
) -> dict[str, float]:
    """Milliseconds of a step, Python and the reading of the loss included, and the memory of each kind.

    Gives the seconds by kind.
    """
    steps: dict[str, Callable[[], float]] = {}
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
            steps |= made
    times: dict[str, list[float]] = {kind: [] for kind in steps}
    end = time.monotonic() + min(10.0, record.left() / 3)
    turn = 0
    while steps and turn < (1 if DRY else 11) and (turn < 2 or time.monotonic() < end):
        turn += 1
        for kind, step in steps.items():
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


class Sections:
    """The benchmarks, by name, in the order of their weight."""

    def __init__(self, prepared: str) -> None:
        self.prepared = prepared
        self.clock = Clock()
        self.measured_rates: dict[str, float] = {}

    def all(self) -> dict[str, Callable[[Record], None]]:
        return {
            "rates": self.rates,
            "step, cora": self.step_cora,
            "sparse_matmul": self.sparse_matmul,
            "link_likelihood": self.link_likelihood,
            "siglip-kernel": self.siglip,
            "one million nodes": self.million,
            "operations": self.operations,
            "steps, data sets": self.data_sets,
            "step, compiled": self.compiled,
            "growth": self.growth,
        }

    def rate(self, kind: str) -> float:
        """Operations a second of a product type, or bytes a second of "copy", measured once in this process."""
        if kind not in self.measured_rates:
            dtype, how = PRODUCTS.get(kind, (torch.float32, "ieee"))
            # 8,192 x 8,192, and 2 GB copied: both fill a card, and neither fits into its cache.
            size, copied = (64, 2**16) if DRY else (8192, 2**31)
            with float32_products(how):
                calls = floors.rate_calls(dtype, DEVICE, size, copied if kind == "copy" else 2**16)
                amount, call = calls["copy" if kind == "copy" else "product"]
                self.measured_rates[kind] = amount / self.clock.seconds({"": call}, 0.3)[""]
            del calls, call
            release()
        return self.measured_rates[kind]

    def floor(self, work: floors.Work, product: str = "ieee") -> float:
        return floors.Rates(self.rate(product), self.rate("copy")).seconds(work)

    def rates(self, record: Record) -> None:
        record.row("copy", "TB/s read and written", self.rate("copy") / 1e12)
        for kind in PRODUCTS:
            record.row(f"product, {kind}", "TFLOP/s", self.rate(kind) / 1e12)

    def data_set(self, record: Record, name: str) -> sf.Graph | None:
        """A data set on the device, or None where its files are not there."""
        try:
            return sf.datasets.load(name, download=False).to(DEVICE)
        except (OSError, ImportError) as error:
            record.note(f"{name}: {error}")
            return None

    def cora(self, record: Record) -> tuple[str, sf.Graph]:
        graph = None if DRY else self.data_set(record, "cora")
        if graph is not None:
            return "cora", graph
        nodes, features = (60, 40) if DRY else (2708, 1433)
        return "random graph of Cora's size", cases.random_graph(nodes, degree=4, features=features).to(DEVICE)

    def configuration(self, dataset: str, **fields) -> sf.SeeGeraConfig:
        small = {"embedding_dim": 16, "hidden_dim": 16} if DRY else {}
        return cases.configuration(dataset, **small, **fields)

    def step_cora(self, record: Record) -> None:
        name, graph = self.cora(record)
        config = self.configuration("cora")
        with record.part("the same numbers"):
            cases.check_same_numbers(graph, config)
        seconds = time_steps(record, f"step, {name}", graph, config, ("eager", "dense", "captured"), "step")
        floor = sum(map(self.floor, floors.step(graph, config).values()))
        for kind in ("captured", "eager"):
            if kind in seconds:
                record.row(f"step, {name}", f"times its floor, {kind}", seconds[kind] / floor)
        # On its own, since torch.compile takes its time with this contender.
        best = "eager" if DRY else "captured"
        time_steps(record, f"step, {name}, beside the careful form", graph, config, (best, "sparse"))
        if record.left() > 15 or DRY:
            sampled = self.configuration("cora", negatives="edges")
            time_steps(record, f"step, {name}, sampled", graph, sampled, ("eager", "captured"))

    def sparse_matmul(self, record: Record) -> None:
        rows = 300 if DRY else 200_000
        matrices = {f"random {rows:,} x 15": rectangular(rows, rows, 15).to(DEVICE)}
        for name in () if DRY else ("cora", "physics"):
            graph = self.data_set(record, name)
            if graph is not None:
                matrices[f"{name} propagation"] = graph.propagation
                matrices[f"{name} features"] = graph.features
                matrices[f"{name} features, transposed"] = graph.features.transposed
        backends = backends_of("sparse_matmul")
        if not backends:
            raise RuntimeError("no kernel for sparse_matmul on this device")
        for name, matrix in matrices.items():
            with record.part(name):
                self.sparse_products(record, name, matrix, backends)

    def sparse_products(self, record: Record, name: str, matrix: sf.SparseMatrix, backends: list[str]) -> None:
        csr = cases.csr(matrix)
        worst: dict[str, tuple[float, int]] = {}
        for width in (8,) if DRY else (64, 128, 256, 512, 1024):
            dense = normal(matrix.shape[1], width)
            calls = {"cuSPARSE": lambda dense=dense: csr @ dense}
            want = calls["cuSPARSE"]()
            for backend in backends:

                def own(backend=backend, dense=dense):
                    with sf.use_backend(backend):
                        return sf.ops.sparse_matmul(matrix, dense)

                calls[backend] = own
                torch.testing.assert_close(own(), want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))
            seconds = self.clock.seconds(calls, 0.3)
            floor = self.floor(floors.sparse_matmul(matrix.nnz, *matrix.shape, width, with_gradients=False))
            for backend in backends:
                ratio = seconds["cuSPARSE"] / seconds[backend]
                worst[backend] = min(worst.get(backend, (math.inf, 0)), (ratio, width))
                record.row(f"{name}, width {width}", f"us, {backend}", 1e6 * seconds[backend])
                record.row(f"{name}, width {width}", f"times its floor, {backend}", seconds[backend] / floor)
            record.row(f"{name}, width {width}", "us, cuSPARSE", 1e6 * seconds["cuSPARSE"])
        for backend, (ratio, width) in worst.items():
            figure = f"times faster than cuSPARSE, {backend}, width {width} (its worst)"
            record.row(name, figure, ratio, "sparse_matmul" if backend == backends[0] else None)

    def link_likelihood(self, record: Record) -> None:
        graph = None if DRY else self.data_set(record, "physics")
        if graph is None:
            nodes = 48 if DRY else 34_493
            graph = cases.random_graph(nodes, degree=14, features=32).to(DEVICE)
            record.note("a random graph of Physics's number of nodes: all pairs cost the same")
        for width in (16,) if DRY else (512, 256, 128, 64):
            for product in PRODUCTS:
                name = f"all pairs, {graph.num_nodes:,} nodes, d = {width}, {product}"
                if width != 512 and record.left() < 5 and not DRY:
                    record.note(f"{name}: no time left")
                    continue
                with record.part(name):
                    self.all_pairs(record, name, graph.adjacency, width, product)

    def all_pairs(self, record: Record, name: str, adjacency: sf.SparseMatrix, width: int, product: str) -> None:
        dtype, how = PRODUCTS[product]
        nodes, main = adjacency.shape[0], DRY or width == 512
        z = normal(nodes, 1, width, dtype=dtype, scale=width**-0.25).requires_grad_()
        # On the CPU, float16 and bfloat16 are for the interpreted kernels alone.
        backend = "triton" if DRY and sf.backends.info()["triton"]["available"] else None

        def call():
            with sf.use_backend(backend) if backend else contextlib.nullcontext():
                return torch.autograd.grad(sf.ops.link_likelihood(z, adjacency, pos_weight=10.0).sum(), z)

        with float32_products(how):
            call()
            peak = peak_of(call)
            seconds = self.clock.seconds({"default": call, **self.link_forms(z, adjacency)}, 0.3)
        for form, value in seconds.items():
            achieved = floors.link_likelihood(nodes, width).operations / value / self.rate(product)
            own_bar = "link rate" if main and form == "default" else None
            record.row(name, f"of the product rate, {form}", achieved, own_bar)
            record.row(name, f"ms, {form}", 1000 * value)
        record.row(name, "times 4 n d bytes, peak", peak / (4 * nodes * width), "link memory" if main else None)

    def link_forms(self, z: torch.Tensor, adjacency: sf.SparseMatrix) -> dict[str, Callable[[], object]]:
        """Triton's two forms of all pairs, value and gradient; the fused one where its registers suffice."""
        table = sf.backends.info()["triton"]
        if not table["available"] or "link_likelihood" not in table["operations"]:
            return {}
        module = importlib.import_module("seegera_fast.kernels.triton.link_likelihood")
        gaps = adjacency.col.new_empty(0)
        weight = torch.full((1,), 10.0, dtype=torch.float64, device=DEVICE)
        seed = torch.zeros(1, dtype=torch.int64, device=DEVICE)
        z = z.detach()

        def call(fused: bool) -> object:
            return module.run(z, adjacency.rowptr, adjacency.col, gaps, weight, seed, True, 0, True, fused)

        forms = {"fused": True, "chunked": False}
        if not module.prefers_fused(z):
            del forms["fused"]
        return {form: lambda fused=fused: call(fused) for form, fused in forms.items()}

    def siglip(self, record: Record) -> None:
        if DRY:
            record.note("needs a GPU: not rehearsed")
            return
        nodes, width = 65_536, 768
        adjacency = cases.random_graph(nodes, degree=10, features=32).to(DEVICE).adjacency
        z = normal(nodes, width, dtype=torch.bfloat16, scale=width**-0.25).requires_grad_()
        zero = torch.zeros((), device=DEVICE)

        def ours():
            return torch.autograd.grad(sf.ops.link_likelihood(z[:, None], adjacency).sum(), z)

        calls = {"ours": ours}
        if importlib.util.find_spec("siglip_kernel"):
            from siglip_kernel import fused_siglip_loss

            calls["siglip-kernel"] = lambda: torch.autograd.grad(fused_siglip_loss(z, z, zero, zero), z)
        else:
            record.note("siglip-kernel is not installed: not compared")
        name = f"all pairs, {nodes:,} nodes, d = {width}, bf16"
        for call in calls.values():
            call()
        peaks = {kind: peak_of(call) for kind, call in calls.items()}
        seconds = self.clock.seconds(calls, 3)
        for kind in calls:
            record.row(name, f"ms, {kind}", 1000 * seconds[kind])
            record.row(name, f"GiB, {kind}", peaks[kind] / GIB)
        achieved = floors.link_likelihood(nodes, width).operations / seconds["ours"] / self.rate("bf16")
        record.row(name, "of the product rate, ours", achieved)
        if "siglip-kernel" in calls:
            ratio = seconds["siglip-kernel"] / seconds["ours"]
            record.row(name, "times faster than siglip-kernel", ratio, "siglip time")
            record.row(name, "of siglip-kernel's memory", peaks["ours"] / peaks["siglip-kernel"], "siglip memory")

    def largest(self) -> sf.Graph:
        if Path(self.prepared).is_file():
            return pickle.loads(Path(self.prepared).read_bytes()).to(DEVICE)
        return cases.random_graph(LARGEST, degree=20, features=256).to(DEVICE)

    def million(self, record: Record) -> None:
        width = 16 if DRY else 256
        graph = self.largest()
        name = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, d = {width}"
        config = sf.SeeGeraConfig(embedding_dim=width, hidden_dim=width, negatives="edges")
        step = cases.Step("seegera_fast", graph, config)
        # The graph is counted too; the first step builds what it keeps.
        start = 0 if DRY else torch.cuda.memory_allocated()
        record.row(name, "GiB, sampled step", (start + peak_of(step)) / GIB, "million memory")
        record.row(name, "ms, sampled step, eager", 1000 * cases.medians({"": step}, 1 if DRY else 3)[""])
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
                achieved = moved / self.clock.seconds({"": call}, 0.5)[""] / self.rate("copy")
                record.row(f"{name}, {operation}", "of the copy rate", achieved, "million rate")
        if record.left() > 10 and not DRY:
            time_steps(record, f"step, {name}, sampled", graph, config, ("captured",))

    # Operation -> the arguments of its benchmark, and the least that it has to do.
    def operation_cases(self) -> dict[str, tuple[dict[str, object], floors.Work | None]]:
        nodes, features, width = cases.NODES, cases.FEATURES, cases.WIDTH
        graph = cases.cora_sized()
        words, links = graph.features.nnz, graph.propagation.nnz
        flat, dropout = 4.0 * nodes * width, cases.DROPOUT

        def total(*works: floors.Work) -> floors.Work:
            return floors.Work(*map(sum, zip(*works, strict=True)))

        average = floors.sparse_matmul(words, nodes, features, width)
        return {
            "feature_likelihood": (
                {"likelihood": "bernoulli", "width": width},
                floors.feature_likelihood(nodes, features, width, words, "bernoulli"),
            ),
            "link_likelihood": (
                {"sampled": False, "samples": 1, "width": width},
                floors.link_likelihood(nodes, width),
            ),
            "noisy_gcn": (
                {"samples": 1, "dropout": dropout},
                total(
                    floors.sparse_matmul(words, nodes, features, 2 * width),
                    floors.sparse_matmul(links, nodes, nodes, 2 * width),
                ),
            ),
            "gcn": (
                {"samples": 1, "dropout": dropout},
                total(
                    floors.product(2 * nodes, width, width),
                    floors.sparse_matmul(links, nodes, nodes, 2 * width),
                ),
            ),
            "feature_average": ({"to": "features", "draws": 1}, average),
            "decoder_input": (
                {"samples": 1, "dropout": dropout},
                total(floors.product(nodes, 2 * width, width), average),
            ),
            "mixture_density": ({"samples": 1}, floors.mixture_density(nodes, width, 1, 1)),
            "reparameterize": ({"samples": 1}, floors.Work(0.0, 6 * flat)),
            "dropout": ({"samples": 1}, floors.Work(0.0, 8 * flat)),
            "component_log_density": ({"samples": 1}, floors.mixture_density(nodes, width, 1, 1)),
            "importance_bound": ({"samples": 5}, None),
            "mask_edges": ({}, None),
            "mask_entries": ({}, None),
            "draw_noise": ({"samples": 1}, None),
            "draw_subset": ({"stream": "edges"}, None),
        }

    def operations(self, record: Record) -> None:
        """Every operation's benchmark, numbers compared first, in each column."""
        # A default device, so that what the plain forms make lies beside what they get.
        with torch.device(DEVICE):
            for operation, (fields, work) in self.operation_cases().items():
                if record.left() < 5:
                    record.note(f"{operation}: no time left")
                    continue
                with record.part(operation):
                    self.operation(record, operation, fields, work)

    def operation(self, record: Record, operation: str, fields: dict[str, object], work: floors.Work | None) -> None:
        function = getattr(importlib.import_module(f"bench_{operation}"), f"bench_{operation}")
        taken = {}

        def take(contender: str) -> Callable[[], object]:
            function(Taker(taken, contender), contender=contender, **fields)
            return taken[contender]

        calls = {"torch": take("torch")}
        for backend in backends_of(operation):
            with sf.use_backend(backend):
                call = take("seegera_fast")

            def forced(call=call, backend=backend):
                with sf.use_backend(backend):
                    return call()

            calls[backend] = forced
        if not calls.keys() - {"torch"}:
            record.note(f"{operation}: no kernel for {DEVICE}")
        seconds = self.clock.seconds(calls, 0.3)
        floor = None if work is None else self.floor(work)
        for name, value in seconds.items():
            record.row(operation, f"us, {name}", 1e6 * value)
            if name != "torch":
                record.row(operation, f"times faster than plain PyTorch, {name}", seconds["torch"] / value)
                if floor is not None:
                    record.row(operation, f"times its floor, {name}", value / floor)

    def data_sets(self, record: Record) -> None:
        if DRY:
            record.note("data sets are not read in a rehearsal")
            return
        graphs = {}
        for name in ("photo", "computers", "physics", "citeseer", "cs", "pubmed"):
            graphs[name] = self.data_set(record, name) if record.left() > 5 else None
            if graphs[name] is not None:
                time_steps(record, f"step, {name}", graphs[name], self.configuration(name), ("eager", "captured"))
                release()
        # The contenders' n x n tensors, which the host makes, take longer than all of the above; not Physics's.
        for name in ("photo", "computers", "citeseer", "cs", "pubmed"):
            if graphs[name] is not None and record.left() > 12:
                kinds = ("captured", "dense", "sparse")
                time_steps(record, f"step, {name}, contenders", graphs[name], self.configuration(name), kinds)
                release()

    def compiled(self, record: Record) -> None:
        name, graph = self.cora(record)
        time_steps(record, f"step, {name}", graph, self.configuration("cora"), ("eager", "compiled"))

    def growth(self, record: Record) -> None:
        width = 16 if DRY else 256
        for nodes in (200, 400) if DRY else (10_000, 100_000):
            graph = cases.random_graph(nodes, degree=20, features=256).to(DEVICE)
            config = sf.SeeGeraConfig(embedding_dim=width, hidden_dim=width, negatives="edges")
            time_steps(record, f"step, {nodes:,} nodes, sampled", graph, config, ("eager", "captured"))
            release()


class Taker:
    """Stands in for pytest-benchmark's fixture: keeps the call that a benchmark would time."""

    def __init__(self, taken: dict[str, Callable[[], object]], name: str) -> None:
        self.taken, self.name, self.group = taken, name, ""

    def __call__(self, call: Callable[[], object]) -> None:
        self.taken[self.name] = call


# --- Small cases -----------------------------------------------------------------------------------------------------


def small_calls() -> dict[str, Callable[[], object]]:
    """Every operation, value and gradients, on a graph with a hub and widths that fill no block; by name."""
    nodes, features, width = 300, 48, 24
    base = cases.random_graph(nodes, degree=6, features=features)
    star = scipy.sparse.coo_matrix((np.ones(nodes), (np.zeros(nodes, dtype=int), np.arange(nodes))), (nodes, nodes))
    graph = sf.Graph(base.adjacency.to_scipy() + star + star.T, base.features.to_scipy()).to(DEVICE)
    adjacency, propagation, words = graph.adjacency, graph.propagation, graph.features
    ops = sf.ops

    def with_leaves(function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> Callable[[], object]:
        leaves = [normal(*shape, scale=0.3).requires_grad_() for shape in shapes]
        return lambda: torch.autograd.grad(function(*leaves).sum(), leaves)

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
    return calls


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


# --- From the command line -------------------------------------------------------------------------------------------


def describe() -> int:
    """What there is to run on."""
    found: dict[str, object] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    found["triton"] = found["card"] = None
    if importlib.util.find_spec("triton"):
        found["triton"] = importlib.metadata.version("triton")
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        found |= {
            "card": card.name,
            "capability": f"{card.major}{card.minor}",
            "memory GiB": round(card.total_memory / GIB, 1),
            "multiprocessors": card.multi_processor_count,
            "torch's CUDA": torch.version.cuda,
        }
    found["seegera_fast"] = sf.__version__
    found["siglip-kernel"] = importlib.util.find_spec("siglip_kernel") is not None
    table = sf.backends.info()
    found["backends"] = {name: entry["reason"] or "available" for name, entry in table.items()}
    found["operations"] = {name: entry["operations"] for name, entry in table.items() if name in ("cuda", "triton")}
    print(json.dumps(found))
    return 0


def run_sections(plan_file: str) -> int:
    """Runs what the plan names, each until its time is up. Status 1: the device is lost, a new process is needed."""
    plan = json.loads(Path(plan_file).read_text())
    sections = Sections(plan["prepared"])
    for entry in plan["sections"]:
        seconds = min(entry["seconds"], plan["end"] - time.time())
        if seconds < entry["least"]:
            continue
        record = Record(Path(entry["file"]), seconds)
        try:
            sections.all()[entry["name"]](record)
            record.finish()
        except Exception as error:
            record.finish(error)
            if device_is_lost(error):
                return 1
        release()
    return 0


def prepare(file: str) -> int:
    """Keeps the largest graph, which takes the host some 20 seconds."""
    graph = cases.random_graph(LARGEST, degree=20, features=256)
    aside = Path(f"{file}.part")
    aside.write_bytes(pickle.dumps(graph, protocol=5))
    aside.replace(file)
    return 0


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--dry-run"]
    return {"describe": describe, "sections": run_sections, "prepare": prepare, "small": small}[words[0]](*words[1:])


if __name__ == "__main__":
    sys.exit(main())
