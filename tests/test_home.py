"""A home folder that can't be written or isn't known: what needs none works, and else an error names the variable."""

import errno
import json
import os
import subprocess
import sys

import pytest

from seegera_fast import backends, registry

CACHES = ("SEEGERA_DATA", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "TRITON_CACHE_DIR", "TRITON_HOME")
# No user has a home here: there is no HOME, and no entry of the user in the system's list either.
NOBODY = "import pwd\ndef nobody(uid): raise KeyError(uid)\npwd.getpwuid = nobody\n"
# Loads data sets without and with files, and prepares a picture.
PROGRAM = """
import json
import seegera_fast as sf
nodes = sf.datasets.load("digits").num_nodes
try:
    sf.datasets.load("cora")
except OSError as error:
    refused = str(error)
from seegera_fast.support import plots
import matplotlib
matplotlib.get_cachedir()
print(json.dumps({"nodes": nodes, "refused": refused}))
"""


@pytest.fixture
def no_folder(tmp_path):
    """A path that no user can make a folder at, not even root."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "home"


def run(code, home, folder):
    """What PROGRAM prints, and its warnings, in an empty folder with this home; None: there is none."""
    environment = {name: value for name, value in os.environ.items() if name not in (*CACHES, "HOME")}
    environment |= {} if home is None else {"HOME": str(home)}
    environment["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    folder.mkdir()
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    # Not in a folder that is named "~".
    assert not list(folder.iterdir())
    return json.loads(result.stdout), result.stderr


def test_a_home_that_can_not_be_written(no_folder, tmp_path):
    """Data without files need none, nor do pictures, for which matplotlib names its variable."""
    found, warned = run(PROGRAM, no_folder, tmp_path / "empty")
    assert found["nodes"] == 1797
    assert found["refused"].startswith(f"cora: files missing in {no_folder / '.cache' / 'seegera_fast'}")
    assert found["refused"].endswith("set root= or SEEGERA_DATA to a folder that can take them")
    assert "download failed" not in found["refused"]
    assert "MPLCONFIGDIR" in warned


def test_a_home_that_is_not_known(tmp_path):
    found, warned = run(NOBODY + PROGRAM, None, tmp_path / "empty")
    assert found["nodes"] == 1797
    assert found["refused"].startswith("the data sets have no folder, because no home folder is known (HOME)")
    assert "SEEGERA_DATA" in found["refused"]
    assert "MPLCONFIGDIR" in warned


class Row:
    """In place of an operator: it has this launcher."""

    name, overload = "row", "triton"

    def named(self, given, more):
        return more


def launch_on(backend, launcher, monkeypatch):
    """Runs a launcher as torch would, on a backend that has it."""
    taken = []
    monkeypatch.setattr(registry.LIBRARY, "impl", lambda name, launch, key: taken.append(launch))
    monkeypatch.setattr(registry.importlib, "import_module", lambda name: type("Module", (), {"row": launcher}))
    registry.Operator.implement(Row(), backend, "CPU")
    return taken[0]()


def test_triton_names_its_variable_where_it_cannot_write(no_folder, monkeypatch):
    cache = pytest.importorskip("triton.runtime.cache")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(no_folder))
    for backend in (backends.TRITON, backends.TRITON_WITH_CUDA):
        with pytest.raises(OSError, match="set TRITON_CACHE_DIR to a folder that can be written") as caught:
            # What Triton does before it compiles a kernel.
            launch_on(backend, lambda: cache.get_cache_manager("ab"), monkeypatch)
        assert str(no_folder) in str(caught.value)
        assert "Not a directory" in str(caught.value)


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "no", "ptxas"), ConnectionResetError(), OSError("x")]
)
def test_other_errors_of_a_launcher_stay_as_they_are(error, monkeypatch):
    def fail():
        raise error

    with pytest.raises(OSError) as caught:  # noqa: PT011  it is compared below
        launch_on(backends.TRITON, fail, monkeypatch)
    assert caught.value is error
