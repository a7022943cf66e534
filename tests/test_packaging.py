"""The package as users install it: sdist, wheel and editable install, with and without a C++ compiler.

What setup.py chooses, a compiler and a torch among other things, is in test_setup.py.
"""

import importlib
import json
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="77")

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"
PACKAGES = Path(sysconfig.get_path("purelib"))
COMPILER = next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++").split()[0], "g++", "clang++"))), None)
# Makes a compiler say that it is another one.
AS_GCC_11 = "-U__clang__ -U__GNUC__ -D__GNUC__=11"
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

# Prints the paths of the installed modules, in a folder without sources, then calls an operation twice and prints the
# warnings.
INSPECT = """
import importlib.metadata, importlib.util, json, pathlib, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
    import seegera_fast as sf
    import seegera_fast.kernels.triton.common
    matrix = sf.SparseMatrix.from_any(torch.tensor([[0.0, 2.0], [1.0, 3.0]]))
    results = [sf.ops.sparse_matmul(matrix, torch.tensor([[1.0], [10.0]])).tolist() for _ in range(2)]
folder = pathlib.Path(sf.__file__).parent
print(json.dumps({
    "folder": str(folder),
    "triton": importlib.util.find_spec("seegera_fast.kernels.triton.sparse_matmul").origin,
    "searched": [str(pathlib.Path(path)) for path in seegera_fast.kernels.__path__],
    "same version": importlib.metadata.version("seegera-fast") == sf.__version__,
    "presets": all((folder / name).is_file() for name in ("tasks/presets.toml", "experiments/paper.toml", "py.typed")),
    "cpu": sf.backends.info()["cpu"]["available"],
    "instruction set": sf.backends.instruction_set() is not None,
    "results": results,
    "warnings": [str(w.message) for w in caught if "seegera_fast" in str(w.message)],
}))
"""
# In a folder of an earlier build: a library that is not built now, and a module that was removed.
STALE = ("_C_cuda.abi3.so", "removed.py")
WORKS = {
    "same version": True,
    "presets": True,
    "cpu": True,
    "instruction set": True,
    "results": [[[20.0], [31.0]]] * 2,
    "warnings": [],
}


