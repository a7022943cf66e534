"""Puts faults into a copy of the project, one at a time, and prints which of them the tests catch.

python tools/mutations.py [--only NAME ...] [--json FILE]

The faults are in mutations.toml beside this file. Each is a snippet that is found exactly once in the sources, its
replacement, and the tests that should fail with it. A fault is caught if these tests pass on the unchanged copy, which
is tested first, and fail with the fault. The exit status is 1 if a fault is not caught.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
SOURCES = ("kernels", "seegera_fast")
SUFFIXES = (".py", ".cpp", ".h", ".cu", ".cuh")
COLUMNS = ("cpu", "cuda", "triton", "reference", "model")
# This script runs the compiler. With a fault in the sources it compiles for the base instruction set only, which the
# tests of that fault use. The objects for the other instruction sets stay as they are.
LAUNCHER = """#!/bin/sh
if [ -n "$SEEGERA_FAULT" ]; then
    case " $* " in *" -DSEEGERA_ISA=base "*) ;; *" -DSEEGERA_ISA="*)
        for word; do [ "$last" = -o ] && object=$word; last=$word; done
        [ -e "$object" ] && exec touch "$object"
    esac
fi
exec "$@"
"""
# Seconds after which tests are ended, because a wrong kernel may run forever.
LIMIT = 900


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Attributes:
        kind: the kind of fault, such as a sign, a wrong factor or a transposed index.
        column: where it is: one of COLUMNS.
        text: the snippet, which is found exactly once in the sources.
        replacement: the text that replaces the snippet.
        tests: arguments of pytest; patterns of files begin with "tests/".
        env: environment variables of the tests.
    """

    name: str
    kind: str
    column: str
    text: str
    replacement: str
    tests: str
    env: dict[str, str] = field(default_factory=dict)

    def file(self, tree: Path) -> Path:
        """The file that holds the snippet."""
        files = (path for folder in SOURCES for path in sorted((tree / folder).rglob("*")) if path.suffix in SUFFIXES)
        found = [(path, count) for path in files if (count := path.read_text().count(self.text))]
        if sum(count for _, count in found) != 1:
            names = ", ".join(f"{path.relative_to(tree)} ({count})" for path, count in found) or "no file"
            raise SystemExit(f"{self.name}: its text is in {names}, want it exactly once; change mutations.toml")
        return found[0][0]

    def command(self, tree: Path) -> tuple[str, ...]:
        """The arguments of pytest, with the names of the files."""
        arguments: list[str] = []
        for word in shlex.split(self.tests):
            if not word.startswith("tests/"):
                arguments.append(word)
                continue
            found = sorted(path for path in (tree / "tests").iterdir() if fnmatch.fnmatch(f"tests/{path.name}", word))
            if not found:
                raise SystemExit(f"{self.name}: no file is {word}; change mutations.toml")
            arguments += (str(path.relative_to(tree)) for path in found)
        return tuple(arguments)


def load(table: Path) -> list[Mutation]:
    mutations = [Mutation(**entry) for entry in tomllib.loads(table.read_text())["mutation"]]
    names = [mutation.name for mutation in mutations]
    for mutation in mutations:
        if names.count(mutation.name) > 1:
            raise SystemExit(f"{mutation.name}: is the name of two mutations")
        if mutation.column not in COLUMNS:
            raise SystemExit(f"{mutation.name}: column {mutation.column!r}, want one of {', '.join(COLUMNS)}")
        if mutation.text == mutation.replacement:
            raise SystemExit(f"{mutation.name}: its replacement changes nothing")
    return mutations


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def bring(source: Path, target: Path) -> None:
    """Copies a file if it differs. Its new time makes a build compile it again."""
    if not target.is_file() or target.read_bytes() != source.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)


