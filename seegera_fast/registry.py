"""Registers operations as torch operators. One definition, with named arguments, serves all backends."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import torch

from . import transforms
from .autocast import without_autocast
from .backends import BACKENDS, Backend
from .schema import MATRICES, parse
from .sparse_matrix import SparseMatrix
from .support.arguments import constant

try:
    LIBRARY = torch.library.Library("seegera_fast", "DEF")
except RuntimeError as error:
    raise ImportError(
        "seegera_fast: is imported a second time in this process, and torch can define its operators only once; want a "
        "new process (in a notebook: restart the kernel)"
    ) from error

# All operators by name, in the order of definition.
OPERATORS: dict[str, Operator] = {}

# The backend whose launcher is running. A launcher may call another operation, which then runs on this backend.
running: ContextVar[Backend | None] = ContextVar("running", default=None)


class Operator:
    """A torch operator with kernels on several backends.

    The compiled libraries implement the overload "default": kernels/cpu for the CPU key, kernels/cuda for the CUDA key.
    The launchers in kernels/triton, each with the name of its operator, implement the overloads of Triton.

    The functions ``fake``, ``backward`` and ``saved`` are called with what their parameters are named after.

    Args:
        definition: ``name(arguments) -> results``, in torch's schema language with four more types. ``Matrix m`` is a
            sparse matrix with its transpose, in the layout that the backend computes with. ``Rows m`` is only the
            matrix, ``Transposed m`` only the transpose, both by rows. ``Constant t`` is a tensor without a gradient.
            Results are named too. Only the first result is differentiable.
        columns: names of the backends that have a kernel in the source tree.
        fake: arguments -> empty tensors with the shapes and dtypes of the results.
        backward: None: the operator is not differentiable. Otherwise either an operator whose results are the gradients
            and have the names of the arguments, or a function for each argument with a gradient. Both may name
            arguments, results, ``gradient`` (the gradient of the first result) and keys of ``saved``. An operator may
            also name ``<argument>_wanted``, whether a gradient is needed. A function may also name ``call``:
            ``call(name, **arguments)`` runs an operator on the backend of the forward pass.
        saved: name -> function that computes what is saved for backward under that name, from arguments and results.
            Arguments and results that backward names are saved as they are.
        draws: argument -> its axis of draws, and the axis of each result, where each draw is computed on its own.
            torch.vmap over such arguments is one call with more draws; over others, calls run one after the other.
        by_rows: its kernels read no transpose but in backward. So without gradients the transposes of its matrices are
            not made: each matrix takes the place of its transpose.

    Raises:
        TypeError: a function names what the definition does not have, or a gradient is missing, or is of an argument
            that has none.
    """

    def __init__(
        self,
        definition: str,
        *,
        columns: tuple[str, ...],
        fake: Callable[..., Any],
        backward: Operator | Mapping[str, Callable[..., torch.Tensor]] | None = None,
        saved: Mapping[str, Callable[..., Any]] | None = None,
        draws: tuple[Mapping[str, int], tuple[int, ...]] = ({}, ()),
        by_rows: bool = False,
    ) -> None:
        self.name, self.arguments, self.results = parse(definition)
        self.columns = columns
        self._by_rows = by_rows
        self._plan = tuple((argument.name, argument.word) for argument in self.arguments)
        self._flat = tuple(name for argument in self.arguments for name in argument.flat)
        # Where each argument is among torch's, worked out once: a step calls some fifty operators.
        slices, start = [], 0
        for argument in self.arguments:
            stop = start + len(argument.flat)
            slices.append((argument.name, MATRICES.get(argument.word), start, stop))
            start = stop
        self._slices = tuple(slices)
        self._fake = self.by_name(fake, "fake", {argument.name for argument in self.arguments})
        self._overloads: dict[str, Any] = {}
        self._transformed: dict[str, type[torch.autograd.Function]] = {}
        self.check_names(draws[0], "draws", {argument.name for argument in self.arguments})
        self._draws = draws
        self.derivative = None if backward is None else Derivative(self, backward, saved or {})
        chosen = [backend for backend in BACKENDS if backend.name in columns]
        for overload in dict.fromkeys(backend.overload for backend in chosen):
            self._define(overload)
        for backend in chosen:
            backend.operators[self.name] = self
        OPERATORS[self.name] = self

    def _define(self, overload: str) -> None:
        suffix = "" if overload == "default" else f".{overload}"
        keep, backward = None, _no_second(self.name)
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
            torch.library.register_autograd(qualified, backward, lib=LIBRARY)
        self._overloads[overload] = getattr(getattr(torch.ops.seegera_fast, self.name), overload)
        starts = {name: start for name, _, start, _ in self._slices}
        axes = {starts[name]: axis for name, axis in self._draws[0].items()}
        self._transformed[overload] = transforms.function_of(
            self.name,
            lambda *flat: self._overloads[overload](*flat),
            lambda *flat: self._dispatch(overload, flat),
            keep,
            backward,
            axes,
            self._draws[1] or None,
        )

    def __call__(self, backend: Backend, **given: Any) -> Any:
        """Runs the operator on a backend. A matrix is a SparseMatrix, or the Parts that a launcher was given."""
        return self.run(backend, self.flat(backend, given))

    def run(self, backend: Backend, flat: tuple[Any, ...]) -> Any:
        """Runs the overload that a backend implements, on the arguments of torch's schema."""
        return self._dispatch(backend.overload, flat)

    def _dispatch(self, overload: str, flat: tuple[Any, ...]) -> Any:
        if transforms.active():
            results = self._transformed[overload].apply(*flat)
        elif transforms.without_autograd(flat):
            # As torch's registered autograd does, in a third of the time.
            with torch._C._AutoDispatchBelowAutograd():
                return self._overloads[overload](*flat)
        else:
            results = self._overloads[overload](*flat)
        if self.derivative is None or not self.derivative.unseen or torch.compiler.is_compiling():
            return results
        # Empty tensors that depend on the operands and don't keep their memory.
        operands = (flat[start] for start in self.derivative.starts.values())
        traces = [operand.reshape(-1)[:0].clone() for operand in operands if operand is not None]
        return _Seen.apply(results[0], *traces), *results[1:]

    def flat(self, backend: Backend, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Converts named arguments to the arguments of torch's schema, in order.

        Raises:
            TypeError: an argument is missing or unknown.
        """
        if len(given) != len(self._plan):
            self._refuse(given)
        for name, _ in self._plan:
            if name not in given:
                self._refuse(given)
        values: list[Any] = []
        by_rows = self._by_rows and not torch.is_grad_enabled()
        for name, word in self._plan:
            value = given[name]
            if word in MATRICES:
                values.extend(_matrix(word, value, backend, by_rows))
            else:
                values.append(value)
        return tuple(values)

    def _refuse(self, given: Mapping[str, Any]) -> None:
        names = [name for name, _ in self._plan]
        raise TypeError(f"{self.name}: got arguments {', '.join(sorted(given))}, want {', '.join(sorted(names))}")

    def named(self, given: tuple[Any, ...], more: Mapping[str, Any]) -> dict[str, Any]:
        """Converts the arguments of torch's schema to named arguments; a matrix becomes one argument, or None."""
        flat = (*given, *(more[name] for name in self._flat[len(given) :])) if more else given
        found: dict[str, Any] = {}
        for name, matrix, start, stop in self._slices:
            value = flat[start]
            found[name] = value if matrix is None or value is None else matrix(*flat[start:stop])
        return found

    def by_name(self, function: Callable[..., Any], what: str, known: set[str]) -> Callable[[Mapping[str, Any]], Any]:
        """Wraps a function so that it takes a mapping and uses the entries that its parameters are named after.

        Raises:
            TypeError: a parameter is not in ``known``.
        """
        names = tuple(inspect.signature(function).parameters)
        self.check_names(names, what, known)
        return lambda values: function(**{name: values[name] for name in names})

    def check_names(self, names: Iterable[str], what: str, known: set[str]) -> None:
        unknown = sorted(name for name in names if name not in known)
        if unknown:
            raise TypeError(f"{self.name}: {what} names {', '.join(unknown)}, want some of {', '.join(sorted(known))}")

    def implement(self, backend: Backend, key: str) -> None:
        """Registers a backend's launcher, a Python function, for a dispatch key. It is imported at its first call.

        The launcher of ``<operation>_backward`` is in the file of the operation.
        """
        module = f"{backend.package}.{self.name.removesuffix('_backward')}"

        def launch(*given: Any, **more: Any) -> Any:
            launcher = getattr(importlib.import_module(module), self.name)
            token = running.set(backend)
            try:
                return launcher(**self.named(given, more))
            except OSError as error:
                backend.explain(error)
                raise
            finally:
                running.reset(token)

        LIBRARY.impl(f"{self.name}.{backend.overload}", launch, key)


class _Seen(torch.autograd.Function):
    """The identity in its first argument, whose gradient depends on the others.

    So a second derivative in the operands of an operator is refused, though its backward does not read them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(result: torch.Tensor, *traces: torch.Tensor) -> torch.Tensor:
        return result.view_as(result)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            for trace in ctx.saved_tensors:
                gradient = gradient + trace.sum(dtype=gradient.dtype)
        return gradient, *(None for _ in ctx.saved_tensors)


class Composition:
    """An operation without a kernel, which calls operators. It runs on the backends that have them all."""

    def __init__(self, name: str, *operators: str) -> None:
        for backend in BACKENDS:
            if all(operator in backend.operators for operator in operators):
                backend.others.append(name)


class Derivative:
    """The gradient of an operator: what the forward pass saves, and how backward uses it."""

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
        starts = {name: start for name, _, start, _ in operator._slices}
        self.starts = {
            argument.name: starts[argument.name] for argument in operator.arguments if argument.word == "Tensor"
        }
        self.count = len(operator._flat)
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
        # Whether backward reads neither the operands nor what depends on them, as where the forward pass computes the
        # gradient for an upstream of one.
        reads = bool(asked & {*self.starts, operator.results[0]})
        self.unseen = self.gradient is not None and self.gradient.derivative is None and not reads
        # Matrix name -> the word for the part of it that backward takes.
        self.halves = {}
        if self.gradient is not None:
            self.halves = {argument.name: argument.word for argument in self.gradient.arguments if argument.is_matrix}

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        known = {**self.operator.named(inputs, {}), **dict(zip(self.operator.results, results, strict=True))}
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
            # Otherwise torch would make gradients of zeros for the other results, which have none.
            ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    def backward(self, overload: str) -> Callable[..., Any]:
        call = _caller(overload)

        @without_autocast
        def run(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            found: list[torch.Tensor | None] = [None] * self.count
            if gradients[0] is None:
                return tuple(found)
            known = {**self._restored(ctx), "gradient": gradients[0], "call": call}
            needed = {name: ctx.needs_input_grad[start] for name, start in self.starts.items()}
            if self.gradient is not None:
                known.update({f"{name}_wanted": need for name, need in needed.items()})
                results = call(self.gradient.name, **{name: known[name] for name, _ in self.gradient._plan})
                results = results if isinstance(results, (tuple, list)) else (results,)
                made = dict(zip(self.gradient.results, results, strict=True))
            else:
                made = {name: function(known) for name, function in self.functions.items() if needed[name]}
            for name, start in self.starts.items():
                if needed[name]:
                    gradient, dtype = made[name], ctx.dtypes[name]
                    found[start] = gradient if gradient.dtype == dtype else gradient.to(dtype)
            return tuple(found)

        return run

    def _restored(self, ctx: Any) -> dict[str, Any]:
        """What :meth:`setup_context` saved, by name."""
        known, tensors, start = dict(ctx.values), ctx.saved_tensors, 0
        for name, (kind, size) in ctx.sizes.items():
            known[name] = tensors[start] if kind is None else kind(*tensors[start : start + size])
            start += size
        return known


def _matrix(word: str, value: Any, backend: Backend | None = None, by_rows: bool = False) -> tuple[Any, ...]:
    """Converts a matrix to the arguments of torch's schema; ``by_rows``: its transpose is not read."""
    fields = MATRICES[word]._fields
    if value is None:
        return (None,) * len(fields)
    if isinstance(value, SparseMatrix):
        # The kernels have no gradient of a matrix, and a weight that is learned would never change.
        if value.values.requires_grad and torch.is_grad_enabled():
            constant("values of a matrix", value.values)
        if word == "Rows":
            return value.by_rows
        by_layout = word == "Matrix" and backend is not None and backend.parts is not None
        flipped = value if by_rows else value.transposed
        value = backend.parts(value, flipped) if by_layout else (*value.by_rows, *flipped.by_rows)
    # A matrix with its transpose was given, and only one of the two is asked for.
    if len(value) > len(fields):
        return tuple(value[:3]) if word == "Rows" else tuple(value[3:])
    return tuple(value)


def _caller(overload: str) -> Callable[..., Any]:
    """Makes the function ``call`` of a backward pass, which runs operators on the backend of the forward pass."""
    backend = next(backend for backend in BACKENDS if backend.overload == overload)

    def call(name: str, **arguments: Any) -> Any:
        operator = OPERATORS[name]
        flat = operator.flat(backend, arguments)
        if not torch.is_grad_enabled():
            # No second derivative is needed, so saved tensors that require gradients are detached.
            flat = tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in flat)
        return operator.run(backend, flat)

    return call


def _no_second(name: str) -> Callable[..., Any]:
    """The ``backward`` of an operator without a derivative, such as one that is itself a gradient. It raises."""
    operation = name.removesuffix("_backward")

    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError(
            f"{operation}: has no second derivative (create_graph=True); seegera_fast.use_backend('reference') has one"
        )

    return backward
