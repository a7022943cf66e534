"""Tests that every operation passes on every backend: a class that each test_<operation>.py makes a subclass of."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from cases import DTYPES, LAYOUTS, laid_out, normal
from tolerances import assert_close, assert_norm_close, assert_same_bits
from torch.utils._python_dispatch import TorchDispatchMode

from seegera_fast import SparseMatrix, backends, ops, precision, reference, use_backend
from seegera_fast.backends import Backend
from seegera_fast.registry import Operator

Arguments = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Column:
    """A backend, and the device of the tensors in its tests."""

    backend: str
    device: str

    def __str__(self) -> str:
        return self.backend if self.device == "cpu" else f"{self.backend}-{self.device}"


def columns(operation: str, *, compiled: bool = False, interpreter: bool = True) -> list[Any]:
    """The columns that can run an operation on this machine, as pytest parameters.

    Args:
        compiled: leave out the reference. If there is no other column, the result is one skipped parameter.
        interpreter: False: leave Triton out where it is interpreted, for what depends on the size of real memory.
    """
    found = [
        Column(backend.name, backend.devices[0])
        for backend in backends.NAMED.values()
        if backend is not backends.REFERENCE and backend.missing is None and backend.has(operation)
        if interpreter or not (backend is backends.TRITON and backends.interpreted())
    ]
    if not compiled:
        found.append(Column("reference", "cpu"))
        if torch.cuda.is_available():
            found.append(Column("reference", "cuda"))
    if not found:
        return [pytest.param(None, id="none", marks=pytest.mark.skip(reason=f"no kernel for {operation} here"))]
    return [
        pytest.param(column, id=str(column), marks=[pytest.mark.gpu] if column.device == "cuda" else [])
        for column in found
    ]


def _is_reference(parameter: Any) -> bool:
    return parameter.values[0] is not None and parameter.values[0].backend == "reference"


def converted(arguments: Arguments, dtype: torch.dtype, device: str = "cpu") -> Arguments:
    """The arguments with all floating-point tensors and matrices converted to a dtype, on a device."""

    def convert(value: Any) -> Any:
        if isinstance(value, SparseMatrix):
            return value.to(device=device, dtype=dtype)
        if isinstance(value, torch.Tensor):
            return value.to(device=device, dtype=dtype if value.is_floating_point() else None)
        return value

    return {name: convert(value) for name, value in arguments.items()}


class Allocations(TorchDispatchMode):
    """Records the size in bytes of the largest tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel() * tensor.element_size())
        return out


class Products(TorchDispatchMode):
    """Counts the products of matrices, and records the layouts of operands whose rows are not aligned to 16 bytes.

    cuBLAS uses its fast kernels if the address and the leading dimension are multiples of 16 bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count, self.unaligned = 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if function._schema.name in ("aten::mm", "aten::addmm"):
            self.count += 1
            for tensor in (*args, out):
                if isinstance(tensor, torch.Tensor) and not _has_aligned_rows(tensor):
                    self.unaligned.append((tuple(tensor.shape), tensor.stride(), tensor.data_ptr() % 16))
        return out


def _has_aligned_rows(matrix: torch.Tensor) -> bool:
    steps = sorted(matrix.stride())
    return steps[0] == 1 and all(size % 16 == 0 for size in (steps[1] * matrix.element_size(), matrix.data_ptr()))


def upstream(output: torch.Tensor) -> torch.Tensor:
    """A gradient that differs in every element."""
    return normal(*output.shape, seed=99).to(output.device, output.dtype)


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A change of the arguments that an operation must refuse.

    Attributes:
        change: arguments -> changed arguments.
        error: the exact type of the error.
        message: a pattern of the whole message: the argument's name, what was given, and what is expected.
    """

    name: str
    change: Callable[[Arguments], Arguments]
    error: type[Exception]
    message: str


def refuse(name: str, error: type[Exception], message: str, **changes: Any) -> Refusal:
    """A refusal that replaces arguments; a callable is applied to the argument that it replaces."""

    def change(arguments: Arguments) -> Arguments:
        replaced = {
            key: value(arguments[key]) if callable(value) and not isinstance(value, type) else value
            for key, value in changes.items()
        }
        return {**arguments, **replaced}

    return Refusal(name, change, error, message)


