"""Checkpoints: a run that was stopped or gets more epochs goes on to the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from short_runs import TASKS, assert_same_run, crash, epoch_of, graph, run, stop_at, whole

from seegera_fast import Checkpoint
from seegera_fast.support.signals import ENDING


@pytest.mark.parametrize("task", TASKS)
def test_a_run_that_crashed_goes_on_to_the_same_bits(task, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, 9, crash)
        with pytest.raises(RuntimeError, match="the power failed"):
            run(task, checkpoint=Checkpoint(path, every=4))
    assert epoch_of(path) == 8
    with monkeypatch.context() as patch:
        calls = stop_at(patch, 0, crash)
        result = run(task, checkpoint=Checkpoint(path, every=4, resume=True))
    assert len(calls) == 4
    assert not result.interrupted
    assert_same_run(result, whole(task))
    assert sum(record["seconds"] for record in result.history) <= result.seconds


@pytest.mark.parametrize("number", [signal.SIGINT, *ENDING])
def test_a_signal_ends_the_run_after_the_epoch(number, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    # If tests run in the background or under nohup, the signal is ignored at their start.
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)
    try:
        for epoch in (3, 7):
            with monkeypatch.context() as patch:
                done = epoch_of(path) if path.exists() else 0
                stop_at(patch, epoch - done, lambda: os.kill(os.getpid(), number))
                result = run("link_prediction", checkpoint=Checkpoint(path, resume=True))
            assert result.interrupted
            assert result.epochs == epoch_of(path) == epoch
            assert signal.getsignal(number) == usual
    finally:
        signal.signal(number, before)
    result = run("link_prediction", checkpoint=Checkpoint(path, resume=True))
    assert not result.interrupted
    assert_same_run(result, whole("link_prediction"))


@pytest.mark.parametrize("fields", [{}, {"patience": 3, "evaluate_every": 1, "epochs": 60}])
def test_a_signal_in_the_last_epoch_is_reported(fields, tmp_path, monkeypatch):
    """The last epoch is that of the configuration, or the one after which patience ends."""
    path, expected = tmp_path / "c.safetensors", whole("link_prediction", **fields)
    with monkeypatch.context() as patch:
        stop_at(patch, expected.epochs, lambda: os.kill(os.getpid(), signal.SIGTERM))
        result = run("link_prediction", checkpoint=Checkpoint(path), **fields)
    assert result.interrupted
    assert epoch_of(path) == expected.epochs
    assert_same_run(result, expected)
    with monkeypatch.context() as patch:
        calls = stop_at(patch, 0, crash)
        result = run("link_prediction", checkpoint=Checkpoint(path, resume=True), **fields)
    assert (len(calls), result.interrupted) == (0, False)
    assert_same_run(result, expected)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_after_a_signal_ends_the_run_at_once_and_a_sigterm_does_not(first, second, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def twice():
        os.kill(os.getpid(), first)
        os.kill(os.getpid(), second)

    try:
        with monkeypatch.context() as patch:
            stop_at(patch, 6, twice)
            result = run("link_prediction", checkpoint=Checkpoint(path, every=4))
    finally:
        signal.signal(signal.SIGINT, before)
    at_once = second == signal.SIGINT
    assert (result.interrupted, result.epochs) == (True, 5 if at_once else 6)
    assert epoch_of(path) == (4 if at_once else 6)
    assert_same_run(
        run("link_prediction", checkpoint=Checkpoint(path, resume=True)),
        whole("link_prediction"),
    )


def test_signals_of_the_program_are_left_alone(tmp_path, monkeypatch):
    """Existing signal handlers stay, and another thread sets no handlers."""
    caught = []
    before = signal.signal(signal.SIGTERM, lambda *arguments: caught.append(arguments))
    try:
        stop_at(monkeypatch, 3, lambda: os.kill(os.getpid(), signal.SIGTERM))
        result = run("link_prediction", checkpoint=Checkpoint(tmp_path / "c.safetensors"))
        assert (len(caught), result.interrupted) == (1, False)
    finally:
        signal.signal(signal.SIGTERM, before)
    results = []
    checkpointed = Checkpoint(tmp_path / "d.safetensors")
    thread = threading.Thread(target=lambda: results.append(run("link_prediction", checkpoint=checkpointed)))
    thread.start()
    thread.join()
    assert_same_run(results[0], whole("link_prediction"))


def test_early_stopping_goes_on_counting(tmp_path, monkeypatch):
    fields = {"patience": 3, "evaluate_every": 1, "epochs": 60}
    expected = whole("link_prediction", **fields)
    assert expected.best_epoch + 4 == expected.epochs < 60
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, expected.epochs, crash)
        with pytest.raises(RuntimeError, match="the power failed"):
            run("link_prediction", checkpoint=Checkpoint(path, every=1), **fields)
    assert epoch_of(path) == expected.epochs - 1
    assert_same_run(run("link_prediction", checkpoint=Checkpoint(path, resume=True), **fields), expected)


def goes_on(task, path, monkeypatch, **fields):
    """Resumes a run; gives its result and how many epochs it trained."""
    with monkeypatch.context() as patch:
        calls = stop_at(patch, 0, crash)
        result = run(task, checkpoint=Checkpoint(path, resume=True), **fields)
    assert not result.interrupted
    assert epoch_of(path) == result.epochs
    return result, len(calls)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("first", [3, 6, 7])
def test_more_epochs_go_on_to_the_bits_of_one_long_run(task, first, tmp_path, monkeypatch):
    """Every other epoch is validated: 3 and 7 only because they are the last ones of the short run."""
    path = tmp_path / "c.safetensors"
    short = run(task, epochs=first, checkpoint=Checkpoint(path, every=4))
    assert_same_run(short, whole(task, epochs=first))
    assert ("valid_" in str(short.history[-1])) == ("valid_" in str(short.history[1])) is True
    for epochs, trained in ((first, 0), (first + 2, 2), (12, 12 - first - 2)):
        result, calls = goes_on(task, path, monkeypatch, epochs=epochs)
        assert_same_run(result, whole(task, epochs=epochs))
        assert calls == trained


def test_more_epochs_after_an_interrupt_in_the_last_one(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, 5, lambda: os.kill(os.getpid(), signal.SIGTERM))
        short = run("link_prediction", epochs=5, checkpoint=Checkpoint(path))
    assert short.interrupted
    assert_same_run(short, whole("link_prediction", epochs=5))
    result, calls = goes_on("link_prediction", path, monkeypatch)
    assert_same_run(result, whole("link_prediction"))
    assert calls == 7


def test_more_epochs_after_early_stopping_train_none(tmp_path, monkeypatch):
    fields = {"patience": 3, "evaluate_every": 1}
    path, expected = tmp_path / "c.safetensors", whole("link_prediction", **fields, epochs=60)
    stopped = expected.epochs
    assert expected.best_epoch + 4 == stopped < 60
    # The patience that was used up before the end of the short run counts.
    for epochs, trained in ((stopped - 2, stopped - 2), (60, 2), (90, 0), (stopped, 0)):
        result, calls = goes_on("link_prediction", path, monkeypatch, **fields, epochs=epochs)
        assert_same_run(result, whole("link_prediction", **fields, epochs=epochs))
        assert calls == trained


def test_fewer_epochs_than_are_left_and_than_are_done(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, 6, crash)
        with pytest.raises(RuntimeError, match="the power failed"):
            run("link_prediction", checkpoint=Checkpoint(path, every=5))
    with pytest.raises(ValueError, match="epoch: got 5, want 4, the last epoch of this run"):
        run("link_prediction", epochs=4, checkpoint=Checkpoint(path, resume=True))
    result, calls = goes_on("link_prediction", path, monkeypatch, epochs=7)
    assert_same_run(result, whole("link_prediction", epochs=7))
    assert calls == 2


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import short_runs as here
import torch
from seegera_fast import Checkpoint
from seegera_fast.support import atomic, tensor_file
torch.set_num_threads(1)
path, moment = sys.argv[2:]
kill = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
if moment == "epoch":
    class Patch:
        setattr = staticmethod(setattr)
    here.stop_at(Patch, 10, kill)
elif moment == "rename":
    replace, calls = os.replace, []
    def counted(*arguments):
        calls.append(None)
        kill() if len(calls) == 3 else replace(*arguments)
    atomic.os.replace = counted
else:
    write, calls = tensor_file.write, []
    def half(file, tensors, texts):
        calls.append(None)
        if len(calls) == 3:
            file.write(b"half")
            file.flush()
            kill()
        write(file, tensors, texts)
    tensor_file.write = half
here.run("node_classification", checkpoint=Checkpoint(path, every=3))
"""


