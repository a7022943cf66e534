"""The file of a checkpoint: one run at a time writes it, folders that go away, full disks, and what is read from it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import cases
import pytest
import torch
from short_runs import assert_same_run, crash, epoch_of, run, stop_at, whole
from tolerances import assert_same_bits

from seegera_fast import Checkpoint, checkpoint_file
from seegera_fast.support import atomic


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_run_with_the_file_is_refused_and_the_first_goes_on(resume, tmp_path, monkeypatch):
    path, refusals = tmp_path / "c.safetensors", []

    def second():
        with pytest.raises(OSError, match=r"the checkpoint .*c\.safetensors is in use by another run") as caught:
            run("link_prediction", checkpoint=Checkpoint(path, resume=resume))
        refusals.append(str(caught.value))

    with monkeypatch.context() as patch:
        stop_at(patch, 6, second)
        result = run("link_prediction", checkpoint=Checkpoint(path, every=4))
    (refusal,) = refusals
    assert f"process {os.getpid()} on " in refusal
    assert_same_run(result, whole("link_prediction"))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    run("link_prediction", checkpoint=Checkpoint(path, resume=True))


def test_runs_in_threads_with_one_file_leave_one(tmp_path):
    path = tmp_path / "c.safetensors"

    def one(number):
        try:
            return run("link_prediction", checkpoint=Checkpoint(path, every=1))
        except OSError as error:
            return str(error)

    with warnings.catch_warnings(), ThreadPoolExecutor(4) as pool:
        warnings.simplefilter("error")
        # So few links may give none.
        warnings.filterwarnings("ignore", "the probabilities are not calibrated")
        results = list(pool.map(one, range(4)))
    done = [result for result in results if not isinstance(result, str)]
    assert done
    for result in done:
        assert_same_run(result, whole("link_prediction"))
    assert all("is in use by another run" in result for result in results if isinstance(result, str))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_without_locks_a_run_keeps_its_checkpoint(tmp_path, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    path = tmp_path / "c.safetensors"
    assert_same_run(run("link_prediction", checkpoint=Checkpoint(path, every=4)), whole("link_prediction"))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_the_folder_of_the_checkpoint_is_removed_during_a_run(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    stop_at(monkeypatch, 6, lambda: shutil.rmtree(folder))
    with pytest.warns(
        UserWarning, match=r"epoch (8|12): no checkpoint was written, .*c\.safetensors can't be written: No such"
    ):
        result = run("link_prediction", checkpoint=Checkpoint(folder / "c.safetensors", every=4))
    assert_same_run(result, whole("link_prediction"))
    assert not folder.exists()


def test_the_file_of_a_run_that_made_the_folder_anew_is_not_replaced(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    with contextlib.ExitStack() as stack:

        def another_run():
            shutil.rmtree(folder)
            folder.mkdir()
            stack.enter_context(Checkpoint(folder / "c.safetensors").kept())

        stop_at(monkeypatch, 6, another_run)
        words = r"epoch (8|12): no checkpoint was written, .* another run has made it anew"
        with pytest.warns(UserWarning, match=words):
            result = run("link_prediction", checkpoint=Checkpoint(folder / "c.safetensors", every=4))
        assert [entry.name for entry in folder.iterdir()] == [".c.safetensors.lock"]
    assert_same_run(result, whole("link_prediction"))


def test_a_file_that_cannot_be_written_is_refused_before_the_first_epoch(tmp_path, monkeypatch):
    calls = stop_at(monkeypatch, 0, crash)
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "file" / "c", tmp_path / "absent" / "c", tmp_path / "pipe"):
        with pytest.raises(OSError, match=r"the checkpoint .* can't be written"):
            run("link_prediction", checkpoint=Checkpoint(path))
    assert not calls


def test_a_full_disk_warns_and_keeps_the_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    replace, calls = os.replace, []

    def fails(*arguments):
        calls.append(None)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        replace(*arguments)

    monkeypatch.setattr(atomic.os, "replace", fails)
    with pytest.warns(UserWarning, match=r"epoch (8|12): no checkpoint was written, the training goes on \(.*No space"):
        result = run("link_prediction", checkpoint=Checkpoint(path, every=4))
    assert_same_run(result, whole("link_prediction"))
    assert epoch_of(path) == 4
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]


def test_a_state_reads_as_it_was_written(tmp_path):
    weights = {"a.b": cases.normal(3, 2, seed=1)}
    adam = {
        "a.b/step": torch.tensor(2.0),
        "a.b/exp_avg": cases.normal(3, 2, seed=2),
        "a.b/exp_avg_sq": torch.ones(3, 2),
    }
    # The square of a large gradient is infinite in float32, and training goes on.
    adam["a.b/exp_avg_sq"] = adam["a.b/exp_avg_sq"].double() / torch.tensor([1.0, 0.0])
    state = checkpoint_file.State(
        epoch=2,
        history=[
            {"epoch": 1, "loss": 0.1 + 0.2, "valid_auc": 1 / 3, "seconds": 0.5},
            {"epoch": 2, "loss": 1e-310, "seconds": 0},
        ],
        best=checkpoint_file.Best(1, {"valid_auc": 1 / 3}, {"a.b": cases.normal(3, 2)}),
        weights=weights,
        adam=adam,
        seconds=1.5,
        peak_memory=None,
    )
    course = checkpoint_file.Course(
        identity={"seed": 1, "split": (0.1, 0.2)},
        weights=weights,
        terms=("loss",),
        scores=("valid_auc",),
        evaluates=lambda epoch: epoch == 1,
        improves=lambda scores, best: False,
        ended=lambda epoch, best: epoch == 9,
    )
    path = tmp_path / "c.safetensors"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # So few links may give none.
        warnings.filterwarnings("ignore", "the probabilities are not calibrated")
        checkpoint_file.write(path, state, course.identity)
    found = checkpoint_file.read(path, course)
    for part in dataclasses.fields(state):
        if part.name not in ("best", "weights", "adam"):
            assert getattr(found, part.name) == getattr(state, part.name)
    assert (found.best.epoch, found.best.scores) == (1, {"valid_auc": 1 / 3})
    for group in (lambda each: each.weights, lambda each: each.adam, lambda each: each.best.weights):
        assert sorted(group(found)) == sorted(group(state))
        for name, tensor in group(state).items():
            assert_same_bits(group(found)[name], tensor, name=name)
