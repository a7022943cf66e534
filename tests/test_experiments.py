"""Trials, matrices of trials, tables with the paper's figures, the page of results, and the commands."""

from __future__ import annotations

import contextlib
import copy
import errno
import functools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seegera_fast import Graph, SeeGera, backends, checkpoint_file, datasets, precision
from seegera_fast.command.main import main
from seegera_fast.experiments import estimates, matrix, page, summary
from seegera_fast.experiments.estimates import Estimate, Pace, estimate, nearest_first
from seegera_fast.experiments.matrix import plan, run_matrix
from seegera_fast.experiments.protocols import METHODS, PAPER_TASKS, TASKS
from seegera_fast.experiments.trials import (
    RATES,
    Record,
    Setting,
    Trial,
    _columns,
    epoch_seconds,
    read_record,
    read_records,
    run_trial,
)
from seegera_fast.experiments.worker import STOPPED, Conditions, Worker
from seegera_fast.support import atomic
from seegera_fast.support.atomic import InUse, alone
from seegera_fast.support.tables import read_tables

SMALL = {"embedding_dim": 6, "hidden_dim": 7, "epochs": 3, "warmup_epochs": 2}
QUICK = {**SMALL, "classifier_epochs": 5}
OPTIONS = [text for name, value in SMALL.items() if name != "epochs" for text in ("--set", f"{name}={value}")]
OPTIONS += ["--epochs", "3"]


@functools.cache
def communities(name: str) -> Graph:
    """Two communities, with the name of a data set, so that its preset and the paper's figures are used."""
    rng = np.random.default_rng(2)
    block = np.arange(40) % 2
    same = block[:, None] == block[None, :]
    upper = np.triu(rng.random(same.shape) < np.where(same, 0.5, 0.05), 1)
    features = rng.random((40, 15)) < np.where(np.arange(15)[None, :] % 2 == block[:, None], 0.7, 0.1)
    return Graph(upper + upper.T, features.astype(float), block, name=name)


@pytest.fixture
def small_data(monkeypatch):
    """Every data set is a small graph, except pubmed, which is missing."""

    def load(name, root=None, progress=True):
        if name == "pubmed":
            raise FileNotFoundError("pubmed: files missing in a folder")
        return communities(name)

    monkeypatch.setattr(datasets, "load", load)


class Here:
    """A fake Worker, which runs the trial at once, in this process."""

    started: list[Trial] = []  # noqa: RUF012
    measured: list[Trial] = []  # noqa: RUF012

    def __init__(self, trial, conditions, threads, *, pace=False):
        if pace:
            self.measured.append(trial)
            self.outcome = 0, json.dumps([9.0, 3.0, 2.0, 3.5])
            return
        self.started.append(trial)
        try:
            finished = run_trial(trial, conditions.folder, conditions.root, conditions.device)
            self.outcome = (0 if finished else STOPPED), ""
        except Exception as error:
            self.outcome = 1, str(error)

    def ended(self):
        return True

    def stop(self):
        pass

    def end(self):
        return self.outcome


@pytest.fixture
def here(small_data, monkeypatch):
    """Trials run in this process; gives the list of those that were started."""
    monkeypatch.setattr(Here, "started", [])
    monkeypatch.setattr(Here, "measured", [])
    monkeypatch.setattr(matrix, "Worker", Here)
    return Here.started


def setting(task="link", data="cora", method="v3", split="paper", precision="highest", **fields):
    return Setting(task, data, method, split, tuple(sorted(fields.items())), precision)


# --- plans -----------------------------------------------------------------------------------------------------------


def test_plan_goes_through_all_settings_before_the_next_seed():
    trials = plan(TASKS, ["cora", "cs"], ["vgae", "v3"], ["paper", "released"], range(2))
    # Link: two splits of two methods; attribute: two splits of one method; node: one split of two methods.
    assert len(trials) == len(set(trials)) == 2 * 2 * (4 + 2 + 2)
    assert [trial.seed for trial in trials] == [0] * 16 + [1] * 16
    assert len({trial.name for trial in trials}) == len(trials)
    assert setting("attribute", "cs", "vgae") not in {trial.setting for trial in trials}
    assert setting("node", split="released") not in {trial.setting for trial in trials}


def test_plan_takes_the_papers_split_where_there_is_no_other():
    (trial,) = plan(["node"], ["cora"], ["v3"], ["released"], [0])
    assert trial.setting == setting("node")
    with pytest.raises(ValueError, match="there is nothing to run: sigvae, vgae know links only"):
        plan(["attribute"], ["cora"], ["vgae"], ["paper"], [0])


def test_plan_refuses_fields_that_the_task_does_not_take():
    with pytest.raises(TypeError, match="unknown field 'embeding_dim'; the nearest: embedding_dim"):
        plan(["link"], ["cora"], ["v3"], ["paper"], [0], [{"embeding_dim": 3}])
    with pytest.raises(ValueError, match=r"dropout: got 2"):
        plan(["link"], ["cora"], ["v3"], ["paper"], [0], [{"dropout": 2}])


def test_names_of_settings_are_names_of_files():
    assert setting().name == "link-cora-v3-paper"
    assert setting(epochs=2, negatives="edges").name == "link-cora-v3-paper-epochs=2,negatives=edges"
    odd = [setting(encoder="a/b"), setting(encoder="a\\b"), setting(encoder="x" * 300)]
    assert len({each.name for each in odd}) == 3
    assert all(len(each.name) < 80 and "/" not in each.name for each in odd)
    assert setting(epochs=2).title == "SeeGera-v3 (epochs=2)"


