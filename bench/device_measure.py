"""The measurements of bench/device.py: device seconds with a cold cache, memory, and the rates of the machine."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import floors
import reporter
import torch

import seegera_fast as sf

DRY = "--dry-run" in sys.argv
DEVICE = "cpu" if DRY else "cuda"
# The largest length of a kernel's name in a report.
LETTERS = 80
GIB = 2**30

# Products by name: the dtype of the operands, and the precision of float32 products.
PRODUCTS = {
    "ieee": (torch.float32, "ieee"),
    "tf32": (torch.float32, "tf32"),
    "bf16": (torch.bfloat16, "ieee"),
    "fp16": (torch.float16, "ieee"),
}
OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)


class Record(reporter.Record):
    """The results of a section, written to a file after each piece."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(lambda content: reporter.write(path, json.dumps(content)), seconds)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A piece of a section. If it fails, the other pieces still run, and the section fails at its end."""
        try:
            yield
        except OUT_OF_MEMORY:
            self.note(f"{name}: out of memory")
        except Exception as error:
            self.note(f"{name}: {type(error).__name__}: {str(error)[:500]}")
            self.fail(error)
            if device_is_lost(error):
                raise
        release()


def device_is_lost(error: BaseException) -> bool:
    """Whether this process can't use the device any more, for instance after an illegal access."""
    return "CUDA error" in str(error)


def synchronize() -> None:
    if not DRY:
        torch.cuda.synchronize()


class Clock:
    """Measures the device seconds of calls, with events and a cold cache."""

    def __init__(self) -> None:
        # Written between calls, so that no input is in the L2 cache, whose size is about 50 MB.
        self.flush = torch.empty(2**20 if DRY else 2**28, dtype=torch.uint8, device=DEVICE)

    def seconds(self, calls: dict[str, Callable[[], object]], budget: float = 1.0) -> dict[str, float]:
        """Median seconds of calls in turn (A B A B), after two rounds that don't count, within ``budget`` seconds."""
        ahead = {}
        for name, call in calls.items():
            call()
            synchronize()
            start = time.perf_counter()
            call()
            # The time that the host takes to launch the work.
            ahead[name] = time.perf_counter() - start
            synchronize()
        times: dict[str, list[float]] = {name: [] for name in calls}
        end = time.monotonic() + budget
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
        # The card sleeps while the host launches the work, so that gaps between launches are not counted.
        torch.cuda._sleep(int(2e9 * min(2 * ahead, 0.05)))
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000


def peak_of(call: Callable[[], object]) -> float:
    """The peak memory of the device during a call, in bytes above the start; 0 in a rehearsal."""
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
    """In the block, float32 products of torch and of the library have the precision "ieee" or "tf32"."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = how
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def normal(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    """Normal random numbers, made on the device."""
    return (torch.randn(shape, device=DEVICE) * scale).to(dtype)


def backends_of(operation: str) -> list[str]:
    """The backends that run an operation on this device; the first is the default."""
    table = sf.backends.info()
    names = ("cpu", "reference") if DRY else ("cuda", "triton")
    found = [name for name in names if table[name]["available"] and operation in table[name]["operations"]]
    return found[:1] if DRY else found


class Machine:
    """A clock, and the rates of the device that it measures.

    Args:
        prepared: the file of the largest graph.
    """

    def __init__(self, prepared: Path) -> None:
        self.clock, self.prepared = Clock(), prepared
        self.measured_rates: dict[str, float] = {}

    def rate(self, kind: str) -> float:
        """Operations per second of a kind of product, or bytes per second of "copy"; measured once in a process."""
        if kind not in self.measured_rates:
            dtype, how = PRODUCTS.get(kind, (torch.float32, "ieee"))
            # 8,192 x 8,192 matrices, and 2 GB copied. Both fill the card, and neither fits into its cache.
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


def short_name(name: str) -> str:
    """A kernel's name without return type, namespaces and parameters, cut to LETTERS."""
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for index, letter in enumerate(name):
        depth += (letter in "<{") - (letter in ">}")
        if letter == "(" and depth == 0:
            name = name[:index]
            break
    name = re.sub(r"\b(?:[a-z_]\w*::)+", "", name).strip()
    return name if len(name) <= LETTERS else name[: LETTERS - 3] + "..."
