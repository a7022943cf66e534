"""Builds the native libraries with CMake and Ninja. Everything else about the package is in pyproject.toml.

Environment variables:

- ``SEEGERA_NATIVE=0``: no native code; the package runs on its reference operations. ``1``: it is an error if no C++
  compiler can be used; without the variable the package is then installed without native code.
- ``SEEGERA_CUDA=0``: no CUDA library, even if nvcc is found; ``1``: it is an error if nvcc is not found.
- ``SEEGERA_TORCH``: folder of the torch package to build against, if not the installed one.
- ``SEEGERA_CUDA_ARCHS``: CUDA architectures, such as ``80;90``.
- ``SEEGERA_SANITIZE``: sanitizers, such as ``address,undefined``.
- ``CXX``, ``CUDACXX``, ``CUDA_HOME``: paths of the compilers.
"""

import importlib.util
import os
import platform
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "native"
OLDEST_TORCH = (2, 11)
# The commands of setuptools that compile.
BUILDING = {"build", "build_ext", "bdist", "bdist_wheel", "editable_wheel", "develop", "install"}

# What a compiler must be able to do: the kernels' vectors, the standard library, and a shared library.
PROBE = """
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#error it is older than GCC 12
#endif
#include <string>
typedef float Pair __attribute__((vector_size(8)));
Pair swapped(Pair x) { return __builtin_shufflevector(x, x, 1, 0); }
std::string text(int i) { return std::to_string(i); }
"""


def say(message):
    print(f"seegera-fast: {message}", flush=True)


def fail(message):
    sys.exit(f"seegera-fast: {message}")


def switch(name):
    """A variable that is "0", "1", or not set."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        fail(f"{name}: got {value!r}, want 0, 1, or no such variable.")
    return value


def find_compiler():
    """Command of the C++ compiler, a list of words; None: there is none that can be used."""
    chosen = os.environ.get("CXX")
    words = shlex.split(chosen) if chosen else []
    if words and shutil.which(words[0]) is None:
        fail(f"the C++ compiler CXX={chosen} is not there; unset CXX to use the default one.")
    refused = []
    for command in [words] if words else [["c++"], ["g++"], ["clang++"]]:
        path = shutil.which(command[0])
        reason = path and why_unusable([path, *command[1:]])
        if path and not reason:
            return [path, *command[1:]]
        if reason:
            refused.append(f"{' '.join(command)}: {reason}")
    if refused:
        reason = f"no C++ compiler that can be used, want GCC 12 or later, or Clang ({'; '.join(refused)})"
    else:
        reason = "no C++ compiler (CXX, c++, g++, clang++)"
    for name in ("SEEGERA_NATIVE", "SEEGERA_CUDA"):
        if switch(name) == "1":
            fail(f"{name}=1, but there is {reason}.")
    say(f"{reason}: installing without native code.")
    return None


def why_unusable(compiler):
    """What the compiler says of PROBE; None: it compiles and links it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cpp")
        source.write_text(PROBE)
        command = [*compiler, "-std=c++17", "-fPIC", "-shared", str(source), "-o", str(Path(folder, "probe.so"))]
        try:
            tried = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)
        except OSError as error:
            return error.strerror
        if tried.returncode == 0 and Path(folder, "probe.so").is_file():
            return None
    lines = [line for line in tried.stdout.splitlines() if line.strip()]
    told = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "it says nothing")
    return re.sub(r"^.*?error: (#error )?", "", told).strip()


def find_nvcc():
    """Path of the CUDA compiler; None: there is none, or SEEGERA_CUDA is 0."""
    choice = switch("SEEGERA_CUDA")
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
    if chosen and not Path(chosen, "version.py").is_file():
        fail(f"no torch in {chosen}; install torch>=2.11 first, or name its folder in SEEGERA_TORCH.")
    found = [Path(chosen)] if chosen else [folder for folder in torch_folders() if (folder / "version.py").is_file()]
    if not found:
        fail(
            "no torch that this build can see: install torch>=2.11 and build with --no-build-isolation (setuptools, "
            "cmake and ninja must be installed then), or name torch's folder in SEEGERA_TORCH, or set SEEGERA_NATIVE=0 "
            "to install without native code."
        )
    usable = [folder for folder in found if torch_version(folder) >= OLDEST_TORCH]
    if not usable:
        fail(f"the torch in {found[0]} is older than 2.11; upgrade it first.")
    return usable[0]


def torch_version(folder):
    match = re.search(r"__version__ = '(\d+)\.(\d+)", (folder / "version.py").read_text())
    return tuple(map(int, match.groups())) if match else ()


def torch_folders():
    """Folders where torch may be: this Python's, then those of the environments that an isolated build is made for.

    The libraries run on every torch from 2.11 on, whichever of them they were built against.
    """
    spec = importlib.util.find_spec("torch")
    here = [Path(spec.origin).parent] if spec is not None and spec.origin is not None else []
    # In pip's isolated build environment installed packages can't be imported, but their folders are known.
    packages = [Path(sysconfig.get_path("platlib")), Path(site.getusersitepackages())]
    # uv and build make an environment with folders of its own.
    others = [os.environ.get("VIRTUAL_ENV"), *environments_of_parent(), os.environ.get("CONDA_PREFIX"), sys.base_prefix]
    for prefix in filter(None, others):
        packages += Path(prefix).glob("lib/python3*/*-packages")
    return [*here, *(folder / "torch" for folder in packages)]


