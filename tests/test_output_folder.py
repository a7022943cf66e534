"""The folder of a run: one run at a time, what killed runs left, full disks, and folders that go away."""

import errno
import os
import platform
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from command import RESULTS, SMALL, WRITTEN, refused, results_in
from disk import files_in

import seegera_fast as sf
from seegera_fast.command.output import OutputFolder
from seegera_fast.support import atomic

pytestmark = pytest.mark.usefixtures("one_thread")


def test_folder_that_cannot_be_written_is_refused_before_anything_is_read(run, own, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "seegera_fast.graph.Graph.from_table", lambda *arguments, **options: pytest.fail("the graph was read")
    )
    (tmp_path / "file").write_text("mine")
    refused(run("train", *own, "--out", tmp_path / "file"), "file can't be written")
    refused(run("train", *own, "--out", tmp_path / "file" / "below"), "below can't be written")
    (tmp_path / "out" / "picture.png").mkdir(parents=True)
    refused(run("train", *own, "--out", tmp_path / "out"), "can't be written", "picture.png in it is a folder")
    assert (tmp_path / "file").read_text() == "mine"
    assert files_in(tmp_path / "out") == ["picture.png"]


@pytest.mark.parametrize(
    ("name", "more"), [*((name, []) for name in (*WRITTEN, "embedding.csv")), ("links.csv", ["--resume"])]
)
def test_files_that_no_run_has_written_are_kept(run, own, tmp_path, monkeypatch, name, more):
    monkeypatch.setattr(
        "seegera_fast.graph.Graph.from_table", lambda *arguments, **options: pytest.fail("the graph was read")
    )
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text('{"rows": []}')
    outcome = run("train", *own, "--epochs", 1, "--out", out, *SMALL, *more)
    refused(outcome, f"--out: {out / name} would be lost, which no earlier train has written; want another folder")
    assert (files_in(out), (out / name).read_text()) == ([name], '{"rows": []}')


def test_the_folder_of_a_stopped_run_is_taken(run, own, tmp_path, plain_picture):
    out = tmp_path / "out"
    command = ["train", *own, "--epochs", 2, "--out", out, *SMALL]
    assert run(*command)[0] == 0
    for name in RESULTS:
        (out / name).unlink()
    assert run(*command)[0] == 0
    assert files_in(out) == WRITTEN
    (out / "results.json").unlink()
    refused(run(*command), "embedding.npy would be lost")


@pytest.mark.parametrize(
    ("command", "names"), [("reproduce", ["results.json", "results.md"]), ("sweep", ["sweep.json", "sweep.png"])]
)
def test_tables_that_no_trials_have_made_are_kept(run, tmp_path, command, names):
    for name in names:
        (tmp_path / name).write_text("mine")
        refused(run(command, "--out", tmp_path), f"{name} would be lost, which no earlier reproduce or sweep has")
        assert files_in(tmp_path) == [name]
        (tmp_path / name).unlink()


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_a_second_run_with_one_folder_is_refused_and_the_first_goes_on(
    run, own, tmp_path, monkeypatch, plain_picture, more
):
    out, refusals = tmp_path / "out", []
    command = ["train", *own, "--epochs", 3, "--out", out, *SMALL]
    forward = sf.SeeGera.forward

    def with_a_second_run(model, *arguments, **options):
        if not refusals:
            refusals.append(None)
            refusals[0] = run(*command, *more)
        return forward(model, *arguments, **options)

    monkeypatch.setattr(sf.SeeGera, "forward", with_a_second_run)
    assert run(*command)[0] == 0
    status, printed, err = refusals[0]
    assert (status, printed) == (5, "")
    assert err.splitlines()[-1] == (
        f"seegera-fast: error: the folder {out} is in use by another run: process {os.getpid()} on {platform.node()}"
    )
    assert files_in(out) == WRITTEN
    assert run(*command, *more)[0] == 0


def test_without_locks_a_run_writes_its_files(run, own, tmp_path, monkeypatch, plain_picture):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    assert run("train", *own, "--epochs", 2, "--out", tmp_path / "out", *SMALL)[0] == 0
    assert files_in(tmp_path / "out") == WRITTEN


def test_the_lock_of_a_killed_run_is_taken_over(run, own, tmp_path, plain_picture):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".lock").write_text("process 1 on a machine\n")
    assert run("train", *own, "--epochs", 2, "--out", out, *SMALL)[0] == 0
    assert files_in(out) == WRITTEN


# --- what killed processes left --------------------------------------------------------------------------------------


def test_what_killed_processes_left_is_removed_and_what_lives_is_not(run, own, tmp_path, monkeypatch, plain_picture):
    out = tmp_path / "out"
    out.mkdir()
    dead, living = (out / f".model.safetensors.{name}.part" for name in ("deaddead", "11111111"))
    for path in (dead, living, out / ".lock"):
        path.write_text("half")
    held = os.open(living, os.O_RDONLY)
    assert atomic.hold(held)
    forward = sf.SeeGera.forward

    def looking(model, *arguments, **options):
        assert sorted(path.name for path in out.glob("*.part")) == [living.name]
        return forward(model, *arguments, **options)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(sf.SeeGera, "forward", looking)
            assert run("train", *own, "--epochs", 1, "--out", out, *SMALL)[0] == 0
        assert files_in(out) == [living.name, *WRITTEN]
    finally:
        os.close(held)

    dead, living = (tmp_path / f".e.npy.{name}.part" for name in ("deaddead", "11111111"))
    dead.write_text("half")
    with open(living, "w") as file:
        assert atomic.hold(file.fileno())
        assert run("embed", out / "model.safetensors", *own, "--out", tmp_path / "e.npy")[0] == 0
        assert (dead.exists(), living.exists()) == (False, True)


