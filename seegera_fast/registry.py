"""How an operation becomes an operator of torch: one schema, a fake kernel and a gradient for all its columns."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

LIBRARY = torch.library.Library("seegera_fast", "DEF")

# Name -> what runs it, in the order of definition; backends.py asks it what there is.
OPERATORS: dict[str, Operator | Composition] = {}


class Operator:
    """A row of the house.

    The default overload is implemented by the compiled libraries: kernels/cpu under the CPU key, kernels/cuda under
    the CUDA key. The ``triton`` overload is implemented by the launcher of the same name in kernels/triton.

    Args:
        schema: ``name(arguments) -> results``.
        columns: the backends that have a kernel in the source tree.
        fake: shapes and types of the results.
        setup_context: ``(ctx, inputs, output)``; keeps what backward needs. None: not differentiable.
        backward: ``(call, ctx, *gradients)``; ``call(name, *arguments)`` runs an operator in the same column.
    """

    def __init__(
        self,
        schema: str,
        *,
        columns: tuple[str, ...],
        fake: Callable[..., Any],
        setup_context: Callable[..., None] | None = None,
        backward: Callable[..., Any] | None = None,
    ) -> None:
        self.name, _, arguments = schema.partition("(")
        self.operators = (self.name,)
        self.columns = columns
        self._overloads = {}
        for overload in ("default", "triton"):
            suffix = "" if overload == "default" else ".triton"
            LIBRARY.define(f"{self.name}{suffix}({arguments}", tags=(torch.Tag.pt2_compliant_tag,))
            qualified = f"seegera_fast::{self.name}{suffix}"
            torch.library.register_fake(qualified, fake, lib=LIBRARY)
            if backward is not None:
                torch.library.register_autograd(
                    qualified, _bound(backward, overload), setup_context=setup_context, lib=LIBRARY
                )
            self._overloads[overload] = getattr(getattr(torch.ops.seegera_fast, self.name), overload)
        OPERATORS[self.name] = self

    def __call__(self, backend: str, *arguments: Any) -> Any:
        """Runs the operator in the column of ``backend``: "cpu", "cuda" or "triton"."""
        return self._overloads["triton" if backend == "triton" else "default"](*arguments)

    def has_kernel(self, backend: str) -> bool:
        """Whether an implementation is registered for this backend."""
        suffix = ".triton" if backend == "triton" else ""
        key = "CPU" if backend == "cpu" else "CUDA"
        return torch._C._dispatch_has_kernel_for_dispatch_key(f"seegera_fast::{self.name}{suffix}", key)

    def implement_in_triton(self, key: str) -> None:
        """Registers the Triton launcher, imported at its first use, for a dispatch key.

        The launcher of ``<operation>_backward`` lies in the file of its operation.
        """
        name, module = self.name, self.name.removesuffix("_backward")

        def launch(*arguments: Any) -> Any:
            return getattr(importlib.import_module(f"seegera_fast.kernels.triton.{module}"), name)(*arguments)

        LIBRARY.impl(f"{name}.triton", launch, key)


class Composition:
    """A row without kernels of its own, since a composition of operators loses nothing: it runs where they all do."""

    def __init__(self, name: str, *operators: str) -> None:
        self.operators = operators
        OPERATORS[name] = self

    @property
    def columns(self) -> tuple[str, ...]:
        first, *others = (OPERATORS[name].columns for name in self.operators)
        return tuple(column for column in first if all(column in columns for columns in others))


def once_differentiable(operation: str) -> Callable[..., Any]:
    """The ``backward`` of an operator that is itself a gradient: a second derivative raises, it is never wrong."""

    def backward(call: Any, ctx: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError(
            f"{operation}: has no second derivative (create_graph=True); seegera_fast.use_backend('reference') has one"
        )

    return backward


def _bound(backward: Callable[..., Any], overload: str) -> Callable[..., Any]:
    def call(name: str, *arguments: Any) -> Any:
        if not torch.is_grad_enabled():
            # No second derivative is wanted: what was saved needs no graph, though it may be a leaf that has one.
            arguments = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in arguments)
        return OPERATORS[name](overload, *arguments)

    def bound(ctx: Any, *gradients: torch.Tensor) -> Any:
        return backward(call, ctx, *gradients)

    return bound