@pytest.mark.parametrize("method", METHODS)
def test_methods_are_configurations(method, tmp_path, small_data):
    trial = Trial(setting(method=method, **SMALL), 0)
    assert run_trial(trial, tmp_path, None, "cpu")
    fields = read_record(trial.record_path(tmp_path)).content["configuration"]
    assert fields["variant"] == ("independent" if method in ("v1", "nf") else "correlated")
    assert (fields["structure_masking_rate"] > 0) == (method == "v3")
    assert fields["feature_embeddings"] == (method != "nf")
    assert fields["feature_side"] == (method not in ("vgae", "sigvae"))
    assert (fields["noise_dim"], fields["num_mixture_samples"]) == ((0, 0) if method == "vgae" else (5, 1))


# --- one trial -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_record_of_a_trial(task, tmp_path, small_data):
    trial = Trial(setting(task, **(QUICK if task == "node" else SMALL)), 4)
    assert run_trial(trial, tmp_path, None, "cpu")
    assert [path.name for path in tmp_path.iterdir()] == [f"{trial.name}.json"]
    (record,) = read_records(tmp_path)
    assert record.trial == trial
    assert record.failure is None
    content = record.content
    scores = [score.name for score in TASKS[task].scores]
    assert set(content["scores"]) == set(content["validation"]) == set(scores)
    assert (content["epochs"], content["configuration"]["seed"]) == (3, 4)
    columns = content["history"]
    terms = {"link", "feature", "prior", "mixture", "loss"}
    assert set(columns) == {"epoch", *terms, *(f"valid_{name}" for name in scores)}
    assert columns["epoch"] == [1, 2, 3]
    assert {len(values) for values in columns.values()} == {3}
    assert all(value == float(f"{value:.5g}") for values in columns.values() for value in values if value is not None)
    best = columns[f"valid_{scores[0]}"][content["best_epoch"] - 1]
    assert best == pytest.approx(content["validation"][scores[0]], rel=1e-4)
    assert content["configuration"]["embedding_dim"] == 6
    shares = TASKS[task].splits["paper"]
    assert {name: content["configuration"][name] for name in shares} == shares
    assert 0 < content["seconds"] < 60
    assert content["peak_memory_bytes"] > 2**20
    assert content["machine"]["device"] == "cpu"


def test_a_trial_that_was_stopped_goes_on_to_the_same_scores(tmp_path, small_data, monkeypatch):
    trial = Trial(setting(**{**SMALL, "epochs": 9}), 1)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    whole.mkdir()
    stopped.mkdir()
    assert run_trial(trial, whole, None, "cpu")
    forward, calls = SeeGera.forward, []

    def counted(model, *arguments, **options):
        calls.append(None)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return forward(model, *arguments, **options)

    monkeypatch.setattr(SeeGera, "forward", counted)
    assert not run_trial(trial, stopped, None, "cpu")
    assert [path.name for path in stopped.iterdir()] == [f"{trial.name}.checkpoint.safetensors"]
    assert run_trial(trial, stopped, None, "cpu")
    assert len(calls) == 9
    assert [path.name for path in stopped.iterdir()] == [f"{trial.name}.json"]
    first, second = (read_record(trial.record_path(folder)).content for folder in (whole, stopped))
    for key in ("scores", "validation", "best_epoch", "configuration"):
        assert first[key] == second[key]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "other"}', '{"format": "seegera_fast.Trial/1"}'])
def test_another_file_is_not_a_record(content, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"a\.json: is not the record of a trial"):
        read_records(tmp_path)


RECORD = next((Path(__file__).parents[1] / "docs/results/trials").glob("link-cora-v3-*.json"))


