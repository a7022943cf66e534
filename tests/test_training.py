"""The training loop: warm-up, schedule of validation, early stopping, failures, interrupts."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import cases
import pytest
import torch
from tolerances import assert_close, assert_same_bits

import seegera_fast as sf
from seegera_fast import Checkpoint, SeeGera
from seegera_fast.seeds import derive_seed
from seegera_fast.support.memory import peak_memory
from seegera_fast.training import (
    TrainingConfig,
    TrainingFailure,
    Validation,
    require_finite,
    train,
)


def small_model(**fields) -> SeeGera:
    sizes = {"embedding_dim": 4, "hidden_dim": 5, "encoder_layers": 1, "decoder_layers": 1}
    return SeeGera(cases.graph("random", "binary"), seed=3, **{**sizes, **fields})


class Script:
    """Returns prepared validation scores, one per call; a KeyboardInterrupt among them is raised."""

    def __init__(self, model, *scores):
        self.model, self.scores = model, list(scores)
        self.epochs, self.states = [], []

    def score(self, epoch):
        value = self.scores[len(self.epochs)]
        self.epochs.append(epoch)
        self.states.append({name: tensor.clone() for name, tensor in self.model.state_dict().items()})
        if value is KeyboardInterrupt:
            raise KeyboardInterrupt
        return {"score": value}

    @property
    def validation(self) -> Validation:
        return Validation(self.score, lambda new, best: new["score"] > best["score"], ("score",))


def assert_same_state(model, state):
    for name, tensor in model.state_dict().items():
        assert_same_bits(tensor, state[name], name=name)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def record_calls(model, monkeypatch) -> list[dict]:
    """The keyword arguments of every forward pass from now on."""
    calls = []
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda **arguments: calls.append(arguments) or forward(**arguments))
    return calls


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("epochs", 0, ValueError),
        ("epochs", 2.0, TypeError),
        ("epochs", True, TypeError),
        ("warmup_epochs", -1, ValueError),
        ("patience", -1, ValueError),
        ("patience", math.inf, TypeError),
        ("evaluate_every", 0, ValueError),
        ("evaluate_after", -1, ValueError),
        ("learning_rate", -1e-3, ValueError),
        ("learning_rate", math.nan, ValueError),
        ("learning_rate", "1e-3", TypeError),
        ("weight_decay", math.inf, ValueError),
        ("weight_decay", None, TypeError),
    ],
)
def test_fields_are_checked(field, value, error):
    with pytest.raises(error, match=f"{field}: got"):
        TrainingConfig(**{field: value})


def test_it_is_adam_on_the_loss():
    """Against a loop that is written out with the plain form of Adam."""
    fields = {"structure_masking_rate": 0.3, "feature_masking_rate": 0.2, "dropout": 0.1}
    config = TrainingConfig(epochs=5, learning_rate=3e-3, weight_decay=0.1, warmup_epochs=3)
    model, plain = small_model(**fields), small_model(**fields)
    # Training masks and drops out, whatever the mode before; scoring may leave the model in another.
    model.eval()
    training = train(model, config, seed=9)
    optimizer = torch.optim.Adam(plain.parameters(), lr=3e-3, weight_decay=0.1, foreach=False)
    for epoch, warmup in enumerate((1 / 3, 2 / 3, 1.0, 1.0, 1.0), start=1):
        output = plain(seed=derive_seed(9, epoch), warmup=warmup)
        record = training.history[epoch - 1]
        assert_close(number(record["loss"]), output.loss.detach(), terms=100, name=f"loss of epoch {epoch}")
        for name, term in output.terms.items():
            assert_close(number(record[name]), term, terms=100, name=f"{name} of epoch {epoch}")
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
    assert training.epochs == training.best_epoch == 5
    for (name, actual), expected in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert_close(actual, expected.detach(), terms=100, name=name)


def test_warmup_and_seeds(monkeypatch):
    model = small_model()
    calls = record_calls(model, monkeypatch)
    train(model, TrainingConfig(epochs=5, warmup_epochs=4), seed=11)
    assert [call["warmup"] for call in calls] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert [call["seed"] for call in calls] == [derive_seed(11, epoch) for epoch in (1, 2, 3, 4, 5)]


def test_no_warmup(monkeypatch):
    model = small_model()
    calls = record_calls(model, monkeypatch)
    train(model, TrainingConfig(epochs=2, warmup_epochs=0))
    assert [call["warmup"] for call in calls] == [1.0, 1.0]


def test_history_has_one_record_per_epoch():
    model = small_model()
    script = Script(model, 0.5, 0.7)
    training = train(model, TrainingConfig(epochs=4, evaluate_every=2), validation=script.validation)
    assert [record["epoch"] for record in training.history] == [1, 2, 3, 4]
    assert list(training.history[0]) == ["epoch", "link", "feature", "prior", "mixture", "loss", "seconds"]
    assert [record.get("score") for record in training.history] == [None, 0.5, None, 0.7]
    assert sum(record["seconds"] for record in training.history) <= training.seconds
    assert not training.interrupted


@pytest.mark.parametrize(
    ("config", "epochs"),
    [
        (TrainingConfig(epochs=3), [1, 2, 3]),
        (TrainingConfig(epochs=7, evaluate_every=3), [3, 6, 7]),
        (TrainingConfig(epochs=9, evaluate_every=2, evaluate_after=4), [6, 8, 9]),
        (TrainingConfig(epochs=1, evaluate_every=50, evaluate_after=800), [1]),
    ],
)
def test_schedule_of_validation(config, epochs):
    model = small_model()
    script = Script(model, *range(9))
    train(model, config, validation=script.validation)
    assert script.epochs == epochs


def test_early_stopping_ends_past_the_patience():
    model = small_model()
    # The best epoch is 3; an equal score in epoch 4 is no improvement. Epochs 4 to 6 are the three that are waited for.
    script = Script(model, 0.4, 0.3, 0.8, 0.8, 0.5, 0.7, 0.1, 0.9)
    training = train(model, TrainingConfig(epochs=20, patience=3), validation=script.validation)
    assert training.epochs == len(script.epochs) == 7
    assert training.best_epoch == 3
    assert_same_state(model, script.states[2])


def test_an_improvement_starts_the_count_anew():
    model = small_model()
    script = Script(model, 0.1, 0.0, 0.2, 0.0, 0.3, 0.0, 0.0)
    training = train(model, TrainingConfig(epochs=20, patience=1), validation=script.validation)
    assert (training.best_epoch, training.epochs) == (5, 7)


def test_no_patience_runs_through():
    model = small_model()
    script = Script(model, 0.9, *[0.1] * 7)
    training = train(model, TrainingConfig(epochs=8, patience=None), validation=script.validation)
    assert (training.best_epoch, training.epochs) == (1, 8)
    assert_same_state(model, script.states[0])


@pytest.mark.parametrize(
    ("part", "term"),
    [
        ("node_mean.first.weight", "link"),
        ("node_log_var.first.weight", "link"),
        ("decoder.layers.0.weight", "feature"),
        ("feature_mean.outer.weight", "feature"),
    ],
)
def test_a_nan_stops_with_the_epoch_and_the_first_term(part, term):
    model = small_model(decoder_layers=2)
    parameters = dict(model.named_parameters())
    assert part in parameters, f"{part} is none of {', '.join(parameters)}"

    def poison(epoch):
        if epoch == 2:
            with torch.no_grad():
                parameters[part].fill_(math.nan)
        return {"score": 0.0}

    with pytest.raises(TrainingFailure, match=f"epoch 3: {term} became NaN or infinite first") as caught:
        train(model, TrainingConfig(epochs=9), validation=Validation(poison, lambda new, best: False, ("score",)))
    assert (caught.value.epoch, caught.value.term) == (3, term)


def test_an_infinite_loss_stops_before_the_weights_change():
    model = small_model(likelihood="mse")
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.fill_(1e200)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(TrainingFailure, match="epoch 1: feature became NaN or infinite first") as caught:
        train(model, TrainingConfig(epochs=2))
    assert caught.value.term == "feature"
    assert_same_state(model, before)


def test_finite_terms_and_a_loss_that_is_not(monkeypatch):
    model = small_model()
    forward = model.forward

    def broken(**arguments):
        output = forward(**arguments)
        return type(output)(output.loss * math.nan, output.samples)

    monkeypatch.setattr(model, "forward", broken)
    with pytest.raises(TrainingFailure, match="epoch 1: loss became"):
        train(model, TrainingConfig(epochs=2))


def test_require_finite():
    require_finite(4, "the embeddings", torch.ones(3))
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(TrainingFailure, match="epoch 4: the embeddings became NaN or infinite") as caught:
            require_finite(4, "the embeddings", torch.tensor([1.0, bad]))
        assert caught.value.term == "the embeddings"


def test_an_interrupt_keeps_the_best_weights():
    model = small_model()
    script = Script(model, 0.2, 0.6, 0.4, KeyboardInterrupt)
    training = train(model, TrainingConfig(epochs=9), validation=script.validation)
    assert training.interrupted
    # The fourth epoch was not finished.
    assert (training.best_epoch, training.epochs, len(training.history)) == (2, 3, 3)
    assert_same_state(model, script.states[1])


def test_an_interrupt_before_any_validation_keeps_the_last_weights(monkeypatch):
    model, other = small_model(), small_model()
    forward = model.forward
    calls = []

    def interrupted(**arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return forward(**arguments)

    monkeypatch.setattr(model, "forward", interrupted)
    script = Script(model)
    config = TrainingConfig(epochs=9, evaluate_every=9)
    training = train(model, config, seed=1, validation=script.validation)
    assert training.interrupted
    assert (training.best_epoch, training.epochs) == (3, 3)
    train(other, TrainingConfig(epochs=3), seed=1)
    assert_same_state(model, other.state_dict())


def test_an_interrupt_in_the_first_validation_keeps_the_epochs_before():
    """The epoch whose validation was not completed is taken back, though its step was done."""
    model, other = small_model(), small_model()
    config = TrainingConfig(epochs=9, evaluate_every=3)
    training = train(model, config, seed=1, validation=Script(model, KeyboardInterrupt).validation)
    assert training.interrupted
    assert (training.best_epoch, training.epochs) == (2, 2)
    train(other, TrainingConfig(epochs=2), seed=1)
    assert_same_state(model, other.state_dict())


def test_an_interrupt_in_the_first_epoch_goes_through():
    model = small_model()
    with pytest.raises(KeyboardInterrupt):
        train(model, TrainingConfig(epochs=9), validation=Script(model, KeyboardInterrupt).validation)


def test_a_best_score_of_a_last_epoch_is_none_of_a_longer_run(tmp_path):
    """Epoch 5 is validated because it is the last one. A run of 12 epochs is validated at every other epoch."""
    path = tmp_path / "c.safetensors"

    def run(epochs, checkpoint=None):
        model = small_model()
        score = Validation(
            lambda epoch: {"score": 100.0 if epoch == 5 else float(epoch)},
            lambda new, best: new["score"] > best["score"],
            ("score",),
        )
        config = TrainingConfig(epochs=epochs, evaluate_every=2, patience=6)
        found = train(model, config, validation=score, progress=False, checkpoint=checkpoint)
        scores = [record.get("score") for record in found.history]
        return found.best_epoch, scores, {name: tensor.clone() for name, tensor in model.state_dict().items()}

    best, scores, weights = run(5, Checkpoint(path))
    assert (best, scores) == (5, [None, 2.0, None, 4.0, 100.0])
    expected = run(5)
    again = run(5, Checkpoint(path, resume=True))
    assert (again[:2], expected[:2]) == ((best, scores), (best, scores))
    for name, tensor in weights.items():
        assert_same_bits(again[2][name], tensor, name=name)
    best, scores, weights = run(12, Checkpoint(path, resume=True))
    assert (best, scores) == (12, [None, 2.0, None, 4.0, None, 6.0, None, 8.0, None, 10.0, None, 12.0])
    for name, tensor in run(12)[2].items():
        assert_same_bits(weights[name], tensor, name=name)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_bar_only_on_a_terminal(monkeypatch):
    shown = []
    for stream, progress in ((Terminal(), True), (Terminal(), False), (io.StringIO(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        train(small_model(), TrainingConfig(epochs=2), progress=progress)
        shown.append(stream.getvalue())
    assert "2/2" in shown[0]
    assert "loss" in shown[0]
    assert shown[1:] == ["", ""]


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="compares with what Linux says")
def test_peak_memory_is_in_bytes(monkeypatch):
    # After an exec, getrusage includes the peak of the program before it.
    monkeypatch.setattr("resource.getrusage", lambda who: SimpleNamespace(ru_maxrss=2**40))
    peak = peak_memory(torch.device("cpu"))
    resident = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
    assert peak == pytest.approx(resident, rel=0.1)


def test_peak_memory_where_the_system_says_less(monkeypatch):
    def read_text(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert peak_memory(torch.device("cpu")) > 2**20
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak_memory(torch.device("cpu")) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_on_a_gpu():
    graph = cases.graph("random", "binary").to("cuda")
    model = SeeGera(graph, seed=3, embedding_dim=4, hidden_dim=5)
    first = train(model, TrainingConfig(epochs=3), seed=2)
    assert all(math.isfinite(record["loss"]) for record in first.history)
    assert 0 < first.peak_memory == torch.cuda.max_memory_allocated()


def small_graph():
    rng = torch.Generator().manual_seed(0)
    upper = (torch.rand(12, 12, generator=rng) < 0.4).float().triu(1)
    return sf.Graph(upper + upper.T, (torch.rand(12, 3, generator=rng) < 0.5).float())


def test_weights_that_become_nan_end_the_run_and_no_checkpoint_has_them(tmp_path):
    """A gradient can be NaN where the loss is finite. The last good state stays."""
    graph = small_graph()
    for epochs in (4, 6):
        model = sf.SeeGera(graph, embedding_dim=3, hidden_dim=3)
        calls = []

        def spoil(gradient, calls=calls):
            calls.append(None)
            return gradient * float("nan") if len(calls) == 4 else gradient

        model.node_mean.first.weight.register_hook(spoil)
        checkpoint = sf.Checkpoint(tmp_path / f"{epochs}.safetensors", every=2)
        with pytest.raises(TrainingFailure, match="epoch 4: weights"):
            train(model, TrainingConfig(epochs=epochs, patience=None), progress=False, checkpoint=checkpoint)
        resumed = sf.SeeGera(graph, embedding_dim=3, hidden_dim=3)
        again = sf.Checkpoint(checkpoint.path, resume=True)
        config = TrainingConfig(epochs=epochs, patience=None)
        assert train(resumed, config, progress=False, checkpoint=again).epochs == epochs


def test_terms_are_finite_where_the_loss_is(tmp_path):
    """The sum of a term over the samples may be beyond float32."""
    graph = small_graph().with_features(torch.full((12, 3), 1e18))
    fields = {"encoder": "mlp", "decoder": "mlp", "likelihood": "mse", "scaling": "sum", "num_importance_samples": 8}
    model = sf.SeeGera(graph, embedding_dim=3, hidden_dim=3, **fields)
    with torch.no_grad():
        for encoder in (model.node_mean, model.node_log_var):
            encoder.first.weight.mul_(1e-19)
    output = model(seed=1)
    assert output.loss.isfinite()
    assert all(term.isfinite() for term in output.terms.values())
