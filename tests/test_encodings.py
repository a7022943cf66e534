"""Output in any encoding: every letter is shown or escaped, and names of files may have any."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys

import pytest
from command import EDGES, QUICK, RECORDS, WITHOUT_PICTURE, results_in

from seegera_fast.command.main import main
from seegera_fast.support import screen

pytestmark = pytest.mark.usefixtures("one_thread")


def in_process(*argv, code=WITHOUT_PICTURE, **options):
    """Runs the command in a process of its own. ``code`` is run before it."""
    program = f"import sys; {code}\nfrom seegera_fast.command.main import main; sys.exit(main())"
    options = {"capture_output": True, "timeout": 120, **options}
    options["env"] = {**os.environ, "OMP_NUM_THREADS": "1", **options.get("env", {})}
    return subprocess.run([sys.executable, "-c", program, *map(os.fspath, argv)], **options)


class Bytes(io.TextIOWrapper):
    def __init__(self, encoding, errors="strict"):
        super().__init__(io.BytesIO(), encoding=encoding, errors=errors)

    @property
    def text(self):
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)


@pytest.mark.parametrize(
    ("encoding", "errors", "shown"),
    [
        ("ascii", "strict", r"+/- 1.5x - caf\xe9 \u4e2d \xff"),
        ("ascii", "backslashreplace", r"+/- 1.5x - caf\xe9 \u4e2d \xff"),
        ("latin-1", "strict", r"± 1.5× - café \u4e2d \xff"),
        ("cp1252", "strict", r"± 1.5× – café \u4e2d \xff"),
        ("gb18030", "strict", r"± 1.5× – café 中 \xff"),
        ("utf-16", "strict", r"± 1.5× – café 中 \xff"),
        ("utf-8", "strict", r"± 1.5× – café 中 \xff"),
    ],
)
def test_every_stream_takes_every_letter(encoding, errors, shown):
    stream = Bytes(encoding, errors)
    print("± 1.5× – café 中 \udcff", end="", file=screen.Screen(stream, "it", optional=False))
    assert stream.text == shown


def test_bytes_of_file_names_come_out_as_they_are():
    stream = Bytes("ascii", "surrogateescape")
    print("± \udcc3\udca9", end="", file=screen.Screen(stream, "it", optional=False))
    stream.flush()
    assert stream.buffer.getvalue() == b"+/- \xc3\xa9"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_reproduce_prints_its_tables_in_every_encoding(tmp_path, monkeypatch, encoding):
    shutil.copytree(RECORDS, tmp_path / "r" / "trials")
    out, err = Bytes(encoding), Bytes(encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["reproduce", "--budget", "0", "--out", str(tmp_path / "r")]) == 4
    assert ("95.50 +/- 0.71" if encoding == "ascii" else "95.50 ± 0.71") in out.text
    rows = [line for line in out.text.splitlines() if ": SeeGera" in line]
    # Columns stay aligned.
    assert len({len(row) for row in rows}) == 1
    assert "trials are left" in err.text
    assert "±" in (tmp_path / "r" / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_run_with_any_name_in_any_encoding(tmp_path, monkeypatch, plain_picture, encoding):
    """A name with letters that the encoding lacks."""
    (tmp_path / "café中.txt").write_text(EDGES)
    out = Bytes(encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", Bytes(encoding, "backslashreplace"))
    assert main(["train", "--edges", str(tmp_path / "café中.txt"), *QUICK, "--out", str(tmp_path / "café中")]) == 0
    assert "AUC" in out.text
    assert results_in(tmp_path / "café中")["data"]["name"] == "café中"
    assert results_in(tmp_path / "café中")["data"]["files"]["edges"].endswith("café中.txt")


@pytest.mark.slow
def test_a_run_with_any_name_in_the_locale_c(tmp_path):
    """A name with letters that the encoding lacks, and one that is no UTF-8 either, of files too."""
    names = {"café中".encode(): "café中", b"caf\xe9": "caf\\xe9"}
    given = []
    for name in names:
        path = os.fsencode(tmp_path) + b"/" + name
        with open(path + b".txt", "w") as file:
            file.write(EDGES)
        given += ["train", b"--edges", path + b".txt", *QUICK, "--out", path]
    # One process trains both, because its start takes most of the time.
    first = (
        "from seegera_fast.command.main import main; half = 1 + len(sys.argv) // 2; assert main(sys.argv[1:half]) == 0"
    )
    code = f"{WITHOUT_PICTURE}\n{first}\ndel sys.argv[1:half]"
    ended = in_process(*given, code=code, env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert ended.returncode == 0, ended.stderr
    assert b"AUC" in ended.stdout
    for name, shown in names.items():
        results = results_in(tmp_path / os.fsdecode(name))
        assert results["data"]["name"] == shown
        assert results["data"]["files"]["edges"].endswith(f"/{shown}.txt")


def test_help_and_errors_in_ascii(monkeypatch):
    for argv, status in (["train", "--help"], 0), (["café\udcff"], 2), (["train", "--data", "café"], 2):
        out, err = Bytes("ascii"), Bytes("ascii")
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as end:
            main(argv)
        assert end.value.code == status
        assert out.text.startswith("usage: seegera-fast train") if status == 0 else r"caf\xe9" in err.text


def test_the_message_of_a_trial_arrives_in_every_encoding(tmp_path):
    """The data set's folder has a name that ASCII lacks, and the message names it."""
    root = tmp_path / "café"
    root.write_text("a file, where a folder should be")
    code = "import seegera_fast.experiments.matrix as m; m._missing = lambda names, root, progress: {}"
    command = ["reproduce", "--data", "cora", "--task", "link", "--variant", "v3", "--split", "paper", "--trials", "1"]
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = in_process(*command, "--root", root, "--out", tmp_path / "o", code=code, env=environment)
    assert ended.returncode == 3, ended.stderr
    assert rb"ended with an error: " in ended.stderr
    assert rb"/caf\xe9/Planetoid" in ended.stderr
