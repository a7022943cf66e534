"""bench/device.sh, as far as it can be tested without a GPU."""

import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seegera_fast import ops

pytestmark = pytest.mark.device
BENCH = Path(__file__).resolve().parent.parent / "bench"
SCRIPT = BENCH / "device.sh"


def run(*arguments, cwd, seconds=300, **environment):
    command = ["sh", SCRIPT, *arguments]
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.fixture
def device(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("device")


@pytest.fixture
def reporter(device):
    return importlib.import_module("reporter")


@pytest.fixture
def begun(device, tmp_path):
    """A run of the benchmarks alone, as a rehearsal, before its first part."""
    begun = device.Run(device.options_of(["--dry-run", "--parts", "bench", "--out", str(tmp_path / "out")]))
    yield begun
    device.Process.stop_all()
    shutil.rmtree(begun.scratch)


@pytest.mark.slow
def test_a_rehearsal_runs_every_part(device, tmp_path):
    result = run("--dry-run", "--out", tmp_path / "out", cwd=tmp_path)
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert list(report["sections"]) == [section.name for section in device.SECTIONS]
    assert {section["status"] for section in report["sections"].values()} == {"done"}
    assert {part["status"] for part in report["tests"].values()} == {"passed"}
    assert [part["status"] for part in report["sanitizer"].values()] == ["not rehearsed"] * 2
    # Every bar that does not need a GPU has its figure; none is judged.
    assert all(row["met"] is None for row in report["bars"])
    assert {row["work"] for row in report["bars"] if not row["measured"]} == {
        "training step, Cora v3 preset, captured",
        "link_likelihood, n = 65,536, d = 768, bf16",
    }
    profile = {row["figure"] for row in report["sections"]["profile"]["rows"]}
    assert {"us, wall", "of the wall time, all kernels"} <= profile
    assert {row["work"] for row in report["sections"]["operations"]["rows"]} == set(ops.__all__)
    assert "| training step, Cora v3 preset, captured |" in (tmp_path / "out" / "report.md").read_text()
    # It writes nowhere else.
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_section_that_raises_is_recorded_and_the_next_one_runs(device, reporter, begun, monkeypatch):
    broken = device.Section("broken", "device_operations.no_such_section", 5, 0)
    works = device.Section("rates", "device_operations.rates", 20, 0)
    monkeypatch.setattr(device, "SECTIONS", (broken, works))
    begun.sections()
    sections = begun.report.content["sections"]
    assert sections["broken"]["status"] == "failed"
    assert "has no attribute 'no_such_section'" in sections["broken"]["error"]
    assert sections["rates"]["status"] == "done"
    assert sections["rates"]["rows"]
    begun.report.save()
    assert begun.report.content["exit status"] == reporter.UNMEASURED


def test_a_process_that_dies_or_hangs_costs_its_section_alone(device, begun, monkeypatch, tmp_path):
    """In place of the benchmarks: the first section ends the process, the second one never ends."""
    worker = tmp_path / "worker.py"
    worker.write_text("""
import json, os, sys, time
from pathlib import Path
for entry in json.loads(Path(sys.argv[-1]).read_text())["sections"]:
    content = {"status": "running", "rows": [{"work": "w", "figure": "f", "value": 1}], "notes": []}
    Path(entry["file"]).write_text(json.dumps(content | {"seconds": 0}))
    time.sleep(0.3)
    if entry["name"] == "dies":
        os.abort()
    if entry["name"] == "hangs":
        time.sleep(600)
    Path(entry["file"]).write_text(json.dumps(content | {"status": "done", "seconds": 1}))
""")
    names = ("dies", "hangs", "works")
    monkeypatch.setattr(device, "WORKER", worker)
    monkeypatch.setattr(device, "GRACE", 1)
    monkeypatch.setattr(device, "SECTIONS", tuple(device.Section(name, "a.b", 1, 0) for name in names))
    begun.sections()
    sections = begun.report.content["sections"]
    assert [sections[name]["status"] for name in names] == ["failed", "timed out", "done"]
    assert "status -6" in sections["dies"]["error"]
    # What was found before the end is kept.
    assert all(sections[name]["rows"] for name in names)


def test_time_that_is_up_skips_what_is_left(device, begun, capsys):
    begun.deadline = time.monotonic()
    begun.sections()
    assert {section["status"] for section in begun.report.content["sections"].values()} == {"not measured"}
    assert "rates: not measured, no time left" in capsys.readouterr().out


def test_exit_status_tells_failed_missed_and_unmeasured_apart(device, reporter, tmp_path):
    report = reporter.Report(tmp_path, device.BARS.values())
    rows = [{"work": "w", "figure": "f", "value": bar.limit, "bar": bar._asdict()} for bar in device.BARS.values()]
    report.content["sections"] = {"all": {"status": "done", "rows": rows}}
    report.content["tests"] = {"test": {"status": "passed"}}

    def status():
        report.save()
        return report.content["exit status"]

    assert status() == 0
    report.content["sanitizer"] = {"memcheck": {"status": "not run"}}
    assert status() == reporter.UNMEASURED
    rows[0]["value"] /= 2
    assert status() == reporter.MISSED
    report.content["tests"]["test"] = {"status": "failed"}
    assert status() == reporter.FAILED
    report.content["tests"]["test"] = {"status": "passed"}
    del rows[0]
    assert status() == reporter.UNMEASURED
    assert "not measured" in (tmp_path / "report.md").read_text()


def test_a_test_run_is_judged_by_how_it_ended(device, begun):
    def judged(code, seconds=20):
        begun.judge("it", device.Process([sys.executable, "-c", code], seconds).wait())
        return begun.report.content["tests"]["it"]

    assert judged("print('3 passed in 1 s')")["status"] == "passed"
    assert judged("raise SystemExit(5)")["result"] == "no GPU test"
    failed = judged("print('FAILED tests/a.py::b'); print('1 failed'); raise SystemExit(1)")
    assert (failed["status"], failed["result"], failed["failures"]) == ("failed", "1 failed", ["FAILED tests/a.py::b"])
    assert judged("import time; time.sleep(60)", seconds=0.3)["status"] == "timed out"


@pytest.mark.parametrize(
    ("ending", "status"),
    [("", "passed"), ("; exit 9", "failed"), ("; kill -9 $$", "failed")],
    ids=["clean", "findings", "crash"],
)
def test_a_sanitizer_run_is_judged(device, begun, tmp_path, monkeypatch, ending, status):
    statuses = sanitized(begun, tmp_path, device, monkeypatch, ending)
    # Requests of libraries that the driver refuses are no findings.
    assert (tmp_path / "options").read_text().count(" --report-api-errors no ") == 2
    assert statuses == {"memcheck": status, "racecheck": status}


def sanitized(begun, folder, device, monkeypatch, ending, parts=("tests", "sanitizer")):
    """Statuses by tool, with fakes of compute-sanitizer, which runs its command, and of the small cases."""
    tool, worker = folder / "compute-sanitizer", folder / "worker.py"
    # Its own options come in pairs.
    tool.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/options\nwhile test "${{1#--}}" != "$1"; do shift 2; done; "$@"{ending}\n'
    )
    tool.chmod(0o755)
    worker.write_text("print('small: gcn, triton'); print('small: all done')")
    monkeypatch.setattr(device, "WORKER", worker)
    begun.dry, begun.sanitizer, begun.options.parts = False, str(tool), parts
    begun.sanitize()
    return {name: entry["status"] for name, entry in begun.report.content["sanitizer"].items()}


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("========= Invalid __global__ write of size 4 bytes", "failed"),
        ("========= Misaligned __global__ read of size 16 bytes", "failed"),
        ("========= Program hit cudaErrorIllegalAddress (error 700) due to an illegal address", "failed"),
        ("========= Error: Race reported between Write access at kernel and Read access at kernel", "failed"),
        ("========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)", "failed"),
        ("========= ERROR SUMMARY: 12 errors", "failed"),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", "timed out"),
        ("========= ERROR SUMMARY: 0 errors", "timed out"),
        ("small: Invalid ", "timed out"),
    ],
)
def test_a_sanitizer_run_that_is_cut_off_keeps_what_it_found(device, begun, tmp_path, monkeypatch, line, status):
    class Late(device.Process):
        """Its time is over once the line is there."""

        def done(self):
            # Not text(), which would move the position at which the command writes.
            if line.encode() in os.pread(self.output.fileno(), 1 << 16, 0):
                self.end = 0
            return super().done()

    monkeypatch.setattr(device, "Process", Late)
    statuses = sanitized(begun, tmp_path, device, monkeypatch, f"; echo '{line}'; sleep 60")
    assert statuses == {"memcheck": status, "racecheck": status}