def with_field(content, path, value):
    """The content with another value at a path, or without that field."""
    first, *rest = path
    if rest:
        return {**content, first: with_field(content[first], rest, value)}
    return {key: content[key] for key in content if key != first} | ({} if value is ... else {first: value})


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["setting"], None, "setting: got None, want an object"),
        (["setting", "task"], "x", "setting.task: got 'x', want one of link"),
        (["setting", "data"], [], "setting.data: got [], want one of"),
        (["setting", "method"], "v9", "setting.method: got 'v9'"),
        (["setting", "split"], "x", "setting.split: got 'x', want one of paper"),
        (["setting", "fields"], [], "setting.fields: got [], want an object"),
        (["setting", "fields"], {"normalize_features": "false"}, "normalize_features: got 'false', want True or False"),
        (["setting", "fields"], {"hidden_dim": "7"}, "hidden_dim: got '7', want an int"),
        (["seed"], "0", "seed: got '0', want an int"),
        (["seed"], -1, "seed: got -1"),
        (["failure"], 3, "failure: got 3, want a string"),
        (["scores"], [], "scores: got [], want an object"),
        (["scores", "auc"], "0.9", "scores.auc: got '0.9', want a number"),
        (["scores", "auc"], ..., "lacks scores.auc"),
        (["scores", "mse"], 1.0, "has a field 'scores.mse', which does not belong there"),
        (["validation", "ap"], True, "validation.ap: got True"),
        (["epochs"], 2.5, "epochs: got 2.5"),
        (["history", "epoch"], [1, 10**6], "history.epoch: got a list of 2, want ascending numbers from 1 to"),
        (["history", "epoch"], [2, 1], "history.epoch: got a list of 2, want ascending numbers from 1 to"),
        (["history", "epoch"], ..., "lacks history.epoch"),
        (["setting", "precision"], "low", "setting.precision: got 'low', want one of highest, high, medium"),
        (["machine", "precision"], None, "machine.precision: got None"),
        (["machine", "processor"], 3, "machine.processor: got 3, want a string"),
        (["best_epoch"], 10**6, "best_epoch: got 1000000, want an int from 1 to"),
        (["seconds"], -1.0, "seconds: got -1.0"),
        (["seconds"], ..., "lacks seconds"),
        (["peak_memory_bytes"], "1", "peak_memory_bytes: got '1'"),
        (["history"], 3, "history: got 3, want an object"),
        (["history", "loss"], ["1"], "history.loss: got a list of 1, want a list of"),
        (["machine", "threads"], "1", "machine.threads: got '1'"),
        (["machine", "backends"], [1], "machine.backends: got a list of 1, want a list of names"),
        (["machine", "gpu"], 3, "machine.gpu: got 3, want a string"),
        (["versions", "torch"], 2, "versions.torch: got 2, want a string"),
        (["versions"], ..., "lacks versions"),
    ],
)
def test_a_wrong_field_of_a_record_is_refused(path, value, words, tmp_path):
    content = json.loads(RECORD.read_text())
    (tmp_path / "a.json").write_text(json.dumps(with_field(content, path, value)))
    with pytest.raises(ValueError, match=r"a\.json: is not the record of a trial") as caught:
        read_records(tmp_path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"failure":', '"failure":null,"failure":'), "got the name 'failure' twice"),
        (lambda text: text.replace('"seconds":', '"seconds":NaN,"s":', 1), "got the number 'NaN'"),
        (lambda text: "[" * 100_000, "nested too deeply"),
        (lambda text: text[:-100], "is not the record of a trial"),
        (lambda text: text.replace("cora", "c\udcffora"), "is not the record of a trial"),
    ],
)
def test_a_record_that_is_not_json_by_the_letter_is_refused(change, words, tmp_path):
    text = change(RECORD.read_text())
    (tmp_path / "a.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"a\.json: is not the record of a trial") as caught:
        read_records(tmp_path)
    assert words in str(caught.value)


# --- a matrix --------------------------------------------------------------------------------------------------------


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


LONG = {**SMALL, "epochs": 5}


@pytest.fixture
def measuring(here, monkeypatch):
    """Trainings of four epochs and more are long."""
    monkeypatch.setattr(estimates, "SHORTEST", 4)
    return here


def test_what_is_left_is_estimated_from_epochs_that_are_measured(tmp_path, measuring, capsys):
    slow = plan(["link"], ["cora"], ["v3"], ["paper", "released"], range(2), [LONG])
    short = plan(["link"], ["cora"], ["v2"], ["paper"], range(1), [SMALL])
    outcome = run_matrix([*slow, *short], Conditions(tmp_path), jobs=2)
    assert len(outcome.finished) == 5
    # One of each kind, and none of what is over as soon as it was measured.
    assert Here.measured == slow[:1]
    lines = capsys.readouterr().err.splitlines()
    table = lines[: next(number for number, line in enumerate(lines) if line.startswith("all, 2 at a time ")) + 1]
    # An epoch takes 2 s, its validation one more. Early stopping may come sooner.
    assert table[0].split("  ")[0] == "missing"
    assert "link, cora, paper split: SeeGera-v3 (" in table[1]
    assert table[1].endswith("at most 30 s")
    assert table[2].endswith("at most 30 s")
    assert table[3].endswith("not known")
    assert table[4].endswith("not known")


def test_a_budget_goes_first_to_the_rows_that_are_nearest_to_their_end(tmp_path, measuring):
    far, near = (plan(["link"], ["cora"], [name], ["paper"], range(2), [LONG]) for name in ("v2", "v3"))
    short = plan(["link"], ["cora"], ["v1"], ["paper"], range(1), [SMALL])
    run_matrix(near[:1], Conditions(tmp_path), quiet=True)
    measuring.clear()
    run_matrix([*far, *near, *short], Conditions(tmp_path), budget=1000, quiet=True)
    assert measuring == [*short, *near[1:], *far]


def test_estimates(tmp_path):
    pace = Pace.of([9.0, 3.0, 2.0, 3.5])
    assert pace == (2.0, 1.0)
    fields = {"evaluate_every": 10, "patience": 50}
    trial = Trial(setting(epochs=400, **fields), 0)
    # Until the limit, with every tenth epoch validated.
    assert estimate(trial, tmp_path, [], pace) == Estimate(400, True, 400 * 2.0 + 40)
    # As many as others of the kind took; those that were cut off or trained otherwise say nothing.
    silent = [record(0.9, failure="epoch 1", **fields), record(0.9, epochs=3, **fields), record(0.9, patience=50)]
    assert estimate(trial, tmp_path, silent, pace) == Estimate(400, True, 400 * 2.0 + 40)
    others = [*silent, record(0.9, split="released", precision="medium", **fields)]
    assert estimate(trial, tmp_path, others, pace) == Estimate(3, False, 6.0)
    assert estimate(trial, tmp_path, others, None) == Estimate(3, False, None)
    # Without early stopping the number of epochs is known.
    endless = Trial(setting(epochs=40, patience=None), 0)
    assert estimate(endless, tmp_path, others, pace) == Estimate(40, False, 40 * 3.0)


@pytest.mark.parametrize(("done", "best", "left"), [(60, 40, 40), (90, 60, 21), (99, 99, 51), (399, 399, 1)])
def test_estimates_begin_at_the_checkpoint(tmp_path, monkeypatch, done, best, left):
    trial = Trial(setting(epochs=400, patience=50), 0)
    others = [record(0.9, seed=1, patience=50)]
    others[0].content["epochs"] = 100
    trial.checkpoint_path(tmp_path).write_bytes(b"damaged")
    assert estimate(trial, tmp_path, others, None).epochs == 100
    monkeypatch.setattr(checkpoint_file, "position", lambda path: (done, best))
    assert estimate(trial, tmp_path, others, None).epochs == left


@pytest.mark.parametrize("task", TASKS)
def test_epochs_are_measured(task, small_data):
    # Early stopping does not cut the measurement short.
    fields = {**(QUICK if task == "node" else SMALL), "epochs": 300, "patience": 0, "evaluate_after": 100}
    seconds = epoch_seconds(setting(task, **fields), None, "cpu")
    assert len(seconds) == 4
    assert Pace.of(seconds).epoch > 0


@pytest.mark.parametrize("outcome", [(0, "a word of a library"), (1, "no memory"), (STOPPED, "")])
def test_what_cannot_be_measured_is_not_known(tmp_path, measuring, monkeypatch, capsys, outcome):
    class Unmeasured(Here):
        def __init__(self, trial, conditions, threads, *, pace=False):
            super().__init__(trial, conditions, threads, pace=pace)
            self.outcome = outcome if pace else self.outcome

    monkeypatch.setattr(matrix, "Worker", Unmeasured)
    trials = plan(["link"], ["cora"], ["v3"], ["paper"], range(2), [LONG])
    assert run_matrix(trials, Conditions(tmp_path)).finished == trials
    assert Here.measured == trials[:1]
    assert "missing" not in capsys.readouterr().err


def test_what_takes_longest_to_measure_comes_last(measuring):
    known, unknown = Trial(setting(**LONG), 0), Trial(setting(method="v2", **LONG), 0)
    short = Trial(setting(method="v1", **SMALL), 0)
    found = {unknown: Estimate(100, True, None), known: Estimate(100, True, 5.0), short: Estimate(3, True, None)}
    assert nearest_first(list(found), found) == [short, known, unknown]


def test_precisions_are_settings_of_their_own(tmp_path, small_data):
    exact, rough = (Trial(setting(**SMALL, precision=name), 0) for name in ("highest", "medium"))
    assert rough.name == exact.name.replace("-seed0", "-medium-seed0")
    assert rough.setting.label == exact.setting.label.replace(" split:", " split, medium:")
    with precision.at("medium"):
        assert run_trial(rough, tmp_path, None, "cpu")
    assert [record.trial for record in read_records(tmp_path)] == [rough]
    assert Trial.from_json(rough.as_json()) == rough


def history_of(epochs, validated):
    return [
        {"epoch": epoch, "seconds": 0.1, "loss": 1 / epoch, **({"valid_auc": 0.5} if validated(epoch) else {})}
        for epoch in range(1, epochs + 1)
    ]


@pytest.mark.parametrize(
    ("epochs", "validated", "kept"),
    [
        (200, lambda epoch: True, range(1, 201)),
        (450, lambda epoch: True, range(3, 451, 3)),
        (451, lambda epoch: True, [*range(3, 451, 3), 451]),
        (401, lambda epoch: epoch % 50 == 0, sorted({*range(3, 401, 3), *range(50, 401, 50), 401})),
        # Of many epochs with scores not all are kept either.
        (905, lambda epoch: epoch > 1, sorted({*range(5, 906, 5), *range(6, 905, 5), 905})),
    ],
)
def test_a_long_history_is_thinned(epochs, validated, kept):
    columns = _columns(history_of(epochs, validated))
    assert columns["epoch"] == list(kept)
    assert columns["loss"] == [float(f"{1 / epoch:.5g}") for epoch in kept]
    assert columns["valid_auc"] == [0.5 if validated(epoch) else None for epoch in kept]


def test_records_of_another_version_or_trial_are_refused(tmp_path, here):
    trial = Trial(setting(**SMALL), 0)
    run_matrix([trial], Conditions(tmp_path), quiet=True)
    path = trial.record_path(tmp_path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "versions": {**content["versions"], "seegera-fast": "0.0.0"}}))
    for read in (lambda: run_matrix([trial], Conditions(tmp_path), quiet=True), lambda: read_records(tmp_path)):
        with pytest.raises(ValueError, match=r"is from version 0\.0\.0"):
            read()
    path.write_text(json.dumps({**content, "format": "seegera_fast.Trial/1"}))
    with pytest.raises(ValueError, match=r"format 'seegera_fast\.Trial/1', want 'seegera_fast\.Trial/3'"):
        read_records(tmp_path)
    path.write_text(json.dumps({**content, "seed": 3}))
    with pytest.raises(ValueError, match=r"is the record of another trial, .*-seed3"):
        run_matrix([trial], Conditions(tmp_path), quiet=True)


