"""The benchmarks: there is one for each operation, and they run. How fast anything is, they say, not the tests."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from seegera_fast import ops

BENCH = Path(__file__).resolve().parent.parent / "bench"

needs_benchmark = pytest.mark.skipif(
    importlib.util.find_spec("pytest_benchmark") is None, reason="pytest-benchmark is not installed"
)


def run(folder, *arguments):
    """A Python process outside of the sources."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_each_operation_has_its_benchmark():
    expected = {f"bench_{operation}" for operation in ops.__all__} | {"bench_step"}
    assert {path.stem for path in BENCH.glob("bench_*.py")} == expected


@needs_benchmark
def test_all_are_imported_and_the_quick_ones_run_without_a_data_set(tmp_path):
    quick = {
        f"bench_{name}" for name in ("importance_bound", "draw_noise", "draw_subset", "mask_edges", "mask_entries")
    }
    options = ("-v", "--benchmark-disable", "-p", "no:cacheprovider", "-k", " or ".join(quick))
    result = run(tmp_path, "-m", "pytest", *options, BENCH)
    assert result.returncode == 0, result.stdout + result.stderr
    passed = [line for line in result.stdout.splitlines() if "::bench_" in line and "PASSED" in line]
    assert {Path(line.split("::")[0]).stem for line in passed} == quick


def test_numbers_that_differ_are_not_timed(tmp_path):
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from cases import compare

for other in (1.0, 1.001):
    calls = {"seegera_fast": lambda: [torch.ones(2)], "torch": lambda: [torch.tensor([1.0, other])]}
    compare(lambda call: print("timed", other), "seegera_fast", calls)
"""
    result = run(tmp_path, "-c", code, BENCH)
    assert result.stdout == "timed 1.0\n"
    assert "Tensor-likes are not close" in result.stderr


@needs_benchmark
def test_the_contenders_are_the_same_model(tmp_path):
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import cases
import seegera_fast as sf

graph = cases.random_graph(40, degree=4, features=20)
small = {"embedding_dim": 6, "hidden_dim": 5, "num_importance_samples": 2}
for layers in (1, 2, 3):
    for fields in ({}, {"likelihood": "mse"}):
        config = sf.SeeGeraConfig(encoder_layers=layers, decoder_layers=layers, **small, **fields)
        cases.check_same_numbers(graph, config)
        print(layers, *fields)
"""
    result = run(tmp_path, "-c", code, BENCH)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 6


def test_the_report_lists_its_sections(tmp_path):
    result = run(tmp_path, BENCH / "report.py", "--list")
    assert result.returncode == 0, result.stderr
    assert {"step, cora", "sparse_matmul", "growth"} <= set(result.stdout.splitlines())
    assert not list(tmp_path.iterdir())
