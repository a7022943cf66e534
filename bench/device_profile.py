"""Profiles the kernels of a training step with torch.profiler, for bench/device.py."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

from device_measure import DRY, Machine, Record, short_name, synchronize
from device_steps import configuration, cora, make_step
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

# The number of steps in the mean of a profile, and the number of kernels that it lists.
STEPS = 1 if DRY else 5
LISTED = 25


def kernels_of(step: Callable[[], float]) -> dict[str, tuple[float, float]]:
    """Calls and microseconds in one step, by kernel, the longest first. A rehearsal lists torch's operators instead."""
    activity, device = (ProfilerActivity.CPU, DeviceType.CPU) if DRY else (ProfilerActivity.CUDA, DeviceType.CUDA)
    with profile(activities=[activity]) as profiler:
        for _ in range(STEPS):
            step()
        synchronize()
    found: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for entry in profiler.key_averages():
        if entry.device_type != device or entry.is_user_annotation:
            continue
        calls, microseconds = found[short_name(entry.key)]
        spent = entry.self_cpu_time_total if DRY else entry.self_device_time_total
        found[short_name(entry.key)] = calls + entry.count / STEPS, microseconds + spent / STEPS
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))


def profile_cora(record: Record, machine: Machine) -> None:
    # torch's advice for CUDA graphs: CUPTI crashes if it is torn down and started again.
    os.environ |= {"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"}
    name, graph = cora(record)
    for kind in ("eager",) if DRY else ("captured", "eager"):
        with record.part(kind):
            step = make_step(kind, graph, configuration("cora"))
            times = []
            for _ in range(2 if DRY else 13):
                synchronize()
                start = time.perf_counter()
                step()
                times.append(time.perf_counter() - start)
            # The first two steps compile kernels. The steps under the profiler are not timed, because it slows them.
            wall = 1e6 * statistics.median(times[-1:] if DRY else times[2:])
            kernels = kernels_of(step)
            if not kernels:
                raise RuntimeError("the profiler saw no kernel")
            work = f"step, {name}, {kind}"
            total = sum(microseconds for _, microseconds in kernels.values())
            record.row(work, "us, wall", wall)
            record.row(work, f"us, all {sum(calls for calls, _ in kernels.values()):g} kernels", total)
            record.row(work, "of the wall time, all kernels", total / wall)
            for kernel, (calls, microseconds) in list(kernels.items())[:LISTED]:
                record.row(f"{kind}: {kernel}", f"us in {calls:g} calls", microseconds)
            del step
