"""The plan of bench/device.py: what it measures on a GPU, the time for each section, and the bars."""

from __future__ import annotations

from typing import NamedTuple

from reporter import Bar

# The bars, by the names that the sections use.
BARS = {
    "step": Bar("training step, Cora v3 preset, captured", "times faster than dense", ">=", 20),
    "link rate": Bar("link_likelihood, all pairs, Physics, d = 512", "of the product rate", ">=", 0.6),
    "link memory": Bar("link_likelihood, all pairs, Physics, d = 512", "times 4 n d bytes", "<=", 8),
    "siglip time": Bar("link_likelihood, n = 65,536, d = 768, bf16", "times faster than siglip-kernel", ">=", 1),
    "siglip memory": Bar("link_likelihood, n = 65,536, d = 768, bf16", "of siglip-kernel's memory", "<=", 1),
    "million memory": Bar("sampled step, 1 million nodes, d = 256", "GiB", "<=", 40),
    "million rate": Bar("memory-bound operations, 1 million nodes", "of the copy rate", ">=", 0.7),
    "sparse_matmul": Bar("sparse_matmul, widths 64 to 1,024", "times faster than cuSPARSE", ">=", 1),
}


class Section(NamedTuple):
    """A section of the benchmarks. Its times are for a run of 8 minutes.

    Attributes:
        function: its module and function, which is called with a Record and a Machine of device_measure.py.
        hooks: whether it makes later launches in its process slower.
    """

    name: str
    function: str
    seconds: float
    least: float
    hooks: bool = False


# The sections, the most important first.
SECTIONS = (
    Section("rates", "device_operations.rates", 20, 3),
    Section("step, cora", "device_steps.step_cora", 90, 15),
    Section("profile", "device_profile.profile_cora", 20, 8, hooks=True),
    Section("sparse_matmul", "device_operations.sparse_matmul", 40, 8),
    Section("link_likelihood", "device_operations.link_likelihood", 40, 10),
    Section("siglip-kernel", "device_operations.siglip", 30, 8),
    Section("one million nodes", "device_million.million", 60, 20),
    Section("operations", "device_operations.operations", 70, 15),
    Section("steps, data sets", "device_steps.data_sets", 50, 15),
    Section("step, compiled", "device_steps.compiled", 75, 25),
    Section("growth", "device_steps.growth", 30, 10),
)
