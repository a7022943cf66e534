"""The benchmarks of single operations, one description for everybody who measures them.

A file bench_<operation>.py has a function of that name under the decorator :func:`operation`. Who finds it there:

- pytest-benchmark times every case on the CPU: ``python -m pytest bench/bench_gcn.py``
- bench/device.py times the first case on a GPU, in each column, against plain PyTorch and the operation's floor
- bench/device.py runs the small cases, and larger ones where there are, under compute-sanitizer
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
# The library's operation and its plain form.
CONTENDERS = ("seegera_fast", "torch")

Case = dict[str, Any]
Call = Callable[[], Sequence[torch.Tensor]]


@dataclasses.dataclass(frozen=True)
class Size:
    """How large the operands of an operation are.

    Attributes:
        nodes, features, width: the lengths n and l, and the number of columns of an embedding.
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
        """A random graph of this size, which needs no download, on torch's default device; the same at each call."""
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
    """What is known of an operation's benchmark; see :func:`operation`."""

    name: str
    contenders: Callable[..., dict[str, Call]]
    cases: Sequence[Case]
    small: Sequence[Case] | None
    larger: Sequence[Case]
    floor: Callable[..., floors.Work] | None

    def calls(self, size: Size, case: Case) -> dict[str, Call]:
        """Contender -> a call without arguments that gives the numbers of a case."""
        return _apply(self.contenders, size, case)

    def work(self, size: Size, case: Case) -> floors.Work | None:
        """The least that a case has to do."""
        return None if self.floor is None else _apply(self.floor, size, case)

    @property
    def first(self) -> Case:
        """The first case, with the sizes of whoever measures it."""
        return {name: value for name, value in self.cases[0].items() if name not in Size.__dataclass_fields__}


def _apply(function: Callable[..., Any], size: Size, case: Case) -> Any:
    """The function of the size, with what the case says of it, and of the other values of the case."""
    own = {name: value for name, value in case.items() if name in Size.__dataclass_fields__}
    others = {name: value for name, value in case.items() if name not in own}
    return function(dataclasses.replace(size, **own), **others)


def grid(**values: Sequence[Any]) -> list[Case]:
    """A case for each combination of values."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def words(case: Case) -> str:
    """A case as it is printed."""
    return ", ".join(f"{name} {value}" for name, value in case.items())


def operation(
    cases: Sequence[Case] = ({},),
    *,
    small: Sequence[Case] | None = None,
    larger: Sequence[Case] = (),
    floor: Callable[..., floors.Work] | None = None,
) -> Callable[[Callable[..., dict[str, Call]]], Callable[..., None]]:
    """Makes a benchmark of a function ``bench_<operation>(size, *values)`` that gives name -> call.

    The calls "seegera_fast" and "torch" are timed, after they were found to give the same tensors. Where "torch" draws
    from torch's own generator, a call "torch, same draws" has the same form with the library's draws and is what the
    numbers are compared with.

    Args:
        cases: mappings from the function's arguments to their values, those that the first one has. One that a
            :class:`Size` has too, such as ``width``, changes the size. The first case is measured on a GPU.
        small: those that compute-sanitizer runs; None: the first one, with its sizes.
        larger: those that it runs on a graph of thousands of nodes, for what few rows of little width do not reach.
        floor: gives the least work that a case has to do, from the same arguments.
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
    """Every operation's benchmark, by the operation's name."""
    modules = [importlib.import_module(path.stem) for path in sorted(Path(__file__).parent.glob("bench_*.py"))]
    found = [getattr(getattr(module, module.__name__), "description", None) for module in modules]
    return {description.name: description for description in found if description is not None}


def check_same_numbers(calls: dict[str, Call]) -> None:
    """Holds the plain form's numbers against the library's.

    Raises:
        AssertionError: they differ.
    """
    plain = calls.get("torch, same draws", calls["torch"])
    for got, want in zip(plain(), calls["seegera_fast"](), strict=True):
        exact = not want.is_floating_point() or not want.numel()
        tolerance = 0 if exact else 1e-4
        torch.testing.assert_close(got, want, rtol=tolerance, atol=0 if exact else tolerance * float(want.abs().max()))


def leaf(*shape: int, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers that want a gradient, the same on every device."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), device="cpu")
    return (scale * numbers).to(torch.get_default_device(), dtype).requires_grad_()


def with_gradients(functions: dict[str, Callable[[], torch.Tensor]], leaves: list[torch.Tensor]) -> dict[str, Call]:
    """Calls that give each function's value and, for one random gradient of it, the gradients of the leaves."""

    @functools.cache
    def upstream(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.randn(shape, generator=generator, dtype=dtype, device="cpu").to(device)

    def call(function: Callable[[], torch.Tensor]) -> Sequence[torch.Tensor]:
        value = function()
        return value.detach(), *torch.autograd.grad(value, leaves, upstream(value.shape, value.dtype, value.device))

    return {name: functools.partial(call, function) for name, function in functions.items()}


def csr(matrix: sf.SparseMatrix, values: torch.Tensor | None = None) -> torch.Tensor:
    """The matrix, or one with its structure and other values, as torch has it; ``csr @ dense`` has torch's gradient."""
    return torch.sparse_csr_tensor(matrix.rowptr, matrix.col, matrix.values if values is None else values, matrix.shape)


def spread(matrix: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """``matrix @ values`` for a CSR matrix and values ``[n, S, d]``, all draws in one product."""
    return (matrix @ values.flatten(1)).unflatten(1, values.shape[1:])


def log_densities(z: torch.Tensor, means: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
    """Log densities ``[n, J, K + 1]`` of each sample under its components, one at a time: no copy of an operand."""
    extra = means.shape[1] - z.shape[1]
    precision, constant = torch.exp(-log_var[:, 0]), (log_var[:, 0] + math.log(2 * math.pi)).sum(1)
    # Unbound, since the gradient of an index would be a tensor of the whole operand's size.
    draws, per_sample = means.unbind(1), []
    for sample, own in zip(z.unbind(1), draws[extra:], strict=True):
        squares = [((sample - mean).square() * precision).sum(1) for mean in (*draws[:extra], own)]
        per_sample.append(torch.stack(squares, 1))
    return -0.5 * (torch.stack(per_sample, 1) + constant[:, None, None])
