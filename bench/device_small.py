"""Every operation, small: what bench/device.py runs under compute-sanitizer."""

from __future__ import annotations

import torch
from device_measure import DEVICE, backends_of, synchronize
from operations import Size, find, words

import seegera_fast as sf

# A graph with a hub, and widths that fill no block.
SMALL = Size(nodes=300, features=48, width=24, degree=6, hub=True)
# More rows than a group of the chunked links and a share of the scans have, more features than a chunk of outputs,
# more links of a node than a program of the links takes.
LARGER = Size(nodes=4200, features=2100, width=24, degree=2, hub=True)


def small() -> int:
    """Runs each case in each column that is there, a line before each, so that the last line names what stopped."""
    found = find().values()
    chosen = [(benchmark, SMALL, case) for benchmark in found for case in benchmark.small or [benchmark.first]]
    chosen += [(benchmark, LARGER, case) for benchmark in found for case in benchmark.larger]
    with torch.device(DEVICE):
        for benchmark, size, case in chosen:
            if DEVICE == "cpu" and case.get("dtype") in (torch.float16, torch.bfloat16):
                # Half precision is for the Triton kernels alone.
                continue
            call = benchmark.calls(size, case)["seegera_fast"]
            for backend in backends_of(benchmark.name) or ["reference"]:
                name = ", ".join(filter(None, (benchmark.name, words(case), f"{size.nodes} nodes", backend)))
                print(f"small: {name}", flush=True)
                with sf.use_backend(backend):
                    call()
                synchronize()
    print("small: all done", flush=True)
    return 0
