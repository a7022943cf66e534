"""How an operation becomes an operator of torch: one definition, by names, for all of its backends."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from .backends import BACKENDS, Backend
from .sparse_matrix import SparseMatrix

LIBRARY = torch.library.Library("seegera_fast", "DEF")

# Name -> operator, in the order of definition.
OPERATORS: dict[str, Operator] = {}

# The backend whose launcher is running: a launcher may need another operation as a step of its own.
running: ContextVar[Backend | None] = ContextVar("running", default=None)


class Parts(NamedTuple):
    """A sparse matrix as kernels take it: by rows, and the same of its transpose.

    In the dense layout, which only the CPU has, ``values`` and ``values_t`` are the matrix and its transpose in full.
    """

    rowptr: torch.Tensor
    col: torch.Tensor
    values: torch.Tensor
    rowptr_t: torch.Tensor
    col_t: torch.Tensor
    values_t: torch.Tensor

    @property
    def flipped(self) -> Parts:
        """The transpose."""
        return Parts(*self[3:], *self[:3])


class Rows(NamedTuple):
    """A sparse matrix by rows, without its transpose."""

    rowptr: torch.Tensor
    col: torch.Tensor
    values: torch.Tensor


class Transposed(NamedTuple):
    """The transpose of a sparse matrix, without the matrix itself."""

    rowptr_t: torch.Tensor
    col_t: torch.Tensor
    values_t: torch.Tensor


# The words for a matrix in a definition, and what such an argument arrives as.
MATRICES: dict[str, type] = {"Matrix": Parts, "Sparse": Parts, "Rows": Rows, "Transposed": Transposed}


class Argument(NamedTuple):
    """One argument of a definition."""

    name: str
    word: str
    optional: bool

    @property
    def flat(self) -> tuple[str, ...]:
        """The names of its arguments in torch's schema: several for a matrix."""
        return tuple(f"{self.name}_{part}" for part in MATRICES[self.word]._fields) if self.is_matrix else (self.name,)

    @property
    def is_matrix(self) -> bool:
        return self.word in MATRICES

    @property
    def schema(self) -> str:
        """As torch's schema has it."""
        kind = "Tensor" if self.is_matrix or self.word == "Constant" else self.word
        return ", ".join(f"{kind}{'?' if self.optional else ''} {name}" for name in self.flat)


