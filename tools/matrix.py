"""Try the one wheel on every Python and torch that can be had here: `python tools/matrix.py`.

The wheel is the one that is published, see make_wheel.py. It is built once, by the Python that runs this script, whose
environment has torch, the build tools and auditwheel. For every Python of PYTHONS that is on PATH, in pyenv or in uv,
and for every release of torch of 2.11 or later that pip can get for it, a virtual environment is made in the folder of
the matrix, the wheel is installed, and tools/smoke.py runs. Without an NVIDIA GPU only CPU builds of torch are taken;
SEEGERA_TORCH_CUDA=1 takes CUDA builds of about 3 GB each too. A torch that a Python has already is tried as it is.

A table says at the end what was run, and what could not be had and why; matrix.json in the folder has the same. The
exit status is 1 if something that ran failed, or if nothing could be run. What can't be had is not a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import install_torch
import make_wheel
from tool_steps import Step, run

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PASSED, FAILED, ABSENT = "passed", "FAILED", "could not be had"
INSTALLED = "installed"  # in place of a version: the torch that the Python has
PROBE = "import ensurepip, sys, venv; print(sys.executable, '.'.join(map(str, sys.version_info[:3])))"


@dataclass
class Cell:
    """One Python with one torch, and what came of it."""

    python: str
    torch: str
    result: str
    reason: str = ""
    path: str = ""
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


def answer(*command: Any, timeout: float = 1800, **environment: str) -> Any:
    """Runs a command and returns what the last line of its output says in JSON.

    Raises:
        Step: as ``run`` does, or there is no such line.
    """
    output = run(*command, timeout=timeout, **environment)
    try:
        return json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise Step(f"{Path(str(command[1])).name} printed {output[-200:]!r}, want JSON in the last line") from None


# --- Pythons ---------------------------------------------------------------------------------------------------------


def places(version: str) -> list[str]:
    """Commands and paths where a Python of this version may be, the likeliest first."""
    found = [f"python{version}", sys.executable, "python3"]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    folders = sorted(pyenv.glob(f"{version}.*"), key=lambda folder: install_torch.release(folder.name), reverse=True)
    return [*found, *(str(folder / "bin" / "python") for folder in folders)]


def probe(place: str, version: str) -> tuple[str | None, str]:
    """The path of the Python at a place, or None, and why it can't be used: "" if there is none of this version."""
    path = shutil.which(place)
    if path is None:
        return None, ""
    try:
        executable, _, found = run(path, "-c", PROBE, timeout=60).strip().rpartition(" ")
    except Step as error:
        return None, f"{place}: {error}"
    return (executable, "") if found.startswith(f"{version}.") else (None, "")


def from_uv(version: str, folder: Path) -> tuple[str | None, str]:
    """A Python that uv has or can install into the folder, or None, and why not."""
    uv = shutil.which("uv")
    if uv is None:
        return None, "no uv that could install it"
    try:
        place = {"UV_PYTHON_INSTALL_DIR": str(folder / "pythons")}
        run(uv, "python", "install", "--no-bin", version, timeout=600, **place)
        return run(uv, "python", "find", "--managed-python", version, timeout=60, **place).strip(), ""
    except Step as error:
        return None, f"uv: {error}"


def find_python(version: str, folder: Path) -> tuple[str | None, str]:
    """The path of a Python of this version that can make environments, or None, and why there is none."""
    reasons = []
    for place in places(version):
        path, reason = probe(place, version)
        if path is not None:
            return path, ""
        reasons.append(reason)
    path, reason = from_uv(version, folder)
    if path is not None:
        return path, ""
    found = [reason for reason in reasons if version in reason.partition(":")[0]]
    told = "; ".join([*dict.fromkeys(found)] or ["neither on PATH nor in pyenv"])
    return None, f"{told}; {reason}; Debian's packages would be python{version} and python{version}-venv"


# --- torch -----------------------------------------------------------------------------------------------------------


def choose(versions: list[str], cuda_builds: bool) -> tuple[list[str], str]:
    """The newest build of each minor release of 2.11 or later, newest first, and what is left out and why."""
    offered: dict[tuple[int, ...], list[str]] = {}
    for version in versions:
        if install_torch.release(version) >= install_torch.MINIMUM:
            offered.setdefault(install_torch.release(version)[:2], []).append(version)
    chosen, left_out = [], []
    for minor in sorted(offered, reverse=True):
        cpu = [version for version in offered[minor] if install_torch.is_cpu_build(version)]
        usable = offered[minor] if cuda_builds else cpu
        if usable:
            # Where both builds of a version are offered, the CPU build is smaller and runs the same kernels.
            chosen.append(max(usable, key=lambda version: (install_torch.release(version), version in cpu)))
        else:
            left_out.append(".".join(map(str, minor)))
    if left_out:
        builds = "a CUDA build of about 3 GB; SEEGERA_TORCH_CUDA=1 takes it"
        return chosen, f"for {', '.join(left_out)} pip's sources have only {builds}"
    return chosen, "" if chosen else "pip's sources have no torch that is wanted for this Python, or can't be reached"


