"""A training that is interrupted, crashes or becomes NaN: what it says, what it leaves, and how it is resumed."""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import numpy as np
import pytest
from command import EDGES, RESULTS, SMALL, WRITTEN, refused, results_in
from disk import files_in

import seegera_fast as sf
from seegera_fast.support.signals import requests_once, stop_on_signals

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("split", "epoch", "first"), [("paper", 1, "embeddings"), ("0,0.1", 2, "link")])
def test_nan_names_epoch_and_term_and_leaves_earlier_results(run, own, tmp_path, plain_picture, split, epoch, first):
    out = tmp_path / "out"
    assert run("train", *own, "--epochs", 1, "--out", out, *SMALL)[0] == 0
    before = {name: (out / name).read_bytes() for name in WRITTEN}
    options = ["--set", "learning_rate=1e30", "--epochs", 9, "--split", split]
    status, printed, err = run("train", *own, "--out", out, *SMALL, *options)
    assert (status, printed) == (3, "")
    line = err.splitlines()[-1]
    assert line.startswith(f"seegera-fast: error: epoch {epoch}: ")
    assert first in line
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_interrupt_keeps_what_was_trained(run, own, tmp_path, monkeypatch, plain_picture):
    embed, calls = sf.SeeGera.embed, []

    def interrupted(model, *arguments, **options):
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return embed(model, *arguments, **options)

    monkeypatch.setattr(sf.SeeGera, "embed", interrupted)
    out = tmp_path / "out"
    status, printed, _ = run("train", *own, "--epochs", 50, "--out", out, *SMALL)
    assert status == 130
    assert "2 (best: " in printed
    assert "interrupted" in printed
    results = results_in(out)
    assert (results["interrupted"], results["epochs"], len(results["history"])) == (True, 2, 2)
    assert files_in(out) == RESULTS


@pytest.mark.parametrize(
    ("interrupted", "missing"),
    [("suggested_links", ["links.csv", "picture.png", "report.html"]), ("draw_nodes", ["picture.png", "report.html"])],
)
def test_interrupt_after_the_training_leaves_what_was_written(
    run, own, tmp_path, monkeypatch, plain_picture, interrupted, missing
):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    assert run("train", *own, "--epochs", 1, "--out", out, *SMALL)[0] == 0
    monkeypatch.setattr(f"seegera_fast.command.written.{interrupted}", interrupt)
    status, printed, err = run("train", *own, "--epochs", 2, "--out", out, *SMALL)
    assert status == 130
    assert "seegera-fast: interrupted after the training, before all files were made" in err
    # Nothing is left of the earlier run.
    assert files_in(out) == [name for name in WRITTEN if name not in missing]
    results = results_in(out)
    assert (results["epochs"], results["interrupted"]) == (2, False)
    model = sf.SeeGera.load(out / "model.safetensors", sf.Graph.from_table(*own[1::2]))
    assert np.array_equal(np.load(out / "embedding.npy"), model.embed().numpy())
    assert "AUC" in printed
    assert "picture.png" not in printed
    assert ("links.csv" in printed) == ("links.csv" not in missing)


