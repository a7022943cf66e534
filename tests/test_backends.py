"""Which backend runs an operation, why others can't, and that a forced backend is never replaced by another."""

import asyncio
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import threading
import warnings

import cases
import pytest
import torch
from tolerances import assert_same_bits

import seegera_fast as sf
from seegera_fast import backends, ops, reference, use_backend
from seegera_fast.registry import OPERATORS, Operator

ROOT = pathlib.Path(__file__).resolve().parents[1]
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


COLUMNS = {
    "everywhere": ("cpu", "cuda", "triton"),
    "on the cpu": ("cpu",),
    "in triton": ("cpu", "triton"),
    "everywhere_backward": ("cpu", "cuda", "triton"),
}


@pytest.fixture
def table(monkeypatch):
    """All backends are available, as on a machine with a GPU, and have the operations in COLUMNS."""
    for backend in backends.BACKENDS:
        operators = {name: None for name, columns in COLUMNS.items() if backend.name in columns}
        monkeypatch.setattr(backend, "operators", operators)
        monkeypatch.setattr(backend, "others", [])
        monkeypatch.setattr(backend, "missing", None)
    monkeypatch.setattr(backends.TRITON, "devices", ("cuda",))
    monkeypatch.setattr(backends, "AUTOMATIC", backends.BACKENDS)
    monkeypatch.setattr(backends, "_warned", False)


@pytest.fixture
def lose(monkeypatch):
    """Makes backends missing, for a reason."""

    def change(**reasons):
        for backend in backends.BACKENDS:
            if backend.name in reasons:
                monkeypatch.setattr(backend, "missing", reasons[backend.name])
            elif backend.steps is not None and backend.steps.name in reasons:
                monkeypatch.setattr(backend, "missing", reasons[backend.steps.name])

    return change


def choice(operation, device):
    return backends.choose(operation, device).name


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

    def record(operator, backend, **arguments):
        seen.append(backend.name)
        return through(operator, backend, **arguments)

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


def test_info_leaves_backward_operators_out(table, lose):
    lose(triton="Triton is not installed")
    info = backends.info()
    assert info["cpu"] == {"available": True, "reason": None, "operations": ["everywhere", "on the cpu", "in triton"]}
    assert info["triton"] == {
        "available": False,
        "reason": "Triton is not installed",
        "operations": ["everywhere", "in triton"],
    }


@pytest.mark.parametrize("backend", backends.BACKENDS, ids=lambda backend: backend.overload)
def test_a_listed_operator_has_its_kernel(backend):
    for name in backend.operators if backend.missing is None else []:
        suffix = "" if backend.overload == "default" else f".{backend.overload}"
        for key in backend.keys:
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"seegera_fast::{name}{suffix}", key), name


def test_operators_are_operations_or_their_backward_halves():
    assert {name.removesuffix("_backward") for name in OPERATORS} <= set(ops.__all__)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_reason_says_so():
    assert not backends.info()["cuda"]["available"]
    assert backends.interpreted() or not backends.info()["triton"]["available"]


# --- the choice ------------------------------------------------------------------------------------------------------


def test_a_cpu_tensor_takes_the_compiled_kernel(table):
    assert choice("everywhere", CPU) == "cpu"
    assert choice("on the cpu", CPU) == "cpu"


def test_a_cuda_tensor_takes_cuda_then_triton(table, lose):
    assert choice("everywhere", CUDA) == "cuda"
    assert choice("in triton", CUDA) == "triton"
    lose(cuda="the cuda library was not built")
    assert choice("everywhere", CUDA) == "triton"


def test_what_has_no_kernel_takes_the_reference(table):
    for device in (CPU, CUDA, torch.device("meta")):
        assert choice("nowhere", device) == "reference"
    assert choice("on the cpu", CUDA) == "reference"
    assert choice("everywhere", torch.device("meta")) == "reference"


@pytest.fixture
def gpu(monkeypatch):
    """Makes torch tell of a GPU that it has."""

    def change(capability, hip=None):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
        backends._unfit.cache_clear()

    yield change
    backends._unfit.cache_clear()


