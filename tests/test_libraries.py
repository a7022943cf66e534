"""The compiled libraries beside the package, and systems that it is not for."""

import pathlib
import re
import subprocess
import sys
import warnings
from importlib.machinery import EXTENSION_SUFFIXES

import seegera_fast as sf
from seegera_fast import backends

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_the_library_for_this_python_comes_before_that_of_the_stable_abi(tmp_path, monkeypatch):
    monkeypatch.setattr(backends, "__file__", str(tmp_path / "backends.py"))
    assert backends._library("_C") is None
    for suffix in reversed(EXTENSION_SUFFIXES):
        (tmp_path / f"_C{suffix}").touch()
        assert backends._library("_C").name == f"_C{suffix}"


def test_a_system_without_posix_is_refused_in_one_sentence():
    program = "import sys; sys.modules['fcntl'] = None; import seegera_fast"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: seegera_fast: this system has no locks of POSIX")


def test_a_library_beside_the_package_loads():
    folder = pathlib.Path(sf.__file__).parent
    if list(folder.glob("_C.*so")):
        assert backends.info()["cpu"]["reason"] is None
        assert backends.instruction_set() in ("base", "avx2", "avx512")
    else:
        assert backends.info()["cpu"]["reason"] == "the cpu library was not built"
        assert backends.instruction_set() is None


def test_the_words_of_the_cpu_library_are_known(monkeypatch):
    sources = [path.read_text() for path in (ROOT / "kernels/cpu/common").glob("*.cpp")]
    for variable, words in backends.WORDS.items():
        (source,) = (text for text in sources if f'getenv("{variable}")' in text)
        # What the library tells are all the words that it takes.
        assert set(re.findall(r'return "(\w+)";', source)) == {*words}
        for word in ("", *words):
            monkeypatch.setenv(variable, word)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                backends._warn_of_unknown_words()
