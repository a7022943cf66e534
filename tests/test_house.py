"""tools/house.py: imports only go down, no source file is too long, and violations of these rules are found."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
house = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(house)


def test_imports_go_down_and_no_file_is_too_long():
    assert house.faults() == []


def test_every_layer_is_drawn():
    lines = house.drawing().splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [", ".join(layer) for layer in house.LAYERS]
    assert "    __main__ imports command" in lines
    assert {house._part(name) for name in house.modules(ROOT)} == set(house.HEIGHT)


SMALL_HOUSE = {
    "seegera_fast/__init__.py": "from . import backends, ops\nfrom .sparse_matrix import SparseMatrix\n",
    "seegera_fast/ops/__init__.py": "from .gcn import gcn\n",
    "seegera_fast/ops/gcn.py": "import torch\nfrom .. import backends\nfrom ..sparse_matrix import SparseMatrix\n",
    "seegera_fast/backends.py": "import seegera_fast.support.hints\n",
    "seegera_fast/sparse_matrix.py": "SparseMatrix = None\n",
    "seegera_fast/support/hints.py": "",
    "kernels/triton/__init__.py": "OPTIONS = 1\n",
    "kernels/triton/gcn.py": "from seegera_fast import backends\nfrom . import OPTIONS\n",
    "kernels/cpu/gcn.cpp": "",
    "kernels/cpu/layout.py": "from seegera_fast.sparse_matrix import SparseMatrix\n",
}


@pytest.fixture
def write(tmp_path):
    """Writes a small package without faults, and then the given files."""

    def call(files):
        for name, content in {**SMALL_HOUSE, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path

    return call


def test_a_small_house(write):
    root = write({})
    assert house.imports(root) == {
        "__init__": {"backends", "sparse_matrix", "ops"},
        "backends": {"support.hints"},
        "sparse_matrix": set(),
        "kernels.cpu.layout": {"sparse_matrix"},
        "kernels.triton": set(),
        "kernels.triton.gcn": {"backends", "kernels.triton"},
        "ops": {"ops.gcn"},
        "ops.gcn": {"backends", "sparse_matrix"},
        "support.hints": set(),
    }
    assert house.faults(root) == []
    assert "    kernels imports backends" in house.drawing(root).splitlines()


@pytest.mark.parametrize(
    "text",
    [
        "from ..ops import gcn",
        "from .. import ops",
        "import seegera_fast.ops",
        "def later():\n    from ..ops import gcn",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from seegera_fast.ops import gcn",
    ],
)
def test_an_import_that_goes_up(write, text):
    (fault,) = house.faults(write({"seegera_fast/support/hints.py": text}))
    assert fault in {f"support.hints: imports {name}, which is above it" for name in ("ops", "ops.gcn")}


def test_a_launcher_and_the_package_itself_have_layers(write):
    root = write({"kernels/triton/gcn.py": "from seegera_fast.ops.gcn import ACTIVATIONS\n"})
    assert house.faults(root) == ["kernels.triton.gcn: imports ops.gcn, which is above it"]
    root = write({"kernels/triton/gcn.py": "", "kernels/cpu/layout.py": "import seegera_fast.backends\n"})
    assert house.faults(root) == ["kernels.cpu.layout: imports backends, which is above it"]
    root = write({"seegera_fast/ops/gcn.py": "from .. import __version__\n"})
    assert house.faults(root)[0] == "ops.gcn: imports __init__, which is above it"


def test_a_circle_within_a_layer(write):
    root = write(
        {
            "seegera_fast/sparse_matrix.py": "from .convert import a\n",
            "seegera_fast/convert.py": "from . import sparse_matrix\n",
        }
    )
    (fault,) = house.faults(root)
    assert fault in (
        "circle: sparse_matrix imports convert imports sparse_matrix",
        "circle: convert imports sparse_matrix imports convert",
    )


def test_two_circles_are_two_faults(write):
    root = write(
        {
            "seegera_fast/sparse_matrix.py": "from .convert import a\nfrom .seeds import b\n",
            "seegera_fast/convert.py": "from . import sparse_matrix\n",
            "seegera_fast/seeds.py": "from . import sparse_matrix\n",
        }
    )
    assert len(house.faults(root)) == 2


def test_a_module_without_a_layer(write):
    assert house.faults(write({"seegera_fast/extra.py": ""})) == ["extra: is in no layer"]


@pytest.mark.parametrize("name", ["kernels/cpu/gcn.cpp", "kernels/cuda/a.cuh", "bench/a.py", "setup.py"])
def test_a_long_file(write, name, monkeypatch):
    assert house.faults(write({name: "\n" * 450})) == []
    root = write({name: "\n" * 451, "tests/test_a.py": "\n" * 451, "kernels/notes.md": "\n" * 451})
    assert house.faults(root) == [f"{name}: has 451 lines, want at most 450"]
    monkeypatch.setattr(house, "GENERATED", (name,))
    assert house.faults(root) == []
