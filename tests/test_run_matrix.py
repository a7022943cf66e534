"""A matrix of trials: what runs and what is left, its budget, its processes, signals and locks."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from trials import SMALL, Here, setting

from seegera_fast import checkpoint_file
from seegera_fast.checkpoint import Checkpoint
from seegera_fast.experiments import estimates, matrix, summary
from seegera_fast.experiments.matrix import plan, run_matrix
from seegera_fast.experiments.trials import Trial, read_record, read_records, run_trial
from seegera_fast.experiments.worker import IN_USE, STOPPED, Conditions, Worker
from seegera_fast.support import atomic
from seegera_fast.support.atomic import InUse, alone


def test_a_finished_trial_is_never_repeated(tmp_path, here):
    conditions = Conditions(tmp_path / "trials")
    trials = plan(["link"], ["cora"], ["v2", "v3"], ["paper"], range(2), [SMALL])
    first = run_matrix(trials[:3], conditions, quiet=True)
    assert first.finished == here == trials[:3]
    kept = {path: path.stat().st_mtime_ns for path in conditions.folder.glob("*.json")}
    second = run_matrix(trials, conditions, quiet=True)
    assert here == trials
    assert sorted(second.finished, key=trials.index) == trials
    assert [second.left, second.failed, second.crashed, second.missing, second.interrupted] == [[], [], {}, {}, False]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_nan_missing_data_and_errors_are_told_apart(tmp_path, here, capsys):
    conditions = Conditions(tmp_path / "trials")
    trials = [
        Trial(setting(**SMALL), 0),
        Trial(setting(learning_rate=1e30, **SMALL), 0),
        Trial(setting(data="pubmed", **SMALL), 0),
        # Only the graph knows that it has fewer pairs.
        Trial(setting(negatives=10**6, **SMALL), 0),
    ]
    for _ in range(2):
        outcome = run_matrix(trials, conditions)
        assert set(outcome.finished) == set(trials[:2])
        assert outcome.failed == trials[1:2]
        assert outcome.missing == {"pubmed": "pubmed: files missing in a folder"}
        assert list(outcome.crashed) == trials[3:]
        assert "negatives" in outcome.crashed[trials[3]]
    # What ended with an error is tried again; what became NaN isn't.
    assert here == [trials[0], trials[1], trials[3], trials[3]]
    shown = capsys.readouterr().err
    assert f"{trials[0].name}: AUC " in shown
    assert f"{trials[1].name}: failed: epoch 1: " in shown
    (row, _), (failed, _) = (
        summary.rows(record for record in read_records(conditions.folder) if record.trial == trial)
        for trial in trials[:2]
    )
    assert (row.trials, row.failed, failed.trials, failed.failed, failed.mean) == (1, 0, 0, 1, None)


def test_the_budget_stops_starting_trials(tmp_path, here, monkeypatch):
    trials = plan(["link"], ["cora"], ["v2"], ["paper"], range(4), [SMALL])
    assert run_matrix(trials, Conditions(tmp_path), budget=0, quiet=True).left == trials
    assert here == []

    class Slow(Here):
        def end(self):
            time.sleep(1.5)
            return super().end()

    monkeypatch.setattr(matrix, "Worker", Slow)
    outcome = run_matrix(trials, Conditions(tmp_path), budget=1, quiet=True)
    assert outcome.finished == trials[:1]
    assert outcome.left == trials[1:]


def test_a_trial_that_runs_when_the_budget_ends_is_stopped_and_goes_on(tmp_path, monkeypatch):
    """In a real process: the next run goes on from its checkpoint."""
    fields = {**SMALL, "embedding_dim": 4, "epochs": 1_000_000, "patience": None}
    (trial,) = plan(["link"], ["digits"], ["v3"], ["paper"], [0], [fields])
    path = trial.checkpoint_path(tmp_path)
    # Its epochs are not measured before, in one more process.
    monkeypatch.setattr(estimates, "SHORTEST", math.inf)

    def reached():
        return checkpoint_file.position(path)[0] if path.exists() else 0

    def epoch_after(epoch):
        """Of the checkpoint, after a run whose budget ended when there was one of a later epoch than the given one."""
        clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: time.monotonic() + 1000 * (reached() > epoch))
        monkeypatch.setattr(matrix, "time", clock)
        outcome = run_matrix([trial], Conditions(tmp_path), budget=300, quiet=True)
        assert (outcome.left, outcome.interrupted, outcome.crashed) == ([trial], False, {})
        assert reached() > epoch
        return reached()

    epoch_after(epoch_after(0))


def test_one_run_at_a_time(tmp_path, here):
    with (
        alone(tmp_path / ".lock", "a test"),
        pytest.raises(InUse, match=f"folder .* is in use .*process {os.getpid()} "),
    ):
        run_matrix([Trial(setting(**SMALL), 0)], Conditions(tmp_path), quiet=True)
    assert run_matrix([Trial(setting(**SMALL), 0)], Conditions(tmp_path), quiet=True).finished


def test_without_locks_trials_run_with_a_warning(tmp_path, here, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    with pytest.warns(UserWarning, match=r"the folder .* is on a file system without locks: make sure") as caught:
        assert run_matrix([Trial(setting(**SMALL), 0)], Conditions(tmp_path), quiet=True).finished
    assert len(caught) == 1


def test_a_trial_whose_checkpoint_is_in_use_is_tried_again(tmp_path, here, monkeypatch, capsys):
    """As after a kill of the command, whose trial goes on to the end of its epoch."""

    class Busy(Here):
        def end(self):
            return (IN_USE, "the checkpoint is in use by another run") if len(self.started) == 1 else super().end()

    monkeypatch.setattr(matrix, "Worker", Busy)
    monkeypatch.setattr(matrix, "RETRY_SECONDS", 0.5)
    trials = plan(["link"], ["cora"], ["v2"], ["paper"], range(2), [SMALL])
    outcome = run_matrix(trials, Conditions(tmp_path))
    assert outcome.finished == [trials[1], trials[0]]
    assert (outcome.crashed, outcome.left) == ({}, [])
    assert "in use by another run; it is tried again" in capsys.readouterr().err
    folder, begin = tmp_path / "again", time.monotonic()
    monkeypatch.setattr(Busy, "end", lambda worker: (IN_USE, "in use"))
    outcome = run_matrix(trials[:1], Conditions(folder), budget=1.0, quiet=True)
    assert (outcome.left, outcome.crashed) == (trials[:1], {})
    assert time.monotonic() - begin >= 1


def test_the_process_of_a_trial_whose_checkpoint_is_in_use(tmp_path):
    trial = Trial(setting(data="digits", **SMALL), 0)
    with Checkpoint(trial.checkpoint_path(tmp_path)).kept():
        code, message = Worker(trial, Conditions(tmp_path), 1).end()
    assert code == IN_USE
    assert "is in use by another run" in message


# --- processes -------------------------------------------------------------------------------------------------------


def test_trials_in_processes(tmp_path):
    """Two real processes at once: they give the same scores as in this process, and a wrong trial is reported."""
    fields = {**SMALL, "epochs": 2, "embedding_dim": 4}
    trials = plan(["link"], ["digits"], ["v3"], ["paper"], range(2), [fields])
    wrong = Trial(setting(data="digits", negatives=10**9, **fields), 0)
    outcome = run_matrix([*trials, wrong], Conditions(tmp_path / "trials"), jobs=2, quiet=True)
    assert set(outcome.finished) == set(trials)
    assert "negatives" in outcome.crashed[wrong]
    (tmp_path / "here").mkdir()
    assert run_trial(trials[1], tmp_path / "here", None, "cpu")
    one, other = (read_record(trials[1].record_path(tmp_path / name)).content for name in ("trials", "here"))
    assert one["scores"] == other["scores"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, STOPPED)])
def test_a_process_that_got_a_signal(tmp_path, number, status):
    worker = Worker(Trial(setting(data="digits", **SMALL), 0), Conditions(tmp_path), 1)
    os.kill(worker._process.pid, number)
    assert worker.end() == (status, "")
    assert worker.ended()


def test_a_process_that_was_killed_is_told_apart_and_the_next_one_runs(tmp_path, here, monkeypatch):
    class Killed(Here):
        def end(self):
            return (-signal.SIGKILL, "") if len(self.started) == 1 else super().end()

    monkeypatch.setattr(matrix, "Worker", Killed)
    trials = plan(["link"], ["cora"], ["v2"], ["paper"], range(2), [SMALL])
    outcome = run_matrix(trials, Conditions(tmp_path), quiet=True)
    assert outcome.crashed == {trials[0]: "ended by signal 9"}
    assert outcome.finished == trials[1:]


def running(parent=None):
    """The numbers of running processes, or of the running children of one. Zombies do not count as running."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, above = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z" and parent in (None, int(above)):
                found.add(int(path.parent.name))
    return found


