"""The command in a terminal: streams that are closed or full, help of any width, and what is typed wrong."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys

import pytest
from command import EDGES, QUICK, WITHOUT_PICTURE, results_in

from seegera_fast.command.main import main

pytestmark = pytest.mark.usefixtures("one_thread")


class Full(io.StringIO):
    """A file on a full disk: the error comes when it is written, or later."""

    def __init__(self, when):
        super().__init__()
        self.when = when

    def write(self, text):
        return self.fail("write") or len(text)

    def flush(self):
        self.fail("flush")

    def fail(self, now):
        if now == self.when:
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("when", ["write", "flush"])
def test_messages_that_cannot_be_written_do_not_end_the_work(tmp_path, monkeypatch, capsys, plain_picture, when):
    (tmp_path / "e.txt").write_text(EDGES)
    monkeypatch.setattr(sys, "stderr", Full(when))
    assert main(["train", "--edges", str(tmp_path / "e.txt"), *QUICK, "--out", str(tmp_path / "o")]) == 0
    assert "AUC" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["info"], ["--help"], ["train", "--help"], ["--version"]], ids=" ".join)
@pytest.mark.parametrize("when", ["write", "flush"])
def test_output_that_cannot_be_written_is_an_error(monkeypatch, capsys, argv, when):
    monkeypatch.setattr(sys, "stdout", Full(when))
    assert main(argv) == 6
    assert capsys.readouterr().err == (
        "seegera-fast: error: standard output can't be written: No space left on device\n"
    )


@pytest.mark.slow
def test_closed_streams_and_a_full_one(tmp_path):
    """Files that are opened while 0, 1 or 2 are closed would get these numbers."""
    (tmp_path / "e.txt").write_text(EDGES)
    names = ["checkpoint.safetensors", "embedding.npy", "links.csv", "model.safetensors", "picture.png", "report.html"]
    names.append("results.json")
    for name, streams, status in (("closed", "<&- >&- 2>&-", 0), ("full", ">/dev/full 2>/dev/full", 6)):
        command = ["train", "--edges", tmp_path / "e.txt", *QUICK, "--out", tmp_path / name]
        program = f"{WITHOUT_PICTURE}; from seegera_fast.command.main import main; import sys; sys.exit(main())"
        shell = ["sh", "-c", f'exec "$0" "$@" {streams}', sys.executable, "-c", program, *map(str, command)]
        ended = subprocess.run(shell, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120)
        assert ended.returncode == status
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == names
        assert results_in(tmp_path / name)["epochs"] == 2


# --- help and refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["1", "40", "400", "many"])
def test_help_in_terminals_of_any_width(run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for command in ([], ["train"], ["reproduce"]):
        status, printed, err = run(*command, "--help")
        assert (status, err) == (0, "")
        assert printed.startswith("usage: seegera-fast")
        assert "\x1b" not in printed


def test_without_a_command_they_are_named(run):
    status, printed, err = run()
    assert (status, printed) == (2, "")
    assert err == (
        "seegera-fast: error: COMMAND is missing; want one of train, import, embed, links, complete, reproduce, sweep, "
        "info; seegera-fast --help explains them\n"
    )


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--epochs=-3", "epochs: got -3, want 1 to"),
        ("--split=-0.1,0.2", "valid: got -0.1, want a number in [0, 1)"),
        ("--seed=-1", "--seed: got '-1'"),
        ("--set=learning_rate=-1", "learning_rate: got -1"),
    ],
)
def test_negative_values_reach_their_checks(run, tmp_path, option, words):
    (tmp_path / "e.txt").write_text(EDGES)
    status, printed, err = run("train", "--edges", tmp_path / "e.txt", option, "--out", tmp_path / "o")
    assert (status, printed) == (2, "")
    assert words in err.splitlines()[-1]
