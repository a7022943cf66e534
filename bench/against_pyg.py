"""``link_likelihood`` against the losses of PyTorch Geometric's VGAE: time and memory of the value and its gradient.

    python bench/against_pyg.py                                # Cora, Computers and Physics, d = 64 and 512
    python bench/against_pyg.py --data cora --width 64         # a minute

Compares four losses of the embeddings ``z [n, d]`` of a graph. The two losses over all pairs are the same function, and
the script ends with an error if their numbers differ.

    PyG, sampled      VGAE.recon_loss(z, edge_index), which draws as many non-edges as there are edges
    PyG, all pairs    binary cross entropy of InnerProductDecoder.forward_all, n x n
    ours, sampled     link_likelihood with as many drawn non-edges
    ours, all pairs   link_likelihood

Times are medians of calls that are made in turn in one process. They are wall time, or with --clock cpu the CPU time of
all threads, for a machine that does other work too. Memory is the peak above the memory before the call, measured in a
separate process. It includes what a loss stores, such as the dense adjacency of the second one. A loss is left out if
its memory on the previous graph, scaled by n², is more than the machine has.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from steps import load, medians, peak_of
from torch.nn.functional import binary_cross_entropy_with_logits

import seegera_fast as sf

GIB = 1 << 30
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def edge_index_of(graph: sf.Graph) -> torch.Tensor:
    """int64 ``[2, E]``: each edge in both directions, as in the data sets of PyTorch Geometric."""
    return torch.stack([graph.adjacency.row, graph.adjacency.col])


def pyg_sampled(z: torch.Tensor, edge_index: torch.Tensor) -> Callable[[], torch.Tensor]:
    from torch_geometric.nn import VGAE

    model = VGAE(torch.nn.Identity())
    return lambda: model.recon_loss(z, edge_index)


def pyg_all_pairs(z: torch.Tensor, edge_index: torch.Tensor) -> Callable[[], torch.Tensor]:
    from torch_geometric.nn import VGAE

    model, n = VGAE(torch.nn.Identity()), z.shape[0]
    target = torch.eye(n).index_put_(tuple(edge_index), torch.ones(()))
    weight = torch.tensor(_weight(n, edge_index))
    return lambda: binary_cross_entropy_with_logits(
        model.decoder.forward_all(z, sigmoid=False), target, pos_weight=weight
    )


def ours_sampled(z: torch.Tensor, edge_index: torch.Tensor) -> Callable[[], torch.Tensor]:
    return _ours(z, edge_index, edge_index.shape[1])


def ours_all_pairs(z: torch.Tensor, edge_index: torch.Tensor) -> Callable[[], torch.Tensor]:
    return _ours(z, edge_index, "all")


def _ours(z: torch.Tensor, edge_index: torch.Tensor, negatives: int | str) -> Callable[[], torch.Tensor]:
    adjacency, weight = sf.SparseMatrix.from_edge_index(edge_index, z.shape[0]), _weight(z.shape[0], edge_index)
    options = {"pos_weight": weight, "negatives": negatives, "reduction": "mean"}
    return lambda: -sf.ops.link_likelihood(z[:, None], adjacency, **options).sum()


def _weight(n: int, edge_index: torch.Tensor) -> float:
    """The number of pairs without a link, divided by the number of pairs with a link."""
    return (n * n - edge_index.shape[1]) / edge_index.shape[1]


FORMS = {
    "PyG, sampled": pyg_sampled,
    "PyG, all pairs": pyg_all_pairs,
    "ours, sampled": ours_sampled,
    "ours, all pairs": ours_all_pairs,
}


def call(form: str, edge_index: torch.Tensor, n: int, width: int) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
    """A call that computes the value of a loss and its gradient in z. Scores have a standard deviation of about 1."""
    generator = torch.Generator().manual_seed(0)
    z = (torch.randn(n, width, generator=generator) * width**-0.25).requires_grad_()
    value = FORMS[form](z, edge_index)

    def value_and_gradient() -> tuple[torch.Tensor, torch.Tensor]:
        loss = value()
        return loss.detach(), torch.autograd.grad(loss, z)[0]

    return value_and_gradient


def measure_memory(form: str, data: str, width: int) -> int:
    """The peak memory of a call in a new process, in bytes above the start. A small call before it loads libraries."""
    code = (
        "from against_pyg import call, edge_index_of, trim\n"
        "pairs = torch.tensor([[0, 1], [1, 0]])\n"
        f"call({form!r}, pairs, 5, 4)()\n"
        f"graph = load({data!r})\n"
        "edge_index, n = edge_index_of(graph), graph.num_nodes\n"
        "trim()\n"
        f"measure(lambda: call({form!r}, edge_index, n, {width})())\n"
    )
    return int(peak_of(code)["above"])


def trim() -> None:
    """Returns freed memory to the system, with glibc. Otherwise a call that reuses it would seem to need no memory."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def check_equal(calls: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]]) -> None:
    """Raises an AssertionError if the two losses over all pairs differ in value or gradient."""
    if {"PyG, all pairs", "ours, all pairs"} <= calls.keys():
        for got, want in zip(calls["ours, all pairs"](), calls["PyG, all pairs"](), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))


