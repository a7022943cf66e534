"""The descriptions of the benchmarks of single operations.

A file bench_<operation>.py has a function of that name with the decorator :func:`operation`. It is used by

- pytest-benchmark, which times every case on the CPU: ``python -m pytest bench/bench_gcn.py``
- bench/device.py, which times the first case on a GPU, on each backend, against plain PyTorch and the floor
- bench/device.py, which runs the small cases, and larger ones if there are any, under compute-sanitizer
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import floors
import numpy as np
import scipy.sparse
import torch
from steps import random_graph

import seegera_fast as sf

# The dropout of Cora's link preset.
DROPOUT = 0.3
# The library's operation, and the same in plain PyTorch.
CONTENDERS = ("seegera_fast", "torch")

Case = dict[str, Any]
Call = Callable[[], Sequence[torch.Tensor]]


@dataclasses.dataclass(frozen=True)
class Size:
    """The sizes of the operands of an operation.

    Attributes:
        nodes, features, width: the numbers n and l, and the number of columns of an embedding.
        degree: mean degree of the graph.
        hub: whether the first node is joined to all others.
    """

    nodes: int
    features: int
    width: int
    degree: int = 4
    hub: bool = False

    @property
    def graph(self) -> sf.Graph:
        """A random graph of this size, on torch's default device. Each call returns the same graph."""
        return _graph(self.nodes, self.features, self.degree, self.hub, torch.get_default_device())


CORA = Size(nodes=2708, features=1433, width=512)


@functools.cache
def _graph(nodes: int, features: int, degree: int, hub: bool, device: torch.device) -> sf.Graph:
    with torch.device("cpu"):
        graph = random_graph(nodes, degree=degree, features=features)
        if hub:
            star = scipy.sparse.coo_matrix((np.ones(nodes), (np.zeros(nodes, int), np.arange(nodes))), (nodes, nodes))
            links = (graph.adjacency.to_scipy() + star + star.T).sign()
            graph = sf.Graph(links, graph.features.to_scipy())
    return graph.to(device)


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """The benchmark of an operation; see :func:`operation`."""

    name: str
    contenders: Callable[..., dict[str, Call]]
    cases: Sequence[Case]
    small: Sequence[Case] | None
    larger: Sequence[Case]
    floor: Callable[..., floors.Work] | None

    def calls(self, size: Size, case: Case) -> dict[str, Call]:
        """Contender -> a call without arguments that computes the tensors of a case."""
        return _apply(self.contenders, size, case)

    def work(self, size: Size, case: Case) -> floors.Work | None:
        """The least that a case has to do."""
        return None if self.floor is None else _apply(self.floor, size, case)

    @property
    def first(self) -> Case:
        """The first case, without its sizes: the caller chooses them."""
        return {name: value for name, value in self.cases[0].items() if name not in Size.__dataclass_fields__}


def _apply(function: Callable[..., Any], size: Size, case: Case) -> Any:
    """Calls a function with the values of a case; those that are fields of Size change the size."""
    sizes = {name: value for name, value in case.items() if name in Size.__dataclass_fields__}
    others = {name: value for name, value in case.items() if name not in sizes}
    return function(dataclasses.replace(size, **sizes), **others)


