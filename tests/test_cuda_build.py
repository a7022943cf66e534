"""The CUDA and Triton kernels compile for their GPUs, spill no registers, and need no more than the table says."""

from __future__ import annotations

import json
import os

import ahead_of_time
import pytest

pytestmark = pytest.mark.device
needs_nvcc = pytest.mark.skipif(ahead_of_time.find_nvcc() is None, reason="nvcc, the CUDA compiler, is not installed")
needs_triton = pytest.mark.skipif(not ahead_of_time.has_triton(), reason="Triton is not installed")


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("operation", ahead_of_time.CUDA_SOURCES)
def test_cuda_kernels_keep_to_the_resource_table(operation):
    measured = ahead_of_time.measure_cuda(operation)
    assert measured, "no kernel was compiled"
    assert ahead_of_time.problems("nvcc", operation, measured) == []


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("operation", ahead_of_time.TRITON_MODULES)
def test_triton_kernels_keep_to_the_resource_table(operation):
    measured = ahead_of_time.measure_triton(operation)
    assert measured, "no kernel was compiled"
    assert ahead_of_time.problems("triton", operation, measured) == []


@needs_triton
@pytest.mark.slow
def test_triton_kernels_are_compiled_where_the_table_is_not_of_their_sources(tmp_path, monkeypatch):
    table = json.loads(ahead_of_time.TABLE.read_text())
    table["sources"]["draw_subset"] = "of other sources"
    changed = tmp_path / "resources.json"
    changed.write_text(json.dumps(table))
    monkeypatch.setattr(ahead_of_time, "TABLE", changed)
    measured = ahead_of_time.measure_triton("draw_subset")
    # What was compiled has its shared memory.
    assert all("shared" in used for by_name in measured.values() for used in by_name.values())
    assert ahead_of_time.problems("triton", "draw_subset", measured) == []


@needs_nvcc
@pytest.mark.slow
def test_spilled_registers_of_a_cuda_kernel_are_seen(tmp_path, monkeypatch):
    source = tmp_path / "greedy.cu"
    source.write_text(
        """
        __global__ void __launch_bounds__(1024) greedy(const float* from, float* to) {
            float kept[200];
            for (int i = 0; i < 200; ++i) kept[i] = from[i * 1024 + threadIdx.x];
            __syncthreads();
            for (int i = 0; i < 200; ++i) to[i * 1024 + threadIdx.x] = kept[i] * kept[199 - i];
        }
        """
    )
    monkeypatch.setitem(ahead_of_time.CUDA_SOURCES, "greedy", source)
    measured = [ahead_of_time.compile_cuda("greedy")]
    if ahead_of_time.find_reader() is not None:
        # The same from a file, as the native build leaves it.
        codes = [f"-gencode=arch={name.replace('sm', 'compute')},code={name}" for name in ahead_of_time.ARCHITECTURES]
        monkeypatch.setattr(ahead_of_time, "BUILD", tmp_path)
        compiled = tmp_path / "greedy.cu.o"
        ahead_of_time.run([ahead_of_time.find_nvcc(), *codes, "-O3", "-c", source, "-o", compiled])
        assert ahead_of_time.built("greedy") == compiled
        measured.append(ahead_of_time.measure_cuda("greedy"))
        os.utime(source, (compiled.stat().st_mtime + 1,) * 2)
        assert ahead_of_time.built("greedy") is None
    registers = {name: used["registers"] for name, used in measured[0]["greedy"].items()}
    for each in measured:
        assert {name: used["registers"] for name, used in each["greedy"].items()} == registers
        assert set(each) == {"greedy"}
        found = ahead_of_time.problems("nvcc", "greedy", each)
        for architecture in ahead_of_time.ARCHITECTURES:
            assert any(f"greedy on {architecture}" in line and "spilled" in line for line in found), found


@pytest.mark.parametrize(
    ("version", "registers", "spilled", "shared", "found"),
    [
        ("1.0", 40, 0, 101376, []),
        ("1.0", 41, 0, 0, ["k on sm_90: 41 registers, 40 in the table (triton 1.0, 1.0 there)"]),
        ("2.0", 60, 0, 0, []),
        ("2.0", 61, 0, 0, ["k on sm_90: 61 registers, 40 in the table (triton 2.0, 1.0 there)"]),
        ("2.0", 10, 8, 0, ["k on sm_90: 8 bytes of spilled registers"]),
        ("2.0", 10, 0, 101377, ["k on sm_90: 101377 bytes of shared memory, 101376 at most"]),
    ],
)
def test_the_rule_of_the_table(tmp_path, monkeypatch, version, registers, spilled, shared, found):
    table = tmp_path / "resources.json"
    table.write_text('{"versions": {"triton": "1.0"}, "triton": {"op": {"k": {"sm_80": 30, "sm_90": 40}}}}')
    monkeypatch.setattr(ahead_of_time, "TABLE", table)
    monkeypatch.setattr(ahead_of_time, "triton_version", lambda: version)
    fine = {"registers": 30, "spilled": 0}
    measured = {"k": {"sm_80": fine, "sm_90": {"registers": registers, "spilled": spilled, "shared": shared}}}
    assert ahead_of_time.problems("triton", "op", measured) == found
    assert ahead_of_time.problems("triton", "op", {}) == ["k: in the table, but not compiled"]
    stranger = ahead_of_time.problems("triton", "op", {**measured, "new": {"sm_80": fine}})
    assert [line.partition(";")[0] for line in stranger[-2:]] == [
        "new on sm_80: not in the table",
        "new on sm_90: not compiled",
    ]