@pytest.mark.parametrize("parts", [("tests", "sanitizer"), ("bench", "sanitizer")])
def test_the_small_cases_are_compiled_before_the_sanitizer_runs(device, begun, tmp_path, monkeypatch, parts):
    """Once without the tool, unless the tests have run them."""
    assert set(sanitized(begun, tmp_path, device, monkeypatch, "", parts).values()) == {"passed"}
    compiled = begun.report.content.get("compiling")
    assert compiled is None if "tests" in parts else compiled["result"] == "status 0"
    begun.report.save()
    assert ["2 of 2 test files and sanitizer runs passed."] in begun.report.summary()


def test_children_do_not_outlive_a_leader_that_crashed(device):
    code = "import os, subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); os.abort()"
    process = device.Process([sys.executable, "-c", code], 20).wait()
    child = int(process.text().split()[0])
    for _ in range(100):
        state = "gone"
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{child}/stat").read_text().split()[2]
        # An ended orphan may stay a zombie for a while.
        if state in ("gone", "Z"):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child lives")
    assert process.process.returncode == -6
    assert process not in device.Process.alive
    process.stop()


def test_without_pytest_the_tests_are_not_measured(device, begun, tmp_path, monkeypatch, capsys):
    (tmp_path / "worker.py").write_text("")
    monkeypatch.setattr(device, "WORKER", tmp_path / "worker.py")
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: None)
    begun.options.parts = ("tests",)
    begun.tests()
    found = dict(begun.report.content["tests"])
    assert found.pop("small cases")["status"] == "passed"
    assert {(entry["status"], entry["result"]) for entry in found.values()} == {
        ("not run", "could not be measured: there is no pytest")
    }
    assert found
    assert "could not be measured: there is no pytest" in capsys.readouterr().out


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_figure_that_is_no_number_is_none_in_the_json(device, begun, tmp_path, monkeypatch, value):
    measure = importlib.import_module("device_measure")
    record = measure.Record(tmp_path / "section.json", 10)
    record.row("w", "f", 2e9, device.BARS["sparse_matmul"])
    record.row("w", "g", value, device.BARS["sparse_matmul"])
    record.finish()
    found = json.loads((tmp_path / "section.json").read_text(), parse_constant=pytest.fail)
    assert [row["value"] for row in found["rows"]] == [2e9, None]
    assert found["notes"] == [f"w: g: came out as {value}"]
    begun.report.content["sections"] = {"section": found}
    begun.report.content["dry run"] = False
    begun.report.save()
    bar = next(row for row in begun.report.content["bars"] if row["work"].startswith("sparse_matmul"))
    # One figure is above the bar, but it is not known whether all are.
    assert (bar["measured"], bar["met"]) == ({"w: f": 2e9}, None)
    assert "| w | g | none |" in (begun.report.folder / "report.md").read_text()
    begun.report.show("section")


