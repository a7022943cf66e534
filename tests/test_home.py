"""A home folder that can't be written or isn't known: what needs none works, and else an error names the variable."""

import errno
import os
import subprocess
import sys

import pytest

from seegera_fast import backends, registry

CACHES = ("SEEGERA_DATA", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "TRITON_CACHE_DIR", "TRITON_HOME")
# No user has a home here, and there is no entry of the user in the system's list either.
NOBODY = "import pwd\ndef nobody(uid): raise KeyError(uid)\npwd.getpwuid = nobody\n"
CORA = "import seegera_fast as sf; sf.datasets.load('cora')"
DIGITS = "import seegera_fast as sf; print(sf.datasets.load('digits').num_nodes)"


@pytest.fixture
def no_folder(tmp_path):
    """A path that no user can make a folder at, not even root."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "home"


def run(code, home, folder):
    """The result of a Python program in an empty folder, with this home; None: there is none."""
    environment = {name: value for name, value in os.environ.items() if name not in (*CACHES, "HOME")}
    environment |= {} if home is None else {"HOME": str(home)}
    folder.mkdir()
    environment["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("known", [True, False], ids=["unwritable", "unknown"])
def test_data_without_files_need_no_home(known, no_folder, tmp_path):
    result = run(DIGITS if known else NOBODY + DIGITS, no_folder if known else None, tmp_path / "empty")
    assert (result.returncode, result.stdout) == (0, "1797\n"), result.stderr
    assert not list((tmp_path / "empty").iterdir())


def test_data_sets_name_their_variable_where_they_cannot_be_written(no_folder, tmp_path):
    result = run(CORA, no_folder, tmp_path / "empty")
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"OSError: cora: files missing in {no_folder / '.cache' / 'seegera_fast'}")
    assert last.endswith("set root= or SEEGERA_DATA to a folder that can take them")
    assert "download failed" not in last


def test_data_sets_name_their_variable_where_there_is_no_home(tmp_path):
    result = run(NOBODY + CORA, None, tmp_path / "empty")
    last = result.stderr.splitlines()[-1]
    assert last.startswith("OSError: the data sets have no folder, because no home folder is known")
    assert "SEEGERA_DATA" in last
    # Not in a folder that is named "~".
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("known", [True, False], ids=["unwritable", "unknown"])
def test_pictures_are_drawn_without_a_home(known, no_folder, tmp_path):
    """matplotlib names its variable itself."""
    code = "from seegera_fast.support import plots\nimport matplotlib\nmatplotlib.get_cachedir()\n"
    result = run(code if known else NOBODY + code, no_folder if known else None, tmp_path / "empty")
    assert result.returncode == 0, result.stderr
    assert "MPLCONFIGDIR" in result.stderr


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
