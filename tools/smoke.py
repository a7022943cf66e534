"""Try an installed seegera_fast: its import, every backend against the reference, a short training, the command.

`python smoke.py` runs in the environment to be tried, and prints one line of JSON: what was used, and the largest
relative error of each backend. It exits with 1 and the reason on stderr if something is wrong. Triton's kernels run in
its interpreter where there is no GPU, if Triton is installed.
"""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import seegera_fast as sf

# Of float32, after a forward and a backward pass of the whole model.
LARGEST_ERROR = 1e-3
OPERATION_ONLY = "--operation"


def check(condition, message):
    if not condition:
        sys.exit(f"smoke test: {message}")


def relative_error(got, want):
    return ((got.detach().cpu().double() - want.detach()).abs().max() / want.detach().abs().max()).item()


def small_graph():
    rng = np.random.default_rng(3)
    adjacency = np.triu(rng.random((60, 60)) < 0.1, 1)
    return sf.Graph(adjacency | adjacency.T, rng.random((60, 12)) * (rng.random((60, 12)) < 0.4))


def error_of_model(backend, device):
    """The largest relative error of the gradients of a model, against the reference in float64."""
    graph = small_graph()
    found = []
    for name, place, dtype in ((backend, device, torch.float32), ("reference", "cpu", torch.float64)):
        model = sf.SeeGera(
            graph, seed=1, embedding_dim=8, hidden_dim=8, noise_dim=2, dropout=0.2, structure_masking_rate=0.2
        )
        model.to(device=place, dtype=dtype)
        with sf.use_backend(name):
            model(graph.to(device=place, dtype=dtype), seed=2).loss.backward()
        found.append([parameter.grad for parameter in model.parameters() if parameter.numel()])
    return max(relative_error(got, want) for got, want in zip(*found, strict=True))


def error_of_operation(backend, device):
    """The same of one operation: Triton's interpreter would take minutes for a model."""
    graph = small_graph()
    found = []
    for name, place, dtype in ((backend, device, torch.float32), ("reference", "cpu", torch.float64)):
        matrix = graph.features.to(device=place, dtype=dtype)
        dense = torch.arange(60.0).reshape(12, 5).to(device=place, dtype=dtype).requires_grad_()
        with sf.use_backend(name):
            product = sf.ops.sparse_matmul(matrix, dense)
        product.square().sum().backward()
        found.append([product, dense.grad])
    return max(relative_error(got, want) for got, want in zip(*found, strict=True))


def error_in_interpreter():
    """The error of the operation on Triton's interpreter, in a process of its own; None: Triton is not installed."""
    if importlib.util.find_spec("triton") is None:
        return None
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, __file__, OPERATION_ONLY]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True)
    check(answer.returncode == 0, f"Triton's interpreter: {(answer.stderr.strip().splitlines() or ['no message'])[-1]}")
    return float(answer.stdout)


def train_and_read_back():
    """Two epochs of link prediction, twice: equal weights, which a file gives back."""
    graph = sf.datasets.load("digits")
    fields = {"epochs": 2, "embedding_dim": 8, "hidden_dim": 8, "progress": False}
    first, second = (sf.tasks.link_prediction(graph, **fields).model.state_dict() for _ in range(2))
    model = sf.tasks.link_prediction(graph, **fields).model
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model.safetensors"))
        read = sf.SeeGera.load(Path(folder, "model.safetensors")).state_dict()
    for name, weights in first.items():
        check(bool(weights.isfinite().all()), f"{name} is not finite after two epochs")
        check(torch.equal(weights, second[name]), f"{name} differs between two equal runs")
        check(torch.equal(weights, read[name]), f"{name} differs from what was saved")


def main():
    if sys.argv[1:] == [OPERATION_ONLY]:
        print(error_of_operation("triton", "cpu"))
        return
    folder = Path(sf.__file__).resolve().parent
    check(Path(sys.prefix).resolve() in folder.parents, f"the package is imported from {folder}, not from {sys.prefix}")
    version = importlib.metadata.version("seegera-fast")
    check(version == sf.__version__, f"the installed version is {version}, the package says {sf.__version__}")
    known = sf.backends.info()
    check(known["cpu"]["available"], f"the CPU kernels can't be used: {known['cpu']['reason']}")
    errors = {"cpu": error_of_model("cpu", "cpu")}
    errors |= {name: error_of_model(name, "cuda") for name in ("cuda", "triton") if known[name]["available"]}
    if "triton" not in errors:
        errors["triton"] = error_in_interpreter()
    for name, error in errors.items():
        check(error is None or error < LARGEST_ERROR, f"{name} differs from the reference by {error:.2g}, relatively")
    train_and_read_back()
    command = Path(sys.executable).parent / "seegera-fast"
    answer = subprocess.run([command, "info"], capture_output=True, text=True)
    check(answer.returncode == 0 and version in answer.stdout, f"`seegera-fast info` fails: {answer.stderr.strip()}")
    print(
        json.dumps(
            {
                "python": sys.version.split()[0],
                "torch": torch.__version__,
                "numpy": np.__version__,
                "instruction set": sf.backends.instruction_set(),
                "errors": errors,
            }
        )
    )


if __name__ == "__main__":
    main()