SEED_REFUSALS = [
    refuse("seed of a fraction", TypeError, "seed: got 0.5, want an int or one torch.int64 element", seed=0.5),
    refuse("seed of a bool", TypeError, "seed: got True, want an int or one torch.int64 element", seed=True),
    refuse("seed too large", ValueError, r"seed: got 9223372036854775808, want a number of 64 bits .*", seed=2**63),
    refuse("seed of int32", TypeError, r"seed: got torch.int32 \(1,\), want .*", seed=torch.ones(1, dtype=torch.int32)),
    refuse("seed of two", TypeError, r"seed: got torch.int64 \(2,\), want .*", seed=torch.tensor([1, 2])),
]
# For operations on tensors: a kernel can't read a seed on another device.
DATA_SEED_REFUSALS = [
    *SEED_REFUSALS,
    refuse(
        "seed elsewhere",
        ValueError,
        "seed: is on meta, want cpu or an int",
        seed=torch.ones(1, dtype=torch.int64, device="meta"),
    ),
]


def probability_refusals(name: str, *, one: bool = False) -> list[Refusal]:
    """Refusals of what is not a probability; 1 is refused too, unless ``one`` is set."""
    wanted = r"want a number in \[0, 1\]" if one else r"want a number in \[0, 1\)"
    wrong = [-0.1, 1.5, float("nan")] + ([] if one else [1.0])
    return [
        *(
            refuse(f"{name} of {value}", ValueError, f"{name}: got {value}, {wanted}", **{name: value})
            for value in wrong
        ),
        refuse(f"{name} of a string", TypeError, f"{name}: got '0.5', want a number", **{name: "0.5"}),
        refuse(f"{name} of a bool", TypeError, f"{name}: got True, want a number", **{name: True}),
    ]


def weight_refusals(name: str) -> list[Refusal]:
    """Refusals of what is not a non-negative factor."""
    return [
        refuse(f"{name} below 0", ValueError, f"{name}: got -1.0, want a finite number of 0 or above", **{name: -1.0}),
        refuse(f"{name} infinite", ValueError, f"{name}: got inf, want a finite number .*", **{name: float("inf")}),
        refuse(f"{name} NaN", ValueError, f"{name}: got nan, want a finite number .*", **{name: float("nan")}),
        refuse(f"{name} of a string", TypeError, f"{name}: got '1', want a number or a tensor .*", **{name: "1"}),
        refuse(
            f"{name} of two",
            ValueError,
            rf"{name}: got shape \(2,\), want a number or one element",
            **{name: torch.ones(2)},
        ),
        refuse(
            f"{name} complex",
            TypeError,
            f"{name}: got torch.complex64, want a real number",
            **{name: torch.tensor(1 + 2j)},
        ),
        refuse(
            f"{name} with a gradient",
            ValueError,
            rf"{name}: got a tensor that requires a gradient, want a constant: {name}.detach\(\)",
            **{name: torch.ones(1, requires_grad=True)},
        ),
        refuse(
            f"{name} of truth", TypeError, f"{name}: got torch.bool, want a real number", **{name: torch.tensor(True)}
        ),
    ]


def tensor_refusals(name: str) -> list[Refusal]:
    """Refusals of what is not a floating-point tensor."""
    return [
        refuse(
            f"{name} of NumPy", TypeError, f"{name}: got ndarray, want a torch.Tensor", **{name: lambda t: t.numpy()}
        ),
        refuse(
            f"{name} of int64",
            TypeError,
            f"{name}: got torch.int64 on cpu, want torch.float32 or torch.float64",
            **{name: lambda t: t.long()},
        ),
        refuse(
            f"{name} of float16", TypeError, f"{name}: got torch.float16 on cpu, want .*", **{name: lambda t: t.half()}
        ),
        refuse(
            f"{name} sparse",
            TypeError,
            f"{name}: got a tensor of layout torch.sparse_coo, want a dense one",
            **{name: lambda t: t.to_sparse()},
        ),
    ]


