"""Small cases of every operation, which bench/device.py runs under compute-sanitizer."""

from __future__ import annotations

import torch
from device_measure import DEVICE, backends_of, synchronize
from operations import Size, find, words

import seegera_fast as sf

# A graph with a hub, and widths that fill no block.
SMALL = Size(nodes=300, features=48, width=24, degree=6, hub=True)
# More rows than a group of the chunked links or a share of the scans, more features than a chunk of outputs, and more
# links of a node than one program of the links takes.
LARGER = Size(nodes=4200, features=2100, width=24, degree=2, hub=True)


def small() -> int:
    """Runs each case on each available backend. A line is printed before each, so that the last one names a crash."""
    found = find().values()
    chosen = [(benchmark, SMALL, case) for benchmark in found for case in benchmark.small or [benchmark.first]]
    chosen += [(benchmark, LARGER, case) for benchmark in found for case in benchmark.larger]
    with torch.device(DEVICE):
        for benchmark, size, case in chosen:
            if DEVICE == "cpu" and case.get("dtype") in (torch.float16, torch.bfloat16):
                # Only the Triton kernels take half precision.
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
