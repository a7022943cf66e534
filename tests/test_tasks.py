"""The three tasks: runs that learn, their best epochs, early stopping, interrupts, and what they refuse."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch
from communities import SMALL, TASKS, VARIANTS, nodes, planted, with_masks
from sklearn.metrics import average_precision_score, roc_auc_score
from tolerances import assert_same_bits

from seegera_fast import Batches, Checkpoint, SeeGera, tasks
from seegera_fast.tasks import task as task_module
from seegera_fast.training import TrainingFailure


@functools.cache
def run(task: str, variant: str = "v3"):
    """One short run on the planted graph, shared by the tests that look at it."""
    options = {}
    if task == "node_classification":
        options = {"evaluate_every": 10, "train": 0.3, "valid": 0.2, "classifier_epochs": 60}
    return TASKS[task](planted(), variant=variant, seed=3, epochs=30, warmup_epochs=30, **SMALL, **options)


@pytest.mark.parametrize("variant", VARIANTS)
def test_link_prediction_learns(variant):
    result = run("link_prediction", variant)
    # Guessing gives 0.5; who knows the communities gets about 0.8, as a third of the non-edges lies inside one.
    assert result.auc > 0.7
    assert result.ap > 0.65
    assert result.valid_auc > 0.7


@pytest.mark.parametrize("variant", VARIANTS)
def test_attribute_inference_learns(variant):
    result = run("attribute_inference", variant)
    # Against the mean of the training features everywhere.
    mean = result.split.train.features.to_dense().mean()
    for part, mse in (("valid", result.valid_mse), ("test", result.mse)):
        values = getattr(result.split, f"{part}_values")
        guessed = ((values - mean).square().mean() + mean.square()) / 2
        assert mse < 0.85 * guessed


@pytest.mark.parametrize("variant", VARIANTS)
def test_node_classification_learns(variant):
    result = run("node_classification", variant)
    # Guessing gives a third.
    assert result.accuracy > 0.8
    assert result.valid_accuracy > 0.8


@pytest.mark.parametrize("task", TASKS)
def test_runs_are_the_same_bit_for_bit(task):
    first = run(task)
    again = run.__wrapped__(task)
    for one, two in zip(first.history, again.history, strict=True):
        assert {**one, "seconds": 0} == {**two, "seconds": 0}
    for (name, tensor), other in zip(first.model.state_dict().items(), again.model.state_dict().values(), strict=True):
        assert_same_bits(tensor, other, name=name)
    for score in ("auc", "ap", "mse", "accuracy", "valid_auc", "valid_mse", "valid_accuracy"):
        assert getattr(first, score, None) == getattr(again, score, None)


def test_link_prediction_reports_the_best_epoch():
    result = run("link_prediction")
    best = {"epoch": 0, "valid_auc": -1, "valid_ap": -1}
    for record in result.history:
        if record["valid_auc"] > best["valid_auc"] and record["valid_ap"] > best["valid_ap"]:
            best = record
    assert result.best_epoch == best["epoch"]
    assert (result.valid_auc, result.valid_ap) == (best["valid_auc"], best["valid_ap"])
    for part, auc, ap in (("valid", result.valid_auc, result.valid_ap), ("test", result.auc, result.ap)):
        positive, negative = (getattr(result.split, f"{part}_{kind}") for kind in ("pos", "neg"))
        scores = result.model.link_scores(torch.cat([positive, negative])).numpy()
        target = np.repeat([1, 0], positive.shape[0])
        assert auc == roc_auc_score(target, scores)
        assert ap == pytest.approx(average_precision_score(target, scores))


def test_attribute_inference_reports_the_best_epoch():
    result = run("attribute_inference")
    best = min(result.history, key=lambda record: record["valid_mse"])
    assert (result.best_epoch, result.valid_mse) == (best["epoch"], best["valid_mse"])
    hidden, zero, values = result.split.test_pos, result.split.test_neg, result.split.test_values
    errors = []
    for cells, wanted in ((hidden, values), (zero, torch.zeros_like(values))):
        errors.append(result.model.reconstruct_features(cells[:, 0], cells[:, 1]).double() - wanted)
    assert result.mse == pytest.approx(torch.cat(errors).square().mean().item())


def test_node_classification_reports_the_best_epoch():
    result = run("node_classification")
    scored = [record for record in result.history if "valid_accuracy" in record]
    assert [record["epoch"] for record in scored] == [10, 20, 30]
    best = max(scored, key=lambda record: record["valid_accuracy"])
    assert (result.best_epoch, result.valid_accuracy) == (best["epoch"], best["valid_accuracy"])
    assert result.epochs == 30
    assert result.fields["patience"] is None


@pytest.mark.parametrize(("task", "score"), [("link_prediction", "valid_auc"), ("attribute_inference", "valid_mse")])
def test_early_stopping(task, score):
    result = TASKS[task](planted(), seed=1, epochs=100, patience=2, **SMALL)
    assert result.epochs == result.best_epoch + 3 < 100
    assert result.history[result.best_epoch - 1][score] == getattr(result, score)


@pytest.mark.parametrize("task", TASKS)
def test_nothing_held_out(task):
    if task == "node_classification":
        options = {"train": 0.9, "valid": 0, "classifier_epochs": 3}
    else:
        options = {"valid": 0.0, "test": 0}
    result = TASKS[task](planted(), epochs=3, patience=0, **options, **SMALL)
    scores = ("auc", "ap", "mse", "valid_auc", "valid_ap", "valid_mse", "valid_accuracy")
    assert all(getattr(result, name, None) is None for name in scores)
    assert result.best_epoch == result.epochs == 3
    assert not any("valid" in key for record in result.history for key in record)


@pytest.mark.parametrize("task", TASKS)
def test_unknown_fields_name_the_nearest(task):
    with pytest.raises(TypeError, match=rf"{task}\(\) got an unknown field 'learning_rat'; the nearest: learning_rate"):
        TASKS[task](planted(), learning_rat=1)
    with pytest.raises(TypeError, match="'vallid'; the nearest: valid"):
        TASKS[task](planted(), vallid=0.1)
    for short, name in {"lr": "learning_rate", "hid_dim": "hidden_dim"}.items():
        with pytest.raises(TypeError, match=f"{short!r}; the nearest: {name}"):
            TASKS[task](planted(), **{short: 1})
    with pytest.raises(TypeError, match="'zzz'; want one of variant, embedding_dim"):
        TASKS[task](planted(), zzz=0.1)


@pytest.mark.parametrize("task", TASKS)
def test_bad_arguments(task):
    function = TASKS[task]
    with pytest.raises(TypeError, match="graph: got int"):
        function(3)
    with pytest.raises(ValueError, match="preset: got 'coar', which is not known; the nearest: cora"):
        function(planted(), preset="coar")
    with pytest.raises(ValueError, match="variant: got 'v4'"):
        function(planted(), variant="v4")
    with pytest.raises(ValueError, match="epochs: got 0"):
        function(planted(), epochs=0)
    with pytest.raises(ValueError, match=r"dropout: got 1\.5"):
        function(planted(), dropout=1.5)
    with pytest.raises(TypeError, match="normalize_features: got 1"):
        function(planted(), normalize_features=1)
    with pytest.raises(ValueError, match="sum below 1"):
        function(planted(), valid=0.5, **{"train" if task == "node_classification" else "test": 0.5})


def test_attributes_are_normalized_before_the_split():
    base = planted()
    result = tasks.attribute_inference(base, "cora", epochs=1, **SMALL)
    sums = base.features.to_dense().sum(dim=1)
    assert_same_bits(result.split.test_values, (1 / sums)[result.split.test_pos[:, 0]])
    plain = tasks.attribute_inference(base, "cora", epochs=1, normalize_features=False, **SMALL)
    assert (plain.split.test_values == 1).all()


def test_hidden_entries_are_no_sign_of_other_features(recwarn):
    """Rows of normalised features, some of whose entries are hidden, add up to less than 1."""
    options = {"epochs": 2, "normalize_features": True, "progress": False, **SMALL}
    result = tasks.attribute_inference(planted(), batches=Batches(torch.arange(90) % 2), **options)
    result.model.embed(result.split.train.subgraph(range(30)))
    assert not [warning for warning in recwarn if "not normalised" in str(warning.message)]
    with pytest.warns(UserWarning, match="graph: its features are not normalised"):
        result.model.embed(planted())


@pytest.mark.parametrize("function", [tasks.link_prediction, tasks.attribute_inference, tasks.node_classification])
def test_numbers_of_numpy_are_plain_in_the_results(function, tmp_path):
    options = {"valid": np.float32(0.2), "epochs": np.int64(1), "progress": False, **SMALL}
    if function is tasks.node_classification:
        options |= {"classifier_epochs": np.int64(5), "classifier_learning_rate": np.array(0.5)}
    result = function(planted(), checkpoint=Checkpoint(tmp_path / "c.safetensors"), **options)
    assert json.loads(json.dumps(result.fields))["valid"] == float(np.float32(0.2))


def test_the_public_split_is_taken_where_it_is():
    graph = with_masks(train=nodes(*range(30)), valid=nodes(*range(30, 50)), test=nodes(*range(50, 88)))
    options = {"epochs": 2, "classifier_epochs": 20, **SMALL}
    result = tasks.node_classification(graph, **options)
    assert result.split.test.tolist() == list(range(50, 88))
    with pytest.raises(ValueError, match="has no mask 'valid'"):
        tasks.node_classification(with_masks(train=nodes(1), val=nodes(2), test=nodes(3)), **options)
    other = with_masks(train_mask=nodes(1), test_mask=nodes(3))
    with pytest.warns(UserWarning, match="its masks are 'train_mask', 'test_mask', .* so that a split is drawn"):
        tasks.node_classification(other, **options)
    drawn = tasks.node_classification(graph, public=False, **options)
    assert drawn.split.test.shape[0] == 88 - 8 - 8
    with pytest.raises(ValueError, match=r"^train: got 0\.5, want nothing where the split in graph\.masks is taken"):
        tasks.node_classification(graph, train=0.5, **options)
    with pytest.raises(ValueError, match="has no mask"):
        tasks.node_classification(planted(), public=True, **options)
    with pytest.raises(TypeError, match="public: got 'yes'"):
        tasks.node_classification(planted(), public="yes", **options)
    with pytest.raises(ValueError, match="train: got no node to train on"):
        tasks.node_classification(planted(), train=0.0, **options)


@pytest.mark.parametrize("task", TASKS)
def test_an_interrupt_hands_back_the_best_so_far(task, monkeypatch):
    method = "reconstruct_features" if task == "attribute_inference" else "embed"
    original = getattr(SeeGera, method)
    calls = []

    def interrupted(self, *arguments, **options):
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *arguments, **options)

    monkeypatch.setattr(SeeGera, method, interrupted)
    every = {"evaluate_every": 1, "classifier_epochs": 5} if task == "node_classification" else {}
    result = TASKS[task](planted(), seed=3, epochs=30, **SMALL, **every)
    assert result.interrupted
    assert result.epochs == len(result.history) == 3
    assert 1 <= result.best_epoch <= 3
    score = {"link_prediction": "valid_auc", "attribute_inference": "valid_mse"}.get(task, "valid_accuracy")
    assert getattr(result, score) == result.history[result.best_epoch - 1][score]


@pytest.mark.parametrize("task", TASKS)
def test_a_run_that_blows_up_says_when(task):
    every = {"evaluate_every": 1, "classifier_epochs": 5} if task == "node_classification" else {}
    with pytest.raises(TrainingFailure, match=r"epoch 1: the .* became NaN or infinite first") as caught:
        TASKS[task](planted(), epochs=30, **{**SMALL, "learning_rate": 1e30}, **every)
    # The first epoch's loss comes from the initial weights and is finite.
    assert caught.value.epoch == 1
    assert caught.value.term == ("the predicted features" if task == "attribute_inference" else "the embeddings")


def test_what_counts_as_an_improvement():
    """Link prediction asks for both scores, and equal ones are no improvement anywhere."""
    both_higher, lower_error, higher_accuracy = (
        task_module.TASKS[task].improves for task in ("link_prediction", "attribute_inference", "node_classification")
    )
    best = {"valid_auc": 0.5, "valid_ap": 0.5}
    for auc, ap, better in ((0.6, 0.6, True), (0.6, 0.5, False), (0.5, 0.6, False), (0.6, 0.4, False)):
        assert both_higher({"valid_auc": auc, "valid_ap": ap}, best) == better
    for value, better in ((0.4, True), (0.5, False), (0.6, False)):
        assert lower_error({"valid_mse": value}, {"valid_mse": 0.5}) == better
    for value, better in ((0.4, False), (0.5, False), (0.6, True)):
        assert higher_accuracy({"valid_accuracy": value}, {"valid_accuracy": 0.5}) == better


def test_attributes_need_a_feature_side():
    with pytest.raises(ValueError, match="feature_side: got False"):
        tasks.attribute_inference(planted(), feature_side=False)
    result = tasks.link_prediction(planted(), feature_side=False, epochs=2, **SMALL)
    assert set(result.history[0]) == {"epoch", "link", "prior", "mixture", "loss", "seconds", "valid_auc", "valid_ap"}


def test_result_is_short_in_print():
    assert len(repr(run("link_prediction"))) < 600
