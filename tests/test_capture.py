"""A recorded training step reads nothing on the host and has its seeds in slots; on a GPU it equals the eager step."""

import collections
import contextlib
import copy
import functools
import importlib

import cases
import pytest
import torch
from contract import Column
from tolerances import assert_same_bits
from torch.utils._python_dispatch import TorchDispatchMode

import seegera_fast as sf
from seegera_fast import backends
from seegera_fast.capture import check_capturable
from seegera_fast.registry import OPERATORS
from seegera_fast.seeds import SeedSlots, derive_seed, seed_tensor

SMALL = {"embedding_dim": 6, "hidden_dim": 5, "noise_dim": 3}
MASKED = {"structure_masking_rate": 0.3, "feature_masking_rate": 0.2, "dropout": 0.3}
CONFIGURATIONS = {
    "v1": {"variant": "independent"},
    "v2": {"num_importance_samples": 2, "num_mixture_samples": 3},
    "v3": MASKED,
    "v3, sampled, gaussian": {**MASKED, "negatives": 8, "likelihood": "gaussian", "scaling": "sum"},
    "v3, mse, joint": {**MASKED, "likelihood": "mse", "mixture": "joint", "noisy_variance": True},
    "mlp": {"encoder": "mlp", "decoder": "mlp", "dropout": 0.3},
    "inner product": {"decoder": "inner_product", "dropout": 0.3},
}
# Those that are trained as one batch of all parts: with either scaling.
PARTED = ("v3", "v3, sampled, gaussian")
# Operations that read a value on the host. They would wait for the GPU, so that no CUDA graph could be recorded.
HOST_READS = {
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::is_nonzero",
    "aten::masked_select",
    "aten::nonzero",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::bincount",
}


def columns():
    """The devices and backends on which this machine has a kernel for every operation."""
    found = [Column("triton" if backends.interpreted() else "cpu", "cpu")]
    if torch.cuda.is_available():
        found += [Column("triton", "cuda"), Column("chosen", "cuda")]
    return [
        pytest.param(column, id=str(column), marks=[pytest.mark.gpu] if column.device == "cuda" else [])
        for column in found
    ]


def model_of(configuration, device="cpu"):
    graph = cases.graph("random", kind="binary").to(device=device, dtype=torch.float32)
    return sf.SeeGera(graph, seed=1, **{**SMALL, **CONFIGURATIONS[configuration]})


