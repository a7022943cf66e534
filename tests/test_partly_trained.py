"""Training of models that are not all trained: layers that are frozen, unused or tied, and buffers."""

import pytest
import torch
from small_model import WIDTHS, graph
from tolerances import assert_same_bits
from torch.nn.utils import parametrizations

from seegera_fast import Checkpoint, SeeGera
from seegera_fast.training import TrainingConfig, Validation, train


class WithUnused(SeeGera):
    """A model with a layer that no gradient reaches."""

    def _build(self, start):
        super()._build(start)
        self.unused = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(self.unused.weight)
        torch.nn.init.ones_(self.unused.bias)


def made(kind=SeeGera):
    return kind(graph(), seed=3, **WIDTHS)


def frozen():
    model = made()
    model.node_mean.requires_grad_(False)
    return model


def normalised():
    model = made()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        parametrizations.spectral_norm(model.decoder.layers[0], "weight")
    return model


def tied():
    model = made()
    model.node_log_var.rest[0].weight = model.node_mean.rest[0].weight
    return model


MODELS = {"frozen": frozen, "unused": lambda: made(WithUnused), "spectral_norm": normalised, "tied": tied}


def validation():
    return Validation(lambda epoch: {"score": epoch / 100}, lambda new, best: new["score"] > best["score"], ("score",))


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_a_checkpoint_goes_on_to_the_same_bits(build, tmp_path):
    whole, parts = build(), build()
    before = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    train(whole, TrainingConfig(epochs=4), seed=1, validation=validation(), progress=False)
    path = tmp_path / "c.safetensors"
    for epochs in (2, 4):
        model = parts if epochs == 2 else build()
        checkpoint = Checkpoint(path, every=1, resume=epochs == 4)
        train(model, TrainingConfig(epochs=epochs), seed=1, validation=validation(), checkpoint=checkpoint)
    for name, tensor in whole.state_dict().items():
        assert_same_bits(model.state_dict()[name], tensor, name=name)
    untrained = {
        name for name in before if name.startswith(("unused.", "node_mean.") if build is frozen else "unused.")
    }
    for name in untrained:
        assert_same_bits(whole.state_dict()[name], before[name], name=name)


def test_a_checkpoint_of_other_frozen_layers_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path / "c.safetensors", resume=True)
    train(frozen(), TrainingConfig(epochs=1), checkpoint=checkpoint, progress=False)
    with pytest.raises(ValueError, match=r"which differs in frozen \(checkpoint: \['node_mean\.first\.weight'"):
        train(made(), TrainingConfig(epochs=2), checkpoint=checkpoint, progress=False)


def test_a_saved_model_with_tied_weights(tmp_path):
    model = tied()
    model.save(tmp_path / "model.safetensors")
    loaded = SeeGera.load(tmp_path / "model.safetensors", model.graph)
    for name, tensor in model.state_dict().items():
        assert_same_bits(loaded.state_dict()[name], tensor, name=name)