def test_a_record_that_is_none_is_named_before_anything_runs(run, here, tmp_path):
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "other.json").write_text("{}")
    status, _, err = run("reproduce", "--task", "link", "--data", "cora", "--trials", 1, "--out", tmp_path, *OPTIONS)
    assert status == 2
    assert "other.json: is not the record of a trial" in err
    assert here == []


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


# --- tables ----------------------------------------------------------------------------------------------------------


def record(score, *, seed=0, failure=None, **keys):
    where = setting(**keys)
    scores = {each.name: score for each in TASKS[where.task].scores}
    history = {"epoch": [1, 2, 3], "loss": [1.0, 0.5, 0.33333], "valid_auc": [None, 0.5, 0.5]}
    content = {
        "setting": {},
        "failure": failure,
        "machine": {
            "gpu": None,
            "processor": "A Processor",
            "instruction_set": "avx2",
            "threads": 2,
            "system": "Linux x86_64",
            "backends": ["cpu"],
        },
        "versions": dict.fromkeys(("seegera-fast", "torch", "numpy", "scipy", "scikit-learn"), "1"),
    }
    if failure is None:
        content.update(scores=scores, seconds=10.0 + seed, epochs=3, peak_memory_bytes=2**20 * seed, history=history)
    return Record(Trial(where, seed), content)


