"""What the training loop takes: validation scores of any kind of number, and what it refuses before the first epoch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_model import WIDTHS, graph

import seegera_fast as sf
from seegera_fast import Checkpoint, SeeGera
from seegera_fast.training import TrainingConfig, Validation, train


def small_model() -> SeeGera:
    return SeeGera(graph(), seed=3, encoder_layers=1, decoder_layers=1, **WIDTHS)


@pytest.mark.parametrize("scores", [{"other": 0.5}, {"score": 0.5, "other": 0.5}, {}])
def test_scores_of_other_names_are_refused_in_the_first_validation(scores, tmp_path):
    validation = Validation(lambda epoch: scores, lambda new, best: False, ("score",))
    path = tmp_path / "c.safetensors"
    with pytest.raises(ValueError, match=r"^validation: got scores named .*, want those of its names, 'score'$"):
        train(small_model(), TrainingConfig(epochs=2), validation=validation, checkpoint=Checkpoint(path, every=1))
    assert not path.exists()


@pytest.mark.parametrize("given", [np.float32(0.5), torch.tensor(0.5), 1, np.bool_(True)], ids=str)
def test_scores_of_any_kind_of_number(given, tmp_path):
    validation = Validation(lambda epoch: {"score": given}, lambda new, best: False, ("score",))
    checkpoint = Checkpoint(tmp_path / "c.safetensors", every=1)
    if isinstance(given, np.bool_):
        with pytest.raises(TypeError, match=r"^validation's score: got (np\.True_|True), want a number"):
            train(small_model(), TrainingConfig(epochs=1), validation=validation, checkpoint=checkpoint)
        return
    training = train(small_model(), TrainingConfig(epochs=1), validation=validation, checkpoint=checkpoint)
    assert training.history[0]["score"] == float(given)
    assert type(training.history[0]["score"]) is float


@pytest.mark.parametrize("given", [0.5, None, ["score"]], ids=str)
def test_scores_without_names_are_refused(given):
    validation = Validation(lambda epoch: given, lambda new, best: False, ("score",))
    with pytest.raises(TypeError, match=r"^validation: got .*, want a mapping of names to scores$"):
        train(small_model(), TrainingConfig(epochs=1), validation=validation)


def test_what_can_not_be_trained_is_refused(tmp_path):
    source, model = sf.Batches(parts=2), small_model()
    with pytest.raises(TypeError, match=r"^source: got Batches.*, want None, or what batches\.source_of makes"):
        train(model, TrainingConfig(epochs=1), source=source)
    checkpoint = Checkpoint(tmp_path / "c.safetensors", every=1)
    with pytest.raises(TypeError, match=r"^fields: got what JSON can't hold \(.*Path"):
        train(model, TrainingConfig(epochs=1), fields={"where": tmp_path}, checkpoint=checkpoint)
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"^model: has no graph"):
        train(SeeGera.load(tmp_path / "model.safetensors"), TrainingConfig(epochs=1), checkpoint=checkpoint)
    with pytest.raises(ValueError, match=r"^model: has no parameter that requires a gradient"):
        train(model.requires_grad_(False), TrainingConfig(epochs=1))
    assert not Path(checkpoint.path).exists()


@pytest.mark.parametrize(
    "name", ["model", "config", "validation", "checkpoint", "source", "data", "fields", "progress"]
)
def test_arguments_of_a_wrong_kind_are_named(name):
    given = {"model": small_model(), "config": TrainingConfig(epochs=1), name: 3}
    with pytest.raises(TypeError, match=f"^{name}: got 3, want "):
        train(**given)
