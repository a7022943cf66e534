"""Plans of trials, single trials and their records."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from trials import QUICK, SMALL, setting

from seegera_fast import SeeGera, precision, use_backend
from seegera_fast.experiments.matrix import plan, run_matrix
from seegera_fast.experiments.protocols import METHODS, TASKS
from seegera_fast.experiments.trials import Trial, _columns, read_record, read_records, run_trial
from seegera_fast.experiments.worker import Conditions

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


def test_a_rate_has_one_name_however_it_is_written():
    whole, fraction = (setting(dropout=value, epochs=3) for value in (0, 0.0))
    assert whole.name == fraction.name
    assert dict(whole.fields) == {"dropout": 0.0, "epochs": 3}
    assert isinstance(dict(whole.fields)["epochs"], int)
    assert len({setting(task="node", classifier_dropout=value).name for value in (0, 0.0, -0.0)}) == 1


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


def test_precisions_are_settings_of_their_own(tmp_path, small_data):
    exact, rough = (Trial(setting(**SMALL, precision=name), 0) for name in ("highest", "medium"))
    assert rough.name == exact.name.replace("-seed0", "-medium-seed0")
    assert rough.setting.label == exact.setting.label.replace(" split:", " split, medium:")
    # The reference has every precision, whatever the processor computes faster.
    with precision.at("medium"), use_backend("reference"):
        assert run_trial(rough, tmp_path, None, "cpu")
        with pytest.raises(ValueError, match=r"precision: got 'highest', want 'medium', which products on cpu have"):
            run_trial(exact, tmp_path, None, "cpu")
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


# --- records that are refused ----------------------------------------------------------------------------------------


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
        (["scores", "auc"], 7.0, "scores.auc: got 7.0, want a number from 0 to 1"),
        (["scores", "auc"], -0.1, "scores.auc: got -0.1, want a number from 0 to 1"),
        (["scores", "auc"], ..., "lacks scores.auc"),
        (["scores", "mse"], 1.0, "has a field 'scores.mse', which does not belong there"),
        (["validation", "ap"], True, "validation.ap: got True"),
        (["epochs"], 2.5, "epochs: got 2.5"),
        (["history", "epoch"], [1, 10**6], "history.epoch: got a list of 2, want ascending numbers from 1 to"),
        (["history", "epoch"], [2, 1], "history.epoch: got a list of 2, want ascending numbers from 1 to"),
        (["history", "epoch"], ..., "lacks history.epoch"),
        (["setting", "precision"], "low", "setting.precision: got 'low', want one of highest, high, medium"),
        (["machine", "precision"], None, "machine.precision: got None"),
        (["machine", "precision"], "high", "machine.precision: got 'high', want 'highest' as in setting.precision"),
        (["machine", "processor"], 3, "machine.processor: got 3, want a string"),
        (["best_epoch"], 10**6, "best_epoch: got 1000000, want an int from 1 to"),
        (["seconds"], -1.0, "seconds: got -1.0"),
        (["seconds"], 1e308, "seconds: got 1e+308, want a number from 0 to 1e+100"),
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


def test_an_error_whose_mean_would_be_infinite_is_refused(tmp_path):
    record = next(RECORD.parent.glob("attribute-cora-v3-*.json"))
    content = with_field(json.loads(record.read_text()), ["scores", "mse"], 1e308)
    (tmp_path / record.name).write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"seed\d\.json: is .*scores\.mse: got 1e\+308, want a number from 0 to 1e\+100"
    ):
        read_records(tmp_path)


def test_a_record_has_the_name_of_its_trial(tmp_path):
    """A copy would count as another trial in the mean, and a trial whose record has another name would run again."""
    for name in (RECORD.name, "x.json"):
        (tmp_path / name).write_bytes(RECORD.read_bytes())
    with pytest.raises(
        ValueError, match=rf"x\.json: is the record of the trial {RECORD.stem}, want the name {RECORD.name}"
    ):
        read_records(tmp_path)


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
    with pytest.raises(ValueError, match=r"is the record of the trial .*-seed3, want the name"):
        run_matrix([trial], Conditions(tmp_path), quiet=True)