# A second copy of the paper's tables: mean and deviation on Cora, CiteSeer, PubMed, Photo, Computers, CS and Physics,
# and of nf on Cora, CiteSeer and CS.
PAPER = """
    link auc sigvae: 94.10 0.68, 92.88 0.74, 85.89 0.54, 94.98 0.86, 91.14 1.10, 95.26 0.36, 98.76 0.23
    link auc v1: 94.95 0.72, 96.75 0.54, 97.07 2.20, 98.40 0.08, 96.87 0.29, 97.82 0.11, 98.95 0.06
    link auc v2: 95.37 0.60, 96.81 0.51, 97.79 0.22, 98.47 0.05, 97.28 0.00, 97.83 0.11, 98.97 0.04
    link auc v3: 95.50 0.71, 97.04 0.47, 97.87 0.20, 98.64 0.05, 97.70 0.19, 98.42 0.13, 99.03 0.05
    link ap sigvae: 94.79 0.71, 94.21 0.53, 85.02 0.49, 94.53 0.93, 91.23 1.04, 94.93 0.37, 98.85 0.12
    link ap v1: 95.53 0.54, 97.10 0.49, 97.25 2.07, 98.32 0.09, 96.73 0.31, 98.30 0.11, 99.10 0.09
    link ap v2: 95.90 0.49, 97.17 0.46, 97.89 0.21, 98.37 0.09, 97.15 0.00, 98.33 0.10, 99.13 0.06
    link ap v3: 95.92 0.68, 97.33 0.46, 97.87 0.20, 98.48 0.06, 97.50 0.15, 98.53 0.18, 99.18 0.04
    attribute mse nf: 1.91e-3 3.78e-5, 5.15e-4 1.02e-6, 2.14 0.07
    attribute mse v1: 1.90e-3 8.18e-5, 4.87e-4 2.62e-6, 4.21e-4 4.70e-5, 0.22 0.00, 0.23 0.14, 2.12 0.06, 2.15 0.05
    attribute mse v2: 1.89e-3 8.13e-5, 4.86e-4 2.24e-6, 3.68e-4 7.11e-6, 0.21 0.01, 0.23 0.01, 2.08 0.07, 2.14 0.03
    attribute mse v3: 1.89e-3 8.13e-5, 4.84e-4 2.96e-6, 3.66e-4 7.34e-6, 0.21 0.01, 0.22 0.00, 1.93 0.07, 2.14 0.03
    node accuracy v1: 82.9 0.4, 71.7 0.6, 78.9 0.9, 92.53 0.41, 88.44 0.24, 93.72 0.29, 95.40 0.10
    node accuracy v2: 84.0 0.4, 73.0 0.8, 80.4 0.4, 92.70 0.42, 88.39 0.26, 93.83 0.22, 95.39 0.08
    node accuracy v3: 84.3 0.4, 73.0 0.8, 80.4 0.4, 92.81 0.45, 88.39 0.26, 93.84 0.11, 95.39 0.08
"""


def test_papers_figures():
    found = copy.deepcopy(read_tables(summary.PAPER))
    assert {task: set(scores) for task, scores in found.items()} == {
        name: {score.name for score in TASKS[name].scores} for name in PAPER_TASKS
    }
    for scores in found.values():
        for methods in scores.values():
            assert set(methods) <= set(METHODS)
            for figures in methods.values():
                assert set(figures) <= set(matrix.PAPER_DATA)
                assert all(len(figure) == 2 and figure[0] > 0 and figure[1] >= 0 for figure in figures.values())
    for line in PAPER.strip().splitlines():
        (task, score, method), figures = (part.split() for part in line.split(":"))
        data = ("cora", "citeseer", "cs") if method == "nf" else matrix.PAPER_DATA
        pairs = [[float(number) for number in pair.split()] for pair in " ".join(figures).split(",")]
        assert found[task][score].pop(method) == dict(zip(data, pairs, strict=True))
    assert not any(methods for scores in found.values() for methods in scores.values())