def test_interrupt_before_the_first_epoch_leaves_nothing(run, own, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("seegera_fast.graph.Graph.from_table", interrupted)
    status, out, err = run("train", *own, "--out", tmp_path / "new" / "out")
    assert (status, out, err) == (130, "", "seegera-fast: interrupted\n")
    assert not (tmp_path / "new").exists()


def test_a_run_that_crashed_is_resumed(run, own, tmp_path, monkeypatch, plain_picture):
    out, whole = tmp_path / "out", tmp_path / "whole"
    command = ["train", *own, "--epochs", 6, "--checkpoint-every", 2, *SMALL]
    assert run(*command, "--out", whole)[0] == 0
    assert files_in(whole) == WRITTEN
    forward, calls = sf.SeeGera.forward, []

    def crashing(model, *arguments, **options):
        calls.append(None)
        if len(calls) == 6:
            raise MemoryError("no memory")
        return forward(model, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sf.SeeGera, "forward", crashing)
        refused(run(*command, "--out", out), "no memory")
    assert files_in(out) == ["checkpoint.safetensors"]
    refused(
        run(*command, "--out", out, "--resume", "--seed", 1), "is of another run", "seed (checkpoint: 0, this run: 1)"
    )
    status, _, err = run(*command, "--out", out, "--resume")
    assert status == 0
    assert f"going on from {out / 'checkpoint.safetensors'}" in err
    assert files_in(out) == WRITTEN
    assert (out / "embedding.npy").read_bytes() == (whole / "embedding.npy").read_bytes()
    assert results_in(out)["scores"] == results_in(whole)["scores"]

    (out / "checkpoint.safetensors").unlink()
    # --resume without a checkpoint, and a checkpoint without --resume, which is replaced: both are reported.
    assert "the run starts at its beginning" in run(*command, "--out", out, "--resume")[2]
    (out / "checkpoint.safetensors").write_bytes(b"old")
    assert "will be replaced; --resume goes on" in run(*command, "--out", out)[2]
    assert files_in(out) == WRITTEN


TASK_OPTIONS = {
    "link": ["--split", "0.1,0.1"],
    "attribute": ["--split", "0.1,0.1"],
    "node": ["--split", "0.3,0.2", "--set", "classifier_epochs=5"],
}


@pytest.mark.parametrize("task", TASK_OPTIONS)
def test_resume_with_more_epochs_gives_the_files_of_one_long_run(run, tmp_path, plain_picture, task):
    (tmp_path / "e.txt").write_text(EDGES)
    np.save(tmp_path / "f.npy", np.random.default_rng(0).integers(0, 2, (10, 6)).astype(float))
    np.save(tmp_path / "l.npy", np.arange(10) // 5)
    files = [text for name in ("edges", "features", "labels") for text in (f"--{name}", tmp_path / f"{name[0]}.npy")]
    files[1] = tmp_path / "e.txt"
    fields = ["embedding_dim=4", "hidden_dim=5", "evaluate_every=2", "dropout=0.2"]
    options = [*TASK_OPTIONS[task], *(text for field in fields for text in ("--set", field))]
    command = ["train", "--task", task, *files, *options]

    def content(folder):
        results = results_in(folder)
        history = [{key: value for key, value in record.items() if key != "seconds"} for record in results["history"]]
        kept = ("scores", "epochs", "best_epoch", "configuration", "interrupted")
        parts = [(folder / name).read_bytes() for name in ("model.safetensors", "embedding.npy")]
        return [history, *(results[key] for key in kept), *parts]

    assert run(*command, "--epochs", 7, "--out", tmp_path / "long")[0] == 0
    assert run(*command, "--epochs", 3, "--out", tmp_path / "short")[0] == 0
    status, _, err = run(*command, "--epochs", 7, "--out", tmp_path / "short", "--resume")
    assert status == 0
    assert f"going on from {tmp_path / 'short' / 'checkpoint.safetensors'}" in err
    assert content(tmp_path / "short") == content(tmp_path / "long")
    # A run that has ended has nothing left to train.
    assert run(*command, "--epochs", 7, "--out", tmp_path / "short", "--resume")[0] == 0
    assert content(tmp_path / "short") == content(tmp_path / "long")
    status, _, err = run(*command, "--epochs", 5, "--out", tmp_path / "short", "--resume")
    assert status == 2
    assert "epoch: got 7, want 5, the last epoch of this run" in err
    assert content(tmp_path / "short") == content(tmp_path / "long")


# --- a terminal ------------------------------------------------------------------------------------------------------


def test_ctrl_c_in_a_terminal(own, tmp_path):
    """Sends the signal to a real process. Its progress bar shows when it trains."""
    out = tmp_path / "out"
    argv = ["train", *own, "--epochs", "10000000", "--set", "patience=none", "--out", str(out), *SMALL]
    terminal, standard_error = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 150, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "seegera_fast", *argv],
        stdout=subprocess.PIPE,
        stderr=standard_error,
        text=True,
        # If tests run in the background, the signal is ignored at their start, which a child process would inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(standard_error)
    try:
        shown = b""
        while b"loss=" not in shown:
            assert select.select([terminal], [], [], 60)[0], shown
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        # The terminal is read, because a full one blocks the process. The end of the process is an error of read.
        end = time.monotonic() + 120
        with contextlib.suppress(OSError):
            while select.select([terminal], [], [], 60)[0] and time.monotonic() < end:
                os.read(terminal, 4096)
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(terminal)
    assert process.returncode == 130
    assert "interrupted" in printed
    assert results_in(out)["interrupted"] is True
    assert files_in(out) == WRITTEN
    model = sf.SeeGera.load(out / "model.safetensors", sf.Graph.from_table(*own[1::2]))
    assert np.array_equal(np.load(out / "embedding.npy"), model.embed().numpy())


def take_terminal():
    """Makes standard input the terminal of the new session, and lets SIGHUP through, which nohup ignores."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=["loud", "quiet"])
def test_a_terminal_that_is_closed_ends_the_run_with_its_files(quiet, tmp_path):
    """The kernel sends SIGHUP, and what is written to the terminal fails from then on."""
    screen, terminal = pty.openpty()
    fields = ["--set", "embedding_dim=8", "--set", "hidden_dim=8", "--set", "patience=none", "--epochs", "100000"]
    command = ["train", "--data", "digits", *fields, *quiet, "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-m", "seegera_fast", *command],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(terminal)
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    while process.poll() is None and not checkpoint.exists():
        if select.select([screen], [], [], 0.1)[0]:
            os.read(screen, 4096)
    os.close(screen)
    try:
        assert process.wait(120) == 130
    finally:
        process.kill()
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"results.json", "model.safetensors", "embedding.npy", "picture.png"} <= names
    assert json.loads((tmp_path / "run" / "results.json").read_text())["interrupted"] is True


def test_further_requests_to_stop_are_ignored_until_all_is_written():
    def request():
        os.kill(os.getpid(), signal.SIGTERM)

    interrupt, before = signal.getsignal(signal.SIGINT), signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with requests_once():
            with stop_on_signals() as stop:
                pass
            assert not stop.requested
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            with stop_on_signals() as stop:
                request()
                assert stop.requested
            request()
            with stop_on_signals() as stop:
                request()
            assert not stop.requested
            assert signal.getsignal(signal.SIGINT) is interrupt
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        with stop_on_signals():
            request()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