def step(model, seed):
    """Loss, terms and gradients of a step, by name."""
    model.zero_grad()
    output = model(seed=seed, warmup=torch.tensor(0.5, dtype=torch.float64))
    output.loss.backward()
    found = {"loss": output.loss.detach(), **output.terms}
    return found | {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.fixture(params=columns())
def column(request):
    with contextlib.nullcontext() if request.param.backend == "chosen" else sf.use_backend(request.param.backend):
        yield request.param


class NoHostRead(TorchDispatchMode):
    """Raises an error for operations that read a value of a tensor on ``device``."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name
        if name in HOST_READS or (name == "aten::index" and any(_is_mask(index) for index in args[1])):
            raise AssertionError(f"{name} reads the device")
        return function(*args, **(kwargs or {}))


def _is_mask(index):
    return index is not None and index.dtype == torch.bool


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_step_reads_nothing_on_the_host(configuration, column):
    model = model_of(configuration, column.device)
    slots = SeedSlots(torch.device(column.device))
    # The first step computes what the graph caches, such as the transposes of its matrices.
    step(model, slots.root)
    with NoHostRead():
        step(model, slots.root)


def test_a_host_read_is_noticed():
    with NoHostRead(), pytest.raises(AssertionError, match="_local_scalar_dense reads the device"):
        float(torch.ones(()))
    with NoHostRead(), pytest.raises(AssertionError, match="index reads the device"):
        torch.ones(3)[torch.tensor([True, False, True])]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_slots_hold_the_seeds_of_all_sites(configuration, column):
    """A seed in slots, which are filled again for each step, gives the same bits as the number."""
    model = model_of(configuration, column.device)
    slots = SeedSlots(torch.device(column.device))
    step(model, slots.root)
    # The second number takes the slots of the first.
    slots.fill(5)
    slots.fill(-7)
    for (name, got), want in zip(step(model, slots.root).items(), step(model, -7).values(), strict=True):
        assert_same_bits(got, want, name=name)


class Launches(TorchDispatchMode):
    """Counts what a step launches on a GPU: kernels of Triton, and operations of torch that write something.

    Launches are counted by operator of the library; "torch" stands for those between operators. An operation of torch
    is counted once, though it may be several launches.
    """

    def __init__(self):
        super().__init__()
        self.counts, self._operator, self._interpreting = collections.Counter(), "torch", False

    def count_kernels(self, monkeypatch):
        kind = type(importlib.import_module("seegera_fast.kernels.triton.common.dropout").dropout_kernel)
        prepare = kind.__getitem__

        def counted(kernel, grid):
            launch = prepare(kernel, grid)

            def run(*arguments, **options):
                self.counts[self._operator] += 1
                # The interpreter itself calls operations of torch, which are not counted.
                self._interpreting = True
                launch(*arguments, **options)
                self._interpreting = False

            return run

        monkeypatch.setattr(kind, "__getitem__", counted)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._interpreting:
            return function(*args, **kwargs)
        library, name = function._schema.name.split("::")
        if library == "seegera_fast":
            module = importlib.import_module(f"seegera_fast.kernels.triton.{name.removesuffix('_backward')}")
            before, self._operator = self._operator, name
            with self:
                out = getattr(module, name)(**OPERATORS[name].named(args, kwargs))
            self._operator = before
            return out
        out = function(*args, **kwargs)
        given = {tensor.untyped_storage().data_ptr() for tensor in tensors_of((args, kwargs))}
        made = [tensor for tensor in tensors_of(out) if tensor.untyped_storage().data_ptr() not in given]
        written = any(tensor.numel() for tensor in made) and "empty" not in name
        self.counts[self._operator] += written or function._schema.is_mutable
        return out


def tensors_of(tree):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


# The largest numbers of launches in a step with the layers of Cora's v3 preset, on a graph with hubs. With the CUDA
# library, sparse products, masks and noisy_gcn need fewer. For "torch" it is two more than with torch 2.13, because
# other versions divide some operations differently.
MOST_LAUNCHES = {
    "torch": 39,
    "draw_subset": 3,
    "mask_edges": 3,
    "noisy_gcn": 21,
    "noisy_gcn_backward": 23,
    "gcn": 28,
    "gcn_backward": 39,
    "sparse_matmul": 24,
    "reparameterize": 2,
    "reparameterize_backward": 2,
    "dropout": 6,
    "decoder_input": 6,
    "decoder_input_backward": 8,
    "link_likelihood": 9,
    "link_likelihood_backward": 1,
    "feature_likelihood": 11,
    "feature_likelihood_backward": 2,
    "standard_normal_density": 4,
    "standard_normal_density_backward": 2,
    "mixture_density": 6,
    "mixture_density_backward": 2,
    "importance_bound": 1,
    "importance_bound_backward": 1,
}


@pytest.mark.skipif(not backends.interpreted(), reason="needs Triton's interpreter")
def test_a_step_by_triton_has_no_more_launches_than_before(monkeypatch):
    """On a GPU each launch takes microseconds of a step of four milliseconds, and most read or write much memory."""
    graph = cases.large_graph().to(dtype=torch.float32)
    layers = {"encoder_layers": 2, "decoder_layers": 3}
    model = sf.SeeGera(graph, **SMALL, **layers, structure_masking_rate=0.3, dropout=0.3)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    slots, warmup = SeedSlots(torch.device("cpu")), torch.ones((), dtype=torch.float64)

    def run():
        optimizer.zero_grad(set_to_none=True)
        model(seed=slots.root, warmup=warmup).loss.backward()
        optimizer.step()

    launches = Launches()
    with sf.use_backend("triton"):
        # The first step computes what the graph caches.
        run()
        launches.count_kernels(monkeypatch)
        with launches:
            run()
    more = {name: count for name, count in launches.counts.items() if count > MOST_LAUNCHES.get(name, 0)}
    assert more == {}, f"of {launches.counts.total()} launches; at most {MOST_LAUNCHES}"
    assert launches.counts.keys() == MOST_LAUNCHES.keys()


def test_slots_are_as_many_as_wanted():
    slots = SeedSlots(torch.device("cpu"), capacity=2)
    sites = [derive_seed(slots.root, index) for index in range(3)]
    slots.fill(11)
    first = seed_tensor(sites[0], torch.device("cpu"))
    assert seed_tensor(sites[0], torch.device("cpu")).data_ptr() == first.data_ptr()
    second = seed_tensor(sites[1], torch.device("cpu"))
    slots.fill(11)
    assert [first.tolist(), second.tolist()] == [[derive_seed(11, 0)], [derive_seed(11, 1)]]
    # Triton compiles kernels again for addresses with another alignment.
    assert [slot.data_ptr() % 16 for slot in (first, second)] == [0, 0]
    with pytest.raises(RuntimeError, match="more than 2 sites"):
        seed_tensor(sites[2], torch.device("cpu"))


def test_the_model_compiles_whole(column):
    """torch.compile without a graph break: the same loss and gradients. Losses of other models: test_pytorch.py."""
    model = model_of("v3, sampled, gaussian", column.device)
    want = step(model, 3)
    torch.compiler.reset()
    model.forward = torch.compile(model.forward, fullgraph=True, backend="aot_eager")
    got = step(model, 3)
    for name, value in got.items():
        assert_same_bits(value, want[name], name=name)


def test_refusals():
    model = model_of("v3")
    with pytest.raises(ValueError, match="model: is on cpu, want a CUDA device"):
        model.capture(torch.optim.Adam(model.parameters(), fused=True))
    with pytest.raises(TypeError, match=r"optimizer: got float, want a torch\.optim\.Optimizer"):
        model.capture(0.1)
    with pytest.raises(TypeError, match=r"graph: got int, want a seegera_fast\.Graph"):
        model.capture(torch.optim.Adam(model.parameters()), graph=3)
    with pytest.raises(ValueError, match="Adam has capturable=False, want True"):
        check_capturable(torch.device("cuda"), torch.optim.Adam(model.parameters()))
    for other in (
        torch.optim.NAdam,
        torch.optim.Adagrad,
        functools.partial(torch.optim.SGD, momentum=0.5, dampening=0.5),
    ):
        with pytest.raises(ValueError, match=r"optimizer: got \w+, want Adam, .* or SGD without dampening"):
            check_capturable(torch.device("cuda"), other(model.parameters(), lr=0.1))
    check_capturable(torch.device("cuda"), torch.optim.SGD(model.parameters(), lr=0.1))
    check_capturable(torch.device("cuda"), torch.optim.RMSprop(model.parameters(), capturable=True))


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
            sf.training.TrainingConfig(epochs=epochs, learning_rate=0.01, warmup_epochs=4),
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
            config = sf.training.TrainingConfig(epochs=5, learning_rate=0.01)
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
    config = sf.training.TrainingConfig(epochs=6, learning_rate=0.01)
    with sf.use_backend(TAPED), pytest.raises(sf.training.TrainingFailure, match="epoch 3: "):
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
        config = sf.training.TrainingConfig(epochs=6, learning_rate=0.01)
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
        config = sf.training.TrainingConfig(epochs=6, learning_rate=0.01, warmup_epochs=4)
        batches = None if parts is None else sf.Batches(torch.arange(17) % parts, per_batch=parts)
        source = sf.batches.source_of(model.graph, batches, averaging=batches is not None)
        training = sf.training.train(model, config, progress=False, source=source)
        history = [{name: value for name, value in record.items() if name != "seconds"} for record in training.history]
        runs.append((model, history))
    assert len(recorded) == 1
    assert_same_run(*runs)