def test_means_deviations_and_differences():
    records = [record(0.95, seed=1), record(0.97, seed=2), record(0.0, seed=3, failure="epoch 9: link became NaN")]
    auc, ap = summary.rows(records)
    assert (auc.score, ap.score) == ("auc", "ap")
    assert auc.mean == pytest.approx(96.0)
    assert auc.deviation == pytest.approx(math.sqrt(2))
    assert (auc.trials, auc.failed, auc.seconds, auc.epochs, auc.peak_memory) == (2, 1, 11.5, 3, 2**21)
    assert auc.difference == pytest.approx(0.5)
    assert auc.reached
    (single, _) = summary.rows(records[:1])
    assert (single.deviation, single.difference) == (None, pytest.approx(-0.5))
    assert [row.paper for row in summary.rows([record(0.9, data="digits")])] == [None, None]


@pytest.mark.parametrize(
    ("keys", "score", "reached"),
    [
        ({}, 0.9479, True),
        ({}, 0.9478, False),
        ({}, 0.99, True),
        ({"task": "attribute"}, 1.97e-3, True),
        ({"task": "attribute"}, 1.98e-3, False),
        ({"task": "attribute"}, 1e-3, True),
        ({"task": "attribute", "data": "physics"}, 2.17, True),
        ({"task": "attribute", "data": "physics"}, 2.18, False),
        ({"task": "attribute", "data": "citeseer"}, 4.84e-4 + 2.95e-6, True),
        ({"task": "attribute", "data": "citeseer"}, 4.84e-4 + 2.97e-6, False),
        ({"task": "attribute", "data": "photo", "method": "v1"}, 0.22, True),
        ({"task": "attribute", "data": "photo", "method": "v1"}, 0.221, False),
        ({"data": "digits"}, 0.9, None),
    ],
)
def test_what_reaches_the_paper(keys, score, reached):
    assert summary.rows([record(score, **keys)])[0].reached is reached


def test_markdown_says_what_is_not_the_papers_protocol():
    plain = [record(0.9501, seed=seed) for seed in range(2)]
    text = summary.markdown(summary.rows(plain))
    assert "## Link prediction" in text
    assert "| cora | SeeGera-v3 | paper | AUC | 95.50 ± 0.71 | 95.01 ± 0.00 | -0.49 | yes | 2 | 0 | 3 |" in text
    assert "Not the paper's protocol" not in text
    assert "Failed" not in text
    others = [record(0.9, epochs=2), record(0.5, failure="epoch 1"), record(1.912e-3, task="attribute", method="v1")]
    text = summary.markdown(summary.rows([*plain, *others]))
    assert "**Not the paper's protocol:**" in text
    assert "| cora | SeeGera-v3 (epochs=2) | paper |" in text
    assert "Failed trials" in text
    assert "| cora | SeeGera-v1 | paper | MSE | 1.90e-03 ± 8.18e-05 | 1.91e-03 | +1.20e-05 | yes |" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_what_was_cut_off_is_apart():
    whole, cut = record(0.95), record(0.9, epochs=3)
    assert (whole.cut_off, cut.cut_off) == (False, True)
    # A rehearsal that early stopping ended before its limit was not cut off, nor what may train for longer.
    assert not record(0.9, epochs=4).cut_off
    longer = record(0.9, task="node", epochs=501)
    longer.content["epochs"] = 501
    assert not longer.cut_off
    table = summary.rows([whole, cut])
    first, _, second = summary.markdown(table).partition("Cut off after fewer epochs than the paper allows:")
    assert "| SeeGera-v3 | paper | AUC |" in first
    assert "epochs=3" not in first
    assert "SeeGera-v3 (epochs=3) | paper | AUC |" in second
    panels = page._dots(table)
    assert list(panels) == ["cora, AUC (%)", "cora, AP (%)", "cora, AUC (%), cut off", "cora, AP (%), cut off"]
    assert panels["cora, AUC (%)"] == {
        "paper": {"SeeGera-v3": (95.5, 0.71)},
        "ours, 70/20/10": {"SeeGera-v3": (pytest.approx(95.0), None)},
    }


def test_rows_name_their_machine_and_precision():
    records = [record(0.95), record(0.95, seed=1), record(0.9, precision="medium")]
    records[1].content["machine"] = {**records[1].content["machine"], "processor": "Another"}
    text = summary.markdown(summary.rows(records))
    assert "| highest | A, B |" in text
    assert "| medium | A |" in text
    assert "- A: A Processor (avx2, 2 threads), operations on cpu, Linux x86_64; seegera-fast 1, torch 1" in text
    assert "- B: Another (avx2, 2 threads)" in text