@pytest.mark.parametrize(
    ("capability", "hip", "reason"),
    [
        ((7, 5), None, "a Tesla T4 of compute capability 7.5, and they want 8.0 (Ampere) or later"),
        ((9, 4), "7.0", "a GPU of AMD, on which they were never tested"),
    ],
)
def test_a_gpu_that_the_kernels_are_not_for_takes_the_reference_and_warns_once(table, gpu, capability, hip, reason):
    gpu(capability, hip)
    with pytest.warns(UserWarning, match=re.escape(f"no kernels for cuda, {reason}: plain PyTorch")) as caught:
        assert choice("everywhere", CUDA) == choice("in triton", CUDA) == "reference"
    assert len(caught) == 1
    with use_backend("triton"), pytest.raises(RuntimeError, match=re.escape(f"got cuda, {reason}")):
        choice("everywhere", CUDA)


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (9, 0), (12, 0)])
def test_newer_gpus_take_the_kernels(table, gpu, capability):
    gpu(capability)
    assert choice("everywhere", CUDA) == "cuda"


def test_a_gpu_kernel_that_is_missing_is_an_error_with_both_reasons(table, lose):
    lose(cuda="the cuda library was not built", triton="Triton is not installed")
    with pytest.raises(RuntimeError) as caught:
        choice("everywhere", CUDA)
    message = str(caught.value)
    for part in (
        "everywhere",
        "cuda: the cuda library was not built",
        "triton: Triton is not installed",
        "use_backend",
    ):
        assert part in message
    with pytest.raises(RuntimeError) as caught:
        choice("in triton", CUDA)
    assert "cuda: " not in str(caught.value)


def test_a_cpu_library_that_is_missing_warns_once(table, lose):
    lose(cpu="the cpu library was not built")
    with pytest.warns(UserWarning, match=r"without its compiled kernels \(the cpu library was not built\)"):
        assert choice("everywhere", CPU) == "reference"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choice("everywhere", CPU) == "reference"
        assert choice("on the cpu", CPU) == "reference"


def test_an_unknown_word_of_a_variable_is_said_at_the_import():
    environment = {**os.environ, "SEEGERA_ISA": "avx-512", "SEEGERA_BFLOAT16": "None"}
    command = [sys.executable, "-c", "import seegera_fast"]
    said = subprocess.run(command, check=True, env=environment, cwd=ROOT, capture_output=True, text=True).stderr
    assert said.count("SEEGERA_ISA: got 'avx-512', want one of base, avx2, avx512, or no such variable") == 1
    assert said.count("SEEGERA_BFLOAT16: got 'None', want one of none, kernel, mkl, or no such variable") == 1


def test_a_missing_library_leaves_the_results_as_they_are(monkeypatch, product, calls):
    monkeypatch.setattr(backends.CPU, "missing", "the cpu library was not built")
    monkeypatch.setattr(backends, "_warned", False)
    with pytest.warns(UserWarning, match="Reinstall it where a C"):
        result = ops.sparse_matmul(*product)
    assert calls == []
    assert_same_bits(result, reference.sparse_matmul(*product))


# --- use_backend -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpu", "", "CPU", None, 1, "numpy", ["cpu"]])
def test_an_unknown_backend(name):
    error = ValueError if isinstance(name, str) else TypeError
    with pytest.raises(error, match=r"backend: got .*, want one of 'cpu', 'cuda', 'triton', 'reference'"):
        use_backend(name).__enter__()


def test_a_missing_backend_cannot_be_forced(table, lose):
    lose(cuda="the cuda library was not built")
    with pytest.raises(RuntimeError, match="backend 'cuda' is not available: the cuda library was not built"):
        use_backend("cuda").__enter__()
    assert backends.forced() is None


def test_a_forced_backend_without_a_kernel_is_an_error(table):
    with (
        use_backend("cuda"),
        pytest.raises(RuntimeError, match="on the cpu: backend 'cuda' is forced and has no kernel"),
    ):
        choice("on the cpu", CUDA)
    with use_backend("cpu"), pytest.raises(RuntimeError, match="nowhere: backend 'cpu' is forced and has no kernel"):
        choice("nowhere", CPU)


def test_a_forced_backend_on_another_device_is_an_error(table):
    for backend, device, wanted in (("cpu", CUDA, "cpu"), ("cuda", CPU, "cuda"), ("triton", CPU, "cuda")):
        with (
            use_backend(backend),
            pytest.raises(RuntimeError, match=f"'{backend}' is forced and runs on {wanted} tensors"),
        ):
            choice("everywhere", device)


