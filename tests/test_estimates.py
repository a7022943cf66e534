"""Estimates of what is left of a matrix of trials, from records, checkpoints and epochs that are measured."""

from __future__ import annotations

import itertools

import pytest
from trials import QUICK, SMALL, Here, record, setting

from seegera_fast import checkpoint_file
from seegera_fast.experiments import estimates, matrix
from seegera_fast.experiments.estimates import Estimate, Pace, estimate, nearest_first
from seegera_fast.experiments.matrix import plan, run_matrix
from seegera_fast.experiments.protocols import TASKS
from seegera_fast.experiments.trials import Trial, epoch_seconds
from seegera_fast.experiments.worker import STOPPED, Conditions

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
    for begin, every, limit in itertools.product((0, 7, 50), (1, 3, 10), (40, 41, 10**9)):
        fields = {"evaluate_after": begin, "evaluate_every": every}
        config = setting(epochs=limit, **fields).training()
        found = estimate(Trial(setting(epochs=limit, **fields), 0), tmp_path, [], Pace(0.0, 1.0)).seconds
        if limit < 10**9:
            assert found == sum(map(config.evaluates, range(1, limit + 1)))
        else:
            assert found == pytest.approx((limit - begin) / every, abs=2)
    # Without early stopping the number of epochs is known.
    endless = Trial(setting(epochs=40, patience=None), 0)
    assert estimate(endless, tmp_path, others, pace) == Estimate(40, False, 40 * 3.0)


@pytest.mark.parametrize(
    ("done", "best", "left"), [(60, 40, 40), (90, 60, 21), (99, 99, 51), (399, 399, 1), (80, 29, 0), (400, 390, 0)]
)
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