@pytest.mark.parametrize(("moment", "epoch"), [("epoch", 9), ("write", 6), ("rename", 6)])
def test_a_killed_process_goes_on_to_the_same_bits(moment, epoch, tmp_path):
    """SIGKILL in the middle of an epoch, while the third checkpoint is written, and before it is renamed."""
    path = tmp_path / "c.safetensors"
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(path), moment]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert epoch_of(path) == epoch
    result = run("node_classification", checkpoint=Checkpoint(path, every=3, resume=True))
    assert_same_run(result, whole("node_classification"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"path": 3}, TypeError),
        ({"path": "c", "every": 0}, ValueError),
        ({"path": "c", "every": 1.5}, TypeError),
        ({"path": "c", "every": True}, TypeError),
        ({"path": "c", "resume": 1}, TypeError),
    ],
)
def test_attributes_are_checked(fields, error):
    with pytest.raises(error, match=f"{list(fields)[-1]}: got"):
        Checkpoint(**fields)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_a_checkpoint_from_a_gpu_goes_on_on_a_cpu(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, 9, crash)
        with pytest.raises(RuntimeError, match="the power failed"):
            run("link_prediction", of=graph().to("cuda"), checkpoint=Checkpoint(path, every=4))
    result = run("link_prediction", checkpoint=Checkpoint(path, resume=True))
    assert result.epochs == 12
    for record, expected in zip(result.history, whole("link_prediction").history, strict=True):
        assert record["loss"] == pytest.approx(expected["loss"], rel=1e-3)
