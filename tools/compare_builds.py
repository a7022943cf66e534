"""Compares two builds of the package: the bits of every operation, and loss and gradients of 64 configurations.

    python tools/compare_builds.py OLD NEW

OLD and NEW are checkouts with their libraries built in place. Each runs in a separate process. The values and gradients
of an operation must have the same bits, on the CPU kernels and, if Triton is installed, on Triton's interpreter. The
losses, in float64, may have a relative difference of 1e-12, and their gradients one of 1e-10. The exit status is 1 if
something differs more. An operation that OLD does not have is listed and not compared.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-12, 1e-10


def normal(*shape: int, seed: int = 0) -> Any:
    import torch

    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_graph(num_nodes: int, num_features: int, share: float, dtype: Any) -> Any:
    """A random graph with a hub, a node without edges, and features with negative values, an empty row and column."""
    import numpy as np

    import seegera_fast as sf

    generator = np.random.default_rng(num_nodes)
    pairs = generator.integers(0, num_nodes - 1, (2, 3 * num_nodes))
    hub = np.stack([np.zeros(num_nodes // 2, int), np.arange(num_nodes // 2)])
    edges = np.concatenate([pairs, hub], axis=1)
    features = generator.random((num_nodes, num_features)) * (generator.random((num_nodes, num_features)) < share)
    features[1], features[:, 2] = 0, 0
    both = np.concatenate([edges, edges[::-1]], axis=1)
    return sf.Graph.from_edge_index(both, features, num_nodes, dtype=dtype)


def calls(graph: Any) -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """Yields (operation, arguments, names of the arguments with a gradient) for several sizes and options."""
    import torch

    n, l = graph.num_nodes, graph.num_features
    x, a = graph.features, graph.propagation
    nodes = torch.arange(n - 1, 0, -3)
    for width, draws in ((1, 1), (7, 3), (33, 2)):
        h, z = normal(n, draws, width), 0.3 * normal(n, draws, width, seed=1)
        zf = 0.3 * normal(l, draws, width, seed=2)
        yield "sparse_matmul", {"matrix": a, "dense": h}, ("dense",)
        yield "sparse_matmul", {"matrix": x, "dense": normal(l, width)}, ("dense",)
        for to, size in (("features", n), ("nodes", l)):
            yield "feature_average", {"features": x, "values": normal(size, draws, width), "to": to}, ("values",)
        for rate, activation, with_bias, matrix in itertools.product(
            (0.0, 0.4), ("relu", "tanh", "none"), (False, True), (a, None)
        ):
            drawn = {"dropout": rate, "seed": 5, "activation": activation, "bias": normal(9) if with_bias else None}
            leaves = ("weight", *(("bias",) if with_bias else ()))
            layer = {"propagation": matrix, "hidden": h, "weight": normal(width, 9, seed=3), **drawn}
            yield "gcn", layer, ("hidden", *leaves)
            noisy = {"weight": normal(l, 9, seed=3), "noise_weight": normal(4, 9, seed=4), "num_draws": draws}
            yield "noisy_gcn", {"propagation": matrix, "features": x, **noisy, **drawn}, (*leaves, "noise_weight")
        for rate, out in itertools.product((0.0, 0.4), (2, 40)):
            joined = {"z_nodes": z, "z_features": zf, "weight": normal(2 * width, out, seed=6)}
            yield (
                "decoder_input",
                {"features": x, **joined, "dropout": rate, "seed": 7},
                ("z_nodes", "z_features", "weight"),
            )
        for negatives, loops, reduction in (("all", True, "sum"), ("all", False, "mean"), (20, True, "sum")):
            options = {
                "negatives": negatives,
                "self_loops": loops,
                "reduction": reduction,
                "pos_weight": 2.5,
                "seed": 8,
            }
            yield "link_likelihood", {"z": z, "adjacency": graph.adjacency, "seed": 8, **options}, ("z",)
        for likelihood, per_sample in itertools.product(("bernoulli", "mse", "gaussian", "mse_relu"), (False, True)):
            size = (draws, width, l) if per_sample else (width, l)
            given = {"hidden": h, "weight": 0.3 * normal(*size, seed=3), "features": x, "likelihood": likelihood}
            leaves = ("hidden", "weight")
            if likelihood == "gaussian":
                given["log_var_weight"] = 0.2 * normal(width, l, seed=4)
                leaves = (*leaves, "log_var_weight")
            yield "feature_likelihood", given, leaves
        means = 0.3 * normal(n, draws + 2, width, seed=5)
        for variances in (1, draws + 2):
            mixture = {"z": z, "means": means, "log_var": 0.3 * normal(n, variances, width, seed=6)}
            yield "mixture_density", mixture, tuple(mixture)
            yield "component_log_density", mixture, tuple(mixture)
        for variances in (1, draws):
            sampled = {"mean": h, "log_var": 0.3 * normal(n, variances, width, seed=7), "seed": 9}
            yield "reparameterize", sampled, ("mean", "log_var")
        yield "dropout", {"values": h, "rate": 0.3, "seed": 10}, ("values",)
        yield "standard_normal_density", {"z": z}, ("z",)
        for options in ({"per_node": True}, {"per_node": False}, {"nodes": nodes}):
            yield "top_links", {"z": z[:, 0], "adjacency": graph.adjacency, "k": 5, **options}, ()
        terms = {name: normal(draws, seed=k) for k, name in enumerate(("log_likelihood", "log_prior", "log_mixture"))}
        yield "importance_bound", {**terms, "warmup": 0.3}, tuple(terms)
        yield "draw_noise", {"seed": 11, "num_rows": n, "num_draws": draws, "noise_dim": 5, "prob": 0.3}, ()
        yield "draw_subset", {"seed": 12, "count": 50 * width, "chosen": 20, "stream": "entries"}, ()
    looped, edge = graph.with_self_loops()
    yield "mask_edges", {"looped": looped, "edge": edge, "num_removed": graph.num_edges // 3, "seed": 13}, ()
    yield "mask_entries", {"matrix": x, "num_removed": x.nnz // 3, "seed": 14}, ()
    yield "add_self_loops", {"adjacency": graph.adjacency}, ()
    yield "select_rows", {"matrix": x, "rows": nodes}, ()
    for weighted in (True, False):
        yield "induced_subgraph", {"adjacency": a, "nodes": nodes, "weighted": weighted}, ()


def tensors_of(out: Any) -> list[Any]:
    """The tensors of what an operation returns: a tensor, a matrix, or several of both."""
    if isinstance(out, tuple):
        return [tensor for part in out for tensor in tensors_of(part)]
    return [out.rowptr, out.col, out.values] if hasattr(out, "rowptr") else [out]


def digest(tensors: list[Any]) -> str:
    """A digest of the bits of tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        total.update(tensor.detach().contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def run_operations(backend: str) -> dict[str, str | None]:
    """Name of a call -> digest of its value and gradients; None: the backend does not have the operation."""
    import torch

    import seegera_fast as sf

    found: dict[str, str | None] = {}
    sizes = [(40, 23, 0.2)] if backend == "triton" else [(40, 23, 0.2), (150, 130, 0.6)]
    for dtype, size in itertools.product((torch.float32, torch.float64), sizes):
        graph = make_graph(*size, dtype)
        for number, (operation, arguments, leaves) in enumerate(calls(graph)):
            call = f"{operation}, call {number}, {dtype}, {size[0]} nodes, {backend}"
            if operation not in sf.backends.info()[backend]["operations"]:
                found[call] = None
                continue
            given = {
                name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                for name, value in arguments.items()
            }
            given.update({name: given[name].detach().requires_grad_() for name in leaves})
            with sf.use_backend(backend):
                out = getattr(sf.ops, operation)(**given)
            tensors = tensors_of(out)
            if leaves:
                upstream = normal(*out.shape, seed=99).to(out.dtype)
                tensors += torch.autograd.grad(out, [given[name] for name in leaves], upstream)
            found[call] = digest(tensors)
    return found


def run_models() -> dict[str, dict[str, Any]]:
    """Configuration -> loss, and the gradients of all parameters."""
    import torch

    import seegera_fast as sf

    graph, found = make_graph(40, 23, 0.2, torch.float64), {}
    choices = {
        "variant": ("correlated", "independent"),
        "encoder": ("gcn", "mlp"),
        "likelihood": ("bernoulli", "mse", "gaussian", "mse_relu"),
        "mixture": ("per_node", "joint"),
        "scaling": ("mean", "sum"),
    }
    for number, values in enumerate(itertools.product(*choices.values())):
        fields = dict(zip(choices, values, strict=True))
        fields["decoder"] = ("gcn", "mlp", "inner_product")[number % (2 if fields["likelihood"] == "gaussian" else 3)]
        fields.update(
            embedding_dim=6,
            hidden_dim=7,
            encoder_layers=1 + number % 3,
            decoder_layers=1 + number // 2 % 3,
            noisy_variance=number % 4 == 1,
            num_importance_samples=1 + number % 3,
            num_mixture_samples=number % 4,
            dropout=(0.0, 0.3)[number // 3 % 2],
            structure_masking_rate=(0.0, 0.3)[number // 5 % 2],
            feature_masking_rate=(0.0, 0.2)[number // 7 % 2],
            negatives=("all", "edges")[number // 11 % 2],
        )
        model = sf.SeeGera(graph, seed=number, **fields)
        loss = model(graph, seed=100 + number, warmup=0.4).loss
        loss.backward()
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
        found[f"configuration {number}"] = {"loss": loss.item(), "gradient": flat.tolist()}
    return found


def collect(tree: Path, backend: str) -> dict[str, Any]:
    """The results of a checkout, computed in a new process; ``backend``: that of the operations, or "models"."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "TRITON_INTERPRET": "1" if backend == "triton" else "0"}
    command = [sys.executable, str(Path(__file__).resolve()), "--collect", backend]
    run = subprocess.run(command, env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)


def distance(old: list[float], new: list[float]) -> float:
    """The largest difference, divided by the largest magnitude of the old numbers."""
    largest = max(map(abs, old))
    return max(abs(a - b) for a, b in zip(old, new, strict=True)) / (largest or 1.0)


def compare(old: Path, new: Path, backends: list[str]) -> bool:
    """Prints what differs, and returns whether nothing does."""
    same = True
    for backend in backends:
        before, after = collect(old, backend), collect(new, backend)
        compared = [name for name in before if before[name] is not None]
        different = [name for name in compared if before[name] != after.get(name)]
        same = same and not different
        print(f"{backend}: {len(compared)} calls, {len(different)} with other bits")
        for operation in sorted(
            {name.partition(",")[0] for name in before.keys() - compared if after[name] is not None}
        ):
            print(f"  {operation}: OLD does not have it, not compared")
        for name in different:
            print(f"  {name}")
    before, after = collect(old, "models"), collect(new, "models")
    losses = {name: distance([before[name]["loss"]], [after[name]["loss"]]) for name in before}
    gradients = {name: distance(before[name]["gradient"], after[name]["gradient"]) for name in before}
    print(f"models: {len(before)} configurations, float64, largest relative difference of the loss "
          f"{max(losses.values()):.1e}, of a gradient {max(gradients.values()):.1e}")  # fmt: skip
    beyond = [name for name in before if losses[name] > LOSS_TOLERANCE or gradients[name] > GRADIENT_TOLERANCE]
    for name in beyond:
        print(f"  {name}: loss {losses[name]:.1e}, gradient {gradients[name]:.1e}")
    return same and not beyond


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path, nargs="*", metavar="OLD NEW", help="two checkouts")
    parser.add_argument("--backend", choices=("cpu", "triton"), action="append", help="only this one; may be repeated")
    parser.add_argument("--collect", choices=("cpu", "triton", "models"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.collect is not None:
        print(json.dumps(run_models() if options.collect == "models" else run_operations(options.collect)))
        return 0
    if len(options.trees) != 2:
        parser.error(f"got {len(options.trees)} trees, want two: OLD NEW")
    old, new = (tree.resolve() for tree in options.trees)
    return 0 if compare(old, new, options.backend or ["cpu", "triton"]) else 1


if __name__ == "__main__":
    sys.exit(main())
