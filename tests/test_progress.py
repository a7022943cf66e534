"""Progress of trainings, phases and trials: as lines in a log, as a bar at a terminal or in a notebook."""

from __future__ import annotations

import contextlib
import fcntl
import io
import itertools
import os
import pty
import struct
import subprocess
import sys
import termios
import time
import types
import warnings

import cases
import pytest
from command import EDGES, QUICK

import seegera_fast as sf
from seegera_fast import datasets
from seegera_fast.experiments import matrix
from seegera_fast.support import progress
from seegera_fast.training import TrainingConfig, train

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def often(monkeypatch):
    """A line is due at once."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.01)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def small_training(epochs=4, **options):
    model = sf.SeeGera(cases.graph("random", "binary"), embedding_dim=4, hidden_dim=5)
    return train(model, TrainingConfig(epochs=epochs), **options)


def test_a_log_gets_a_line_now_and_then(often, monkeypatch, capsys):
    clock = itertools.count(0.0, 40.0)
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    small_training()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("epoch 1 of 4, loss ")
    assert all(" so far, about " in line and line.endswith(" left") for line in lines[:3])
    assert lines[3].startswith("epoch 4 of 4, ")
    assert " left" not in lines[3]


def test_lines_become_rare(monkeypatch, capsys):
    """In ten hours of steps of one second."""
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with progress.Steps(36000, "epoch", show=True) as steps:
        for second in range(1, 36001):
            now[0] = float(second)
            steps.advance(loss=1.5)
            if second == 119:
                early = capsys.readouterr().err.splitlines()
    lines = [*early, *capsys.readouterr().err.splitlines()]
    assert [line.partition(",")[0] for line in early] == [f"epoch {n} of 36000" for n in (30, 60, 90)]
    assert early[0] == "epoch 30 of 36000, loss 1.5, 30 s so far, about 35970 s (599.5 min) left"
    assert 100 < len(lines) < 200


def test_a_resumed_run_counts_its_own_epochs_for_the_time_left(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with progress.Steps(100, "epoch", show=True, done=90) as steps:
        now[0] = 50.0
        steps.advance(5)
    assert capsys.readouterr().err == "epoch 95 of 100, 50 s so far, about 50 s left\n"


def test_no_progress_is_shown_unless_asked_for(often, capsys, monkeypatch):
    small_training(progress=False)
    with progress.phase("reading", show=False):
        time.sleep(0.1)
    with progress.Steps(3, "epoch", show=False) as steps:
        steps.advance()
        steps.wait("a")
        steps.note("a")
    assert capsys.readouterr() == ("", "")
    # As in a process without a console.
    monkeypatch.setattr(sys, "stderr", None)
    small_training()
    with progress.phase("reading", show=True):
        pass


def test_phases_show_that_they_are_at_work(often, monkeypatch):
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.phase("reading a.txt", show=True):
            end = time.monotonic() + 60
            while "reading a.txt: 0" not in stream.getvalue() and time.monotonic() < end:
                time.sleep(0.01)
        shown = stream.getvalue()
        assert "reading a.txt: 0" in shown
        assert ("\r" in shown) == stream.isatty()


def test_every_long_phase_of_a_run_is_named(run, tmp_path, monkeypatch, plain_picture):
    named = []

    @contextlib.contextmanager
    def phase(name, *, show):
        named.append((name, show))
        yield

    for module in ("command.options", "tasks.common", "datasets.registry"):
        monkeypatch.setattr(f"seegera_fast.{module}.phase", phase)
    (tmp_path / "e.txt").write_text(EDGES)
    for quiet in ([], ["--quiet"]):
        assert run("train", "--edges", tmp_path / "e.txt", *QUICK, "--out", tmp_path / "o", *quiet)[0] == 0
    assert named == [
        (name, show) for show in (True, False) for name in ("reading e.txt", "splitting the graph", "scoring")
    ]
    named.clear()
    datasets.load("digits")
    assert named == [("reading digits", True)]


@pytest.mark.parametrize(("term", "bar"), [("xterm", True), ("dumb", False)])
def test_a_bar_at_a_terminal_that_has_a_cursor(often, monkeypatch, term, bar):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", Terminal())
    small_training()
    assert ("\r" in sys.stderr.getvalue()) == bar
    assert ("4/4" if bar else "epoch 4 of 4") in sys.stderr.getvalue()


def test_a_notebook_without_widgets_gets_a_bar_of_text(monkeypatch, capsys):
    from tqdm import notebook

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(notebook, "IProgress", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small_training()
    assert "4/4" in capsys.readouterr().err


def test_a_notebook_with_widgets_gets_its_bar(monkeypatch, capsys):
    from tqdm import notebook

    made = []

    class Bar:
        def __init__(self, **options):
            made.append(options)

        def __getattr__(self, name):
            return lambda *given, **options: made.append(name)

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(notebook, "IProgress", object)
    monkeypatch.setattr(notebook, "tqdm", Bar)
    small_training()
    assert made[0]["total"] == 4
    assert made.count("update") == 4
    assert made[-1] == "close"
    assert capsys.readouterr().err == ""


def test_trials_in_a_log(often, run, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "load", lambda name, root=None, progress=True: None)

    class Crashing:
        def __init__(self, trial, conditions, threads, *, pace=False):
            self.looks = iter([False, True])

        def ended(self):
            return next(self.looks)

        def end(self):
            return 1, "no memory"

    monkeypatch.setattr(matrix, "Worker", Crashing)
    monkeypatch.setattr(matrix, "POLL_SECONDS", 0.01)
    command = ["reproduce", "--task", "link", "--data", "cora", "--variant", "v3", "--split", "paper", "--trials", "2"]
    _, _, err = run(*command, "--out", tmp_path / "o")
    # Its epochs can't be measured, so that nothing is said of how long it will take.
    assert "trial 0 of 2, running some epochs of link, cora, paper split: SeeGera-v3 to measure them\n" in err
    assert "missing" not in err
    assert "trial 0 of 2, running link-cora-v3-paper-seed0\n" in err
    assert "link-cora-v3-paper-seed0: error: no memory\n" in err
    assert "\r" not in err
    assert "running" not in run(*command, "--out", tmp_path / "o", "--quiet")[2]


def test_a_real_terminal(tmp_path):
    """A narrow one."""
    (tmp_path / "e.txt").write_text(EDGES)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    command = ["train", "--edges", str(tmp_path / "e.txt"), *QUICK, "--out", str(tmp_path / "o")]
    process = subprocess.Popen(
        [sys.executable, "-m", "seegera_fast", *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "OMP_NUM_THREADS": "1"},
    )
    os.close(theirs)
    shown = b""
    # The end of the process is an error of read.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.wait(60) == 0
    text = shown.decode()
    assert "2/2" in text
    bars = [line for line in text.replace("\n", "\r").split("\r") if "| 2/2" in line]
    assert bars
    assert all(len(line) <= 40 for line in bars)