def test_grids_of_masking_rates_have_tables_of_their_own(tmp_path):
    rates = [(0.0, 0.0), (0.3, 0.0), (0.3, 0.5)]
    records = [
        record(0.9 + index / 100, seed=seed, **dict(zip(RATES, pair, strict=True)))
        for index, pair in enumerate(rates)
        for seed in range(2)
    ]
    text = summary.markdown(summary.rows(records))
    assert "cora, paper split, SeeGera-v3: AUC (%), over the masking rates (machine A):" in text
    assert "| features masked | 0 of the links masked | 0.3 of the links masked |" in text
    assert "| 0 | 90.00 ± 0.00 (2) | 91.00 ± 0.00 (2) |" in text
    assert "| 0.5 | – | 92.00 ± 0.00 (2) |" in text
    assert "Not the paper's protocol" not in text
    # A pair of its own is a row, other fields make a grid of their own, and a cell that failed is not hidden.
    rates_of = dict(zip(RATES, (0.3, 0.5), strict=True))
    others = [record(0.8, method="v2", **rates_of), record(0.7, dropout=0.9, **rates_of)]
    others.append(record(0.0, failure="epoch 1", **dict(zip(RATES, (0.0, 0.5), strict=True))))
    text = summary.markdown(summary.rows([*records, *others]))
    assert "| cora | SeeGera-v2 (feature_masking_rate=0.5, structure_masking_rate=0.3) | paper | AUC |" in text
    assert "| cora | SeeGera-v3 (dropout=0.9, feature_masking_rate=0.5, structure_masking_rate=0.3) | paper" in text
    assert "| 0.5 | – (0, 1 failed) | 92.00 ± 0.00 (2) |" in text
    assert "Not the paper's protocol" in text
    path = tmp_path / "page.md"
    page.write_page(path, records)
    assert sorted(file.name for file in (tmp_path / "page").iterdir()) == ["link-rates.png"]
    assert "](page/link-rates.png)" in path.read_text()


