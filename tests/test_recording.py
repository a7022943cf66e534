"""Recorded steps, and trainings that replay one: the bits of eager steps, with stand-ins for CUDA or on a GPU."""

import contextlib
import copy

import pytest
import torch
from configurations import CONFIGURATIONS, model_of
from tolerances import assert_same_bits
from torch.utils._python_dispatch import TorchDispatchMode

import seegera_fast as sf
from seegera_fast import backends

# Those that are trained as one batch of all parts: with either scaling.
PARTED = ("v3", "v3, sampled, gaussian")


class Stream:
    """A stand-in for a CUDA stream: a name, and what waited for what."""

    def __init__(self, name):
        self.name, self.waited = name, []

    def wait_stream(self, other):
        self.waited.append(other.name)


@pytest.fixture
def recording(monkeypatch):
    """Replaces recording by running the step on the CPU; returns the two streams and the one that was recorded on."""
    current, side, recorded = Stream("current"), Stream("side"), []

    @contextlib.contextmanager
    def record(graph, stream=None, **options):
        recorded.append(stream)
        yield

    for name, stand_in in {
        "CUDAGraph": object,
        "Stream": lambda device: side,
        "current_stream": lambda device: current,
        "stream": contextlib.nullcontext,
        "device": contextlib.nullcontext,
        "graph": record,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(sf.capture, "check_capturable", lambda device, optimizer: None)
    return current, side, recorded


def test_a_step_is_recorded_on_a_stream_of_its_device(recording):
    current, side, recorded = recording
    model = model_of("v3")
    model.capture(torch.optim.Adam(model.parameters()))
    # The gradients, and the optimiser's step.
    assert recorded == [side, side]
    assert (side.waited, current.waited) == (["current"], ["side"])


def test_a_step_that_raises_is_waited_for_and_taken_back(recording, monkeypatch):
    """Kernels may still run on the side stream when the tensors that they write are restored."""
    current, _, recorded = recording
    model = model_of("v3")
    optimizer = torch.optim.Adam(model.parameters())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    steps, take = [], optimizer.step

    def second_raises():
        take()
        steps.append([parameter.detach().clone() for parameter in model.parameters()])
        if len(steps) == 2:
            raise ValueError("the second one")

    def wait_stream(other, seen=current.waited):
        assert_same_bits(next(model.parameters()).detach(), steps[-1][0], name="weight when waited for")
        seen.append(other.name)

    monkeypatch.setattr(optimizer, "step", second_raises)
    monkeypatch.setattr(current, "wait_stream", wait_stream)
    with pytest.raises(ValueError, match="the second one"):
        model.capture(optimizer)
    assert (current.waited, recorded) == (["side"], [])
    for parameter, weight in zip(model.parameters(), before, strict=True):
        assert_same_bits(parameter.detach(), weight)


def test_a_step_whose_tensors_lie_elsewhere_is_refused(recording, monkeypatch):
    """The recorded step would use weights, or a state, that are no longer those of the model and the optimiser."""
    replays = []

    class Recorded:
        def replay(self):
            replays.append(1)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recorded)
    model = model_of("v3")
    optimizer = torch.optim.Adam(model.parameters())

    def weights_assigned():
        copies = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(copies, assign=True)

    def one_weight_moved():
        model.decoder.last.weight.data = model.decoder.last.weight.data.clone()

    def state_loaded():
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    def module_replaced():
        model.decoder = copy.deepcopy(model.decoder)

    for count, change in enumerate((weights_assigned, one_weight_moved, state_loaded, module_replaced), start=1):
        step = model.capture(optimizer)
        step()
        change()
        with pytest.raises(RuntimeError, match="lie elsewhere now, record the step anew"):
            step()
        assert len(replays) == 2 * count


class Tape(TorchDispatchMode):
    """A stand-in for a CUDA graph: the operations that ran while it was recorded, on tensors that stay where they are.

    A replay runs them again on the recorded tensors, and writes what they give to where the recorded results lie. What
    Python computed, and what it read from a tensor, does not change from replay to replay, as in a CUDA graph.
    """

    def __init__(self):
        super().__init__()
        self.calls, self.replays = [], 0

    def __torch_dispatch__(self, function, types, given=(), named=None):
        results = function(*given, **(named or {}))
        self.calls.append((function, given, named or {}, results))
        return results

    def replay(self):
        self.replays += 1
        with torch.no_grad():
            for function, given, named, results in self.calls:
                for old, new in zip(tensors_in(results), tensors_in(function(*given, **named)), strict=True):
                    if old.data_ptr() != new.data_ptr():
                        old.copy_(new)