def grid(**values: Sequence[Any]) -> list[Case]:
    """The cases of all combinations of values."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def words(case: Case) -> str:
    """Formats a case."""
    return ", ".join(f"{name} {value}" for name, value in case.items())


def operation(
    cases: Sequence[Case] = ({},),
    *,
    small: Sequence[Case] | None = None,
    larger: Sequence[Case] = (),
    floor: Callable[..., floors.Work] | None = None,
) -> Callable[[Callable[..., dict[str, Call]]], Callable[..., None]]:
    """Makes a benchmark of a function ``bench_<operation>(size, *values)`` that returns name -> call.

    The calls "seegera_fast" and "torch" are timed, after a check that they return the same tensors. If "torch" draws
    from torch's generator, a call "torch, same draws" must do the same with the library's draws; it is used for the
    check.

    Args:
        cases: mappings from the function's arguments to values. Keys that are fields of :class:`Size`, such as
            ``width``, change the size. The first case is measured on a GPU.
        small: the cases that compute-sanitizer runs; None: the first one, with its sizes.
        larger: further cases that it runs on a graph of thousands of nodes, for code that small sizes do not reach.
        floor: the least work of a case, a function of the same arguments.
    """

    def decorate(contenders: Callable[..., dict[str, Call]]) -> Callable[..., None]:
        name = contenders.__name__.removeprefix("bench_")
        found = Benchmark(name, contenders, cases, small, larger, floor)

        def bench(benchmark: Any, case: Case, contender: str) -> None:
            calls = found.calls(CORA, case)
            check_same_numbers(calls)
            benchmark.group = ", ".join(filter(None, (name, words(case))))
            benchmark(calls[contender])

        bench.__name__, bench.description = contenders.__name__, found
        return bench

    return decorate


def find() -> dict[str, Benchmark]:
    """The benchmarks of all operations, by operation."""
    modules = [importlib.import_module(path.stem) for path in sorted(Path(__file__).parent.glob("bench_*.py"))]
    found = [getattr(getattr(module, module.__name__), "description", None) for module in modules]
    return {description.name: description for description in found if description is not None}


def check_same_numbers(calls: dict[str, Call]) -> None:
    """Compares the tensors of the plain form with those of the library.

    Raises:
        AssertionError: they differ.
    """
    plain = calls.get("torch, same draws", calls["torch"])
    for got, want in zip(plain(), calls["seegera_fast"](), strict=True):
        exact = not want.is_floating_point() or not want.numel()
        tolerance = 0 if exact else 1e-4
        torch.testing.assert_close(got, want, rtol=tolerance, atol=0 if exact else tolerance * float(want.abs().max()))


def leaf(*shape: int, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers that require a gradient, the same on every device."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), device="cpu")
    return (scale * numbers).to(torch.get_default_device(), dtype).requires_grad_()


def with_gradients(functions: dict[str, Callable[[], torch.Tensor]], leaves: list[torch.Tensor]) -> dict[str, Call]:
    """Calls that compute the value of each function and the gradients of the leaves, for a random upstream gradient."""

    @functools.cache
    def upstream(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.randn(shape, generator=generator, dtype=dtype, device="cpu").to(device)

    def call(function: Callable[[], torch.Tensor]) -> Sequence[torch.Tensor]:
        value = function()
        return value.detach(), *torch.autograd.grad(value, leaves, upstream(value.shape, value.dtype, value.device))

    return {name: functools.partial(call, function) for name, function in functions.items()}


def csr(matrix: sf.SparseMatrix, values: torch.Tensor | None = None) -> torch.Tensor:
    """The matrix, or its structure with other values, as a torch CSR tensor."""
    return torch.sparse_csr_tensor(matrix.rowptr, matrix.col, matrix.values if values is None else values, matrix.shape)


def spread(matrix: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """``matrix @ values`` for a CSR matrix and values ``[n, S, d]``, all draws in one product."""
    return (matrix @ values.flatten(1)).unflatten(1, values.shape[1:])


def log_densities(z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
    """Log densities ``[n, J, K + 1]`` of the samples under their components, one at a time, without copied operands."""
    extra = means.shape[1] - z.shape[1]
    precision, constant = torch.exp(-log_var[:, 0]), (log_var[:, 0] + math.log(2 * math.pi)).sum(1)
    # unbind, because the gradient of an index is a tensor of the size of the whole operand.
    draws, per_sample = means.unbind(1), []
    for sample, center in zip(z.unbind(1), draws[extra:], strict=True):
        squares = [((sample - mean).square() * precision).sum(1) for mean in (*draws[:extra], center)]
        per_sample.append(torch.stack(squares, 1))
    return -0.5 * (torch.stack(per_sample, 1) + constant[:, None, None])