def test_triton_in_the_interpreter_runs_on_cpu_tensors_and_has_to_be_asked_for():
    code = """
import torch
from seegera_fast import backends, use_backend
cpu, cuda = torch.device("cpu"), torch.device("cuda")
assert backends.choose("gcn", cpu) is not backends.TRITON
with use_backend("triton"):
    assert backends.choose("gcn", cpu) is backends.TRITON
    try:
        backends.choose("gcn", cuda)
    except RuntimeError as error:
        assert "runs on cpu tensors" in str(error)
    else:
        raise SystemExit("no error")
"""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=ROOT)


def test_the_steps_of_a_triton_launcher_are_those_of_cuda_where_triton_is_not_forced(table, lose):
    assert backends.choose("in triton", CUDA).steps is backends.CUDA
    with use_backend("triton"):
        assert backends.choose("in triton", CUDA).steps is None
    lose(cuda="the cuda library was not built")
    assert backends.choose("in triton", CUDA).steps is None
    assert choice("in triton", CUDA) == "triton"


def test_the_reference_can_always_be_forced(table):
    with use_backend("reference"):
        for name in ("everywhere", "nowhere"):
            for device in (CPU, CUDA):
                assert choice(name, device) == "reference"


def test_forced_backends_nest_and_are_restored_after_errors(table):
    with use_backend("reference"):
        with use_backend("cpu"):
            assert choice("everywhere", CPU) == "cpu"
        assert choice("everywhere", CPU) == "reference"
        with pytest.raises(KeyError), use_backend("triton"):
            raise KeyError
        assert choice("everywhere", CPU) == "reference"
    assert choice("everywhere", CPU) == "cpu"


def test_blocks_may_be_left_in_any_order(table):
    first, second, third = (use_backend(name) for name in ("cpu", "reference", "cpu"))
    first.__enter__()
    second.__enter__()
    third.__enter__()
    second.__exit__(None, None, None)
    assert choice("everywhere", CPU) == "cpu"
    third.__exit__(None, None, None)
    assert backends.forced() is backends.CPU
    first.__exit__(None, None, None)
    assert backends.forced() is None
    assert backends._blocks.get() == ()
    assert backends._active_blocks == []
    assert backends._forced_when_compiling is None


def test_threads_do_not_see_the_blocks_of_others(table):
    inside, leave, seen = threading.Event(), threading.Event(), {}

    def other():
        seen["before"] = backends.forced()
        with use_backend("cpu"):
            inside.set()
            leave.wait(10)
            seen["inside"] = backends.forced()
        seen["after"] = backends.forced()

    with use_backend("reference"):
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(10)
        assert backends.forced() is backends.REFERENCE
        leave.set()
        thread.join()
        assert backends.forced() is backends.REFERENCE
    assert seen == {"before": None, "inside": backends.CPU, "after": None}
    assert backends._active_blocks == []


def test_tasks_do_not_see_the_blocks_of_others(table):
    async def task(name, pause):
        with use_backend(name):
            for _ in range(3):
                await asyncio.sleep(pause)
                assert backends.forced().name == name

    async def both():
        await asyncio.gather(task("cpu", 0.001), task("reference", 0.0015))

    asyncio.run(both())
    assert backends.forced() is None


def test_a_block_that_another_thread_leaves_holds_nowhere(table):
    """As when the garbage collector of another thread ends a generator."""
    block = use_backend("cpu")
    block.__enter__()
    thread = threading.Thread(target=lambda: block.__exit__(None, None, None))
    thread.start()
    thread.join()
    assert backends.forced() is None


@pytest.mark.skipif(not backends.info()["cpu"]["available"], reason="the CPU kernels are not there")
@pytest.mark.parametrize("backward_in", ["reference", None])
def test_backward_takes_what_forward_took(product, calls, backward_in):
    matrix, dense = product
    dense.requires_grad_()
    with use_backend("cpu"):
        out = ops.sparse_matmul(matrix, dense)
    ran = []
    through = Operator.run

    def record(operator, backend, flat):
        ran.append(backend)
        return through(operator, backend, flat)

    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(Operator, "run", record)
        if backward_in is not None:
            stack.enter_context(use_backend(backward_in))
        out.sum().backward()
    assert ran == [backends.CPU]


def test_a_compiled_function_follows_the_block(product, calls):
    """torch.compile can't read a context variable; it is told of the process's blocks."""
    compiled = torch.compile(ops.sparse_matmul, fullgraph=True, backend="eager")
    torch.compiler.reset()
    want = reference.sparse_matmul(*product)
    with use_backend("reference"):
        assert_same_bits(compiled(*product), want)
    assert calls == []
    compiled(*product)
    assert calls == ([] if backends.CPU.missing else ["cpu"])


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
