"""Builds the native libraries with CMake and Ninja; everything else about the package is in pyproject.toml.

Environment variables:

- ``SEEGERA_NATIVE=0``: no native code; the package runs on its reference operations.
- ``SEEGERA_CUDA=0``: no CUDA library even where nvcc is found; ``1``: its absence is an error.
- ``SEEGERA_TORCH``: folder of the torch package to build against, if it is not the installed one.
- ``SEEGERA_CUDA_ARCHS``: CUDA architectures, such as ``80;90``.
- ``SEEGERA_SANITIZE``: sanitizers, such as ``address,undefined``.
- ``CXX``, ``CUDACXX``, ``CUDA_HOME``: where the compilers are.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "native"
OLDEST_TORCH = (2, 11)


def say(message):
    print(f"seegera-fast: {message}", flush=True)


def fail(message):
    sys.exit(f"seegera-fast: {message}")


def find_compiler():
    """Path of the C++ compiler, or None where there is none."""
    wanted = os.environ.get("CXX")
    if wanted:
        found = shutil.which(shlex.split(wanted)[0])
        if found is None:
            fail(f"the C++ compiler CXX={wanted} is not there; unset CXX to use the default one.")
        return found
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def find_nvcc():
    """Path of the CUDA compiler, or None where there is none or it is not wanted."""
    wanted = os.environ.get("SEEGERA_CUDA", "")
    if wanted == "0":
        return None
    home = os.environ.get("CUDA_HOME")
    candidates = [os.environ.get("CUDACXX"), home and str(Path(home, "bin", "nvcc")), "nvcc"]
    found = next(filter(None, map(shutil.which, filter(None, candidates))), None)
    if found is None and wanted == "1":
        fail("SEEGERA_CUDA=1, but nvcc is neither CUDACXX nor in CUDA_HOME/bin nor on PATH.")
    return found


def find_torch():
    """Folder of the torch package. It is never imported: that would take longer than the build."""
    wanted = os.environ.get("SEEGERA_TORCH")
    spec = None if wanted else importlib.util.find_spec("torch")
    if wanted:
        folder = Path(wanted)
    elif spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent
    else:
        # Inside pip's isolated build environment the installed packages are hidden, but their folder is known.
        folder = Path(sysconfig.get_path("platlib"), "torch")
    version_file = folder / "version.py"
    if not version_file.is_file():
        fail(
            f"no torch in {folder}; install torch>=2.11 first, or name its folder in SEEGERA_TORCH "
            "(SEEGERA_NATIVE=0 installs without native code)."
        )
    match = re.search(r"__version__ = '(\d+)\.(\d+)", version_file.read_text())
    if match is None or tuple(map(int, match.groups())) < OLDEST_TORCH:
        fail(f"the torch in {folder} is older than 2.11; upgrade it first.")
    return folder


def find_tool(name):
    """Path of cmake or ninja: on PATH, or beside the interpreter when its environment is not activated."""
    found = shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))
    if found is None:
        fail(f"{name} is needed to build the native libraries: pip install cmake ninja.")
    return found


class CMakeBuild(build_ext):
    """Builds all extensions with one run of CMake and copies each to where setuptools wants it."""

    def build_extensions(self):
        cmake, ninja = find_tool("cmake"), find_tool("ninja")
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_MAKE_PROGRAM": ninja,
            "SEEGERA_TORCH": TORCH,
            "SEEGERA_CUDA": "ON" if NVCC else "OFF",
            "SEEGERA_SANITIZE": os.environ.get("SEEGERA_SANITIZE", ""),
        }
        if NVCC:
            settings["CMAKE_CUDA_COMPILER"] = NVCC
            settings["SEEGERA_CUDA_ARCHS"] = os.environ.get("SEEGERA_CUDA_ARCHS", "80;90")
        self.discard_stale_build()
        self.run_tool([cmake, "-S", ROOT, "-B", BUILD, "-G", "Ninja", *(f"-D{k}={v}" for k, v in settings.items())])
        self.run_tool([cmake, "--build", BUILD, *([f"-j{self.parallel}"] if self.parallel else [])])
        for extension in self.extensions:
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(BUILD / f"{extension.name.rpartition('.')[2]}.so", target)

    def discard_stale_build(self):
        """Discards what CMake does not recover from: paths of the deleted environment of an isolated build, and another
        CUDA compiler, for which it would drop its cache and with it the other settings."""
        cache = BUILD / "CMakeCache.txt"
        if not cache.is_file():
            return
        entries = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), flags=re.MULTILINE))
        programs = [entries.get(name) for name in ("CMAKE_COMMAND", "CMAKE_MAKE_PROGRAM", "CMAKE_CXX_COMPILER")]
        moved = entries.get("CMAKE_HOME_DIRECTORY") != str(ROOT)
        nvcc = entries.get("CMAKE_CUDA_COMPILER")
        changed = NVCC is not None and nvcc is not None and nvcc != NVCC
        if moved or changed or not all(program and Path(program).exists() for program in programs):
            shutil.rmtree(BUILD)

    def run_tool(self, command):
        try:
            subprocess.run(list(map(str, command)), check=True)
        except subprocess.CalledProcessError:
            hint = " SEEGERA_CUDA=0 leaves the CUDA library out;" if NVCC else ""
            fail(f"the native build failed, see above.{hint} SEEGERA_NATIVE=0 installs without native code.")

    def copy_extensions_to_source(self):
        # By rename, never by writing into the file: another process may have it loaded.
        build_py = self.get_finalized_command("build_py")
        for extension in self.extensions:
            target, source = self._get_inplace_equivalent(build_py, extension)
            replace_file(source, target)


def replace_file(source, target):
    temporary = Path(f"{target}.{os.getpid()}.tmp")
    shutil.copyfile(source, temporary)
    os.replace(temporary, target)


COMPILER = TORCH = NVCC = None
if os.environ.get("SEEGERA_NATIVE") == "0":
    say("SEEGERA_NATIVE=0: installing without native code.")
else:
    COMPILER = find_compiler()
    if COMPILER is None:
        say("no C++ compiler (CXX, c++, g++, clang++): installing without native code.")
    # Making an sdist compiles nothing; egg_info is its first step, and pip's.
    elif not set(sys.argv[1:]) & {"sdist", "egg_info"}:
        TORCH = find_torch()
        NVCC = find_nvcc()

names = [] if TORCH is None else ["_C"] if NVCC is None else ["_C", "_C_cuda"]
# Folders of kernels/ with Python in them.
KERNEL_PACKAGES = {
    f"seegera_fast.kernels.{name}": f"kernels/{name.replace('.', '/')}" for name in find_packages("kernels")
}
setup(
    packages=[*find_packages(include=["seegera_fast", "seegera_fast.*"]), *KERNEL_PACKAGES],
    package_dir=KERNEL_PACKAGES,
    ext_modules=[Extension(f"seegera_fast.{name}", sources=[], py_limited_api=True) for name in names],
    cmdclass={"build_ext": CMakeBuild},
    # The libraries hold no Python symbols: one wheel serves every Python from 3.10 on.
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if names else {},
)
