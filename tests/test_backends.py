"""Which backend runs an operation, what is said of those that can't, and that a forced one never falls back."""

import pathlib
import types
import warnings

import cases
import pytest
import torch
from tolerances import assert_same_bits

import seegera_fast as sf
from seegera_fast import backends, ops, reference, use_backend
from seegera_fast.registry import OPERATORS, Operator

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def table(monkeypatch):
    """Operators and missing backends that a test decides: one operation per set of columns, nothing missing."""
    operators = {
        "everywhere": types.SimpleNamespace(columns=("cpu", "cuda", "triton")),
        "on the cpu": types.SimpleNamespace(columns=("cpu",)),
        "in triton": types.SimpleNamespace(columns=("cpu", "triton")),
        "everywhere_backward": types.SimpleNamespace(columns=("cpu", "cuda", "triton")),
    }
    missing = {}
    monkeypatch.setattr(backends, "OPERATORS", operators)
    monkeypatch.setattr(backends, "_missing", missing)
    monkeypatch.setattr(backends, "_warned", False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    return missing


@pytest.fixture
def product():
    """A product that a compiled kernel can do, and its operands."""
    matrix = cases.graph("random").propagation.to(dtype=torch.float32)
    return matrix, cases.normal(17, 5).float()


@pytest.fixture
def calls(monkeypatch):
    """The backends that operators were called with."""
    seen = []
    through = Operator.__call__

    def record(operator, backend, *arguments):
        seen.append(backend)
        return through(operator, backend, *arguments)

    monkeypatch.setattr(Operator, "__call__", record)
    return seen


# --- what there is ---------------------------------------------------------------------------------------------------


def test_info_lists_every_backend_with_a_reason_for_each_that_is_missing():
    table = backends.info()
    assert list(table) == ["cpu", "cuda", "triton", "reference"]
    for row in table.values():
        assert set(row) == {"available", "reason", "operations"}
        assert row["available"] == (row["reason"] is None)
        assert row["reason"] is None or len(row["reason"]) > 10
        assert set(row["operations"]) <= set(ops.__all__)


def test_the_reference_has_everything():
    row = backends.info()["reference"]
    assert row["available"]
    assert row["operations"] == ops.__all__ == reference.__all__


def test_info_is_a_copy():
    backends.info()["cpu"]["operations"].append("nothing")
    backends.info()["reference"]["operations"].append("nothing")
    assert "nothing" not in backends.info()["cpu"]["operations"]
    assert "nothing" not in ops.__all__


def test_info_leaves_backward_operators_out(table):
    table["triton"] = "Triton is not installed"
    info = backends.info()
    assert info["cpu"] == {"available": True, "reason": None, "operations": ["everywhere", "on the cpu", "in triton"]}
    assert info["triton"] == {
        "available": False,
        "reason": "Triton is not installed",
        "operations": ["everywhere", "in triton"],
    }


def test_a_library_beside_the_package_loads():
    folder = pathlib.Path(sf.__file__).parent
    if list(folder.glob("_C.*so")):
        assert backends.info()["cpu"]["reason"] is None
        assert backends.instruction_set() in ("base", "avx2", "avx512")
    else:
        assert backends.info()["cpu"]["reason"] == "the cpu library was not built"
        assert backends.instruction_set() is None


@pytest.mark.parametrize("backend", ["cpu", "cuda", "triton"])
def test_a_listed_operation_has_its_kernel(backend):
    row = backends.info()[backend]
    key = "cpu" if backend == "triton" and backends.interpreted() else backend
    for name in row["operations"] if row["available"] else []:
        for operator in OPERATORS[name].operators:
            overload = f"seegera_fast::{operator}" + (".triton" if backend == "triton" else "")
            assert torch._C._dispatch_has_kernel_for_dispatch_key(overload, "CPU" if key == "cpu" else "CUDA"), name


def test_operators_are_operations_or_their_backward_halves():
    assert {name.removesuffix("_backward") for name in OPERATORS} <= set(ops.__all__)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_reason_says_so():
    assert not backends.info()["cuda"]["available"]
    assert backends.interpreted() or not backends.info()["triton"]["available"]


# --- the choice ------------------------------------------------------------------------------------------------------


def test_a_cpu_tensor_takes_the_compiled_kernel(table):
    assert backends.choose("everywhere", CPU) == "cpu"
    assert backends.choose("on the cpu", CPU) == "cpu"


def test_a_cuda_tensor_takes_cuda_then_triton(table):
    assert backends.choose("everywhere", CUDA) == "cuda"
    assert backends.choose("in triton", CUDA) == "triton"
    table["cuda"] = "the cuda library was not built"
    assert backends.choose("everywhere", CUDA) == "triton"


def test_what_has_no_kernel_takes_the_reference(table):
    for device in (CPU, CUDA, torch.device("meta")):
        assert backends.choose("nowhere", device) == "reference"
    assert backends.choose("on the cpu", CUDA) == "reference"
    assert backends.choose("everywhere", torch.device("meta")) == "reference"


def test_a_gpu_kernel_that_is_missing_is_an_error_with_both_reasons(table):
    table.update(cuda="the cuda library was not built", triton="Triton is not installed")
    with pytest.raises(RuntimeError) as caught:
        backends.choose("everywhere", CUDA)
    message = str(caught.value)
    for part in (
        "everywhere",
        "cuda: the cuda library was not built",
        "triton: Triton is not installed",
        "use_backend",
    ):
        assert part in message
    with pytest.raises(RuntimeError) as caught:
        backends.choose("in triton", CUDA)
    assert "cuda: " not in str(caught.value)


def test_a_cpu_library_that_is_missing_warns_once(table):
    table["cpu"] = "the cpu library was not built"
    with pytest.warns(UserWarning, match=r"without its compiled kernels \(the cpu library was not built\)"):
        assert backends.choose("everywhere", CPU) == "reference"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert backends.choose("everywhere", CPU) == "reference"
        assert backends.choose("on the cpu", CPU) == "reference"


def test_a_missing_library_leaves_the_results_as_they_are(monkeypatch, product, calls):
    monkeypatch.setitem(backends._missing, "cpu", "the cpu library was not built")
    monkeypatch.setattr(backends, "_warned", False)
    with pytest.warns(UserWarning, match="Reinstall it where a C"):
        result = ops.sparse_matmul(*product)
    assert calls == []
    assert_same_bits(result, reference.sparse_matmul(*product))


# --- use_backend -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpu", "", "CPU", None, 1, "numpy"])
def test_an_unknown_backend(name):
    with pytest.raises(ValueError, match=r"backend: got .*, want one of 'cpu', 'cuda', 'triton', 'reference'"):
        use_backend(name).__enter__()


def test_a_missing_backend_cannot_be_forced(table):
    table["cuda"] = "the cuda library was not built"
    with pytest.raises(RuntimeError, match="backend 'cuda' is not available: the cuda library was not built"):
        use_backend("cuda").__enter__()
    assert backends._forced is None


def test_a_forced_backend_without_a_kernel_is_an_error(table):
    with (
        use_backend("cuda"),
        pytest.raises(RuntimeError, match="on the cpu: backend 'cuda' is forced and has no kernel"),
    ):
        backends.choose("on the cpu", CUDA)
    with use_backend("cpu"), pytest.raises(RuntimeError, match="nowhere: backend 'cpu' is forced and has no kernel"):
        backends.choose("nowhere", CPU)


def test_a_forced_backend_on_another_device_is_an_error(table):
    for backend, device, wanted in (("cpu", CUDA, "cpu"), ("cuda", CPU, "cuda"), ("triton", CPU, "cuda")):
        with (
            use_backend(backend),
            pytest.raises(RuntimeError, match=f"'{backend}' is forced and runs on {wanted} tensors"),
        ):
            backends.choose("everywhere", device)


def test_triton_in_the_interpreter_runs_on_cpu_tensors(table, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with use_backend("triton"):
        assert backends.choose("everywhere", CPU) == "triton"
        with pytest.raises(RuntimeError, match="runs on cpu tensors"):
            backends.choose("everywhere", CUDA)


def test_what_a_launcher_in_triton_takes_besides(table):
    """Never an error: a gradient is asked for inside and outside of use_backend."""
    for backend in ("cpu", "cuda", "reference"):
        with use_backend(backend):
            assert backends.beside_triton("everywhere", CUDA) == "cuda"
    assert backends.beside_triton("everywhere", CUDA) == "cuda"
    assert backends.beside_triton("everywhere", CPU) == "triton"
    assert backends.beside_triton("in triton", CUDA) == "triton"
    with use_backend("triton"):
        assert backends.beside_triton("everywhere", CUDA) == "triton"
    table["cuda"] = "the cuda library was not built"
    assert backends.beside_triton("everywhere", CUDA) == "triton"


def test_the_reference_can_always_be_forced(table):
    with use_backend("reference"):
        for name in ("everywhere", "nowhere"):
            for device in (CPU, CUDA):
                assert backends.choose(name, device) == "reference"


def test_forced_backends_nest_and_are_restored_after_errors(table):
    with use_backend("reference"):
        with use_backend("cpu"):
            assert backends.choose("everywhere", CPU) == "cpu"
        assert backends.choose("everywhere", CPU) == "reference"
        with pytest.raises(KeyError), use_backend("triton"):
            raise KeyError
        assert backends.choose("everywhere", CPU) == "reference"
    assert backends.choose("everywhere", CPU) == "cpu"


def test_the_forced_reference_calls_no_operator(product, calls):
    with use_backend("reference"):
        assert_same_bits(ops.sparse_matmul(*product), reference.sparse_matmul(*product))
    assert calls == []


@pytest.mark.skipif(not backends.info()["cpu"]["available"], reason="the CPU kernels are not there")
def test_the_forced_cpu_calls_its_operator(product, calls):
    with use_backend("cpu"):
        ops.sparse_matmul(*product)
    assert calls == ["cpu"]


def test_use_backend_is_public():
    assert sf.use_backend is use_backend
