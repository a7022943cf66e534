"""Runs tests and benchmarks on an NVIDIA GPU in some minutes, the most important ones first. Downloads nothing.

The script prints what the machine has, builds the libraries for the card unless they can be loaded already, and runs
the GPU tests, the benchmarks and compute-sanitizer. Results are written after each part, so that a run that is cut off
leaves some: report.json, report.md and pictures in a folder with the card's name.

    sh bench/device.sh                              everything in eight minutes, to bench/results/CARD
    sh bench/device.sh --minutes 15                 the same with more time for each part
    sh bench/device.sh --parts bench --out FOLDER   the benchmarks alone
    sh bench/device.sh --dry-run                    a rehearsal on the CPU, with tiny sizes; its figures mean nothing

`python bench/report.py --render FOLDER` writes the page and the pictures again from report.json.

Exit status: 0 all is well; 1 a test failed; 3 a bar was missed; 4 something could not be measured (the first that
applies). SEEGERA_DATA names the folder of the data sets. Missing data sets are left out, except Cora and Physics, which
are replaced by random graphs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from device_plan import BARS, SECTIONS, Section
from device_process import ROOT, Process, find_tool
from reporter import UNMEASURED, Report

WORKER = Path(__file__).with_name("device_worker.py")
DEFAULT_OUT = ROOT / "bench" / "results"

# The GPU tests that run first; the others follow by name.
FIRST_TESTS = ("sparse_matmul", "link_likelihood", "feature_likelihood", "noisy_gcn", "gcn", "capture", "recording")
# Seconds for the parts other than the benchmarks, in a run of 8 minutes.
BUILD, TESTS, ONE_FILE, SANITIZER = 150, 150, 120, 80
# Seconds to compile the kernels of the small cases before compute-sanitizer runs them, if the tests have not done it.
COMPILING = 60
# What compute-sanitizer prints for a finding. The exit status of a run that is cut off does not tell of findings.
FINDING = re.compile(
    r"^=+ .*(Invalid |Misaligned |Race reported|Program hit|(ERROR|RACECHECK) SUMMARY: [1-9])", re.MULTILINE
)
# Seconds after the end of a section's time until its process is ended.
GRACE = 15


class Run:
    """One run of the script, with its report."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.dry = options, options.dry_run
        self.scale = options.minutes / 8
        self.deadline = time.monotonic() + 60 * options.minutes
        bars = BARS.values() if "bench" in options.parts else ()
        self.report = Report(options.out or DEFAULT_OUT, bars, dry=self.dry)
        self.dry_word = ["--dry-run"] if self.dry else []
        # A rehearsal runs Triton kernels in the interpreter.
        self.environment = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"} if self.dry else {}
        self.nvcc, self.sanitizer = find_tool("nvcc", ("CUDACXX",)), find_tool("compute-sanitizer")
        self.scratch = Path(tempfile.mkdtemp(prefix="seegera-device-"))

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def worker(self, *words: str | Path, seconds: float, prefix: tuple[str, ...] = (), **environment: str) -> Process:
        command = [*prefix, sys.executable, "-W", "ignore", WORKER, *self.dry_word, *words]
        return Process(command, seconds, **self.environment, **environment)

    def all(self) -> int:
        try:
            if not self.describe():
                return UNMEASURED
            for part in (self.build, self.tests, self.sections, self.sanitize):
                self.report.save()
                part()
        finally:
            Process.stop_all()
            shutil.rmtree(self.scratch, ignore_errors=True)
            if self.report.content["machine"]:
                self.report.save()
        return self.report.close()

    # The machine

    def look(self) -> dict[str, Any]:
        process = self.worker("describe", seconds=120).wait()
        lines = [line for line in process.text().splitlines() if line.startswith("{")]
        if process.process.returncode or not lines:
            print(f"seegera_fast cannot be imported:\n{process.text()[-2000:]}")
            return {}
        return json.loads(lines[-1])

    def describe(self) -> bool:
        machine = self.look()
        query = shutil.which("nvidia-smi")
        if query:
            asked = Process([query, "--query-gpu=driver_version", "--format=csv,noheader"], 30).wait()
            machine["driver"] = asked.text().strip().partition("\n")[0]
        if self.nvcc:
            lines = Process([self.nvcc, "--version"], 30).wait().text().splitlines()
            machine["nvcc"] = next((line.strip() for line in lines if "release" in line), self.nvcc)
        machine["compute-sanitizer"] = bool(self.sanitizer)
        for name, value in machine.items():
            print(f"{name}: {value}")
        if not machine.get("card") and not (self.dry and machine.get("torch")):
            print("no NVIDIA GPU that torch can use; --dry-run rehearses on the CPU")
            return False
        self.report.content["machine"] = machine
        if self.options.out is None:
            self.report.folder = DEFAULT_OUT / re.sub(r"[^a-z0-9]+", "-", self.report.title.lower()).strip("-")
        return True

    # The libraries

    def build(self) -> None:
        machine = self.report.content["machine"]
        backends = machine["backends"]
        if self.dry:
            print("build: left out in a rehearsal")
            return
        if backends["cuda"] == "available":
            print("build: the CUDA library is there and loads")
            return
        if not self.nvcc:
            print(f"build: no nvcc, and {backends['cuda']}: Triton alone")
            return
        seconds = min(BUILD * self.scale, self.left())
        capability = machine["capability"]
        process = Process(
            [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
            seconds,
            folder=ROOT,
            SEEGERA_CUDA="1",
            SEEGERA_CUDA_ARCHS=capability,
            CUDACXX=self.nvcc,
        ).wait()
        ended = "timed out" if process.late else f"status {process.process.returncode}"
        print(f"build for sm_{capability}: {ended}, {process.seconds:.0f} s")
        if process.late or process.process.returncode:
            print(process.text()[-3000:])
            self.report.content["build"] = process.text()[-3000:]
        machine.update(self.look())
        print(f"backends: {machine['backends']}")

    # The tests

    def test_files(self) -> list[Path]:
        """The files with tests that need a GPU, the most important first."""
        marks = ("mark.gpu", "from contract import")
        files = [path for path in sorted(ROOT.glob("tests/test_*.py")) if any(m in path.read_text() for m in marks)]
        order = {f"test_{name}.py": index for index, name in enumerate(FIRST_TESTS)}
        return sorted(files, key=lambda path: order.get(path.name, len(order)))

    def tests(self) -> None:
        """Runs several files at once if there are enough cores, because most of their time is compiling kernels."""
        if "tests" not in self.options.parts:
            return
        end = time.monotonic() + min(TESTS * self.scale, self.left() / 2)
        files = self.test_files()
        pytest = [sys.executable, "-m", "pytest", "-q", "--maxfail=20", "-p", "no:cacheprovider"]
        chosen = ["-m", "gpu"]
        cores = os.cpu_count() or 1
        beside = 1 if self.dry else max(1, min(8, cores // 2))
        if not self.dry and cores >= 8 and importlib.util.find_spec("xdist"):
            # The longest files take as long as all others together, so each file gets four processes.
            chosen, beside = [*chosen, "-n", "4"], max(1, cores // 4)
        if self.dry:
            # GPU tests can't run here. A file with small kernels shows that files are run and their results are read.
            files, chosen = [ROOT / "tests" / "test_importance_bound.py"], ["-k", "triton and reference"]
        waiting: dict[str, list[str | Path]] = {"small cases": [sys.executable, WORKER, *self.dry_word, "small"]}
        waiting |= {path.stem: [*pytest, *chosen, path] for path in files}
        for name in waiting:
            self.report.content["tests"][name] = {"status": "not run", "result": "no time left"}
        if not importlib.util.find_spec("pytest"):
            for path in files:
                del waiting[path.stem]
                self.report.content["tests"][path.stem]["result"] = "could not be measured: there is no pytest"
            print("the test files could not be measured: there is no pytest")
        prepared = self.worker("prepare", self.scratch / "largest", seconds=60 * self.scale)
        running: dict[str, Process] = {}
        while running or (waiting and time.monotonic() < end):
            while waiting and len(running) < beside and time.monotonic() < end:
                name = next(iter(waiting))
                limit = min(ONE_FILE * self.scale, end - time.monotonic())
                running[name] = Process(waiting.pop(name), limit, **self.environment)
            for name in [name for name, process in running.items() if process.done()]:
                self.judge(name, running.pop(name))
                self.report.save()
            time.sleep(0.05)
        prepared.wait()

    def judge(self, name: str, process: Process) -> None:
        """Notes and prints the result of a file: the last line of pytest's output."""
        text, status = process.text(), process.process.returncode
        lines = text.strip().splitlines() or [""]
        entry = {"status": "passed" if status == 0 else "failed", "result": lines[-1], "seconds": process.seconds}
        if process.late:
            entry |= {"status": "timed out", "result": f"after {process.seconds:.0f} s, at {lines[-1][-200:]}"}
        elif status == 5:
            entry |= {"status": "passed", "result": "no GPU test"}
        elif status:
            entry["failures"] = [line for line in lines if line.startswith(("FAILED", "ERROR"))][:20]
            entry["error"] = text[-4000:]
        self.report.content["tests"][name] = entry
        print(f"{name}: {entry['status']}, {entry['result']}")
        for line in entry.get("failures", ()):
            print(f"  {line[:300]}")

    # The benchmarks

    def sections(self) -> None:
        if "bench" not in self.options.parts:
            return
        kept = 0.0
        if self.sanitizer and "sanitizer" in self.options.parts:
            kept = (SANITIZER + (0 if "tests" in self.options.parts else COMPILING)) * self.scale
        end = self.deadline - kept - 5
        remaining = {section.name: section for section in SECTIONS}
        self.report.content["sections"] = {name: {"status": "not begun"} for name in remaining}
        stalled = 0
        while remaining and time.monotonic() < end and stalled < 2:
            before = len(remaining)
            process = self.begin_sections(list(remaining.values()), end)
            self.watch(process, remaining)
            stalled = stalled + 1 if len(remaining) == before else 0
            if process.process.returncode == 0:
                break
            if stalled:
                print(f"the benchmarks did not begin: {process.text()[-2000:]}")
                self.report.content["sections"][next(iter(remaining))]["error"] = process.text()[-2000:]
        for name in remaining:
            self.report.content["sections"][name]["status"] = "not measured"
            print(f"{name}: not measured, no time left")

    def begin_sections(self, sections: list[Section], end: float) -> Process:
        plan = {
            "prepared": str(self.scratch / "largest"),
            "end": time.time() + end - time.monotonic(),
            "sections": [
                {
                    "name": section.name,
                    "function": section.function,
                    "hooks": section.hooks,
                    "seconds": section.seconds * self.scale,
                    "least": 0 if self.dry else section.least * self.scale,
                    "file": str(self.file_of(section.name)),
                }
                for section in sections
            ],
        }
        file = self.scratch / "plan.json"
        file.write_text(json.dumps(plan))
        return self.worker("sections", file, seconds=end - time.monotonic() + GRACE)

    def file_of(self, name: str) -> Path:
        return self.scratch / (re.sub(r"\W+", "-", name) + ".json")

    def watch(self, process: Process, remaining: dict[str, Section]) -> None:
        """Reads what the sections write, and ends the process if a section takes far longer than its time."""
        current, since = None, time.monotonic()
        while True:
            over = process.done()
            for name in list(remaining):
                file = self.file_of(name)
                if not file.is_file():
                    continue
                found = json.loads(file.read_text())
                if name != current:
                    current, since = name, time.monotonic()
                self.report.content["sections"][name] = found
                if found["status"] == "running":
                    if time.monotonic() - since > remaining[name].seconds * self.scale + GRACE:
                        process.late = True
                        process.stop()
                        over = True
                    if not over:
                        continue
                    why = f"the process ended with status {process.process.returncode}\n{process.text()[-2000:]}"
                    found |= {"status": "timed out" if process.late else "failed", "error": why}
                del remaining[name]
                self.report.show(name)
                self.report.save()
            if over:
                return
            time.sleep(0.1)

    # compute-sanitizer

    def compile_small(self) -> None:
        """Runs the small cases once without compute-sanitizer, under which Triton compiles their kernels slowly."""
        process = self.worker("small", seconds=max(0.0, min(COMPILING * self.scale, self.left() - 20))).wait()
        ended = "timed out" if process.late else f"status {process.process.returncode}"
        self.report.content["compiling"] = {"result": ended, "seconds": process.seconds}
        print(f"small cases before compute-sanitizer: {ended}, {process.seconds:.0f} s")

    def sanitize(self) -> None:
        if "sanitizer" not in self.options.parts:
            return
        if self.sanitizer and not self.dry and "tests" not in self.options.parts:
            self.compile_small()
        for tool in ("memcheck", "racecheck"):
            entry: dict[str, Any] = {"status": "not run"}
            self.report.content["sanitizer"][tool] = entry
            seconds = min(SANITIZER * self.scale, self.left()) / (2 if tool == "memcheck" else 1)
            if self.dry:
                entry |= {"status": "not rehearsed", "result": "needs a GPU"}
            elif not self.sanitizer:
                entry["result"] = "there is no compute-sanitizer"
            elif seconds < 10:
                entry["result"] = "no time left"
            else:
                prefix = (self.sanitizer, "--tool", tool, "--error-exitcode", "9", "--print-limit", "20")
                # Libraries ask the driver for features that it may not have, and then do without. This is no finding.
                prefix += ("--report-api-errors", "no")
                # Without the cache each tensor is one allocation, so that an access beyond its end is found.
                process = self.worker(
                    "small", seconds=seconds, prefix=prefix, PYTORCH_NO_CUDA_MEMORY_CACHING="1"
                ).wait()
                text, status = process.text(), process.process.returncode
                reached = [line for line in text.splitlines() if line.startswith("small:")][-1:] or ["small: not begun"]
                complete = reached[0] == "small: all done"
                if status == 0 and complete:
                    entry |= {"status": "passed", "result": reached[0]}
                elif process.late and not FINDING.search(text):
                    entry |= {"status": "timed out", "result": f"without a finding, at {reached[0]}"}
                elif "Device not supported" in text:
                    entry["result"] = "compute-sanitizer does not support this device"
                else:
                    entry |= {"status": "failed", "result": f"at {reached[0]}", "error": text[-4000:]}
                entry["seconds"] = process.seconds
            print(f"{tool}: {entry['status']}, {entry['result']}")
            if "error" in entry:
                print(entry["error"][-1500:])
            self.report.save()


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/device.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("tests", "bench", "sanitizer")
    parser.add_argument("--dry-run", action="store_true", help="rehearse on the CPU, with tiny sizes")
    parser.add_argument("--minutes", type=float, help="time for all of it (8; for a rehearsal 30)")
    parser.add_argument(
        "--out", type=Path, help="folder of the report (bench/results/CARD; in a rehearsal runs/rehearsal)"
    )
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts, help="what to run besides the build (all)")
    options = parser.parse_args(arguments)
    if options.minutes is None:
        options.minutes = 30.0 if options.dry_run else 8.0
    if not 0 < options.minutes < 24 * 60:
        parser.error(f"--minutes: got {options.minutes:g}, want a number above 0")
    if options.out is None and options.dry_run:
        options.out = ROOT / "runs" / "rehearsal"
    if options.out is not None:
        # A relative path would be wrong for the parts, which run in another folder.
        options.out = options.out.resolve()
    return options


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    if os.environ.get("SEEGERA_DATA"):
        # Made absolute for the same reason.
        os.environ["SEEGERA_DATA"] = os.path.abspath(os.environ["SEEGERA_DATA"])
    # On SIGTERM the script still writes its report and leaves no process on the card.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(UNMEASURED))
    return Run(options).all()


if __name__ == "__main__":
    sys.exit(main())
