"""The templates of CONTRIBUTING.md: each is added to a copy of the tree, and its tests pass there."""

import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# A line with a path, then the contents of that file, or a change of it.
BLOCK = re.compile(r"^`([^`\n]+)`\n\n```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CMAKE = shutil.which("cmake") or shutil.which("cmake", path=sysconfig.get_path("scripts"))
needs_compiler = pytest.mark.skipif(
    CMAKE is None or not any(map(shutil.which, (os.environ.get("CXX", "c++").split()[0], "g++", "clang++"))),
    reason="no C++ compiler, or no CMake",
)
COPIED = ("CMakeLists.txt", "bench", "kernels", "pyproject.toml", "seegera_fast", "tests")


class Block(NamedTuple):
    path: str
    language: str
    text: str


def sections() -> dict[str, str]:
    """The sections that begin with "Add", by their titles."""
    parts = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)[1:]
    return {title: text for title, text in zip(parts[::2], parts[1::2], strict=True) if title.startswith("Add ")}


def blocks(text: str) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(text)]


TEMPLATES = {title: blocks(text) for title, text in sections().items()}


def changed(text: str, diff: str) -> str:
    """Applies a change to a text. Removed lines begin with "-", added ones with "+"; "@@" separates parts."""
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] or "\n" for line in lines if line[0] != sign) for sign in "+-")
        assert text.count(before) == 1, f"{text.count(before)} times in the file:\n{before}"
        text = text.replace(before, after)
    return text


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the sources, and of the libraries beside them, with all templates in it."""
    folder = tmp_path_factory.mktemp("templates")
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "results"))
        else:
            shutil.copy2(source, target)
    for block in itertools.chain(*TEMPLATES.values()):
        file = folder / block.path
        file.parent.mkdir(exist_ok=True)
        if block.language == "diff":
            file.write_text(changed(file.read_text(encoding="utf-8"), block.text), encoding="utf-8")
        else:
            assert not file.exists(), block.path
            file.write_text(block.text, encoding="utf-8")
    build(folder)
    return folder


def build(folder: Path) -> None:
    """Builds the CPU library of the copy, with the objects that were already compiled in this tree."""
    native, own = folder / "build", ROOT / "build" / "native"
    torch_folder = Path(importlib.util.find_spec("torch").origin).parent
    settings = ("-DCMAKE_BUILD_TYPE=Release", f"-DSEEGERA_TORCH={torch_folder}")
    # Make compares the times of files. Ninja would need its log, which has the paths of this tree.
    succeed(CMAKE, "-S", folder, "-B", native, "-G", "Unix Makefiles", *settings, cwd=folder)
    for built in own.glob("CMakeFiles/*/kernels/cpu/**/*.o"):
        shutil.copyfile(built, native / built.relative_to(own))
    succeed(CMAKE, "--build", native, "--target", "_C", cwd=folder)
    (library,) = (folder / "seegera_fast").glob("_C.*")
    os.replace(native / "_C.so", library)


def succeed(*command: object, cwd: Path, **environment: str) -> str:
    result = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(cwd), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def run_tests(tree: Path, files: Iterable[str], *options: str, **environment: str) -> list[str]:
    """The tests that passed; none failed."""
    command = (sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, *files)
    output = succeed(*command, cwd=tree, **environment)
    return re.findall(r"^(\S.*) PASSED", output, flags=re.MULTILINE)


def test_every_kind_of_addition_has_a_template_with_tests():
    kinds = ("an operation", "a backend", "a likelihood", "a data set", "a task")
    assert list(TEMPLATES) == [f"Add {kind}" for kind in kinds]
    for title, text in sections().items():
        # Every block has its path above it.
        assert text.count("\n```") == 2 * len(TEMPLATES[title]), title
        assert any(block.path.startswith("tests/test_") for block in TEMPLATES[title]), title


# The operation for which the template of a backend has a kernel.
CONTRACT = "tests/test_sparse_matmul.py"
BENCHMARK = "tests/test_bench.py::test_contenders_give_the_same_numbers[scale_rows]"


@pytest.fixture(scope="module")
def passed(tree) -> list[str]:
    """The tests that passed in the tree, without Triton's interpreter. One process runs them: its start takes long."""
    files = [*tests_of_templates(), BENCHMARK, CONTRACT]
    return run_tests(tree, files, "-k", "not test_sparse_matmul or (scipy and equals_the_reference)")


def tests_of_templates() -> list[str]:
    return [block.path for block in itertools.chain(*TEMPLATES.values()) if block.path.startswith("tests/")]


@needs_compiler
def test_templates_pass_their_tests(passed):
    """Of the operation: the reference and the CPU kernel."""
    for file in tests_of_templates():
        assert sum(test.startswith(file) for test in passed) > 1, file
    assert BENCHMARK in passed
    assert any("[cpu" in test for test in passed if not test.startswith(CONTRACT))


@needs_compiler
def test_the_template_of_a_backend_keeps_the_contract_of_its_operation(passed):
    assert sum(test.startswith(CONTRACT) for test in passed) > 10


@needs_compiler
def test_triton_kernels_of_templates(tree):
    assert run_tests(tree, ["tests/test_scale_rows.py"], "-k", "triton", TRITON_INTERPRET="1")