class Copy:
    """A copy of the project that is built and tested."""

    def __init__(self, source: Path, folder: Path, trusting: bool) -> None:
        self.folder, self.trusting = folder, trusting
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*SOURCES, "tests", "tools", "bench", "docs"):
            paths = {path.relative_to(source) for path in files_of(source / name)}
            for path in files_of(folder / name):
                if path.relative_to(folder) not in paths:
                    path.unlink()
            for path in paths:
                bring(source / path, folder / path)
        for path in source.iterdir():
            if path.is_file():
                bring(path, folder / path.name)
        self.launcher = folder / "compiler_launcher.sh"
        self.launcher.write_text(LAUNCHER)
        self.launcher.chmod(0o755)
        self.passed: dict[tuple, float] = {}
        self.library: tuple[Path, bytes] | None = None

    def run(self, command: list[str], env: dict[str, str]) -> tuple[int, str, float]:
        """Runs a command; returns exit status, output and seconds. The status is -SIGKILL if it took too long."""
        unset = ("SEEGERA_NATIVE", "SEEGERA_ISA", "TRITON_INTERPRET")
        base = {name: value for name, value in os.environ.items() if name not in unset}
        path = os.pathsep.join([str(Path(sys.executable).parent), base.get("PATH", "")])
        base |= {
            "PYTHONPATH": str(self.folder),
            "PATH": path,
            "OMP_NUM_THREADS": "1",
            "SEEGERA_NATIVE": "1",
            "SEEGERA_CUDA": "0",
        }
        begin = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**base, **env},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        return process.returncode, output, time.monotonic() - begin

    def build(self, **env: str) -> None:
        env["CMAKE_CXX_COMPILER_LAUNCHER"] = str(self.launcher)
        status, output, _ = self.run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], env)
        if status != 0:
            raise SystemExit(f"the native build failed:\n{output[-4000:]}")

    def begin(self, *, compiling: bool) -> None:
        """Prepares the unchanged library, and checks that the tests import the copy.

        Args:
            compiling: whether some faults are in the library, so that it has to be built here.
        """
        libraries = list((self.folder / "seegera_fast").glob("_C.*so"))
        if compiling or not libraries:
            self.build()
            libraries = list((self.folder / "seegera_fast").glob("_C.*so"))
        (path,) = libraries
        self.library = path, path.read_bytes()
        _, output, _ = self.run([sys.executable, "-c", "import seegera_fast as s; print(s.__file__)"], {})
        if self.folder not in Path(output.strip().splitlines()[-1]).parents:
            raise SystemExit(f"the tests would import {output.strip()}, want what is in {self.folder}")

    def test(self, arguments: tuple[str, ...], env: dict[str, str]) -> tuple[int, str, float]:
        options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]
        return self.run([sys.executable, "-m", "pytest", *options, *arguments], env)

    def judge(self, mutation: Mutation) -> dict[str, object]:
        path, arguments = mutation.file(self.folder), mutation.command(self.folder)
        compiled = path.relative_to(self.folder).parts[:2] == ("kernels", "cpu")
        env = {**({"SEEGERA_ISA": "base"} if compiled else {}), **mutation.env}
        key = (arguments, tuple(sorted(env.items())))
        if key not in self.passed and not self.trusting:
            status, output, self.passed[key] = self.test(arguments, env)
            if status != 0:
                raise SystemExit(f"{mutation.name}: its tests end with {status} without it:\n{output[-4000:]}")
        original = path.read_text()
        try:
            path.write_text(original.replace(mutation.text, mutation.replacement))
            if compiled:
                self.build(SEEGERA_FAULT="1")
            status, output, seconds = self.test(arguments, env)
        finally:
            path.write_text(original)
            if compiled and self.library is not None:
                library, content = self.library
                # By renaming, because a process may have loaded the old file.
                library.with_suffix(".new").write_bytes(content)
                library.with_suffix(".new").replace(library)
        # pytest found no test, or did not understand its arguments.
        if status in (3, 4, 5):
            raise SystemExit(f"{mutation.name}: pytest ends with {status}:\n{output[-4000:]}")
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return {
            "name": mutation.name,
            "kind": mutation.kind,
            "column": mutation.column,
            "file": str(path.relative_to(self.folder)),
            "tests": shlex.join(arguments),
            "caught": status != 0,
            "by": failed[0].partition(" - ")[0] if failed else f"status {status}" if status else "",
            "seconds": round(seconds, 1),
            "seconds unchanged": round(self.passed[key], 1) if key in self.passed else None,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="the project to copy; default: this one")
    parser.add_argument("--scratch", type=Path, help="where the copy goes; default: build/mutations of the tree")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="patterns of names, such as 'cpu-*'")
    parser.add_argument("--json", type=Path, help="a file for the results")
    parser.add_argument("--trusting", action="store_true", help="takes it that the tests pass in the unchanged tree")
    parser.add_argument("--list", action="store_true", help="finds every snippet, and runs nothing")
    options = parser.parse_args()
    tree = options.tree.resolve()
    mutations = load(TABLE)
    if options.only:
        mutations = [m for m in mutations if any(fnmatch.fnmatch(m.name, pattern) for pattern in options.only)]
        if not mutations:
            parser.error(f"--only: no name is like {' or '.join(options.only)}")
    # All snippets are looked up first, because a run takes long.
    for mutation in mutations:
        path, _ = mutation.file(tree), mutation.command(tree)
        if options.list:
            print(f"{mutation.name:34} {mutation.kind:18} {path.relative_to(tree)}")
    if options.list:
        return 0
    copy = Copy(tree, (options.scratch or tree / "build" / "mutations").resolve(), options.trusting)
    copy.begin(compiling=any(mutation.column == "cpu" for mutation in mutations))
    results = []
    for mutation in mutations:
        result = copy.judge(mutation)
        results.append(result)
        caught = "caught" if result["caught"] else "NOT CAUGHT"
        print(
            f"{mutation.name:34} {mutation.column:10} {caught:10} {result['seconds']:6.1f} s  {result['by']}",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps(results, indent=2) + "\n")
    missed = [str(result["name"]) for result in results if not result["caught"]]
    print(f"{len(results) - len(missed)} of {len(results)} caught{'; not: ' if missed else ''}{', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