def environments_of_parent():
    """Folders of the virtual environments of the program that runs this build, in the order in which uv takes them."""
    process = Path("/proc", str(os.getppid()))
    try:
        variables = dict(entry.partition("=")[::2] for entry in (process / "environ").read_text().split("\0"))
        program = (process / "cmdline").read_text().partition("\0")[0]
        current = (process / "cwd").resolve(strict=True)
    except (OSError, ValueError):
        return []  # no /proc, or a text that is not UTF-8
    started_from = [Path(current, program).parent.parent] if os.sep in program else []
    return [variables.get("VIRTUAL_ENV"), *started_from, *(folder / ".venv" for folder in (current, *current.parents))]


def find_tool(name):
    """Path of cmake or ninja: on PATH, or beside the interpreter if its environment is not activated."""
    found = shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))
    if found is None:
        fail(f"{name} is needed to build the native libraries: pip install cmake ninja.")
    return found


class FreshBuild(build_py):
    """Leaves nothing of an earlier build in a wheel: no module that was removed, no library that is not built now."""

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib, "seegera_fast"), ignore_errors=True)
        super().run()


class CMakeBuild(build_ext):
    """Builds all extensions with one run of CMake, and copies each to the path that setuptools expects."""

    def build_extensions(self):
        cmake, ninja = find_tool("cmake"), find_tool("ninja")
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_MAKE_PROGRAM": ninja,
            "SEEGERA_TORCH": TORCH,
            "SEEGERA_CXX": shlex.join(COMPILER),
            "SEEGERA_CUDA": "ON" if NVCC else "OFF",
            "SEEGERA_SANITIZE": os.environ.get("SEEGERA_SANITIZE", ""),
        }
        if NVCC:
            settings["CMAKE_CUDA_COMPILER"] = NVCC
            settings["SEEGERA_CUDA_ARCHS"] = os.environ.get("SEEGERA_CUDA_ARCHS") or "80;90"
        self.discard_stale_build()
        os.environ["CXX"] = shlex.join(COMPILER)
        self.run_tool([cmake, "-S", ROOT, "-B", BUILD, "-G", "Ninja", *(f"-D{k}={v}" for k, v in settings.items())])
        self.run_tool([cmake, "--build", BUILD, *([f"-j{self.parallel}"] if self.parallel else [])])
        for extension in self.extensions:
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(BUILD / f"{extension.name.rpartition('.')[2]}.so", target)

    def discard_stale_build(self):
        """Removes a build folder that CMake can't use any more.

        Its paths may be those of an isolated build environment, which is deleted. Or a compiler has changed: CMake
        would keep the old C++ compiler, and drop its cache, with the other settings in it, for another CUDA compiler.
        """
        cache = BUILD / "CMakeCache.txt"
        if not cache.is_file():
            return
        entries = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), flags=re.MULTILINE))
        programs = [entries.get(name) for name in ("CMAKE_COMMAND", "CMAKE_MAKE_PROGRAM", "CMAKE_CXX_COMPILER")]
        moved = entries.get("CMAKE_HOME_DIRECTORY") != str(ROOT)
        nvcc = entries.get("CMAKE_CUDA_COMPILER")
        changed = NVCC is not None and nvcc is not None and nvcc != NVCC
        changed = changed or entries.get("SEEGERA_CXX") != shlex.join(COMPILER)
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


if platform.python_implementation() != "CPython":
    fail(f"this Python is {platform.python_implementation()}, want CPython: torch has no build for another one.")
if sys.platform == "win32":
    fail("this system is Windows, want Linux, such as that of WSL.")
COMPILER = TORCH = NVCC = None
if switch("SEEGERA_NATIVE") == "0":
    say("SEEGERA_NATIVE=0: installing without native code.")
# Making an sdist compiles nothing; egg_info is its first step, and pip's. Another command of the same call may.
elif set(sys.argv[1:]) & BUILDING or not set(sys.argv[1:]) & {"sdist", "egg_info"}:
    COMPILER = find_compiler()
    if COMPILER is not None:
        TORCH = find_torch()
        NVCC = find_nvcc()

names = [] if TORCH is None else ["_C"] if NVCC is None else ["_C", "_C_cuda"]
# The libraries use no Python symbols, so one wheel works with every Python from 3.10 on. Free-threaded Pythons load no
# stable ABI, and refuse a wheel with its tag.
ABI3 = bool(names) and not sysconfig.get_config_var("Py_GIL_DISABLED")
# The folders of kernels/ with Python files.
KERNEL_PACKAGES = {
    f"seegera_fast.kernels.{name}": f"kernels/{name.replace('.', '/')}" for name in find_packages("kernels")
}
setup(
    packages=[*find_packages(include=["seegera_fast", "seegera_fast.*"]), *KERNEL_PACKAGES],
    package_dir=KERNEL_PACKAGES,
    ext_modules=[Extension(f"seegera_fast.{name}", sources=[], py_limited_api=ABI3) for name in names],
    cmdclass={"build_py": FreshBuild, "build_ext": CMakeBuild},
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if ABI3 else {},
)