def test_writers_of_one_file_do_not_take_each_others_for_left_behind(tmp_path):
    path = tmp_path / "file"

    def write(number):
        for _ in range(300):
            with atomic.written_aside(path) as file:
                file.write(b"%d" % number * 1000)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (1, 2)))
    assert path.read_bytes() in (b"1" * 1000, b"2" * 1000)
    assert files_in(tmp_path) == ["file"]


def test_without_marks_nothing_is_taken_for_left_behind(tmp_path, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    (tmp_path / ".file.deaddead.part").write_text("half")
    with atomic.written_aside(tmp_path / "file") as file:
        file.write(b"whole")
    assert files_in(tmp_path) == [".file.deaddead.part", "file"]
    assert (tmp_path / "file").read_bytes() == b"whole"


# --- full disks, folders that go away --------------------------------------------------------------------------------


@pytest.fixture
def spare(tmp_path, monkeypatch):
    """The folder for temporary files."""
    (tmp_path / "spare").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spare"))
    return tmp_path / "spare"


def during_epoch(monkeypatch, number, action):
    forward, calls = sf.SeeGera.forward, []

    def acting(model, *arguments, **options):
        calls.append(None)
        if len(calls) == number:
            action()
        return forward(model, *arguments, **options)

    monkeypatch.setattr(sf.SeeGera, "forward", acting)


def test_what_a_removed_folder_cannot_take_is_written_elsewhere(run, own, tmp_path, monkeypatch, spare, plain_picture):
    out, whole = tmp_path / "out", tmp_path / "whole"
    command = ["train", *own, "--epochs", 3, "--checkpoint-every", 2, *SMALL]
    assert run(*command, "--out", whole)[0] == 0
    during_epoch(monkeypatch, 2, lambda: shutil.rmtree(out))
    status, printed, err = run(*command, "--out", out)
    assert status == 6
    assert "epoch 2: no checkpoint was written, the training goes on" in err
    assert not out.exists()
    (folder,) = spare.glob("seegera-fast-out-*")
    assert files_in(folder) == RESULTS
    for name in ("embedding.npy", "model.safetensors"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    reason = f"{out / 'model.safetensors'} can't be written: No such file or directory;"
    names = "model.safetensors, embedding.npy, results.json, links.csv, picture.png, report.html"
    assert err.splitlines()[-1] == f"seegera-fast: error: {reason} {folder} has instead: {names}"
    assert "AUC" in printed
    assert "files in" not in printed


def test_a_folder_that_another_run_made_anew_is_left_to_it(tmp_path, spare):
    out, content = tmp_path / "out", {"results.json": lambda file: file.write(b"{}")}
    with OutputFolder(out) as first:
        shutil.rmtree(out)
        with OutputFolder(out) as second:
            first.write(content)
            assert files_in(out) == [".lock"]
            second.write(content)
            assert second.refused == []
        ((error, names, folder),) = first.refused
    assert str(error) == f"the folder {out} can't be written: it was removed, and another run has made it anew"
    assert (names, folder.parent) == (("results.json",), spare)
    assert files_in(folder) == files_in(out) == ["results.json"]


def full(monkeypatch, is_full):
    """No file whose path is one of a full disk can be written."""
    replace = os.replace

    def replacing(aside, path):
        if is_full(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(aside, path)

    monkeypatch.setattr(atomic.os, "replace", replacing)


def test_a_full_disk_keeps_the_earlier_files_and_the_checkpoint(run, own, tmp_path, monkeypatch, spare, plain_picture):
    out = tmp_path / "out"
    command = ["train", *own, "--epochs", 3, "--checkpoint-every", 2, "--out", out, *SMALL]
    assert run(*command)[0] == 0
    before = {name: (out / name).read_bytes() for name in RESULTS}
    full(monkeypatch, lambda path: path.parent == out and path.name == "results.json")
    status, printed, err = run(*command, "--seed", 1)
    assert status == 6
    assert f"{out / 'results.json'} can't be written: No space left on device; {spare}" in err
    assert "files in" not in printed
    (folder,) = spare.glob("seegera-fast-out-*")
    assert files_in(folder) == RESULTS
    assert results_in(folder)["configuration"]["seed"] == 1
    assert {name: (out / name).read_bytes() for name in before} == before
    assert files_in(out) == WRITTEN


def test_a_full_disk_that_takes_no_picture(run, own, tmp_path, monkeypatch, spare, plain_picture):
    out = tmp_path / "out"
    full(monkeypatch, lambda path: path == out / "picture.png")
    status, printed, err = run("train", *own, "--epochs", 2, "--out", out, *SMALL)
    assert status == 6
    assert printed.endswith(f"files in {out}: results.json, model.safetensors, embedding.npy, links.csv\n")
    (folder,) = spare.glob("seegera-fast-out-*")
    assert files_in(folder) == ["picture.png", "report.html"]
    assert err.splitlines()[-1].endswith(f"; {folder} has instead: picture.png, report.html")


def test_where_no_folder_can_take_the_files_this_is_said(run, own, tmp_path, monkeypatch, spare, plain_picture):
    full(monkeypatch, lambda path: True)
    status, printed, err = run("train", *own, "--epochs", 2, "--out", tmp_path / "out", *SMALL)
    assert status == 6
    assert "AUC" in printed
    assert err.count("; no other folder could take: ") == 1
    assert list(spare.glob("seegera-fast-*")) == []
    assert not (tmp_path / "out").exists()
