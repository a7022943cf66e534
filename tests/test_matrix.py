"""tools/matrix.py, sanitize.py, compare_builds.py: what they choose, and what they say of what they could not run."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import seegera_fast as sf

TOOLS = Path(__file__).resolve().parents[1] / "tools"


def load(name, monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def matrix(monkeypatch):
    return load("matrix", monkeypatch)


@pytest.fixture
def sanitize(monkeypatch):
    return load("sanitize", monkeypatch)


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def python_of_version(path, version):
    """A program that answers the probe as a Python of this version would."""
    return program(path, f"echo {path} {version}")


VERSIONS = ["2.14.0", "2.13.0+cpu", "2.13.0", "2.12.1", "2.12.0+cpu", "2.12.0", "2.11.0", "2.10.1+cpu", "2.9.0"]


@pytest.mark.parametrize(
    ("versions", "cuda_builds", "chosen", "left_out"),
    [
        (VERSIONS, False, ["2.13.0+cpu", "2.12.0+cpu"], "for 2.14, 2.11 pip's sources have only a CUDA build"),
        (VERSIONS, True, ["2.14.0", "2.13.0+cpu", "2.12.1", "2.11.0"], ""),
        (["2.11.0+cpu", "2.11.2+cpu", "2.11.10+cpu"], False, ["2.11.10+cpu"], ""),
        (["2.10.0+cpu"], False, [], "no torch that is wanted"),
        ([], False, [], "or can't be reached"),
    ],
)
def test_one_torch_of_each_minor_release(matrix, versions, cuda_builds, chosen, left_out):
    found, reason = matrix.choose(versions, cuda_builds)
    assert found == chosen
    assert left_out in reason
    assert bool(left_out) == bool(reason)


def test_cuda_builds_are_taken_with_a_gpu_or_where_they_are_asked_for(matrix, monkeypatch):
    monkeypatch.setattr(matrix.sys, "platform", "linux")
    for gpu, choice, taken in ((False, "", False), (False, "0", False), (False, "1", True), (True, "", True)):
        monkeypatch.setattr(matrix.install_torch, "has_nvidia_gpu", lambda gpu=gpu: gpu)
        monkeypatch.setenv("SEEGERA_TORCH_CUDA", choice)
        assert matrix.takes_cuda_builds() is taken


def test_a_python_on_the_path_comes_first_and_pyenv_after_it(matrix, monkeypatch, tmp_path):
    pyenv = tmp_path / "pyenv"
    monkeypatch.setenv("PYENV_ROOT", str(pyenv))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for version in ("3.99.2", "3.99.10"):
        python_of_version(pyenv / "versions" / version / "bin" / "python", version)
    newest = str(pyenv / "versions" / "3.99.10" / "bin" / "python")
    assert matrix.find_python("3.99", tmp_path) == (newest, "")
    # A shim of pyenv is there for versions that are not chosen, and fails.
    program(tmp_path / "bin" / "python3.99", "echo 'pyenv: python3.99: command not found' >&2; exit 127")
    assert matrix.find_python("3.99", tmp_path) == (newest, "")
    first = python_of_version(tmp_path / "bin" / "python3.99", "3.99.1")
    assert matrix.find_python("3.99", tmp_path) == (first, "")


def test_a_missing_python_is_named_with_its_reasons(matrix, monkeypatch, tmp_path):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    path, reason = matrix.find_python("3.99", tmp_path)
    assert path is None
    assert reason.startswith("neither on PATH nor in pyenv; no uv that could install it; Debian's packages would be")
    program(tmp_path / "bin" / "python3.99", "echo \"No module named 'ensurepip'\" >&2; exit 1")
    program(tmp_path / "bin" / "uv", "echo 'error: no download was found' >&2; exit 2")
    path, reason = matrix.find_python("3.99", tmp_path)
    assert path is None
    assert reason.startswith("python3.99: No module named 'ensurepip'; uv: error: no download was found; Debian's")


def test_uv_installs_a_python_inside_the_folder(matrix, monkeypatch, tmp_path):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    program(tmp_path / "bin" / "uv", '[ "$2" = find ] && echo "$UV_PYTHON_INSTALL_DIR/python"; exit 0')
    assert matrix.find_python("3.99", tmp_path) == (str(tmp_path / "pythons" / "python"), "")


def test_the_last_error_of_pip_is_the_reason(matrix):
    import tool_steps as steps

    output = "Collecting torch\nERROR: Could not find a version\nERROR: No matching distribution\n\n[notice] new pip\n"
    assert steps.last_error(output) == "ERROR: No matching distribution"
    assert steps.last_error("Traceback\nValueError: wrong\n") == "ValueError: wrong"
    with pytest.raises(matrix.Step, match="out of luck"):
        matrix.run(sys.executable, "-c", "import sys; sys.exit('out of luck')")


STEPS = {"venv": "could not be had", "torch==": "could not be had", "--no-deps": "FAILED", "smoke.py": "FAILED"}


@pytest.mark.parametrize("failing", [None, "triton", *STEPS])
def test_what_fails_and_what_can_not_be_had(matrix, monkeypatch, tmp_path, failing):
    """A wheel that can't be installed or does not work is a failure; a torch that can't be had is none."""

    def run(*command, **options):
        words = " ".join(map(str, command))
        if failing is not None and failing in words:
            raise matrix.Step("as planned")
        return json.dumps({"torch": "2.13.0+cpu", "errors": {"cpu": 1e-6, "triton": None}})

    monkeypatch.setattr(matrix, "run", run)
    folder = tmp_path / "cell"
    monkeypatch.setattr(matrix.shutil, "rmtree", lambda *_, **__: folder.mkdir())
    cell = matrix.try_cell("3.12", "python3.12", "2.13.0", tmp_path / "x.whl", folder)
    assert cell.result == STEPS.get(failing, "passed")
    if failing is None:
        assert matrix.row(cell).split()[:4] == ["3.12", "2.13.0+cpu", "passed", "errors:"]
    else:
        assert "as planned" in matrix.row(cell)
    assert matrix.exit_status([cell]) == (cell.result != "passed")


@pytest.mark.parametrize("output", ["", "Segmentation fault\n"])
def test_an_answer_that_is_none_fails_its_cell(matrix, monkeypatch, tmp_path, output):
    monkeypatch.setattr(matrix, "run", lambda *command, **options: output)
    folder = tmp_path / "cell"
    monkeypatch.setattr(matrix.shutil, "rmtree", lambda *_, **__: folder.mkdir())
    cell = matrix.try_cell("3.12", "python3.12", "2.13.0", tmp_path / "x.whl", folder)
    assert (cell.result, cell.reason) == ("FAILED", f"smoke.py printed {output!r}, want JSON in the last line")
    assert matrix.offered_versions("python3.12") == []


def test_a_python_that_can_not_be_asked_does_not_end_the_matrix(matrix, monkeypatch, tmp_path):
    """Its cell says why, and what was found before a stop is in the file."""
    written = tmp_path / "matrix.json"

    def find_python(version, folder):
        if version == "3.13":
            assert [cell["python"] for cell in json.loads(written.read_text())["cells"]] == ["3.12"]
        return "/bin/false", ""

    monkeypatch.setattr(matrix, "find_python", find_python)
    command = ["matrix.py", "--folder", str(tmp_path), "--wheel", "x.whl", "--pythons", "3.12", "3.13"]
    monkeypatch.setattr(sys, "argv", command)
    assert matrix.main() == 1
    cells = json.loads(written.read_text())["cells"]
    assert [cell["result"] for cell in cells] == ["could not be had"] * 2
    assert cells[0]["reason"].startswith("make_venv.py --probe: ")


def test_the_exit_status_is_that_of_what_ran(matrix):
    cells = {result: matrix.Cell("3.12", "2.13.0", result) for result in ("passed", "FAILED", "could not be had")}
    assert matrix.exit_status([cells["passed"], cells["could not be had"]]) == 0
    assert matrix.exit_status([cells["passed"], cells["FAILED"]]) == 1
    assert matrix.exit_status([cells["could not be had"]]) == 1
    assert matrix.exit_status([]) == 1


def test_the_outcome_of_a_run_under_a_sanitizer(sanitize):
    assert sanitize.outcome(0, "1019 passed in 93.14s (0:01:33)", 0) == "1,019 tests, no finding"
    assert sanitize.outcome(1, "1 failed, 1018 passed in 93.14s", 0) == "FAILED: 1 failed, 1018 passed in 93.14s"
    assert sanitize.outcome(1, "1 failed, 1018 passed in 93.14s", 2).startswith("FAILED: 2 reports of the sanitizer")
    assert sanitize.outcome(0, "1019 passed in 93.14s", 1).startswith("FAILED: 1 report of the sanitizer")
    assert sanitize.outcome(5, "no tests ran in 0.10s", 0) == "FAILED: no tests ran in 0.10s"
    assert sanitize.outcome(0, "1 skipped in 0.10s", 0) == "FAILED: 1 skipped in 0.10s"
    assert sanitize.outcome(-11, "", 0) == "FAILED: exit status -11"


def test_each_instruction_set_has_a_line(sanitize, monkeypatch, tmp_path, capsys):
    """One that the processor lacks is named, and so is a sanitizer that the compiler lacks."""

    class Runs:
        missing = None

        def __init__(self, folder, sanitizer):
            self.finds = "thread" in sanitizer.flag and finding

        def instruction_set(self, isa):
            return "avx2" if isa == "avx512" else isa

        def tests(self, isa, jobs, left_out):
            return "FAILED: 1 report of the sanitizer, see above" if self.finds else "7 tests, no finding"

    monkeypatch.setattr(sanitize, "Runs", Runs)
    monkeypatch.setattr(sanitize, "build", lambda *_: None)
    for finding in (False, True):
        assert sanitize.check_all(tmp_path, 2, []) is not finding
        base, avx2, avx512 = capsys.readouterr().out.splitlines()[-3:]
        assert base == "base    address and undefined behaviour: 7 tests, no finding; threads: " + (
            "FAILED: 1 report of the sanitizer, see above" if finding else "7 tests, no finding"
        )
        assert avx2.split()[0] == "avx2"
        assert avx512.split(": ")[1].startswith("not run: the processor lacks it"[:7])
        assert avx512.count("not run: the processor lacks it") == 2


def test_a_library_that_ends_without_a_word_has_its_exit_status(sanitize, monkeypatch, tmp_path):
    answer = subprocess.CompletedProcess([], -11, "", "")
    monkeypatch.setattr(sanitize.subprocess, "run", lambda *_, **__: answer)
    assert sanitize.Runs(tmp_path, sanitize.SANITIZERS[0]).instruction_set("avx2") == "exit status -11"


def test_a_compiler_without_a_sanitizer_is_named(sanitize, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", program(tmp_path / "c++", 'echo "${1#-print-file-name=}"'))
    found = sanitize.check(sanitize.SANITIZERS[1], tmp_path / "build", 2, [])
    assert set(found) == {"base", "avx2", "avx512"}
    assert set(found.values()) == {f"not run: the compiler {tmp_path / 'c++'} has no libtsan.so"}


def test_a_build_that_fails_shows_the_output_of_the_compiler(sanitize, monkeypatch, tmp_path):
    answer = subprocess.CompletedProcess([], 1, "internal compiler error: out of patience")
    monkeypatch.setattr(sanitize.subprocess, "run", lambda *_, **__: answer)
    monkeypatch.setattr(sanitize, "copy_sources", lambda folder: None)
    with pytest.raises(SystemExit, match="out of patience"):
        sanitize.build(tmp_path, sanitize.SANITIZERS[0])


def test_two_builds_are_compared_by_calls_of_every_operation(monkeypatch):
    tool = load("compare_builds", monkeypatch)
    assert {operation for operation, _, _ in tool.calls(tool.make_graph(40, 23, 0.2, torch.float64))} == {
        *sf.ops.__all__
    }


def test_an_operation_that_the_old_build_lacks_is_listed_and_not_compared(monkeypatch, capsys, tmp_path):
    tool = load("compare_builds", monkeypatch)
    monkeypatch.setattr(tool, "calls", lambda graph: iter([("operation of later", {}, ())]))
    assert [*tool.run_operations("cpu").values()] == [None] * 4
    model = {"configuration 0": {"loss": 1.0, "gradient": [1.0]}}
    found = {
        ("old", "cpu"): {"gcn, call 0": None, "dropout, call 1": "a", "top_links, call 2": None},
        ("new", "cpu"): {"gcn, call 0": "b", "dropout, call 1": "a", "top_links, call 2": None},
    }
    monkeypatch.setattr(tool, "collect", lambda tree, backend: found.get((tree.name, backend), model))
    assert tool.compare(tmp_path / "old", tmp_path / "new", ["cpu"])
    said = capsys.readouterr().out
    assert said.startswith("cpu: 1 calls, 0 with other bits\n  gcn: OLD does not have it, not compared\nmodels: ")