def run(command, *, cwd, **environment):
    """Runs a command with the given environment variables (None: removed) and returns its result."""
    unset = dict.fromkeys(("PYTHONPATH", "SEEGERA_TORCH", "SEEGERA_NATIVE", "SEEGERA_ISA", "SEEGERA_SANITIZE"))
    merged = {**os.environ, **unset, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment}
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={name: value for name, value in merged.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def succeed(command, *, cwd, **environment):
    result = run(command, cwd=cwd, **environment)
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources, without anything that was built."""
    copy = tmp_path_factory.mktemp("tree") / "seegera"
    copy.mkdir()
    for name in ("setup.py", "pyproject.toml", "CMakeLists.txt", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, copy / name)
    for name in (".github", "docs/results/trials", "kernels", "seegera_fast"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return copy


@pytest.fixture(scope="module")
def sdist(tree, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    command = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    # A folder without torch, because making an sdist must not look for it.
    succeed([sys.executable, "-c", command, folder], cwd=tree, SEEGERA_TORCH=str(folder))
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def unpacked(sdist, tmp_path_factory):
    """The sdist, unpacked into a folder and built once. Later builds there find the objects."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    # An isolated build leaves a cache with paths of programs that are deleted with its environment. The cache has
    # another generator, so that a build that keeps the cache fails.
    stale = tree / "build" / "native" / "CMakeCache.txt"
    stale.parent.mkdir(parents=True)
    gone = folder / "gone"
    stale.write_text(
        f"CMAKE_GENERATOR:INTERNAL=Unix Makefiles\nCMAKE_MAKE_PROGRAM:FILEPATH={gone}\nCMAKE_COMMAND:INTERNAL={gone}\n"
        f"CMAKE_CXX_COMPILER:FILEPATH={gone}\nCMAKE_HOME_DIRECTORY:INTERNAL={tree}\n"
    )
    return tree


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    """The C++ compiler without its optimisation, since the kernels' speed does not matter here.

    Where the checkout has been built since its sources were changed, only one operation is compiled; the objects of
    the others are copied from there.
    """
    built = ROOT / "build" / "native"
    sources = [
        ROOT / "CMakeLists.txt",
        *(p for p in (ROOT / "kernels" / "cpu").rglob("*.*") if p.suffix in (".cpp", ".h")),
    ]
    newest = max(path.stat().st_mtime for path in sources)
    library = built / "_C.so"
    copied = f"""
for word; do [ "$last" = -o ] && object=$word; last=$word; done
case "$object" in
    */draw_noise.cpp.o) ;;
    CMakeFiles/*.cpp.o) [ -f "{built}/$object" ] && exec cp "{built}/$object" "$object" ;;
esac"""
    fresh = library.is_file() and library.stat().st_mtime > newest
    text = f'{copied if fresh else ""}\nexec {shlex.quote(COMPILER)} "$@" -O0'
    return script(tmp_path_factory.mktemp("compiler") / "c++", text)


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


class Environment:
    """A fresh virtual environment that sees the packages in a folder."""

    def __init__(self, folder, packages):
        self.folder = folder
        venv.create(folder / "env", with_pip=False, symlinks=True)
        scripts = "Scripts" if os.name == "nt" else "bin"
        self.python = folder / "env" / scripts / "python"
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        self.site = Path(succeed([self.python, "-c", code], cwd=folder).strip())
        (self.site / "packages.pth").write_text(f"{packages}\n")

    def install(self, *arguments, **environment):
        command = [self.python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--verbose", *arguments]
        return succeed(command, cwd=self.elsewhere, **environment)

    def inspect(self):
        """Folder of the package, path of a Triton launcher, and what else INSPECT found."""
        found = json.loads(succeed([self.python, "-c", INSPECT], cwd=self.elsewhere).splitlines()[-1])
        return Path(found.pop("folder")), Path(found.pop("triton")), found


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The packages of the running environment, except this project: one folder, so that all builds see one torch."""
    folder = tmp_path_factory.mktemp("packages")
    for entry in PACKAGES.iterdir():
        if "seegera" not in entry.name and entry.suffix != ".pth" and not entry.name.startswith("__editable__"):
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture
def environment(tmp_path, packages):
    return Environment(tmp_path, packages)


@pytest.fixture(scope="module")
def wheel(unpacked, packages, compiler, tmp_path_factory):
    """The wheel for this machine, from a tree in which an earlier build has left more than is to be in it."""
    folder = tmp_path_factory.mktemp("wheel")
    left = unpacked / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}" / "seegera_fast"
    left.mkdir(parents=True)
    for name in STALE:
        (left / name).write_text("")
    builder = Environment(folder, packages)
    command = [builder.python, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder, unpacked]
    succeed(command, cwd=builder.elsewhere, SEEGERA_CUDA="0", CXX=compiler)
    (wheel,) = folder.glob("*.whl")
    assert list(left.glob("_C.*")), "it is built elsewhere, where nothing was left"
    return wheel


@pytest.fixture(scope="module")
def published(wheel, tmp_path_factory):
    """The same wheel with the tag for other machines, as `make wheel` gives it."""
    pytest.importorskip("auditwheel")
    folder = tmp_path_factory.mktemp("published")
    return Path(succeed([sys.executable, TOOLS / "make_wheel.py", "--wheel", wheel, folder], cwd=folder).strip())


def test_sdist_holds_the_sources(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kinds = (".cpp", ".h", ".cu", ".cuh", ".py")
    sources = [p.relative_to(ROOT) for p in (ROOT / "kernels").rglob("*.*") if p.suffix in kinds]
    wanted = {
        "CMakeLists.txt",
        "LICENSE",
        "seegera_fast/tasks/presets.toml",
        "seegera_fast/experiments/paper.toml",
        "seegera_fast/py.typed",
        *(path.as_posix() for path in sources),
        # The tests read these.
        *(path.relative_to(ROOT).as_posix() for path in (ROOT / ".github" / "workflows").glob("*.yml")),
        "docs/results/trials/link-cora-v3-paper-seed0.json",
    }
    assert wanted <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


@needs_compiler
def test_wheel_from_sdist(wheel, environment):
    assert "-cp310-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert [name for name in names if name.startswith("seegera_fast/_C.")]
    assert not [name for name in names if name.startswith(("kernels/", "tests/", "build/"))]
    assert not [name for name in names if name.endswith((".cpp", ".cu", ".h", ".cuh"))]
    assert "seegera_fast/kernels/cpu/layout.py" in names
    assert not {f"seegera_fast/{name}" for name in STALE} & set(names)

    environment.install(wheel)
    # Another project's package of that name must not be taken for the checkout.
    stranger = environment.site / "kernels" / "triton"
    stranger.mkdir(parents=True)
    (stranger / "__init__.py").write_text("raise ImportError('not ours')")
    installed = set(environment.site.rglob("*"))
    folder, triton, found = environment.inspect()
    # It writes nothing into the installed packages, which may not be writable.
    assert {path for path in environment.site.rglob("*") if "__pycache__" not in path.parts} <= installed
    assert folder == environment.site / "seegera_fast"
    assert triton == folder / "kernels" / "triton" / "sparse_matmul.py"
    assert found.pop("searched") == [str(folder / "kernels")]
    assert found == WORKS


@needs_compiler
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="manylinux is for Linux")
def test_the_wheel_is_for_glibc_2_28(wheel, published):
    """auditwheel has found that it keeps to it, and nothing of torch was copied into it."""
    assert f"manylinux_2_28_{platform.machine()}" in published.name
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(published) as after:
        old, new = ({name for name in archive.namelist() if ".so" in name} for archive in (before, after))
    assert new == old


# Loads the library of the wheel as a Python without torch can: torch's libraries need no Python.
LOAD = """
import ctypes, pathlib, sys
folder, torch = map(pathlib.Path, sys.argv[1:])
for name in ("libc10.so", "libtorch_cpu.so"):
    ctypes.CDLL(str(torch / "lib" / name), ctypes.RTLD_GLOBAL)
ctypes.CDLL(str(next(folder.glob("seegera_fast/_C.*"))))
print("loaded")
"""


@needs_compiler
@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_the_wheel_installs_and_loads_on_each_python(version, published, packages, tmp_path, monkeypatch):
    """Without a torch for it, which is large. `make matrix` runs the wheel on each Python with each torch."""
    monkeypatch.syspath_prepend(str(TOOLS))
    matrix = importlib.import_module("matrix")
    found = (matrix.probe(place, version)[0] for place in matrix.places(version))
    python = next((path for path in found if path is not None), None)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    pip = [sys.executable, "-m", "pip", "--python", python]
    succeed([*pip, "install", "--no-deps", "--no-compile", "--target", tmp_path / "at", published], cwd=tmp_path)
    succeed([python, "-W", "error", "-m", "compileall", "-q", tmp_path / "at"], cwd=tmp_path)
    command = [python, "-c", LOAD, tmp_path / "at", (packages / "torch").resolve()]
    assert succeed(command, cwd=tmp_path) == "loaded\n"


@needs_compiler
def test_editable_install(unpacked, environment, compiler):
    environment.install("--editable", unpacked, SEEGERA_CUDA="0", CXX=compiler)
    folder, triton, found = environment.inspect()
    assert folder == unpacked / "seegera_fast"
    assert triton == unpacked / "kernels" / "triton" / "sparse_matmul.py"
    assert found.pop("searched") == [str(folder / "kernels"), str(unpacked / "kernels")]
    assert found == WORKS

    # The strict mode links files instead of naming the folder, and compiles nothing again.
    environment.install(
        "--editable", unpacked, "--config-settings", "editable_mode=strict", SEEGERA_CUDA="0", CXX=compiler
    )
    folder, triton, found = environment.inspect()
    assert unpacked / "build" in folder.parents
    assert triton.is_file()
    assert found.pop("searched") == [str(folder / "kernels")]
    assert found == WORKS


@pytest.mark.parametrize("old", [False, pytest.param(True, marks=needs_compiler)], ids=["none", "GCC 11"])
def test_without_a_compiler(old, sdist, environment):
    empty = environment.folder / "empty"
    empty.mkdir()
    chosen = script(environment.folder / "c++", f'exec {shlex.quote(COMPILER)} "$@" {AS_GCC_11}') if old else None
    output = environment.install(sdist, PATH=str(empty), CXX=chosen, CUDACXX=None, CUDA_HOME=None)
    if old:
        assert "no C++ compiler that can be used, want GCC 12 or later, or Clang" in output
        assert f"{chosen}: it is older than GCC 12" in output
    else:
        assert "no C++ compiler (CXX, c++, g++, clang++): installing without native code." in output
    folder, triton, found = environment.inspect()
    assert folder == environment.site / "seegera_fast"
    assert triton == folder / "kernels" / "triton" / "sparse_matmul.py"
    assert found.pop("searched") == [str(folder / "kernels")]
    (warning,) = found.pop("warnings")
    assert "without its compiled kernels" in warning
    assert found == {name: value for name, value in WORKS.items() if name != "warnings"} | {
        "cpu": False,
        "instruction set": False,
    }
