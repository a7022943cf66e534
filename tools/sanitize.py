"""Run the tests of the CPU kernels under sanitizers, on every instruction set: `python tools/sanitize.py`.

The CPU library is built twice, in copies of the project under build/sanitize: for the address and undefined-behaviour
sanitizers, whose tests have two threads, and for ThreadSanitizer, whose kernels start three threads of their own.
ThreadSanitizer does not know the threads of OpenMP, which torch uses, and would take what they order for races.

At the end there is a line for each instruction set. The exit status is 1 if a test failed or a sanitizer found
something. An instruction set that the processor lacks is named and is not a failure.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ISAS = ("base", "avx2", "avx512")
COPIED = ("seegera_fast", "kernels", "tests", "setup.py", "pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE")


@dataclass(frozen=True)
class Sanitizer:
    """A build, and the tests that run under it.

    Attributes:
        name: folder of the build, and its name in what is printed.
        flag: value of -fsanitize=.
        libraries: run-time libraries, which must be loaded before anything else, since Python is not built with them.
        options: environment variable -> options of the sanitizer.
        threads: the number of threads of torch.
        left_out: words of tests that run no other tasks of a kernel than the rest.
    """

    name: str
    flag: str
    libraries: tuple[str, ...]
    options: dict[str, str]
    threads: int
    left_out: tuple[str, ...]


SANITIZERS = (
    Sanitizer(
        "address and undefined behaviour",
        "address,undefined",
        ("libasan.so", "libubsan.so"),
        # Python does not free all its memory at exit.
        {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"},
        threads=2,
        # These differ from others in their values, not in what memory is read and written.
        left_out=("finite_differences", "nan_is_not_lost", "seed_as_number"),
    ),
    Sanitizer(
        "threads",
        "thread",
        ("libtsan.so",),
        {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1:halt_on_error=1"},
        threads=1,
        # The work is cut into the same tasks for both dtypes.
        left_out=(
            "finite_differences",
            "each_gradient_alone",
            "layouts",
            "nan_is_not_lost",
            "seed_as_number",
            "float64",
        ),
    ),
)


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "c++"))


def runtime_library(name: str) -> str | None:
    """Path of a sanitizer's library; None: the compiler has none."""
    answer = subprocess.run([*compiler(), f"-print-file-name={name}"], capture_output=True, text=True)
    path = answer.stdout.strip()
    return path if Path(path).is_absolute() else None


def copy_sources(folder: Path) -> None:
    """Copies what a build needs. Files keep their times, so that a second run compiles only what changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("_C*.so", "__pycache__"))
        else:
            shutil.copy2(source, target)


def build(folder: Path, sanitizer: Sanitizer) -> None:
    copy_sources(folder)
    environment = {**os.environ, "SEEGERA_SANITIZE": sanitizer.flag, "SEEGERA_NATIVE": "1", "SEEGERA_CUDA": "0"}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    answer = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    if answer.returncode != 0:
        sys.exit(answer.stdout)


class Runs:
    """Runs Python in the folder of a build, under its sanitizer."""

    def __init__(self, folder: Path, sanitizer: Sanitizer) -> None:
        self.folder, self.sanitizer = folder, sanitizer
        self.prefix, self.missing = self._start()

    def _start(self) -> tuple[list[str], str | None]:
        """What a command begins with, and why no command can run under the sanitizer, or None."""
        without = [name for name in self.sanitizer.libraries if runtime_library(name) is None]
        if without:
            return [], f"the compiler {shlex.join(compiler())} has no {' and '.join(without)}"
        # Where the system places a program's memory at random, ThreadSanitizer may find its own places taken.
        for prefix in ([], ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []):
            command = [*prefix, sys.executable, "-c", "pass"]
            if subprocess.run(command, env=self.environment("base"), capture_output=True).returncode == 0:
                return prefix, None
        return [], "Python does not start under it"

    def environment(self, isa: str) -> dict[str, str]:
        loaded = ":".join(filter(None, map(runtime_library, self.sanitizer.libraries)))
        reports = {name: f"{value}:log_path={self.reports(isa)}" for name, value in self.sanitizer.options.items()}
        given = {"LD_PRELOAD": loaded, "SEEGERA_ISA": isa, "OMP_NUM_THREADS": str(self.sanitizer.threads)}
        return {**os.environ, **reports, **given}

    def reports(self, isa: str) -> Path:
        """The beginning of the paths of the sanitizer's reports; a process adds its number."""
        return self.folder / f"report-{isa}"

    def instruction_set(self, isa: str) -> str:
        """The instruction set that the kernels use where ``isa`` is asked for."""
        code = "from seegera_fast import backends; print(backends.CPU.missing or backends.instruction_set())"
        command = [*self.prefix, sys.executable, "-c", code]
        answer = subprocess.run(command, cwd=self.folder, env=self.environment(isa), capture_output=True, text=True)
        lines = (answer.stdout or answer.stderr).strip().splitlines()
        return lines[-1] if lines else f"exit status {answer.returncode}"

    def tests(self, isa: str, jobs: int, left_out: list[str]) -> str:
        """Runs the tests on an instruction set and returns what came of them."""
        for old in self.folder.glob(f"{self.reports(isa).name}.*"):
            old.unlink()
        kernels = sorted(path.stem for path in (self.folder / "kernels" / "cpu").glob("*.cpp"))
        files = [f"tests/test_{name}.py" for name in kernels if (self.folder / "tests" / f"test_{name}.py").is_file()]
        chosen = f"cpu and not ({' or '.join([*self.sanitizer.left_out, *left_out])})"
        command = [*self.prefix, sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "-p", "no:cacheprovider"]
        command += ["-k", chosen, *files]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment(isa),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        last = ""
        for line in process.stdout:
            last = line.strip() or last
            if not re.match(r"[.s]+ +\[ *\d+%\]$", line):
                print(line, end="", flush=True)
        status = process.wait()
        reports = sorted(self.folder.glob(f"{self.reports(isa).name}.*"))
        for report in reports:
            print(report.read_text(errors="replace"))
        return outcome(status, last, len(reports))