def available_memory() -> int:
    """The bytes that a new process can use without swapping; all memory if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def measure_all(data: list[str], widths: list[int], rounds: int, clock: str, limit: int) -> list[dict[str, object]]:
    """A record for each graph, width and loss: seconds and bytes, or the bytes that it would need."""
    records: list[dict[str, object]] = []
    graphs = sorted((load(name) for name in data), key=lambda graph: graph.num_nodes)
    for width in widths:
        per_pair: dict[str, float] = {}
        for graph in graphs:
            n, edge_index = graph.num_nodes, edge_index_of(graph)
            row = {"data": graph.name, "nodes": n, "edges": graph.num_edges, "width": width}
            needed = {form: int(per_pair.get(form, 0) * n * n) for form in FORMS if "PyG, all" in form}
            forms = [form for form in FORMS if needed.get(form, 0) < limit]
            memory = {form: measure_memory(form, graph.name, width) for form in forms}
            calls = {form: call(form, edge_index, n, width) for form in forms}
            check_equal(calls)
            seconds = medians(calls, rounds, CLOCKS[clock])
            per_pair |= {form: memory[form] / n**2 for form in forms}
            records += [{**row, "form": form, "seconds": seconds[form], "bytes": memory[form]} for form in forms]
            records += [{**row, "form": form, "needed": size} for form, size in needed.items() if form not in forms]
            print(table(records[-len(FORMS) :]), flush=True)
    return records


def table(records: list[dict[str, object]]) -> str:
    """The records as a Markdown table."""
    lines = ["| graph | nodes | d | loss | seconds | memory |", "| --- | --- | --- | --- | --- | --- |"]
    for record in records:
        taken = record.get("bytes", record.get("needed"))
        size = f"{taken / GIB:.2f} GiB" if taken >= GIB / 10 else f"{taken / (1 << 20):.0f} MiB"
        figures = f"{record['seconds']:.3g} | {size}" if "bytes" in record else f"not run | would take {size}"
        lines.append(f"| {record['data']} | {record['nodes']:,} | {record['width']} | {record['form']} | {figures} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    description, _, epilog = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["cora", "computers", "physics"], help="data sets by name")
    parser.add_argument("--width", nargs="+", type=int, default=[64, 512], help="widths d of the embeddings")
    parser.add_argument("--rounds", type=int, default=5, help="calls of each form that are counted")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="which seconds are counted")
    parser.add_argument("--memory", type=float, help="GiB that a form may take; by default what is free")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    options = parser.parse_args(arguments)
    limit = available_memory() if options.memory is None else int(options.memory * GIB)
    load_before = os.getloadavg()[0]
    records = measure_all(options.data, options.width, options.rounds, options.clock, limit)
    print(table(records))
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        where = {
            "threads": torch.get_num_threads(),
            "clock": options.clock,
            "load before": round(load_before, 2),
            "torch": torch.__version__,
            "instruction set": sf.backends.instruction_set(),
        }
        options.out.write_text(json.dumps({"machine": where, "records": records}, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
