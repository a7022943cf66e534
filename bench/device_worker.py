"""The work that bench/device.py runs in separate processes.

    python bench/device_worker.py describe              prints card, versions and backends as a line of JSON
    python bench/device_worker.py sections PLAN         runs the sections of a JSON file; each writes a file
    python bench/device_worker.py prepare FILE          makes the largest graph and writes it to a file
    python bench/device_worker.py small                 runs small cases of every operation, for compute-sanitizer

``--dry-run`` before the command runs it on the CPU, with tiny sizes, timed by perf_counter.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import pkgutil
import platform
import sys
import time
from pathlib import Path

import device_million
import device_small
import numpy as np
import torch
from device_measure import GIB, Machine, Record, device_is_lost, release

import seegera_fast as sf


def describe() -> int:
    """Prints what the machine has."""
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
    """Runs the sections of the plan, each until its time is up.

    Returns:
        1 if the other sections need a new process, because the device is lost or a profiler's hooks slow launches;
        else 0.
    """
    plan = json.loads(Path(plan_file).read_text())
    machine = Machine(Path(plan["prepared"]))
    for entry in plan["sections"]:
        seconds = min(entry["seconds"], plan["end"] - time.time())
        if seconds < entry["least"]:
            continue
        record = Record(Path(entry["file"]), seconds)
        try:
            pkgutil.resolve_name(entry["function"])(record, machine)
        except Exception as error:
            record.fail(error)
            record.finish()
            if device_is_lost(error):
                return 1
        record.finish()
        if entry["hooks"]:
            return 1
        release()
    return 0


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--dry-run"]
    parts = {
        "describe": describe,
        "sections": run_sections,
        "prepare": device_million.prepare,
        "small": device_small.small,
    }
    if not words or words[0] not in parts:
        print(__doc__)
        return 0 if {"-h", "--help"} & set(words) else 2
    return parts[words[0]](*words[1:])


if __name__ == "__main__":
    sys.exit(main())