# The signal goes to the process or to its group, in which the trials are not. A terminal and a batch system send it to
# the group, and the latter sends it twice.
@pytest.mark.parametrize(
    ("send", "signals"),
    [(os.killpg, ["SIGINT"]), (os.killpg, ["SIGTERM", "SIGTERM"]), (os.kill, ["SIGKILL"])],
    ids=lambda value: None if callable(value) else " ".join(value),
)
def test_a_signal_ends_the_trials_after_their_epoch(tmp_path, send, signals):
    """Sends a signal to the real command, whose trial runs in a child process."""
    out = tmp_path / "out"
    options = ["--set", "patience=none", "--set", "embedding_dim=4", "--set", "hidden_dim=4"]
    command = [sys.executable, "-m", "seegera_fast", "reproduce", "--task", "link", "--data", "digits"]
    command += ["--variant", "v3", "--split", "paper", "--trials", "2", "--epochs", "1000000", "--out", str(out)]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # If tests run in the background, the signal is ignored at their start, which a child process would inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    children = set()
    try:
        end = time.monotonic() + 120
        while not list(out.glob("trials/*.safetensors")) and time.monotonic() < end:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.1)
        children = running(process.pid)
        assert len(children) == 1
        for name in signals:
            send(process.pid, getattr(signal, name))
        printed, shown = process.communicate(timeout=60)
        end = time.monotonic() + 30
        while children & running() and time.monotonic() < end:
            time.sleep(0.1)
        assert not children & running()
    finally:
        for number in (process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    if signals == ["SIGKILL"]:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130, shown
        assert "seed0: stopped; the next run goes on" in shown
        # Its epochs were measured before.
        pattern = r"^link, digits, paper split: SeeGera-v3 \(.*\)  +2  +about 1,000,000  +about [\d.e+]+ s"
        assert re.search(pattern, shown, re.MULTILINE)
        assert "2 trials are left" in shown
        assert "tables in" in printed
    assert not list(out.glob("trials/*.json"))
    assert [path.name.split("-seed")[1] for path in out.glob("trials/*.safetensors")] == ["0.checkpoint.safetensors"]
