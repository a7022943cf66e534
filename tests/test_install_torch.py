"""tools/install_torch.py: what it reads from pip's answers, and what it asks pip for. pip itself never runs here."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "install_torch.py"

# As pip 22, 23 and 26 print it: the warning goes to stderr, the rest to stdout.
INDEX_OUTPUT = """torch (2.15.0)
Available versions: 2.15.0, 2.14.1, 2.13.0+cpu, 2.13.0, 2.12.0+cpu, 2.9.1, 1.13.0
  INSTALLED: 2.9.1
  LATEST:    2.15.0
"""
INDEX_WITHOUT_CPU = "torch (2.14.1)\nAvailable versions: 2.14.1, 2.13.0, 2.11.0, 2.9.1+cpu\n"
REFUSAL = (
    "ERROR: Could not find a version that satisfies the requirement torch==0 "
    "(from versions: 2.9.1, 2.11.0, 2.13.0, 2.13.0+cpu)\nERROR: No matching distribution found for torch==0\n"
)


def load():
    spec = importlib.util.spec_from_file_location("install_torch", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tool(monkeypatch):
    """The script as a module, on a Linux machine without a GPU and without torch, and not at a terminal."""
    module = load()
    monkeypatch.setattr(module, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setattr(module.sys, "stdin", None)
    monkeypatch.delenv("SEEGERA_TORCH_CUDA", raising=False)
    return module


class Pip:
    """Answers `pip index` and the request for torch==0 with canned text, and records every other request."""

    def __init__(self, index="", refusal="", index_status=0, install_status=0):
        self.index, self.refusal = index, refusal
        self.index_status, self.install_status = index_status, install_status
        self.installs = []

    def __call__(self, *arguments, **options):
        if arguments[0] == "index":
            return subprocess.CompletedProcess(arguments, self.index_status, self.index, "")
        if "torch==0" in arguments:
            return subprocess.CompletedProcess(arguments, 1, "", self.refusal)
        self.installs.append(arguments)
        return subprocess.CompletedProcess(arguments, self.install_status)


def run(tool, monkeypatch, pip, torch=((None, ""), ("2.13.0", ""))):
    """main()'s exit status, with what `installed_torch` says before and after the installation."""
    states = iter(torch)
    monkeypatch.setattr(tool, "pip", pip)
    monkeypatch.setattr(tool, "installed_torch", lambda: next(states))
    return tool.main()


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.13.0", (2, 13, 0)), ("2.13.0+cpu", (2, 13, 0)), ("2.11.0a0+git1a2b", (2, 11, 0)), ("2", (2,)), ("none", ())],
)
def test_release_numbers(tool, version, numbers):
    assert tool.release(version) == numbers


def test_versions_are_read_from_pip_index(tool):
    expected = ["2.15.0", "2.14.1", "2.13.0+cpu", "2.13.0", "2.12.0+cpu", "2.9.1", "1.13.0"]
    assert tool.versions_in_index(INDEX_OUTPUT) == expected
    assert tool.versions_in_index("ERROR: No matching distribution found for torch\n") == []


def test_versions_are_read_from_a_refusal(tool):
    assert tool.versions_in_refusal(REFUSAL) == ["2.9.1", "2.11.0", "2.13.0", "2.13.0+cpu"]
    assert tool.versions_in_refusal("ERROR: ... (from versions: none)\n") == []
    assert tool.versions_in_refusal("ERROR: ResolutionImpossible\n") == []


@pytest.mark.parametrize(
    ("versions", "newest"),
    [
        (["2.9.0+cpu", "2.13.0+cpu", "2.15.0"], "2.13.0+cpu"),
        (["2.11.0+cpu", "2.9.0+cpu"], "2.11.0+cpu"),
        (["2.100.0+cpu", "2.13.0+cpu"], "2.100.0+cpu"),
        (["2.10.0+cpu", "2.15.0"], None),
        (["2.13.0+cu130", "2.13.0+cpucxx11"], None),
        ([], None),
    ],
)
def test_newest_cpu_build(tool, versions, newest):
    assert tool.newest_cpu_build(versions) == newest


def test_sources_are_asked_a_second_way_when_pip_index_fails(tool, monkeypatch):
    monkeypatch.setattr(tool, "pip", Pip(index="unknown command", index_status=1, refusal=REFUSAL))
    assert tool.versions_in_sources() == ["2.9.1", "2.11.0", "2.13.0", "2.13.0+cpu"]


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "3.0.0", "2.12.0a0+git1a2b"])
def test_a_usable_torch_is_kept(tool, monkeypatch, version, capsys):
    pip = Pip(INDEX_OUTPUT)
    assert run(tool, monkeypatch, pip, torch=[(version, "")]) == 0
    assert pip.installs == []
    assert f"keeping the installed {version}" in capsys.readouterr().out


def test_without_a_gpu_the_newest_cpu_build_is_installed(tool, monkeypatch):
    pip = Pip(INDEX_OUTPUT)
    assert run(tool, monkeypatch, pip) == 0
    assert pip.installs == [("install", "torch==2.13.0+cpu")]


def test_an_old_torch_is_replaced(tool, monkeypatch, capsys):
    pip = Pip(INDEX_OUTPUT)
    assert run(tool, monkeypatch, pip, torch=[("2.10.0", ""), ("2.13.0+cpu", "")]) == 0
    assert pip.installs == [("install", "torch==2.13.0+cpu")]
    assert "2.10.0 is older" in capsys.readouterr().out