class Operator:
    """A row of the house.

    The overload "default" is implemented by the compiled libraries, kernels/cpu under the CPU key and kernels/cuda
    under the CUDA key; those of Triton by the launcher of the same name in kernels/triton.

    Args:
        definition: ``name(arguments) -> results``: torch's schema language with four more words for matrices and one
            for tensors. ``Matrix m`` is a sparse matrix with its transpose in whichever layout the backend computes
            with, ``Sparse m`` the same always by rows, ``Rows m`` and ``Transposed m`` one half of it. A ``Constant``
            is a tensor without a gradient. Results have names, too; with a backward, the first alone has a gradient.
        columns: names of the backends that have a kernel in the source tree.
        fake: shapes and types of the results, from the arguments that it names.
        backward: None where the operator is not differentiable. Else an operator whose results are the gradients,
            named like the arguments, or a function for each argument with a gradient. They are given what they name:
            arguments, results, ``gradient`` (of the first result), what ``saved`` derives, and, for an operator,
            ``<argument>_wanted``. A function may also name ``call``: ``call(name, **arguments)`` runs an operator in
            the column that forward took.
        saved: name -> function that derives, from the arguments and results that it names, what backward asks for by
            that name. All else that backward names is kept as it is.

    Raises:
        TypeError: a name that the definition does not have, a gradient that is missing or of no such argument.
    """

    def __init__(
        self,
        definition: str,
        *,
        columns: tuple[str, ...],
        fake: Callable[..., Any],
        backward: Operator | Mapping[str, Callable[..., torch.Tensor]] | None = None,
        saved: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.name, self.arguments, self.results = _parse(definition)
        self.columns = columns
        self._plan = tuple((argument.name, argument.word) for argument in self.arguments)
        self._flat = tuple(name for argument in self.arguments for name in argument.flat)
        self._fake = self.by_name(fake, "fake", {argument.name for argument in self.arguments})
        self._overloads: dict[str, Any] = {}
        self.derivative = None if backward is None else Derivative(self, backward, saved or {})
        chosen = [backend for backend in BACKENDS if backend.name in columns]
        for overload in dict.fromkeys(backend.overload for backend in chosen):
            self._define(overload)
        for backend in chosen:
            backend.operators[self.name] = self
        OPERATORS[self.name] = self

    def _define(self, overload: str) -> None:
        suffix = "" if overload == "default" else f".{overload}"
        arguments = ", ".join(argument.schema for argument in self.arguments)
        results = ", ".join("Tensor" for _ in self.results)
        results = results if len(self.results) == 1 else f"({results})"
        LIBRARY.define(f"{self.name}{suffix}({arguments}) -> {results}", tags=(torch.Tag.pt2_compliant_tag,))
        qualified = f"seegera_fast::{self.name}{suffix}"
        torch.library.register_fake(qualified, lambda *given, **more: self._fake(self.named(given, more)), lib=LIBRARY)
        if self.derivative is not None:
            keep, backward = self.derivative.setup_context, self.derivative.backward(overload)
            torch.library.register_autograd(qualified, backward, setup_context=keep, lib=LIBRARY)
        elif self.name.endswith("_backward"):
            torch.library.register_autograd(qualified, _no_second(self.name), lib=LIBRARY)
        self._overloads[overload] = getattr(getattr(torch.ops.seegera_fast, self.name), overload)

    def __call__(self, backend: Backend, **given: Any) -> Any:
        """Runs the operator on a backend. A matrix is a SparseMatrix, or what an operator was given for one."""
        return self.run(backend, self.flat(backend, given))

    def run(self, backend: Backend, flat: tuple[Any, ...]) -> Any:
        """Runs the overload of torch's operator that a backend implements, on arguments as torch takes them."""
        return self._overloads[backend.overload](*flat)

    def flat(self, backend: Backend, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments by name as torch takes them, in order.

        Raises:
            TypeError: a name too many or too few.
        """
        if len(given) != len(self._plan) or any(name not in given for name, _ in self._plan):
            self._refuse(given)
        values: list[Any] = []
        for name, word in self._plan:
            value = given[name]
            if word in MATRICES:
                values.extend(_matrix(word, value, backend))
            else:
                values.append(value)
        return tuple(values)

    def _refuse(self, given: Mapping[str, Any]) -> None:
        names = [name for name, _ in self._plan]
        raise TypeError(f"{self.name}: got arguments {', '.join(sorted(given))}, want {', '.join(sorted(names))}")

    def named(self, given: tuple[Any, ...], more: Mapping[str, Any]) -> dict[str, Any]:
        """What torch gives an implementation, by name; a matrix in one piece, or None."""
        flat = dict(zip(self._flat, given, strict=False), **more)
        found: dict[str, Any] = {}
        for argument in self.arguments:
            values = [flat[name] for name in argument.flat]
            if not argument.is_matrix:
                found[argument.name] = values[0]
            else:
                found[argument.name] = None if values[0] is None else MATRICES[argument.word](*values)
        return found

    def by_name(self, function: Callable[..., Any], what: str, known: set[str]) -> Callable[[Mapping[str, Any]], Any]:
        """The function, called with those entries of a mapping that it names; TypeError where it names others."""
        names = tuple(inspect.signature(function).parameters)
        self.check_names(names, what, known)
        return lambda values: function(**{name: values[name] for name in names})

    def check_names(self, names: Iterable[str], what: str, known: set[str]) -> None:
        unknown = sorted(name for name in names if name not in known)
        if unknown:
            raise TypeError(f"{self.name}: {what} names {', '.join(unknown)}, want some of {', '.join(sorted(known))}")

    def implement(self, backend: Backend, key: str) -> None:
        """Registers the launcher of a backend in Python, imported at its first use, for a dispatch key.

        The launcher of ``<operation>_backward`` is in the file of its operation.
        """
        module = f"{backend.package}.{self.name.removesuffix('_backward')}"

        def launch(*given: Any, **more: Any) -> Any:
            launcher = getattr(importlib.import_module(module), self.name)
            token = running.set(backend)
            try:
                return launcher(**self.named(given, more))
            finally:
                running.reset(token)

        LIBRARY.impl(f"{self.name}.{backend.overload}", launch, key)


class Composition:
    """A row without kernels of its own, since a composition of operators loses nothing: it runs where they all do."""

    def __init__(self, name: str, *operators: str) -> None:
        for backend in BACKENDS:
            if all(operator in backend.operators for operator in operators):
                backend.others.append(name)


class Derivative:
    """What forward keeps, and what backward makes of it: both by name."""

    def __init__(
        self,
        operator: Operator,
        backward: Operator | Mapping[str, Callable[..., torch.Tensor]],
        saved: Mapping[str, Callable[..., Any]],
    ) -> None:
        self.operator = operator
        self.gradient = backward if isinstance(backward, Operator) else None
        given = {argument.name for argument in operator.arguments} | set(operator.results)
        self.derived = {name: operator.by_name(function, f"saved[{name!r}]", given) for name, function in saved.items()}
        self.starts, start = {}, 0
        for argument in operator.arguments:
            if argument.word == "Tensor":
                self.starts[argument.name] = start
            start += len(argument.flat)
        self.count = start
        offered = tuple(backward.results if self.gradient else backward)
        if {*offered} != {*self.starts}:
            raise TypeError(
                f"{operator.name}: got gradients of {', '.join(sorted(offered))}, want those of "
                f"{', '.join(sorted(self.starts))}; a tensor without one is a Constant"
            )
        known = given | {*saved, "gradient"}
        if self.gradient is not None:
            asked = {argument.name for argument in self.gradient.arguments}
            operator.check_names(asked, backward.name, known | {f"{name}_wanted" for name in self.starts})
        else:
            asked = {name for function in backward.values() for name in inspect.signature(function).parameters}
            known |= {"call"}
            self.functions = {
                name: operator.by_name(function, f"backward[{name!r}]", known) for name, function in backward.items()
            }
        unused = {*saved} - asked
        if unused:
            raise TypeError(f"{operator.name}: saved has {', '.join(sorted(unused))}, which backward does not name")
        self.kept = tuple(sorted(asked & (given | {*saved})))
        # Of a matrix, what backward takes of it.
        self.halves = {}
        if self.gradient is not None:
            self.halves = {argument.name: argument.word for argument in self.gradient.arguments if argument.is_matrix}

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        known = {
            **self.operator.named(inputs, {}),
            **dict(zip(self.operator.results, results, strict=True)),
        }
        tensors: list[torch.Tensor | None] = []
        ctx.values, ctx.sizes = {}, {}
        for name in self.kept:
            value = self.derived[name](known) if name in self.derived else known[name]
            if isinstance(value, tuple):
                word = self.halves.get(name, "Matrix")
                value = MATRICES[word](*_matrix(word, value))
                ctx.sizes[name] = (type(value), len(value))
                tensors.extend(value)
            elif isinstance(value, torch.Tensor):
                ctx.sizes[name] = (None, 1)
                tensors.append(value)
            else:
                ctx.values[name] = value
        ctx.dtypes = {name: known[name].dtype for name in self.starts if known[name] is not None}
        if len(results) > 1:
            ctx.mark_non_differentiable(*results[1:])
            # No zeros for the further results, which have no gradient.
            ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    def backward(self, overload: str) -> Callable[..., Any]:
        call = _caller(overload)

        def run(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            found: list[torch.Tensor | None] = [None] * self.count
            if gradients[0] is None:
                return tuple(found)
            known = {**self._restored(ctx), "gradient": gradients[0], "call": call}
            wanted = {name: ctx.needs_input_grad[start] for name, start in self.starts.items()}
            if self.gradient is not None:
                known.update({f"{name}_wanted": want for name, want in wanted.items()})
                results = call(self.gradient.name, **{name: known[name] for name, _ in self.gradient._plan})
                results = results if isinstance(results, (tuple, list)) else (results,)
                made = dict(zip(self.gradient.results, results, strict=True))
            else:
                made = {name: function(known) for name, function in self.functions.items() if wanted[name]}
            for name, start in self.starts.items():
                if wanted[name]:
                    found[start] = made[name].to(ctx.dtypes[name])
            return tuple(found)

        return run

    def _restored(self, ctx: Any) -> dict[str, Any]:
        """What :meth:`setup_context` kept, by name."""
        known, tensors, start = dict(ctx.values), ctx.saved_tensors, 0
        for name, (kind, size) in ctx.sizes.items():
            known[name] = tensors[start] if kind is None else kind(*tensors[start : start + size])
            start += size
        return known


def _parse(definition: str) -> tuple[str, tuple[Argument, ...], tuple[str, ...]]:
    match = re.fullmatch(r"(\w+)\((.*)\) -> (?:\((.+)\)|(\w+ \w+))", definition)
    if match is None:
        raise TypeError(f"definition: got {definition!r}, want 'name(Type argument, ...) -> Type result'")
    name, inside, several, single = match.groups()
    arguments = []
    for entry in inside.split(", "):
        word, argument = entry.split(" ")
        arguments.append(Argument(argument, word.removesuffix("?"), word.endswith("?")))
    results = tuple(entry.split(" ")[1] for entry in (several or single).split(", "))
    return name, tuple(arguments), results


def _matrix(word: str, value: Any, backend: Backend | None = None) -> tuple[torch.Tensor | None, ...]:
    """A matrix as the arguments of torch's schema."""
    fields = MATRICES[word]._fields
    if value is None:
        return (None,) * len(fields)
    if isinstance(value, SparseMatrix):
        if word == "Rows":
            return value.rowptr, value.col, value.values
        by_layout = word == "Matrix" and backend is not None and backend.parts is not None
        value = backend.parts(value) if by_layout else value.parts
    # What was given for a whole matrix serves where half of it is asked for.
    if len(value) > len(fields):
        return tuple(value[:3]) if word == "Rows" else tuple(value[3:])
    return tuple(value)


def _caller(overload: str) -> Callable[..., Any]:
    """Runs operators in the column that forward took."""
    backend = next(backend for backend in BACKENDS if backend.overload == overload)

    def call(name: str, **arguments: Any) -> Any:
        operator = OPERATORS[name]
        flat = operator.flat(backend, arguments)
        if not torch.is_grad_enabled():
            # No second derivative is wanted: what was saved needs no graph, though it may be a leaf that has one.
            flat = tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in flat)
        return operator.run(backend, flat)

    return call


def _no_second(name: str) -> Callable[..., Any]:
    """The ``backward`` of an operator that is itself a gradient: a second derivative raises, it is never wrong."""
    operation = name.removesuffix("_backward")

    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError(
            f"{operation}: has no second derivative (create_graph=True); seegera_fast.use_backend('reference') has one"
        )

    return backward
