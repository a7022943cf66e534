"""The benchmarks: there is one for each operation, and they run. Speed is not tested here."""

import importlib
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import seegera_fast as sf

BENCH = Path(__file__).resolve().parent.parent / "bench"
RESULTS = sorted(path.parent for path in BENCH.glob("results/*/report.json"))


@pytest.fixture
def bench(monkeypatch):
    """Imports a module of bench/ by its name."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


def test_each_operation_has_a_benchmark(bench):
    assert set(bench("operations").find()) == set(sf.ops.__all__)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("operation", sf.ops.__all__)
def test_contenders_give_the_same_numbers(bench, operation):
    """Every case with small sizes, including those for bench/device.py."""
    operations = bench("operations")
    benchmark = operations.find()[operation]
    size = operations.Size(nodes=40, features=20, width=12, hub=True)
    for case in [*benchmark.cases, *(benchmark.small or ()), *benchmark.larger, benchmark.first]:
        small = {name: value for name, value in case.items() if name not in ("width", "dtype")}
        operations.check_same_numbers(benchmark.calls(size, small))
        work = benchmark.work(size, small)
        assert work is None or work.moved > 0


@pytest.mark.skipif(importlib.util.find_spec("pytest_benchmark") is None, reason="pytest-benchmark is not installed")
def test_pytest_finds_the_benchmarks_and_runs_one_without_a_data_set(tmp_path):
    options = ("-v", "--benchmark-disable", "-p", "no:cacheprovider", "-k", "bench_importance_bound")
    command = [sys.executable, "-m", "pytest", *options, str(BENCH)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("PASSED") == 4
    assert "deselected" in result.stdout


def test_numbers_that_differ_are_not_timed(bench):
    operations = bench("operations")

    @operations.operation(operations.grid(other=(1.0, 1.001)))
    def bench_it(size, other):
        return {"seegera_fast": lambda: [torch.ones(2)], "torch": lambda: [torch.tensor([1.0, other])]}

    class Benchmark:
        group, timed = "", 0

        def __call__(self, call):
            self.timed += 1

    same, other = bench_it.description.cases
    benchmark = Benchmark()
    bench_it(benchmark, same, "seegera_fast")
    assert (benchmark.timed, benchmark.group) == (1, "it, other 1.0")
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        bench_it(benchmark, other, "seegera_fast")
    assert benchmark.timed == 1


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("likelihood", ["bernoulli", "mse"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_the_contenders_of_a_step_are_the_same_model(bench, likelihood, layers):
    steps = bench("steps")
    graph = steps.random_graph(40, degree=4, features=20)
    fields = {"embedding_dim": 6, "hidden_dim": 5, "num_importance_samples": 2, "likelihood": likelihood}
    steps.check_same_numbers(graph, sf.SeeGeraConfig(encoder_layers=layers, decoder_layers=layers, **fields))


def test_a_dense_feature_matrix_is_counted_once_in_each_product_of_a_step(bench):
    """The features of Computers have few zeros, and are multiplied as dense matrices are."""
    floors = bench("floors")
    size = SimpleNamespace(num_nodes=50, num_features=30, num_edges=80, features=SimpleNamespace(nnz=1500))
    config = sf.SeeGeraConfig(embedding_dim=6, hidden_dim=5, dropout=0.0, encoder_layers=2)
    draws, samples = config.num_importance_samples + config.num_mixture_samples, config.num_importance_samples
    found = floors.step(size, config)
    # Two operations for each entry and column, and as many for the gradient.
    assert found["encoder, first layer"].operations == 4 * 1500 * 2 * 5
    assert found["feature averages"].operations == 4 * 1500 * (draws + 1 + samples) * 6


def test_the_report_lists_its_sections_and_refuses_words_that_name_none(bench, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    report = bench("report")
    assert report.main(["--list", "--only", "step", "growth"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert {"step, cora", "growth"} < set(listed)
    assert "sparse_matmul" not in listed
    for arguments, message in (
        (["--only", "nothing"], "no section holds nothing"),
        (["--render", "nowhere"], "--render: got nowhere, want a folder that holds a report.json"),
    ):
        with pytest.raises(SystemExit):
            report.main(arguments)
        assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_report_is_measured_and_written(bench, monkeypatch, tmp_path):
    """If a section raises, the other sections still run and its earlier figures are kept."""

    def works(record):
        record.at_least("step, it", "times faster than plain", 2.0, 3)
        for nodes in (10, 100):
            record.row("growth, it", "seconds a step", nodes / 7, nodes=nodes)

    def breaks(record):
        record.at_most("it", "times its floor", float("nan"), 2)
        raise RuntimeError("no such file")

    report = bench("report")
    monkeypatch.setattr(report, "SECTIONS", {"works": works, "breaks": breaks})
    assert report.main(["--out", str(tmp_path / "out")]) == 3
    content = json.loads((tmp_path / "out" / "report.json").read_text(), parse_constant=pytest.fail)
    assert [section["status"] for section in content["sections"].values()] == ["done", "failed"]
    assert [(bar["bar"], bar["met"]) for bar in content["bars"]] == [(">= 3", False), ("<= 2", None)]
    page = (tmp_path / "out" / "report.md").read_text()
    assert "| step, it | times faster than plain | 2 | >= 3 | **missed** |" in page
    assert "| it | times its floor |  | <= 2 | not measured |" in page
    assert "- breaks: failed  RuntimeError: no such file" in page
    assert "| growth, it, 100 nodes | seconds a step | 14.29 |" in page
    drawn = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert drawn == {"speed.png", "growth.png"}
    assert all(f"]({name})" in page for name in drawn)


@pytest.mark.parametrize("folder", RESULTS, ids=lambda path: path.name)
def test_the_results_that_are_kept_are_rendered_from_their_figures(bench, tmp_path, folder):
    shutil.copy(folder / "report.json", tmp_path)
    assert bench("report").main(["--render", str(tmp_path)]) == 0
    assert (tmp_path / "report.md").read_text() == (folder / "report.md").read_text(), "bench/report.py --render"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in folder.iterdir()}
    report = bench("reporter").Report.read(folder)
    kept = {(bar["work"], bar["figure"]): bar for bar in report.content["bars"]}
    assert {(bar["work"], bar["figure"]): bar for bar in report.judged()} == kept
    assert report.status() == report.content["exit status"]
