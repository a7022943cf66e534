"""Single operations, for bench/device.py: against their floors, plain PyTorch, cuSPARSE and siglip-kernel."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import math
from collections.abc import Callable

import floors
import numpy as np
import scipy.sparse
import steps
import torch
from device_measure import DEVICE, DRY, GIB, PRODUCTS, Machine, Record, backends_of, float32_products, normal, peak_of
from device_plan import BARS
from device_steps import data_set
from operations import Benchmark, Size, check_same_numbers, csr, find

import seegera_fast as sf

# The sizes for the benchmarks of all operations, large enough to fill a card.
SIZE = Size(nodes=60, features=40, width=16) if DRY else Size(nodes=16_384, features=1433, width=512)


def rectangular(rows: int, cols: int, degree: int) -> sf.SparseMatrix:
    """A random matrix with a fixed number of entries per row."""
    generator = np.random.default_rng(0)
    entries = (np.repeat(np.arange(rows), degree), generator.integers(0, cols, rows * degree))
    return sf.SparseMatrix.from_any(scipy.sparse.csr_matrix((np.ones(rows * degree), entries), (rows, cols)))


def rates(record: Record, machine: Machine) -> None:
    record.row("copy", "TB/s read and written", machine.rate("copy") / 1e12)
    for kind in PRODUCTS:
        record.row(f"product, {kind}", "TFLOP/s", machine.rate(kind) / 1e12)


def sparse_matmul(record: Record, machine: Machine) -> None:
    rows = 300 if DRY else 200_000
    matrices = {f"random {rows:,} x 15": rectangular(rows, rows, 15).to(DEVICE)}
    for name in () if DRY else ("cora", "physics"):
        graph = data_set(record, name)
        if graph is not None:
            matrices[f"{name} propagation"] = graph.propagation
            matrices[f"{name} features"] = graph.features
            matrices[f"{name} features, transposed"] = graph.features.transposed
    backends = backends_of("sparse_matmul")
    if not backends:
        raise RuntimeError("no kernel for sparse_matmul on this device")
    for name, matrix in matrices.items():
        with record.part(name):
            sparse_products(record, machine, name, matrix, backends)


def sparse_products(record: Record, machine: Machine, name: str, matrix: sf.SparseMatrix, backends: list[str]) -> None:
    plain = csr(matrix)
    worst: dict[str, tuple[float, int]] = {}
    for width in (8,) if DRY else (64, 128, 256, 512, 1024):
        dense = normal(matrix.shape[1], width)
        calls = {"cuSPARSE": lambda dense=dense: plain @ dense}
        want = calls["cuSPARSE"]()
        for backend in backends:

            def ours(backend=backend, dense=dense):
                with sf.use_backend(backend):
                    return sf.ops.sparse_matmul(matrix, dense)

            calls[backend] = ours
            torch.testing.assert_close(ours(), want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))
        seconds = machine.clock.seconds(calls, 0.3)
        floor = machine.floor(floors.sparse_matmul(matrix.nnz, *matrix.shape, width, with_gradients=False))
        for backend in backends:
            ratio = seconds["cuSPARSE"] / seconds[backend]
            worst[backend] = min(worst.get(backend, (math.inf, 0)), (ratio, width))
            record.row(f"{name}, width {width}", f"us, {backend}", 1e6 * seconds[backend])
            record.row(f"{name}, width {width}", f"times its floor, {backend}", seconds[backend] / floor)
        record.row(f"{name}, width {width}", "us, cuSPARSE", 1e6 * seconds["cuSPARSE"])
    for backend, (ratio, width) in worst.items():
        figure = f"times faster than cuSPARSE, {backend}, width {width} (its worst)"
        record.row(name, figure, ratio, BARS["sparse_matmul"] if backend == backends[0] else None)


def link_likelihood(record: Record, machine: Machine) -> None:
    graph = None if DRY else data_set(record, "physics")
    if graph is None:
        nodes = 48 if DRY else 34_493
        graph = steps.random_graph(nodes, degree=14, features=32).to(DEVICE)
        record.note("a random graph of Physics's number of nodes: all pairs cost the same")
    for width in (16,) if DRY else (512, 256, 128, 64):
        for product in PRODUCTS:
            name = f"all pairs, {graph.num_nodes:,} nodes, d = {width}, {product}"
            if width != 512 and record.left() < 5 and not DRY:
                record.note(f"{name}: no time left")
                continue
            with record.part(name):
                all_pairs(record, machine, name, graph.adjacency, width, product)


def all_pairs(
    record: Record, machine: Machine, name: str, adjacency: sf.SparseMatrix, width: int, product: str
) -> None:
    dtype, how = PRODUCTS[product]
    nodes, main = adjacency.shape[0], DRY or width == 512
    z = normal(nodes, 1, width, dtype=dtype, scale=width**-0.25).requires_grad_()
    # On the CPU only the interpreted kernels take float16 and bfloat16.
    backend = "triton" if DRY and sf.backends.info()["triton"]["available"] else None

    def call():
        with sf.use_backend(backend) if backend else contextlib.nullcontext():
            return torch.autograd.grad(sf.ops.link_likelihood(z, adjacency, pos_weight=10.0).sum(), z)

    with float32_products(how):
        call()
        peak = peak_of(call)
        seconds = machine.clock.seconds({"default": call, **link_forms(z, adjacency)}, 0.3)
    for form, value in seconds.items():
        achieved = floors.link_likelihood(nodes, width).operations / value / machine.rate(product)
        own_bar = BARS["link rate"] if main and form == "default" else None
        record.row(name, f"of the product rate, {form}", achieved, own_bar)
        record.row(name, f"ms, {form}", 1000 * value)
    record.row(name, "times 4 n d bytes, peak", peak / (4 * nodes * width), BARS["link memory"] if main else None)


def link_forms(z: torch.Tensor, adjacency: sf.SparseMatrix) -> dict[str, Callable[[], object]]:
    """Calls of the Triton kernels for all pairs that can take these rows, for value and gradient."""
    table = sf.backends.info()["triton"]
    if not table["available"] or "link_likelihood" not in table["operations"]:
        return {}
    module = importlib.import_module("seegera_fast.kernels.triton.link_likelihood")
    gaps = adjacency.col.new_empty(0)
    weight = torch.full((1,), 10.0, dtype=torch.float64, device=DEVICE)
    seed = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    z = z.detach()

    def call(form: str) -> object:
        return module.run(z, adjacency.rowptr, adjacency.col, gaps, weight, seed, True, 0, True, form)

    return {form: functools.partial(call, form) for form in module.usable_forms(z)}


def siglip(record: Record, machine: Machine) -> None:
    if DRY:
        record.note("needs a GPU: not rehearsed")
        return
    nodes, width = 65_536, 768
    adjacency = steps.random_graph(nodes, degree=10, features=32).to(DEVICE).adjacency
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
    seconds = machine.clock.seconds(calls, 3)
    for kind in calls:
        record.row(name, f"ms, {kind}", 1000 * seconds[kind])
        record.row(name, f"GiB, {kind}", peaks[kind] / GIB)
    achieved = floors.link_likelihood(nodes, width).operations / seconds["ours"] / machine.rate("bf16")
    record.row(name, "of the product rate, ours", achieved)
    if "siglip-kernel" in calls:
        ratio = seconds["siglip-kernel"] / seconds["ours"]
        record.row(name, "times faster than siglip-kernel", ratio, BARS["siglip time"])
        record.row(name, "of siglip-kernel's memory", peaks["ours"] / peaks["siglip-kernel"], BARS["siglip memory"])


def operations(record: Record, machine: Machine) -> None:
    """Times the first case of every operation's benchmark, on each backend, those with the most work first."""
    # The default device is set because the plain forms make tensors without naming a device.
    with torch.device(DEVICE):
        found = []
        for benchmark in find().values():
            work = benchmark.work(SIZE, benchmark.first)
            found.append((0.0 if work is None else machine.floor(work), benchmark))
        for floor, benchmark in sorted(found, key=lambda pair: pair[0], reverse=True):
            if record.left() < 5:
                record.note(f"{benchmark.name}: no time left")
                continue
            with record.part(benchmark.name):
                run_operation(record, machine, benchmark, floor)


def run_operation(record: Record, machine: Machine, benchmark: Benchmark, floor: float) -> None:
    """Times the backends and the plain form, after comparing their numbers.

    Args:
        floor: seconds of the floor; 0: not known.
    """
    operation, made = benchmark.name, benchmark.calls(SIZE, benchmark.first)
    calls = {"torch": made["torch"]}
    for backend in backends_of(operation):

        def forced(backend=backend):
            with sf.use_backend(backend):
                return made["seegera_fast"]()

        check_same_numbers(made | {"seegera_fast": forced})
        calls[backend] = forced
    if not calls.keys() - {"torch"}:
        record.note(f"{operation}: no kernel for {DEVICE}")
    seconds = machine.clock.seconds(calls, 0.3)
    for name, value in seconds.items():
        record.row(operation, f"us, {name}", 1e6 * value)
        if name != "torch":
            record.row(operation, f"times faster than plain PyTorch, {name}", seconds["torch"] / value)
            if floor:
                record.row(operation, f"times its floor, {name}", value / floor)