def test_the_build_is_for_the_card_and_left_out_where_the_library_loads(
    device, reporter, begun, tmp_path, monkeypatch, capsys
):
    machine = {"card": "a card", "capability": "90", "backends": {"cuda": "available"}}
    begun.dry, begun.report.content["machine"] = False, machine
    begun.build()
    assert "is there and loads" in capsys.readouterr().out
    machine["backends"] = {"cuda": "the cuda library was not built"}
    begun.nvcc = None
    begun.build()
    assert "build: no nvcc, and the cuda library was not built: Triton alone" in capsys.readouterr().out
    # A fake setup.py, whose build prints what it was asked for.
    (tmp_path / "setup.py").write_text(
        "import os, sys\n"
        "print(sys.argv[1:], *(os.environ[n] for n in ('SEEGERA_CUDA', 'SEEGERA_CUDA_ARCHS', 'CUDACXX')))\n"
        "sys.exit(1)\n"
    )
    monkeypatch.setattr(device, "ROOT", tmp_path)
    begun.nvcc = "/cuda/nvcc"
    begun.look = dict
    begun.build()
    out = capsys.readouterr().out
    assert "build for sm_90: status 1" in out
    assert "['--quiet', 'build_ext', '--inplace'] 1 90 /cuda/nvcc" in out
    assert begun.report.status() == reporter.FAILED


def test_the_most_important_tests_come_first(device, begun):
    names = [path.name for path in begun.test_files()]
    assert names[:2] == ["test_sparse_matmul.py", "test_link_likelihood.py"]
    assert {"test_capture.py", "test_recording.py", "test_importance_bound.py"} <= set(names)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("chunk_kernel", "chunk_kernel"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ("void seegera::cuda::(anonymous namespace)::row_kernel<float, 4>(long const*, int)", "row_kernel<float, 4>"),
        (
            "void at::native::elementwise_kernel<2, at::native::copy(at::Iterator&)::{lambda()#1}>(int, at::native::A)",
            "elementwise_kernel<2, copy(Iterator&)::{lambda()#1}>",
        ),
        ("void gemm<" + "4, " * 50 + "4>(float)", "gemm<" + "4, " * 24 + "..."),
    ],
)
def test_a_kernel_has_a_readable_name(monkeypatch, name, short):
    monkeypatch.syspath_prepend(str(BENCH))
    assert importlib.import_module("device_measure").short_name(name) == short


def test_without_a_gpu_it_says_so(device, reporter, tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    result = run("--out", "out", cwd=tmp_path)
    assert result.returncode == reporter.UNMEASURED
    assert "no NVIDIA GPU that torch can use; --dry-run rehearses on the CPU" in result.stdout
    assert not list(tmp_path.iterdir())


def test_wrong_options_are_refused(tmp_path):
    assert "--minutes: got -1" in run("--minutes", "-1", cwd=tmp_path).stderr
    assert "invalid choice: 'all'" in run("--parts", "all", cwd=tmp_path).stderr


def test_a_python_with_torch_is_looked_for(tmp_path):
    """Runs a copy of the script, which has no .venv beside it, with a PATH of Pythons that have no torch."""
    script = tmp_path / "bench" / SCRIPT.name
    script.parent.mkdir()
    shutil.copy(SCRIPT, script)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "dirname").symlink_to(shutil.which("dirname"))
    for name in ("python3", "python"):
        (tools / name).write_text("#!/bin/sh\nexit 1\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": str(tools), "PYTHON": "/no/such/python"}
    result = subprocess.run([shutil.which("sh"), script], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 4
    assert "no Python with torch here (PYTHON=/no/such/python" in result.stderr