def outcome(status: int, last: str, reports: int) -> str:
    """What a run of pytest says, from its exit status, its last line and the number of the sanitizer's reports."""
    passed = re.search(r"(\d+) passed", last)
    if status == 0 and reports == 0 and passed:
        return f"{int(passed[1]):,} tests, no finding"
    if reports:
        return f"FAILED: {reports} report{'s' if reports > 1 else ''} of the sanitizer, see above"
    return f"FAILED: {last.strip('= ') or f'exit status {status}'}"


def check(sanitizer: Sanitizer, folder: Path, jobs: int, left_out: list[str]) -> dict[str, str]:
    """Builds, and runs the tests on every instruction set. Returns instruction set -> what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Runs(folder, sanitizer)
    if run.missing is not None:
        return dict.fromkeys(ISAS, f"not run: {run.missing}")
    _, times = timed(build, folder, sanitizer)
    print(f"built for {sanitizer.name}: {times}", flush=True)
    found = {}
    for isa in ISAS:
        used = run.instruction_set(isa)
        if used != isa:
            lacks = used in ISAS
            found[isa] = "not run: the processor lacks it" if lacks else f"FAILED: the library does not load ({used})"
            continue
        found[isa], times = timed(run.tests, isa, jobs, left_out)
        print(f"{isa}, {sanitizer.name}: {found[isa]}; {times}", flush=True)
    return found


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """The function's result, and how long it and the processors took."""
    start, before = time.monotonic(), processor_time()
    result = function(*arguments)
    return result, f"{time.monotonic() - start:.0f} s, {processor_time() - before:.0f} s of processor time"


def processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_all(folder: Path, jobs: int, left_out: list[str]) -> bool:
    """Runs everything, prints a line for each instruction set, and returns whether nothing was found."""
    results = {each.name: check(each, folder / each.flag.replace(",", "-"), jobs, left_out) for each in SANITIZERS}
    for isa in ISAS:
        print(f"{isa:6}  " + "; ".join(f"{name}: {found[isa]}" for name, found in results.items()))
    return not any("FAILED" in line for found in results.values() for line in found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0] + ".")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "sanitize", help="default: build/sanitize")
    parser.add_argument("--jobs", type=int, default=2, help="processes for the tests; default: 2")
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="WORD", help="words of tests that are not run")
    given = parser.parse_args()
    clean, times = timed(check_all, given.folder.absolute(), given.jobs, given.leave_out)
    print(times)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