def tensors_in(results):
    results = results if isinstance(results, (tuple, list)) else [results]
    return [result for result in results if isinstance(result, torch.Tensor)]


@pytest.fixture
def tapes(recording, monkeypatch):
    """Records steps on the CPU, and replays them. Returns the tapes: two for each recording."""
    made = []

    def tape():
        made.append(Tape())
        return made[-1]

    @contextlib.contextmanager
    def record(graph, stream=None, **options):
        with graph:
            yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", tape)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(sf.steps, "recorded_on", lambda device: True)
    return made


def trained(configuration, column, epochs=6, **options):
    model = model_of(configuration)
    with sf.use_backend(column):
        training = sf.training.train(
            model,
            sf.TrainingConfig(epochs=epochs, learning_rate=0.01, warmup_epochs=4),
            seed=5,
            progress=False,
            **options,
        )
    history = [{name: value for name, value in record.items() if name != "seconds"} for record in training.history]
    return model, history


TAPED = "triton" if backends.interpreted() else "cpu"


def assert_same_run(got, want):
    (model, history), (expected, wanted) = got, want
    assert history == wanted
    for (name, weight), other in zip(model.state_dict().items(), expected.state_dict().values(), strict=True):
        assert_same_bits(weight, other, name=name)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_training_replays_one_recorded_step(configuration, request):
    """Each epoch has its own draws and warm-up, and the bits of a step that is not recorded."""
    want = trained(configuration, TAPED)
    tapes = request.getfixturevalue("tapes")
    got = trained(configuration, TAPED)
    assert [tape.replays for tape in tapes] == [6, 6]
    assert_same_run(got, want)
    assert len({record["loss"] for record in got[1]}) == 6


def test_a_run_goes_on_from_its_checkpoint_with_a_new_recording(tmp_path, request):
    want = trained("v3", TAPED)
    tapes = request.getfixturevalue("tapes")
    trained("v3", TAPED, epochs=2, checkpoint=sf.Checkpoint(tmp_path / "run"))
    got = trained("v3", TAPED, checkpoint=sf.Checkpoint(tmp_path / "run", resume=True))
    assert [tape.replays for tape in tapes] == [2, 2, 4, 4]
    assert_same_run(got, want)


def test_a_replayed_run_validates_and_keeps_the_best_epoch(request):
    def run():
        model = model_of("v3")

        def score(epoch):
            model.eval()
            with torch.no_grad():
                return {"score": float(model.embed().square().mean()) * (-1) ** epoch}

        validation = sf.training.Validation(
            score=score, names=("score",), improves=lambda new, best: new["score"] > best["score"]
        )
        with sf.use_backend(TAPED):
            config = sf.TrainingConfig(epochs=5, learning_rate=0.01)
            training = sf.training.train(model, config, progress=False, validation=validation)
        return model, training.best_epoch, [record["score"] for record in training.history]

    want = run()
    tapes = request.getfixturevalue("tapes")
    got = run()
    assert [tape.replays for tape in tapes] == [5, 5]
    assert got[1:] == want[1:]
    assert got[1] % 2 == 0
    for weight, other in zip(got[0].parameters(), want[0].parameters(), strict=True):
        assert_same_bits(weight.detach(), other.detach())


def test_a_nan_in_a_replay_stops_before_the_weights_change(tapes, monkeypatch):
    model = model_of("v3")
    before, gradients = [], sf.capture.CapturedStep.gradients

    def spoiled(step, **given):
        if tapes[0].replays == 2:
            before.extend(parameter.detach().clone() for parameter in model.parameters())
            # Not the weights of the model, which have to stay as they are: what the recorded step reads.
            model.graph.features.values.fill_(float("nan"))
        return gradients(step, **given)

    monkeypatch.setattr(sf.capture.CapturedStep, "gradients", spoiled)
    config = sf.TrainingConfig(epochs=6, learning_rate=0.01)
    with sf.use_backend(TAPED), pytest.raises(sf.TrainingFailure, match="epoch 3: "):
        sf.training.train(model, config, progress=False)
    assert [tape.replays for tape in tapes] == [3, 2]
    for parameter, weight in zip(model.parameters(), before, strict=True):
        assert_same_bits(parameter.detach(), weight)


def test_training_says_once_why_its_step_is_not_recorded(tapes, monkeypatch):
    want = trained("v3", TAPED)
    assert len(tapes) == 2
    with monkeypatch.context() as patch:
        # A backend that reads the device can't be recorded.
        def refuse(graph, **options):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore of it")

        patch.setattr(torch.cuda, "graph", refuse)
        with pytest.warns(UserWarning, match="not recorded as CUDA graphs, and take longer: CUDA error: .*capturing$"):
            assert_same_run(trained("v3", TAPED), want)


