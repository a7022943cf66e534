"""Builds the native libraries with CMake and Ninja. Everything else about the package is in pyproject.toml.

Environment variables:

- ``SEEGERA_NATIVE=0``: no native code; the package runs on its reference operations.
- ``SEEGERA_CUDA=0``: no CUDA library, even if nvcc is found; ``1``: it is an error if nvcc is not found.
- ``SEEGERA_TORCH``: folder of the torch package to build against, if not the installed one.
- ``SEEGERA_CUDA_ARCHS``: CUDA architectures, such as ``80;90``.
- ``SEEGERA_SANITIZE``: sanitizers, such as ``address,undefined``.
- ``CXX``, ``CUDACXX``, ``CUDA_HOME``: paths of the compilers.
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
    """Path of the C++ compiler; None: there is none."""
    chosen = os.environ.get("CXX")
    if chosen:
        found = shutil.which(shlex.split(chosen)[0])
        if found is None:
            fail(f"the C++ compiler CXX={chosen} is not there; unset CXX to use the default one.")
        return found
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def find_nvcc():
    """Path of the CUDA compiler; None: there is none, or SEEGERA_CUDA is 0."""
    choice = os.environ.get("SEEGERA_CUDA", "")
    if choice == "0":
        return None
    home = os.environ.get("CUDA_HOME")
    candidates = [os.environ.get("CUDACXX"), home and str(Path(home, "bin", "nvcc")), "nvcc"]
    found = next(filter(None, map(shutil.which, filter(None, candidates))), None)
    if found is None and choice == "1":
        fail("SEEGERA_CUDA=1, but nvcc is neither CUDACXX nor in CUDA_HOME/bin nor on PATH.")
    return found


def find_torch():
    """Folder of the torch package, which is found without importing it, because that would take long."""
    chosen = os.environ.get("SEEGERA_TORCH")
    spec = None if chosen else importlib.util.find_spec("torch")
    if chosen:
        folder = Path(chosen)
    elif spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent
    else:
        # In pip's isolated build environment installed packages can't be imported, but their folder is known.
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
    """Path of cmake or ninja: on PATH, or beside the interpreter if its environment is not activated."""
    found = shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))
    if found is None:
        fail(f"{name} is needed to build the native libraries: pip install cmake ninja.")
    return found


class CMakeBuild(build_ext):
    """Builds all extensions with one run of CMake, and copies each to the path that setuptools expects."""

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
        """Removes a build folder that CMake can't use any more.

        Its paths may be those of an isolated build environment, which is deleted. Or the CUDA compiler has changed:
        CMake would then drop its cache, and the other settings with it.
        """
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
        # By renaming, because another process may have loaded the old file.
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
# The folders of kernels/ with Python files.
KERNEL_PACKAGES = {
    f"seegera_fast.kernels.{name}": f"kernels/{name.replace('.', '/')}" for name in find_packages("kernels")
}
setup(
    packages=[*find_packages(include=["seegera_fast", "seegera_fast.*"]), *KERNEL_PACKAGES],
    package_dir=KERNEL_PACKAGES,
    ext_modules=[Extension(f"seegera_fast.{name}", sources=[], py_limited_api=True) for name in names],
    cmdclass={"build_ext": CMakeBuild},
    # The libraries use no Python symbols, so one wheel works with every Python from 3.10 on.
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if names else {},
)