def sparse_refusals(name: str, *, undirected: bool = False) -> list[Refusal]:
    """Refusals of what is not a SparseMatrix, or not one that is known to be symmetric."""
    message = r"{}: got {}, want a SparseMatrix" + (
        r": Graph\(matrix\).adjacency or .*" if undirected else r" \(SparseMatrix.from_any makes one\)"
    )
    return [
        refuse(f"{name} dense", TypeError, message.format(name, "Tensor"), **{name: lambda m: m.to_dense()}),
        refuse(f"{name} of SciPy", TypeError, message.format(name, "csr_matrix"), **{name: lambda m: m.to_scipy()}),
    ]


class Operation:
    """Tests of one operation. A subclass names the operation, its arguments, and an independent form of it."""

    # The name of the operation in ops and reference.
    operation: ClassVar[str]
    # Case -> a function without arguments that makes the operation's keyword arguments, in float64.
    cases: ClassVar[dict[str, Callable[[], Arguments]]]
    # The arguments with a gradient.
    differentiable: ClassVar[tuple[str, ...]] = ()
    # Cases for numerical differentiation: small, and without a kink nearby.
    smooth: ClassVar[tuple[str, ...]] = ()
    # Cases that the tests of layouts, compilation and operators run on.
    typical: ClassVar[tuple[str, ...]]
    # Makes arguments with work for several threads.
    large: ClassVar[Callable[[], Arguments]]
    refusals: ClassVar[list[Refusal]]

    @staticmethod
    def slow(**arguments: Any) -> torch.Tensor:
        """The result in float64, computed in another way than in the reference: by loops, SciPy or distributions."""
        raise NotImplementedError

    @staticmethod
    def terms(arguments: Arguments) -> int:
        """The largest number of summands of an element of the result or of a gradient."""
        raise NotImplementedError

    @classmethod
    def pytest_generate_tests(cls, metafunc: Any) -> None:
        compiled = getattr(metafunc.function, "compiled_only", False)
        chosen = list(getattr(cls, getattr(metafunc.function, "case_set", "cases")))
        if compiled and not columns(cls.operation, compiled=True)[0].values[0]:
            # One skipped test is enough to say that there is no kernel.
            chosen = chosen[:1]
        values = {
            "column": lambda: columns(cls.operation, compiled=compiled),
            "dtype": lambda: [pytest.param(dtype, id=str(dtype).removeprefix("torch.")) for dtype in DTYPES],
            "case": lambda: chosen,
            "layout": lambda: list(LAYOUTS),
            "refusal": lambda: [pytest.param(refusal, id=refusal.name) for refusal in cls.refusals],
            "seed": lambda: [3, -5, 2**63 - 1, -(2**63)],
        }
        if {"column", "case"} <= set(metafunc.fixturenames):
            # The reference is held against the independent definition in every case; against itself a few will do.
            pairs = [
                pytest.param(*column.values, case, id=f"{column.id}-{case}", marks=column.marks)
                for column in values.pop("column")()
                for case in chosen
                if case in (*cls.typical, *cls.smooth) or not _is_reference(column)
            ]
            metafunc.parametrize(("column", "case"), pairs)
            del values["case"]
        for name, make in values.items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, make())

    # --- running the operation ---------------------------------------------------------------------------------------

    @classmethod
    def on(cls, column: Column) -> Callable[..., torch.Tensor]:
        """The operation, with its backend forced."""

        def function(**arguments: Any) -> torch.Tensor:
            with use_backend(column.backend):
                return getattr(ops, cls.operation)(**arguments)

        return function

    @classmethod
    def leaves(cls, arguments: Arguments) -> dict[str, torch.Tensor]:
        """The arguments with a gradient that are there."""
        return {name: arguments[name] for name in cls.differentiable if isinstance(arguments.get(name), torch.Tensor)}

    @classmethod
    def outcome(
        cls,
        function: Callable[..., torch.Tensor],
        arguments: Arguments,
        wanted: tuple[str, ...] | None = None,
        gradient: Callable[[torch.Tensor], torch.Tensor] = upstream,
    ) -> dict[str, torch.Tensor]:
        """The output and the gradients of the arguments in ``wanted`` (None: all that have one)."""
        leaves = {
            name: tensor.detach().requires_grad_()
            for name, tensor in cls.leaves(arguments).items()
            if wanted is None or name in wanted
        }
        output = function(**{**arguments, **leaves})
        found = {"output": output.detach()}
        if leaves:
            gradients = torch.autograd.grad(output, list(leaves.values()), gradient(output))
            found.update({f"gradient of {name}": g for name, g in zip(leaves, gradients, strict=True)})
        return found

    @classmethod
    def expected(cls, arguments: Arguments, **options: Any) -> dict[str, torch.Tensor]:
        """What the reference gives in float64, on the CPU, from arguments already rounded to their own dtype."""
        return cls.outcome(getattr(reference, cls.operation), converted(arguments, torch.float64), **options)

    @classmethod
    def compare(
        cls,
        got: dict[str, torch.Tensor],
        arguments: Arguments,
        dtype: torch.dtype,
        want: dict[str, torch.Tensor] | None = None,
        **options: Any,
    ) -> None:
        if want is None:
            want = cls.expected(arguments, **options)
        assert got.keys() == want.keys()
        for name, value in got.items():
            assert value.dtype == dtype, f"{name}: {value.dtype}, want {dtype}"
            assert_close(value, want[name], terms=cls.terms(arguments), name=f"{cls.operation}, {name}")

    # --- the promises ------------------------------------------------------------------------------------------------

    def test_equals_the_independent_definition(self, case):
        arguments = self.cases[case]()
        got = getattr(reference, self.operation)(**arguments)
        assert_close(got, self.slow(**arguments), terms=self.terms(arguments), name=self.operation)

    def test_equals_the_reference(self, column, dtype, case):
        """Values and gradients, finite, in the right dtype and on the right device; the inputs stay as they were.

        New memory is full of NaN, both what torch hands out and what the allocator gets back: every element is written.
        """
        arguments = converted(self.cases[case](), dtype, column.device)
        before = {name: value.clone() for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        want = self.expected(arguments)
        for size in {*(value.numel() for value in want.values()), *(1 << k for k in range(4, 17))}:
            torch.full((size,), float("nan"), dtype=dtype, device=column.device)
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            assert torch.empty(1).isnan().all()
            got = self.outcome(self.on(column), arguments)
        finally:
            torch.use_deterministic_algorithms(False)
        assert all(value.device.type == column.device for value in got.values())
        self.compare(got, arguments, dtype, want)
        for name, value in before.items():
            assert_same_bits(arguments[name], value, name=name)

    def test_gradients_by_finite_differences(self, column, case):
        arguments = converted(self.cases[case](), torch.float64, column.device)
        leaves = {name: tensor.requires_grad_() for name, tensor in self.leaves(arguments).items()}

        def function(*tensors: torch.Tensor) -> torch.Tensor:
            return self.on(column)(**{**arguments, **dict(zip(leaves, tensors, strict=True))})

        # Along random directions: test_equals_the_reference compares each element with automatic differentiation.
        assert torch.autograd.gradcheck(function, tuple(leaves.values()), fast_mode=True)

    test_gradients_by_finite_differences.case_set = "smooth"

    def test_each_gradient_alone(self, column, case):
        """The gradient of an argument does not depend on which other arguments need one."""
        arguments = converted(self.cases[case](), torch.float32, column.device)
        for name in self.leaves(arguments):
            got = self.outcome(self.on(column), arguments, wanted=(name,))
            self.compare(got, arguments, torch.float32, wanted=(name,))

    test_each_gradient_alone.compiled_only = True
    test_each_gradient_alone.case_set = "typical"

    def test_layouts(self, column, layout, case):
        """Inputs and upstream gradients may have any layout in memory, and begin at any address."""
        plain = converted(self.cases[case](), torch.float32, column.device)
        arguments = {
            name: laid_out(value, layout) if isinstance(value, torch.Tensor) and value.ndim else value
            for name, value in plain.items()
        }
        function = self.on(column)
        if not self.leaves(arguments):
            assert_same_bits(function(**arguments), function(**plain))
            return

        def strided(output: torch.Tensor) -> torch.Tensor:
            return laid_out(upstream(output), layout) if output.ndim else upstream(output)

        self.compare(self.outcome(function, arguments, gradient=strided), plain, torch.float32)
        constant = functools.partial(self.outcome, gradient=lambda output: output.new_ones(()).expand(output.shape))
        want = constant(getattr(reference, self.operation), converted(plain, torch.float64))
        for name, value in constant(function, arguments).items():
            assert_close(value, want[name], terms=self.terms(plain), name=f"{name} under a constant gradient")

    test_layouts.compiled_only = True
    test_layouts.case_set = "typical"

    def test_saved_tensors_with_other_strides(self, column, case):
        """What the forward pass saves may be moved and come back in another layout, as from saved_tensors_hooks."""
        arguments = converted(self.cases[case](), torch.float32, column.device)

        def unpack(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.T.contiguous().T if tensor.ndim == 2 else tensor.transpose(0, -1).clone().transpose(0, -1)

        want = self.outcome(self.on(column), arguments)
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
            got = self.outcome(self.on(column), arguments)
        for name, value in want.items():
            assert_close(got[name], value.double(), terms=self.terms(arguments), name=name)

    test_saved_tensors_with_other_strides.compiled_only = True
    test_saved_tensors_with_other_strides.case_set = "typical"

    def test_no_gradient_wanted(self, column, case):
        arguments = converted(self.cases[case](), torch.float32, column.device)
        plain = self.on(column)(**arguments)
        assert not plain.requires_grad
        tracked = {**arguments, **{name: t.clone().requires_grad_() for name, t in self.leaves(arguments).items()}}
        with torch.no_grad():
            assert_same_bits(self.on(column)(**tracked), plain)
        with torch.inference_mode():
            assert_same_bits(self.on(column)(**arguments), plain)

    test_no_gradient_wanted.compiled_only = True
    test_no_gradient_wanted.case_set = "typical"

    def test_refusals(self, refusal):
        arguments = self.cases[self.typical[0]]()
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(ops, self.operation)(**refusal.change(arguments))
        assert type(caught.value) is refusal.error, f"{type(caught.value).__name__}: {caught.value}"
        assert re.fullmatch(refusal.message, str(caught.value)), str(caught.value)

    def test_a_forced_backend_without_a_kernel_is_an_error(self, monkeypatch):
        operators = {name: row for name, row in backends.CPU.operators.items() if name != self.operation}
        monkeypatch.setattr(backends.CPU, "operators", operators)
        monkeypatch.setattr(backends.CPU, "others", [])
        monkeypatch.setattr(backends.CPU, "missing", None)
        with (
            use_backend("cpu"),
            pytest.raises(RuntimeError, match=f"{self.operation}: backend 'cpu' is forced and has no"),
        ):
            getattr(ops, self.operation)(**self.cases[self.typical[0]]())

    def test_signature_is_that_of_the_reference(self):
        """The reference has the same argument names, kinds and defaults, but no types."""
        public, plain = (inspect.signature(getattr(module, self.operation)) for module in (ops, reference))
        described = [
            [(p.name, p.kind, p.default) for p in signature.parameters.values()] for signature in (public, plain)
        ]
        assert described[0] == described[1]

    # --- tests of compiled columns only ------------------------------------------------------------------------------

    def test_same_bits_again_and_with_other_threads(self, column):
        arguments = converted(self.large(), torch.float32, column.device)
        function = self.on(column)
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            first = self.outcome(function, arguments)
            # An interpreted kernel does not promise this, because its products are those of torch on the CPU.
            for count in (1, 2, 2, 3) if column.backend == "cpu" else (1,) if backends.interpreted() else (1, 1):
                torch.set_num_threads(count)
                for name, value in self.outcome(function, arguments).items():
                    assert_same_bits(value, first[name], name=f"{name} with {count} threads")
        finally:
            torch.set_num_threads(threads)
        self.compare(first, arguments, torch.float32)

    test_same_bits_again_and_with_other_threads.compiled_only = True

    def test_operators_are_sound(self, column, case, monkeypatch):
        """Runs opcheck on every operator that the operation and its gradient call, with the arguments of the call."""
        calls: list[tuple[Any, tuple[Any, ...]]] = []
        through = Operator.run

        def record(operator: Operator, backend: Backend, flat: tuple[Any, ...]) -> Any:
            calls.append((operator._overloads[backend.overload], flat))
            return through(operator, backend, flat)

        arguments = converted(self.cases[case](), torch.float32, column.device)
        with monkeypatch.context() as patch:
            patch.setattr(Operator, "run", record)
            self.outcome(self.on(column), arguments)
        assert calls, f"{self.operation} ran no operator of {column}"
        for overload, given in calls:
            again = tuple(
                value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
                for value in given
            )
            # How an operator is registered and traced is the same for all backends, and slow in the interpreter.
            kernel = {"test_utils": ("test_schema", "test_faketensor")} if backends.interpreted() else {}
            torch.library.opcheck(overload, again, **kernel)

    test_operators_are_sound.compiled_only = True
    test_operators_are_sound.case_set = "typical"

    def test_compiles_whole(self, column, case):
        """torch.compile without a graph break, forward and backward."""
        arguments = converted(self.cases[case](), torch.float32, column.device)
        compiled = torch.compile(getattr(ops, self.operation), fullgraph=True, backend="aot_eager")

        def function(**given: Any) -> torch.Tensor:
            with use_backend(column.backend):
                return compiled(**given)

        torch.compiler.reset()
        self.compare(self.outcome(function, arguments), arguments, torch.float32)

    test_compiles_whole.compiled_only = True
    test_compiles_whole.case_set = "typical"

    def test_second_derivatives_are_right_or_refused(self, column, case):
        """A second derivative is right, or it is an error."""
        arguments = converted(self.cases[case](), torch.float64, column.device)

        def second(function: Callable[..., torch.Tensor], given: Arguments, learned: bool) -> list[torch.Tensor]:
            leaves = {name: tensor.detach().requires_grad_() for name, tensor in self.leaves(given).items()}
            output = function(**{**given, **leaves})
            gradient = upstream(output).requires_grad_(learned)
            first = torch.autograd.grad(output, list(leaves.values()), gradient, create_graph=True)
            # Of a linear operation the gradient depends on nothing, whose derivative would be an error of torch.
            total = sum((g * upstream(g)).sum() for g in first) + sum(0 * leaf.sum() for leaf in leaves.values())
            wanted = [*leaves.values(), *([gradient] if learned else [])]
            return list(torch.autograd.grad(total, wanted, materialize_grads=True))

        for learned in (True, False):
            refused, got = None, []
            try:
                got = second(self.on(column), arguments, learned)
            except RuntimeError as error:
                refused = str(error)
            if refused is not None:
                assert refused.startswith(f"{self.operation}: has no second derivative"), refused
                continue
            want = second(getattr(reference, self.operation), converted(arguments, torch.float64), learned)
            for value, expected in zip(got, want, strict=True):
                assert_close(value, expected, terms=self.terms(arguments), name="second derivative")

    test_second_derivatives_are_right_or_refused.compiled_only = True
    test_second_derivatives_are_right_or_refused.case_set = "typical"

    @pytest.mark.filterwarnings("error:There is a performance drop")
    def test_torch_func(self, column, case):
        """torch.func.vjp gives the gradients of backward, and torch.vmap of either is as many calls."""
        arguments = converted(self.cases[case](), torch.float32, column.device)
        leaves = self.leaves(arguments)
        if not leaves:
            return

        direction = upstream(self.on(column)(**arguments))

        def gradients(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            output, pull = torch.func.vjp(
                lambda *given: self.on(column)(**{**arguments, **dict(zip(leaves, given, strict=True))}), *tensors
            )
            return (output, *pull(direction))

        batches = [torch.stack([leaf, 0.5 * leaf, -leaf]) for leaf in leaves.values()]
        calls = [gradients(*call) for call in zip(*batches, strict=True)]
        self.compare(
            dict(zip(("output", *(f"gradient of {n}" for n in leaves)), calls[0], strict=True)),
            arguments,
            torch.float32,
        )
        for count in {1, len(batches)}:
            # The other arguments are the same in all calls.
            dims = (0,) * count + (None,) * (len(batches) - count)
            given = [batch if dim == 0 else batch[0] for batch, dim in zip(batches, dims, strict=True)]
            got = torch.vmap(gradients, dims)(*given)
            for row in range(3):
                want = gradients(*[value[row] if dim == 0 else value for value, dim in zip(given, dims, strict=True)])
                for value, expected in zip(got, want, strict=True):
                    assert_close(value[row], expected.double(), terms=self.terms(arguments), name="in torch.vmap")

    test_torch_func.case_set = "typical"


class SeededOperation(Operation):
    """Tests of an operation that draws random numbers."""

    def test_seed_as_number_or_tensor(self, column, seed):
        for case in self.typical:
            arguments = converted(self.cases[case](), torch.float32, column.device)
            number = self.on(column)(**{**arguments, "seed": seed})
            for shape in ((), (1,)):
                tensor = torch.full(shape, seed, dtype=torch.int64, device=column.device)
                assert_same_bits(self.on(column)(**{**arguments, "seed": tensor}), number)


class MultipliedOperation(Operation):
    """Further tests of an operation whose kernels have dense products."""

    # Cases in which an error of a product is not magnified by what follows it, such as a tanh that is saturated.
    conditioned: ClassVar[tuple[str, ...]]
    # The backends that have dense products in the large case.
    multiplying: ClassVar[tuple[str, ...]] = ("cpu", "triton")

    def rounded(
        self, column: Column, name: str, arguments: Arguments, backward: str | None = None
    ) -> dict[str, torch.Tensor]:
        """The outcome at a precision by PyTorch's name; ``backward``: the setting after the forward pass."""

        def gradient(output: torch.Tensor) -> torch.Tensor:
            torch.set_float32_matmul_precision(backward or name)
            return upstream(output)

        with precision.at(name):
            return self.outcome(self.on(column), arguments, gradient=gradient)

    def test_precisions(self, column, case):
        """Values and gradients are as near to float64 as each precision promises."""
        arguments = converted(self.cases[case](), torch.float32, column.device)
        want = self.expected(arguments)
        for name in precision.PRECISIONS:
            for key, value in self.rounded(column, name, arguments).items():
                assert value.dtype == torch.float32
                assert_norm_close(value, want[key], name, name=f"{self.operation}, {key}")

    test_precisions.compiled_only = True
    test_precisions.case_set = "conditioned"

    def test_a_precision_is_used_where_it_is_fast(self, column):
        """Other bits than in float32 where the precision is fast, the same ones elsewhere and for any threads."""
        arguments = converted(self.large(), torch.float32, column.device)
        plain, threads = self.rounded(column, "highest", arguments), torch.get_num_threads()
        fast = precision.fast(column.backend, torch.device(column.device))
        # On a GPU "high" is torch's, and its bits may be those of "highest".
        for name in ("high", "medium") if column.backend == "cpu" else ("medium",):
            found = self.rounded(column, name, arguments)
            changed = [key for key, value in found.items() if not torch.equal(value, plain[key])]
            expected = name in fast and column.backend in self.multiplying
            assert bool(changed) == expected, f"{name}: {changed} differ"
            if column.backend != "cpu":
                # An interpreted kernel does not promise bits, because its products are those of torch on the CPU.
                continue
            # What the forward pass was given holds in backward.
            later = self.rounded(column, name, arguments, backward="highest")
            try:
                torch.set_num_threads(3)
                again = self.rounded(column, name, arguments)
            finally:
                torch.set_num_threads(threads)
            for key, value in found.items():
                assert_same_bits(later[key], value, name=f"{key} with another setting in backward")
                assert_same_bits(again[key], value, name=f"{key} with other threads")

    test_a_precision_is_used_where_it_is_fast.compiled_only = True

    def test_autocast_is_medium(self, column):
        arguments = converted(self.large(), torch.float32, column.device)
        with torch.autocast(column.device, torch.bfloat16):
            found = self.outcome(self.on(column), arguments)
        want = self.expected(arguments)
        for key, value in self.rounded(column, "medium", arguments).items():
            assert_norm_close(found[key], want[key], "medium", name=key)
            if column.backend == "cpu":
                assert_same_bits(found[key], value, name=key)

    test_autocast_is_medium.compiled_only = True


class DrawnOperation(Operation):
    """Tests of an operation on several draws, which are independent."""

    # What a draw is filled with whose upstream gradient is 0, where it holds for all of them.
    fills: ClassVar[tuple[str, ...]] = ("huge", "infinite", "nan")
    # Cases for the test below.
    drawn: ClassVar[tuple[str, ...]]

    @staticmethod
    def first_draw(arguments: Arguments) -> list[torch.Tensor]:
        """Views of what belongs to the first draw alone."""
        raise NotImplementedError

    @staticmethod
    def draws_of(output: torch.Tensor) -> torch.Tensor:
        """The output with its draws in the first dimension."""
        return output

    def test_a_draw_without_weight_counts_nothing(self, column, dtype, case):
        """With an upstream gradient of 0, gradients are the same bits whatever the draw is; its own are 0."""
        plain = converted(self.cases[case](), dtype, column.device)

        def without_the_first(output: torch.Tensor) -> torch.Tensor:
            gradient = upstream(output)
            self.draws_of(gradient)[0] = 0
            return gradient

        function = self.on(column)
        want = self.outcome(function, plain, gradient=without_the_first)
        for fill in self.fills:
            broken = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in plain.items()}
            views = self.first_draw(broken)
            assert views
            for view in views:
                view.fill_({"huge": torch.finfo(dtype).max ** 0.52, "infinite": math.inf, "nan": math.nan}[fill])
            got = self.outcome(function, broken, gradient=without_the_first)
            for name in set(got) - {"output"}:
                assert want[name].isfinite().all()
                # A zero may have another sign.
                assert torch.equal(got[name], want[name]), f"{fill}, {name}: is {got[name]}, want {want[name]}"

    test_a_draw_without_weight_counts_nothing.case_set = "drawn"


class RangedOperation(Operation):
    """Tests of an operation with an argument ``log_var``, whose range ends at 30 on both sides."""

    def test_log_variances_end_at_30(self, column, dtype, case):
        """Outside of the range everything is as at its end, and the gradient of the log variance is 0."""
        plain = converted(self.cases[case](), dtype, column.device)
        values = [-math.inf, -1e30, -2000.0, -30.5, -30.0, -29.5, 0.0, 29.5, 30.0, 30.5, 200.0, 1e30, math.inf]
        given = torch.tensor(values, dtype=dtype, device=column.device)
        log_var = given.repeat(plain["log_var"].numel())[: plain["log_var"].numel()].view(plain["log_var"].shape)
        function = self.on(column)
        beyond, ends = {**plain, "log_var": log_var}, {**plain, "log_var": log_var.clamp(-30, 30)}
        got, want = self.outcome(function, beyond), self.outcome(function, ends)
        want["gradient of log_var"][log_var.abs() > 30] = 0
        for name, value in got.items():
            assert value.isfinite().all(), name
            assert torch.equal(value, want[name]), f"{name}: is {value}, want {want[name]}"
        self.compare(got, ends, dtype, self.expected(beyond))

    test_log_variances_end_at_30.case_set = "typical"


class SummedOperation(Operation):
    """Tests of an operation that sums over its operands and gives one number for each sample."""

    def test_a_nan_is_not_lost(self, column, case):
        """A NaN in an operand gives NaN, not a plausible number."""
        plain = converted(self.cases[case](), torch.float32, column.device)
        for name, leaf in self.leaves(plain).items():
            for index in {0, leaf.numel() // 2, leaf.numel() - 1}:
                broken = leaf.clone()
                broken.view(-1)[index] = float("nan")
                arguments = {**plain, name: broken}
                want = getattr(reference, self.operation)(**converted(arguments, torch.float64)).isnan()
                assert want.any()
                got = self.on(column)(**arguments).isnan().cpu()
                assert torch.equal(got, want), f"NaN at {index} of {name}"

    test_a_nan_is_not_lost.compiled_only = True
    test_a_nan_is_not_lost.case_set = "typical"