def test_the_page_in_docs_is_that_of_its_records(tmp_path):
    docs = Path(__file__).resolve().parents[1] / "docs"
    folder = tmp_path / "results"
    folder.mkdir()
    for text in (docs / "results").glob("*.md"):
        shutil.copy(text, folder)
    page.write_page(tmp_path / "results.md", read_records(docs / "results" / "trials"))
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == (docs / "results.md").read_text(encoding="utf-8")
    pictures = {file.name for file in folder.glob("*.png")}
    assert pictures == {file.name for file in (docs / "results").glob("*.png")}


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys):
    """Runs the command in this process; gives exit status, stdout and stderr."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def call(*argv):
        try:
            status = main([str(text) for text in argv])
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    yield call
    torch.set_num_threads(threads)


def test_reproduce_writes_tables_and_a_page(run, here, tmp_path):
    out, page = tmp_path / "out", tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    command = ["reproduce", "--data", "cora", "--variant", "v3", "--trials", 2, "--out", out, "--page", page, *OPTIONS]
    status, printed, err = run(*command)
    assert status == 0
    assert len(here) == 10
    assert "link, cora, released split: SeeGera-v3 (" in printed
    assert "95.50 ± 0.71" in printed
    assert f"{here[0].name}: AUC " in err
    assert sorted(path.name for path in out.iterdir()) == ["results.json", "results.md", "trials"]
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert len(rows) == 4 + 2 + 1
    assert rows[0]["setting"]["fields"] == SMALL
    assert rows[0]["paper"] == [95.5, 0.71]
    assert rows[0]["difference"] == pytest.approx(rows[0]["mean"] - 95.5)
    text = page.read_text()
    for part in ("# Results", "10 trials", "## Attribute inference", "Not the paper's protocol", "torch "):
        assert part in text
    pictures = sorted(path.name for path in (page.parent / "results").iterdir())
    assert pictures == sorted(f"{task}-{kind}.png" for task in TASKS for kind in ("curves", "dots"))
    for name in pictures:
        assert f"](results/{name})" in text
        assert (page.parent / "results" / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"

    (page.parent / "results" / "notes.md").write_text("What was noticed.\n")
    status, again, err = run(*command, "--quiet")
    assert (status, err) == (0, "")
    assert again == printed
    assert len(here) == 10
    noticed = "\n\n## What to make of it\n\nWhat was noticed.\n"
    assert page.read_text() == text.rstrip("\n") + noticed

    (page.parent / "results" / "more.md").write_text("## More\n")
    (page.parent / "results" / "results.md").write_text("# What reproduce wrote there itself\n")
    assert run(*command, "--quiet")[::2] == (0, "")
    whole = text.rstrip("\n") + "\n\n## More" + noticed
    assert page.read_text() == whole

    page.unlink()
    again = run("reproduce", "--no-run", "--out", out, "--page", page)
    assert again[::2] == (0, "")
    assert page.read_text() == whole
    assert len(here) == 10


def test_no_run_needs_trials(run, here, tmp_path):
    status, _, err = run("reproduce", "--no-run", "--out", tmp_path / "out")
    assert status == 2
    assert f"--no-run: got --out {tmp_path / 'out'}, want a folder of reproduce" in err
    assert list(tmp_path.iterdir()) == []


def test_reproduce_exit_status_and_lines(run, here, tmp_path):
    base = ["reproduce", "--task", "link", "--split", "paper", "--variant", "v2", "--trials", 1, "--quiet", *OPTIONS]
    out = ["--out", tmp_path / "out"]
    status, printed, err = run(*base, *out, "--data", "cora", "pubmed")
    assert status == 2
    assert "link, cora, paper split: SeeGera-v2 (" in printed
    assert err == "seegera-fast: pubmed is left out: pubmed: files missing in a folder\n"

    status, _, err = run(*base, *out, "--data", "cora", "--set", "learning_rate=1e30")
    assert status == 3
    assert "learning_rate=1e+30" in err
    assert "became NaN or infinite and is in no mean" in err

    status, _, err = run(*base, *out, "--data", "cs", "--budget", "0")
    assert status == 4
    assert "1 trials are left (link-cs-v2-paper-" in err
    assert err.endswith("; the same command goes on\n")


def test_baselines_alone_and_beside_variants(run, here, tmp_path):
    base = ["reproduce", "--data", "cora", "--trials", 1, "--split", "paper", "--out", tmp_path / "out", *OPTIONS]
    assert run(*base, "--baseline", "vgae", "sigvae")[0] == 0
    assert {trial.setting.method for trial in here} == {"vgae", "sigvae"}
    assert {trial.setting.task for trial in here} == {"link", "node"}
    here.clear()
    assert run(*base, "--task", "link", "--baseline", "vgae", "--variant", "nf")[0] == 0
    assert [trial.setting.method for trial in here] == ["nf"]


def test_sweep_draws_a_heat_map(run, here, tmp_path):
    out = tmp_path / "out"
    grid = ["--structure-rates", 0, 0.4, "--feature-rates", 0, 0.2, 0.5]
    command = ["sweep", "--data", "cora", "--trials", 1, "--out", out, *grid, *OPTIONS]
    status, printed, _ = run(*command)
    assert status == 0
    assert len(here) == 6
    assert "structure_masking_rate=0.4" in printed
    rows = json.loads((out / "sweep.json").read_text())["rows"]
    names = ("structure_masking_rate", "feature_masking_rate")
    cells = {tuple(row["setting"]["fields"][name] for name in names) for row in rows}
    assert cells == {(first, second) for first in (0, 0.4) for second in (0, 0.2, 0.5)}
    assert (out / "sweep.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for record in read_records(out / "trials"):
        rates = dict(record.trial.setting.fields)
        assert {name: record.content["configuration"][name] for name in names} == {name: rates[name] for name in names}
    status, _, err = run(*command, "--set", "feature_masking_rate=0.1")
    assert status == 2
    assert "feature_masking_rate has an option of its own: --feature-rates" in err
    for field, text in (
        ("seed=3", "seed has an option of its own: --trials"),
        ("preset=cora", "preset has an option of its own: --data"),
        ("variant=independent", "variant: got 'independent', want none: the method is v3"),
    ):
        status, _, err = run(*command, "--set", field)
        assert status == 2
        assert text in err


def test_a_rate_has_one_name_however_it_is_written():
    whole, fraction = (setting(dropout=value, epochs=3) for value in (0, 0.0))
    assert whole.name == fraction.name
    assert dict(whole.fields) == {"dropout": 0.0, "epochs": 3}
    assert isinstance(dict(whole.fields)["epochs"], int)
    assert len({setting(task="node", classifier_dropout=value).name for value in (0, 0.0)}) == 1


BAD_OPTIONS = [
    (["reproduce", "--dta", "cora"], ["--dta", "the nearest: --data"]),
    (["reproduce", "--data", "coar"], ["--data", "'coar'", "the nearest: cora"]),
    (["reproduce", "--task", "links"], ["--task", "'links'", "the nearest: link"]),
    (["reproduce", "--variant", "v4"], ["--variant", "'v4'"]),
    (["reproduce", "--baseline", "gae"], ["--baseline", "'gae'", "vgae"]),
    (["reproduce", "--trials", "0"], ["--trials", "'0'", "1 or more"]),
    (["reproduce", "--budget", "-1"], ["--budget", "'-1'", "minutes"]),
    (["reproduce", "--budget", "nan"], ["--budget", "'nan'", "minutes"]),
    (["reproduce", "--set", "embeding_dim=3"], ["'embeding_dim'", "the nearest: embedding_dim"]),
    (["reproduce", "--set", "seed=3"], ["--set", "seed"]),
    (["reproduce", "--task", "node", "--set", "classifier_dropout=2"], ["classifier_dropout", "[0, 1)"]),
    (["reproduce", "--task", "node", "--set", "normalize_features=1"], ["normalize_features", "True or False"]),
    (["reproduce", "--task", "attribute", "--set", "feature_side=False"], ["feature_side", "want True"]),
    (["reproduce", "--page", "results"], ["--page", "results", "docs/results.md"]),
    (["sweep", "--structure-rates", "1"], ["--structure-rates", "'1'", "[0, 1)"]),
    (["sweep", "--task", "all"], ["--task", "'all'", "link, attribute, node"]),
]


@pytest.mark.parametrize(("argv", "parts"), BAD_OPTIONS, ids=lambda value: " ".join(value[:4]))
def test_bad_options_are_refused(run, here, tmp_path, monkeypatch, argv, parts):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(*argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert all(part in err for part in parts)
    assert here == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["reproduce", "sweep"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_first_epoch(run, here, tmp_path, command):
    (tmp_path / "file").write_text("mine")
    status, _, err = run(command, "--data", "cora", "--out", tmp_path / "file")
    assert status == 2
    assert "can't be written" in err
    assert here == []
    assert Path(tmp_path / "file").read_text() == "mine"


def test_an_unavailable_backend_is_refused(run, here, tmp_path, monkeypatch):
    monkeypatch.setattr(backends.CUDA, "missing", "a reason")
    status, _, err = run("reproduce", "--data", "cora", "--backend", "cuda", "--out", tmp_path / "out")
    assert (status, "a reason" in err, here) == (2, True, [])