def test_batches_are_not_recorded(tapes, recwarn):
    """They have different shapes."""
    batches = sf.batches.source_of(model_of("v3").graph, sf.Batches(torch.arange(17) // 9))
    trained("v3", TAPED, source=batches)
    assert not tapes
    assert not [warning for warning in recwarn.list if "recorded" in str(warning.message)]


@pytest.mark.parametrize("averaging", [False, True])
@pytest.mark.parametrize("configuration", PARTED)
def test_one_batch_of_all_parts_is_recorded(configuration, averaging, request):
    """The nodes are in another order, so that a recording on the model's own graph would give other bits."""

    def run():
        batches = sf.Batches(torch.arange(17) % 2, per_batch=2)
        source = sf.batches.source_of(model_of(configuration).graph, batches, averaging=averaging)
        return trained(configuration, TAPED, source=source)

    want = run()
    tapes = request.getfixturevalue("tapes")
    got = run()
    assert [tape.replays for tape in tapes] == [6, 6]
    assert_same_run(got, want)


def test_a_validation_without_memory_drops_the_recording(request):
    """The memory of a recording is kept for it alone, so that validations may find too little."""

    def run(fails):
        model, calls = model_of("v3"), []

        def score(epoch):
            calls.append(epoch)
            if fails and len(calls) == 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return {"score": float(epoch)}

        validation = sf.training.Validation(score, lambda new, best: new["score"] > best["score"], ("score",))
        config = sf.TrainingConfig(epochs=6, learning_rate=0.01)
        with sf.use_backend(TAPED):
            training = sf.training.train(model, config, progress=False, validation=validation)
        history = [{name: value for name, value in record.items() if name != "seconds"} for record in training.history]
        return (model, history), calls

    want, _ = run(False)
    tapes = request.getfixturevalue("tapes")
    with pytest.warns(UserWarning, match="too little memory for the recording beside a validation"):
        got, calls = run(True)
    assert calls == [1, 2, 3, 3, 4, 5, 6]
    assert [tape.replays for tape in tapes] == [3, 3]
    assert_same_run(got, want)
    request.getfixturevalue("monkeypatch").setattr(sf.steps, "recorded_on", lambda device: False)
    with pytest.raises(torch.OutOfMemoryError):
        run(True)


def test_a_cpu_has_nothing_to_record(recwarn):
    assert isinstance(sf.steps.steps_of(model_of("v3"), None, sf.batches.WholeGraph()), sf.steps.EagerSteps)
    assert not recwarn.list


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("begun", [False, True], ids=["fresh optimizer", "begun optimizer"])
def test_replays_are_the_eager_steps(configuration, begun):
    """The same losses and weights, bit for bit, from the state that the model and its optimiser were in."""
    outcomes = []
    for captured in (False, True):
        model = model_of(configuration, "cuda").train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True, capturable=True)

        def eager(seed, warmup, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            output = model(seed=seed, warmup=warmup)
            output.loss.backward()
            optimizer.step()
            return output

        if begun:
            eager(99, 1.0)
        run = model.capture(optimizer) if captured else lambda *, seed, warmup, eager=eager: eager(seed, warmup)
        losses = [run(seed=seed, warmup=seed / 4).loss.detach().clone() for seed in range(1, 4)]
        outcomes.append(losses + [parameter.detach().clone() for parameter in model.parameters()])
    for got, want in zip(*outcomes, strict=True):
        assert_same_bits(got, want)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(
    ("configuration", "parts"), [*((name, None) for name in CONFIGURATIONS), *((name, 2) for name in PARTED)]
)
def test_a_training_that_replays_has_the_bits_of_one_that_does_not(configuration, parts, monkeypatch):
    runs, recorded = [], []
    capture = sf.SeeGera.capture
    monkeypatch.setattr(sf.SeeGera, "capture", lambda *given: recorded.append(1) or capture(*given))
    for replays in (True, False):
        monkeypatch.setattr(sf.steps, "recorded_on", lambda device, replays=replays: replays)
        model = model_of(configuration, "cuda")
        config = sf.TrainingConfig(epochs=6, learning_rate=0.01, warmup_epochs=4)
        batches = None if parts is None else sf.Batches(torch.arange(17) % parts, per_batch=parts)
        source = sf.batches.source_of(model.graph, batches, averaging=batches is not None)
        training = sf.training.train(model, config, progress=False, source=source)
        history = [{name: value for name, value in record.items() if name != "seconds"} for record in training.history]
        runs.append((model, history))
    assert len(recorded) == 1
    assert_same_run(*runs)