def takes_cuda_builds() -> bool:
    """Whether builds that are not marked as CPU builds are wanted: on Linux they bring the CUDA libraries along."""
    return sys.platform != "linux" or install_torch.has_nvidia_gpu() or os.environ.get("SEEGERA_TORCH_CUDA") == "1"


def offered_versions(python: str) -> list[str]:
    code = "import install_torch, json; print(json.dumps(install_torch.versions_in_sources()))"
    try:
        return answer(python, "-c", code, timeout=300, PYTHONPATH=str(TOOLS))
    except Step:
        return []


# --- one cell --------------------------------------------------------------------------------------------------------


def make_environment(python: str, torch: str, folder: Path) -> Path:
    """Makes a virtual environment, with the torch that the Python has or without any, and returns its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    if torch == INSTALLED:
        run(python, TOOLS / "make_venv.py", folder)
    else:
        run(python, "-m", "venv", folder)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def try_cell(version: str, python: str, torch: str, wheel: Path, folder: Path) -> Cell:
    """Installs and tries the wheel on one Python and one torch."""
    cell, start = Cell(version, torch, ABSENT, path=python), time.monotonic()
    try:
        inside = make_environment(python, torch, folder)
        if torch != INSTALLED:
            run(inside, "-m", "pip", "install", f"torch=={torch}")
        cell.result = FAILED
        run(inside, "-m", "pip", "install", "--no-deps", "--force-reinstall", wheel)
        cell.result = ABSENT
        run(inside, "-m", "pip", "install", wheel)
        try:
            run(inside, "-m", "pip", "install", "triton")
        except Step as error:
            cell.reason = f"without Triton ({error})"
        cell.result = FAILED
        empty = folder / "empty"
        empty.mkdir()
        cell.details = answer(inside, TOOLS / "smoke.py", SEEGERA_DATA=str(empty))
        cell.torch, cell.result = cell.details["torch"], PASSED
    except Step as error:
        cell.reason = str(error)
    finally:
        cell.seconds = round(time.monotonic() - start, 1)
    return cell


def cells_of(version: str, minors: list[str] | None, wheel: Path, folder: Path, keep: bool) -> list[Cell]:
    """All cells of one Python; ``minors``: the minor releases of torch to try, None: all."""
    python, reason = find_python(version, folder)
    if python is None:
        return [Cell(version, "-", ABSENT, reason)]
    try:
        has_torch = run(python, TOOLS / "make_venv.py", "--probe").strip() == "torch"
    except Step as error:
        return [Cell(version, "-", ABSENT, f"make_venv.py --probe: {error}", path=python)]
    torches = [INSTALLED] if has_torch else []
    offered = offered_versions(python)
    if minors:
        offered = [each for each in offered if ".".join(map(str, install_torch.release(each)[:2])) in minors]
    chosen, left_out = choose(offered, takes_cuda_builds())
    found = []
    for torch in [*torches, *chosen]:
        place = folder / f"python{version}-torch{torch}"
        found.append(try_cell(version, python, torch, wheel, place))
        say(found[-1])
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
    return [*found, *([Cell(version, "-", ABSENT, left_out, path=python)] if left_out else [])]


# --- all -------------------------------------------------------------------------------------------------------------


def say(cell: Cell) -> None:
    print(row(cell), flush=True)


def row(cell: Cell) -> str:
    """One line of the table."""
    errors = cell.details.get("errors", {})
    tried = ", ".join(f"{name} {error:.0e}" for name, error in errors.items() if error is not None)
    told = "; ".join(filter(None, [tried and f"errors: {tried}", cell.reason]))
    seconds = f"{cell.seconds:.0f} s" if cell.seconds else ""
    return f"{cell.python:7} {cell.torch:14} {cell.result:17} {seconds:>6}  {told}".rstrip()


def exit_status(cells: list[Cell]) -> int:
    results = [cell.result for cell in cells]
    return int(FAILED in results or PASSED not in results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0] + ".")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "matrix", help="default: build/matrix")
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, metavar="3.x", help="default: 3.10 to 3.14")
    parser.add_argument("--torches", nargs="+", metavar="2.x", help="default: 2.11 and later")
    parser.add_argument("--wheel", type=Path, help="try this wheel, and build none")
    parser.add_argument("--keep", action="store_true", help="keep the environments, about 1 GB each")
    given = parser.parse_args()
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        wheel = given.wheel.absolute() if given.wheel else make_wheel.make(folder / "wheel")
    except Step as error:
        print(f"the wheel can't be built: {error}", file=sys.stderr)
        return 1
    print(wheel.name, flush=True)
    cells = []
    for version in given.pythons:
        cells += cells_of(version, given.torches, wheel, folder, given.keep)
        print(f"{version}: done", flush=True)
        # After each Python, so that a run that is stopped leaves what it has found.
        content = {"wheel": wheel.name, "cells": [asdict(cell) for cell in cells]}
        (folder / "matrix.json").write_text(json.dumps(content, indent=2) + "\n")
    print(f"\n{'Python':7} {'torch':14} result")
    print("\n".join(map(row, cells)))
    return exit_status(cells)


if __name__ == "__main__":
    sys.exit(main())