def test_a_torch_that_does_not_import_is_installed_anew(tool, monkeypatch, capsys):
    pip = Pip(INDEX_OUTPUT)
    broken = (None, "ImportError: libfoo.so.1: cannot open shared object file")
    assert run(tool, monkeypatch, pip, torch=[broken, ("2.13.0+cpu", "")]) == 0
    assert pip.installs == [("install", "--force-reinstall", "torch==2.13.0+cpu")]
    assert "libfoo.so.1" in capsys.readouterr().out


def test_without_a_cpu_build_the_size_is_said_before_it_goes_on(tool, monkeypatch, capsys):
    pip = Pip(INDEX_WITHOUT_CPU)
    assert run(tool, monkeypatch, pip) == 0
    assert pip.installs == [("install", "torch>=2.11")]
    out = capsys.readouterr().out
    assert "torch 2.14.1" in out
    assert tool.CUDA_SIZE in out
    assert "to avoid it" in out


def test_a_refused_cuda_build_ends_with_status_3(tool, monkeypatch, capsys):
    monkeypatch.setenv("SEEGERA_TORCH_CUDA", "0")
    pip = Pip(INDEX_WITHOUT_CPU)
    assert run(tool, monkeypatch, pip) == 3
    assert pip.installs == []
    assert "SEEGERA_TORCH_CUDA is 0" in capsys.readouterr().out


def test_the_refusal_does_not_stop_a_cpu_build(tool, monkeypatch):
    monkeypatch.setenv("SEEGERA_TORCH_CUDA", "0")
    pip = Pip(INDEX_OUTPUT)
    assert run(tool, monkeypatch, pip) == 0
    assert pip.installs == [("install", "torch==2.13.0+cpu")]


class Terminal:
    def isatty(self):
        return True

    def write(self, text):
        return len(text)

    def flush(self):
        pass


@pytest.mark.parametrize(("answer", "status", "installs"), [("y", 0, 1), ("Yes", 0, 1), ("n", 3, 0), ("", 3, 0)])
def test_a_person_at_a_terminal_is_asked(tool, monkeypatch, answer, status, installs):
    monkeypatch.setattr(tool.sys, "stdin", Terminal())
    monkeypatch.setattr(tool.sys, "stdout", Terminal())
    monkeypatch.setattr("builtins.input", lambda prompt: answer)
    pip = Pip(INDEX_WITHOUT_CPU)
    assert run(tool, monkeypatch, pip) == status
    assert len(pip.installs) == installs


def test_other_systems_take_the_default_build_without_a_question(tool, monkeypatch):
    monkeypatch.setenv("SEEGERA_TORCH_CUDA", "0")
    monkeypatch.setattr(tool.sys, "platform", "darwin")
    pip = Pip(INDEX_WITHOUT_CPU)
    assert run(tool, monkeypatch, pip) == 0
    assert pip.installs == [("install", "torch>=2.11")]


@pytest.mark.parametrize(
    ("index", "requirement"),
    [
        (INDEX_WITHOUT_CPU, "torch>=2.11"),
        (INDEX_OUTPUT, "torch>=2.11,!=2.13.0+cpu,!=2.12.0+cpu"),
        ("Available versions: 2.13.0+cpu, 2.9.1\n", "torch>=2.11"),
    ],
)
def test_with_a_gpu_the_default_build_is_installed(tool, monkeypatch, capsys, index, requirement):
    monkeypatch.setattr(tool, "has_nvidia_gpu", lambda: True)
    pip = Pip(index)
    assert run(tool, monkeypatch, pip) == 0
    assert pip.installs == [("install", requirement)]
    assert "GPU was found" in capsys.readouterr().out


def test_a_failed_installation_is_status_1(tool, monkeypatch):
    assert run(tool, monkeypatch, Pip(INDEX_OUTPUT, install_status=1)) == 1


def test_an_installed_torch_that_does_not_import_is_status_1(tool, monkeypatch, capsys):
    assert run(tool, monkeypatch, Pip(INDEX_OUTPUT), torch=[(None, ""), (None, "ImportError: no")]) == 1
    assert "ImportError: no" in capsys.readouterr().out


def test_an_unknown_choice_is_refused_before_anything_else(tool, monkeypatch, capsys):
    monkeypatch.setenv("SEEGERA_TORCH_CUDA", "maybe")
    assert run(tool, monkeypatch, Pip(INDEX_OUTPUT)) == 2
    assert "'maybe'" in capsys.readouterr().out


def test_the_installed_torch_is_found_by_importing_it(tool, monkeypatch, tmp_path):
    package = tmp_path / "torch"
    package.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (package / "__init__.py").write_text("__version__ = '2.99.0+mine'\n")
    assert tool.installed_torch() == ("2.99.0+mine", "")
    (package / "__init__.py").write_text("raise ImportError('a library is missing')\n")
    assert tool.installed_torch() == (None, "ImportError: a library is missing")
    (package / "__init__.py").write_text("import os\nos._exit(5)\n")
    assert tool.installed_torch() == (None, "exit status 5")


def test_gpu_detection_runs_nvidia_smi(monkeypatch, tmp_path):
    module = load()
    monkeypatch.setattr(module.os, "listdir", lambda path: [])
    command = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert module.has_nvidia_gpu() is False
    for status, found in ((0, True), (9, False)):
        command.write_text(f"#!/bin/sh\nexit {status}\n")
        command.chmod(0o755)
        assert module.has_nvidia_gpu() is found
    command.write_text("#!/bin/sh\nexit 9\n")
    monkeypatch.setattr(module.os, "listdir", lambda path: ["0000:01:00.0"])
    assert module.has_nvidia_gpu() is True
