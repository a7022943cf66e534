"""setup.py: which compiler and which torch it chooses, what it builds, and what it refuses, each in one sentence."""

import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="77")

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "setup.py"
COMPILER = next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++").split()[0], "g++", "clang++"))), None)
TORCH = Path(importlib.util.find_spec("torch").origin).parent
# Makes a compiler say that it is another one.
AS_GCC_11 = "-U__clang__ -U__GNUC__ -D__GNUC__=11"
VARIABLES = (
    "SEEGERA_NATIVE",
    "SEEGERA_CUDA",
    "SEEGERA_TORCH",
    "CXX",
    "CUDACXX",
    "CUDA_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def given(monkeypatch):
    """Runs setup.py up to its call of ``setup``, and returns its names and the arguments of that call."""

    def run(*arguments, **environment):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in {"SEEGERA_CUDA": "0", **environment}.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(sys, "argv", ["setup.py", *(arguments or ["bdist_wheel"])])
        found = {}
        monkeypatch.setattr("setuptools.setup", lambda **options: found.update(options))
        spec = importlib.util.spec_from_file_location("setup_of_this_tree", SCRIPT)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module, found

    return run


# --- compilers -------------------------------------------------------------------------------------------------------


def compilers(folder):
    """Compilers that can't build the library, with what is said of them."""
    found = {
        "GCC 11": (f'exec {COMPILER} "$@" {AS_GCC_11}', "it is older than GCC 12"),
        "broken": ("echo 'c++: fatal error: cannot execute cc1plus' >&2; exit 1", "cannot execute cc1plus"),
        "silent": ("exit 1", "it says nothing"),
        "lazy": ("exit 0", "it says nothing"),
    }
    written = {name: (script(folder / name.replace(" ", ""), text), reason) for name, (text, reason) in found.items()}
    other = folder / "other"
    other.write_bytes(b"\x7fELF of another machine")
    other.chmod(0o755)
    return written | {"other": (other, "Exec format error")}


@needs_compiler
@pytest.mark.parametrize("kind", ["GCC 11", "broken", "silent", "lazy", "other"])
def test_a_compiler_that_can_not_build_is_as_none(kind, given, tmp_path, capfd):
    compiler, reason = compilers(tmp_path)[kind]
    module, options = given(CXX=compiler)
    assert module.TORCH is None
    assert options["ext_modules"] == []
    assert options["options"] == {}
    assert capfd.readouterr().out == (
        f"seegera-fast: no C++ compiler that can be used, want GCC 12 or later, or Clang ({compiler}: {reason}): "
        "installing without native code.\n"
    )


@needs_compiler
@pytest.mark.parametrize("variable", ["SEEGERA_NATIVE", "SEEGERA_CUDA"])
def test_native_code_that_is_demanded_needs_a_compiler(variable, given, tmp_path, monkeypatch):
    compiler, _ = compilers(tmp_path)["GCC 11"]
    with pytest.raises(SystemExit, match=f"^seegera-fast: {variable}=1, but there is no C.. compiler that can be used"):
        given(CXX=compiler, **{variable: "1"})
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(SystemExit, match=f"^seegera-fast: {variable}=1, but there is no C.. compiler .CXX, c"):
        given(**{variable: "1"})


@needs_compiler
def test_the_first_compiler_that_can_build_is_taken(given, tmp_path, monkeypatch):
    for name, kind in (("c++", "GCC 11"), ("g++", "broken")):
        shutil.copy(compilers(tmp_path)[kind][0], tmp_path / name)
    works = script(tmp_path / "clang++", f'exec {COMPILER} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    module, _ = given()
    assert shlex.join(module.COMPILER) == str(works)


@needs_compiler
def test_a_compiler_may_be_started_by_another_program(given, tmp_path):
    cache = script(tmp_path / "ccache", 'exec "$@"')
    module, options = given(CXX=f"{cache} {COMPILER} -O1")
    assert shlex.join(module.COMPILER) == f"{cache} {COMPILER} -O1"
    assert [extension.name for extension in options["ext_modules"]] == ["seegera_fast._C"]


@needs_compiler
@pytest.mark.skipif(shutil.which("g++-11") is None, reason="there is no GCC 11")
def test_gcc_11_itself(given, capfd):
    assert given(CXX="g++-11")[0].TORCH is None
    assert "g++-11: it is older than GCC 12" in capfd.readouterr().out


@pytest.mark.parametrize("variable", ["SEEGERA_NATIVE", "SEEGERA_CUDA"])
def test_a_switch_is_0_or_1(variable, given):
    with pytest.raises(SystemExit, match=f"{variable}: got 'yes', want 0, 1, or no such variable"):
        given(**{variable: "yes"})


def test_a_missing_cxx_is_an_error(given):
    with pytest.raises(SystemExit, match=r"the C\+\+ compiler CXX=no-such-compiler is not there"):
        given(CXX="no-such-compiler")


@needs_compiler
def test_a_failing_build_shows_the_output_of_the_compiler(tmp_path):
    probed = f'case "$*" in *probe.cpp*) exec {COMPILER} "$@";; esac'
    text = f'{probed}\necho "internal compiler error: out of patience"; exit 1'
    failing = script(tmp_path / "c++", text)
    copy = tmp_path / "tree"
    copy.mkdir()
    for name in ("setup.py", "pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, copy)
    for name in ("kernels", "seegera_fast"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    result = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext"],
        cwd=copy,
        env={**os.environ, "SEEGERA_CUDA": "0", "CXX": str(failing)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode != 0
    assert "internal compiler error: out of patience" in result.stdout
    assert "seegera-fast: the native build failed, see above." in result.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, True),
        ({"CMAKE_CUDA_COMPILER": "new"}, False),
        ({"CMAKE_CUDA_COMPILER": None}, True),
        ({"NVCC": None}, True),
        ({"SEEGERA_CXX": "clang++"}, False),
        ({"SEEGERA_CXX": None}, False),
        ({"CMAKE_COMMAND": "/gone"}, False),
        ({"CMAKE_HOME_DIRECTORY": "/gone"}, False),
    ],
)
def test_a_build_by_other_programs_is_discarded(given, monkeypatch, tmp_path, changed, kept):
    """CMake itself would keep the old compiler, or drop its cache, and the settings of this build with it."""
    module, _ = given(SEEGERA_NATIVE="0")
    cache = tmp_path / "native" / "CMakeCache.txt"
    cache.parent.mkdir()
    programs = ("CMAKE_COMMAND", "CMAKE_MAKE_PROGRAM", "CMAKE_CXX_COMPILER")
    entries = dict.fromkeys(programs, sys.executable) | {"CMAKE_HOME_DIRECTORY": ROOT, "CMAKE_CUDA_COMPILER": "old"}
    entries = {**entries, "SEEGERA_CXX": "g++ -O1", "NVCC": "old", **changed}
    monkeypatch.setattr(module, "NVCC", entries.pop("NVCC"))
    monkeypatch.setattr(module, "COMPILER", ["g++", "-O1"])
    monkeypatch.setattr(module, "BUILD", cache.parent)
    cache.write_text("".join(f"{name}:STRING={value}\n" for name, value in entries.items() if value is not None))
    module.CMakeBuild.discard_stale_build(None)
    assert cache.exists() == kept


# --- Pythons ---------------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("free_threaded", [False, True])
def test_only_a_python_with_a_gil_has_the_stable_abi(free_threaded, given, monkeypatch):
    known = {**sysconfig.get_config_vars(), "Py_GIL_DISABLED": int(free_threaded)}
    monkeypatch.setattr(sysconfig, "get_config_var", known.get)
    _, options = given(SEEGERA_TORCH=TORCH)
    assert [extension.py_limited_api for extension in options["ext_modules"]] == [not free_threaded]
    assert options["options"] == ({} if free_threaded else {"bdist_wheel": {"py_limited_api": "cp310"}})


@pytest.mark.parametrize("name", ["PyPy", "GraalVM"])
def test_other_pythons_are_refused_by_name(name, given, monkeypatch):
    monkeypatch.setattr(platform, "python_implementation", lambda: name)
    for environment in ({}, {"SEEGERA_NATIVE": "0"}):
        with pytest.raises(SystemExit, match=f"this Python is {name}, want CPython"):
            given(**environment)


# --- torch -----------------------------------------------------------------------------------------------------------


def torch_in(prefix, version="2.13.0"):
    """A torch, as far as setup.py looks, in an environment."""
    folder = prefix / "lib" / "python3.12" / "site-packages" / "torch"
    folder.mkdir(parents=True)
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


# Prints what find_torch finds, in a process that sees neither the packages of this one nor those of its base.
FIND = f"""
import importlib.util, json, site, sys, sysconfig
import setuptools
setuptools.setup = lambda **options: None
spec = importlib.util.spec_from_file_location("setup_of_this_tree", {str(SCRIPT)!r})
module = importlib.util.module_from_spec(spec)
sys.argv = ["setup.py", "egg_info"]
spec.loader.exec_module(module)
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find_spec(name, *rest)
sysconfig.get_path = lambda *_: "/nowhere"
site.getusersitepackages = lambda: "/nowhere"
sys.base_prefix = "/nowhere"
print(json.dumps(str(module.find_torch())))
"""


def find_torch(folder, *, variables=None, parent="sh", above=None):
    """The torch that a build finds which ``parent``, a shell with the variables ``above``, starts in a folder."""
    clean = [f"--unset={name}" for name in VARIABLES]
    assignments = [f"{name}={value}" for name, value in (variables or {}).items()]
    build = ["env", *clean, *assignments, sys.executable, "-c", FIND]
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | (above or {})
    # The shell does not become the build, which is not its last command.
    command = [parent, "-c", '"$@"; exit $?', "sh", *build]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc")
@pytest.mark.parametrize(
    "way", ["VIRTUAL_ENV", "CONDA_PREFIX", "of the parent", "beside the parent", "parent's Python"]
)
def test_an_isolated_build_finds_the_torch_of_the_environment_that_it_is_for(way, tmp_path):
    """As build, uv and pip start it: in an environment of its own, with or without the variables of the user's."""
    target, isolated = tmp_path / "target", tmp_path / "isolated"
    isolated.mkdir()
    if way == "beside the parent":
        target = tmp_path / ".venv"
        options = {"variables": {"VIRTUAL_ENV": isolated}}
    elif way == "of the parent":
        options = {"above": {"VIRTUAL_ENV": str(target)}, "variables": {"VIRTUAL_ENV": isolated}}
    elif way == "parent's Python":
        (target / "bin").mkdir(parents=True)
        (target / "bin" / "python").symlink_to(shutil.which("sh"))
        options = {"parent": target / "bin" / "python"}
    else:
        options = {"variables": {way: target}}
    torch = torch_in(target)
    result = find_torch(isolated, **options)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == str(torch)


def test_without_a_torch_to_be_seen_one_sentence_says_what_to_do(tmp_path):
    result = find_torch(tmp_path)
    assert result.returncode != 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("seegera-fast: no torch that this build can see: install torch>=2.11")
    assert all(word in line for word in ("--no-build-isolation", "SEEGERA_TORCH", "SEEGERA_NATIVE=0"))


def test_the_nearest_torch_that_is_new_enough_is_taken(tmp_path):
    old, new = torch_in(tmp_path / "near", "2.10.1"), torch_in(tmp_path / "far")
    variables = {"VIRTUAL_ENV": tmp_path / "near"}
    result = find_torch(tmp_path, variables=variables)
    assert result.stderr == f"seegera-fast: the torch in {old} is older than 2.11; upgrade it first.\n"
    result = find_torch(tmp_path, variables={**variables, "CONDA_PREFIX": tmp_path / "far"})
    assert json.loads(result.stdout) == str(new)


@needs_compiler
def test_a_named_folder_without_torch_is_one_sentence(given, tmp_path):
    with pytest.raises(SystemExit, match=f"^seegera-fast: no torch in {tmp_path}; install torch>=2.11 first"):
        given(SEEGERA_TORCH=tmp_path)


@needs_compiler
def test_making_an_sdist_looks_for_nothing(given, tmp_path):
    module, options = given("sdist", SEEGERA_TORCH=tmp_path, CXX="no-such-compiler")
    assert (module.COMPILER, module.TORCH, options["ext_modules"]) == (None, None, [])
    # In the same call another command may need them.
    module, options = given("sdist", "bdist_wheel")
    assert module.COMPILER
    assert [extension.name for extension in options["ext_modules"]] == ["seegera_fast._C"]


@needs_compiler
def test_the_torch_of_conda_has_its_headers_in_those_of_the_environment(tmp_path):
    """One after the other in one build folder: the first paths must not stay."""
    cmake, ninja = (
        shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts")) for name in ("cmake", "ninja")
    )
    conda = tmp_path / "conda"
    folder = torch_in(conda)
    for name in ("include", "lib"):
        (conda / name).mkdir(exist_ok=True)
        for entry in (TORCH / name).iterdir():
            (conda / name / entry.name).symlink_to(entry)
    build = tmp_path / "build"
    for torch, prefix in ((folder, conda), (TORCH, TORCH), (folder, conda)):
        command = [
            cmake,
            "-S",
            ROOT,
            "-B",
            build,
            "-G",
            "Ninja",
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
            f"-DSEEGERA_TORCH={torch}",
        ]
        subprocess.run(command, check=True, capture_output=True)
        commands = subprocess.run(
            [ninja, "-C", build, "-t", "commands", "_C.so"], check=True, capture_output=True, text=True
        )
        words = set(shlex.split(commands.stdout))
        assert {str(prefix / "include"), f"-L{prefix / 'lib'}"} <= words
        assert not [word for word in words if word.startswith(f"-L{TORCH if torch == folder else conda}")]
    # The headers of an operation are all there.
    subprocess.run(
        [ninja, "-C", build, "CMakeFiles/_C.dir/kernels/cpu/draw_noise.cpp.o"], check=True, capture_output=True
    )


def test_a_torch_without_headers_is_refused(tmp_path):
    cmake = shutil.which("cmake") or shutil.which("cmake", path=sysconfig.get_path("scripts"))
    command = [cmake, "-S", ROOT, "-B", tmp_path / "build", f"-DSEEGERA_TORCH={torch_in(tmp_path)}"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0
    assert f'"{tmp_path}/lib/python3.12/site-packages/torch" is not a torch package' in " ".join(result.stderr.split())
