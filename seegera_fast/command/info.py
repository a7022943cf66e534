"""``seegera-fast info``: says what this installation can do."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from .. import backends
from ..environment import machine, versions
from ..graph import Graph
from ..support.hints import one_line
from .options import Parser, read_path, sizes


def add_info(commands: Any) -> Parser:
    """Adds and returns the command's parser."""
    info = commands.add_parser(
        "info",
        help="versions, devices and backends: what is available, and why the rest is not",
        description="Says what this installation can do.",
    )
    info.add_argument("--json", action="store_true", help="machine-readable")
    info.add_argument(
        "--graph", type=read_path, metavar="FOLDER", help="read and check all files of a graph's folder instead"
    )
    info.set_defaults(run=_info, debug=False)
    return info


def _info(options: argparse.Namespace) -> int:
    if options.graph is not None:
        graph = Graph.open(options.graph, verify=True)
        facts = {"nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}
        said = one_line(f"{options.graph}: {sizes(graph)}; all files are as they were written")
        print(json.dumps({"name": graph.name, **facts}) if options.json else said)
        return 0
    content = {"versions": versions(), "machine": machine(), "backends": backends.info()}
    if options.json:
        print(json.dumps(content, indent=1))
        return 0
    facts = [[key, value] for key, value in content["versions"].items()]
    here = content["machine"]
    facts += [
        ["system", here["system"]],
        ["device", here["device"] + (f" ({here['gpu']})" if here["gpu"] else " (torch sees no NVIDIA GPU)")],
        ["CUDA of torch", here["cuda"] or "none: a CPU build"],
        ["CPU instruction set", here["instruction_set"] or "none: the cpu library is not there"],
        ["threads", str(here["threads"])],
        ["fast precisions", f"{', '.join(here['fast_precisions'])} (in use: {here['precision']})"],
    ]
    width = max(len(key) for key, _ in facts)
    print("\n".join(f"{key.ljust(width)}  {value}" for key, value in facts))
    print()
    for name, backend in content["backends"].items():
        text = "available" if backend["available"] else f"not available: {backend['reason']}"
        print(f"{name.ljust(width)}  {text}")
        kernels = f"kernels: {', '.join(backend['operations']) or 'none'}"
        print(textwrap.fill(kernels, 100, initial_indent=" " * (width + 2), subsequent_indent=" " * (width + 4)))
    return 0
