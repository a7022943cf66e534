"""What a recorded training step needs: nothing read on the host, seeds in slots; and on a GPU, the step itself."""

import contextlib
import copy
import functools

import cases
import pytest
import torch
from contract import Column
from tolerances import assert_same_bits
from torch.utils._python_dispatch import TorchDispatchMode

import seegera_fast as sf
from seegera_fast import backends
from seegera_fast.capture import check_capturable
from seegera_fast.seeds import SeedSlots, derive_seed, seed_tensor

SMALL = {"embedding_dim": 6, "hidden_dim": 5, "noise_dim": 3}
MASKED = {"structure_masking_rate": 0.3, "feature_masking_rate": 0.2, "dropout": 0.3}
CONFIGURATIONS = {
    "v1": {"variant": "independent"},
    "v2": {"num_importance_samples": 2, "num_mixture_samples": 3},
    "v3": MASKED,
    "v3, sampled, gaussian": {**MASKED, "negatives": 8, "likelihood": "gaussian"},
    "v3, mse, joint": {**MASKED, "likelihood": "mse", "mixture": "joint", "noisy_variance": True},
    "mlp": {"encoder": "mlp", "decoder": "mlp", "dropout": 0.3},
    "inner product": {"decoder": "inner_product", "dropout": 0.3},
}
# What reads a value on the host, so that a GPU would be waited for and no graph could be recorded.
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
    """Where this machine can run every operation by a kernel; on a GPU by the one that is chosen for each."""
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
    """Refuses what reads a value of a tensor on ``device``."""

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
    # The first step builds what the graph keeps, from the matrix's transpose to the gaps between its entries.
    step(model, slots.root)
    with NoHostRead():
        step(model, slots.root)


def test_a_host_read_is_noticed():
    with NoHostRead(), pytest.raises(AssertionError, match="_local_scalar_dense reads the device"):
        float(torch.ones(()))
    with NoHostRead(), pytest.raises(AssertionError, match="index reads the device"):
        torch.ones(3)[torch.tensor([True, False, True])]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_slots_hold_the_seeds_of_all_places(configuration, column):
    """The same bits from a seed in slots, which are filled anew for each step, and from the number."""
    model = model_of(configuration, column.device)
    slots = SeedSlots(torch.device(column.device))
    step(model, slots.root)
    for seed in (5, -7):
        slots.fill(seed)
        for (name, got), want in zip(step(model, slots.root).items(), step(model, seed).values(), strict=True):
            assert_same_bits(got, want, name=name)


def test_slots_are_as_many_as_wanted():
    slots = SeedSlots(torch.device("cpu"), capacity=2)
    places = [derive_seed(slots.root, index) for index in range(3)]
    slots.fill(11)
    first = seed_tensor(places[0], torch.device("cpu"))
    assert seed_tensor(places[0], torch.device("cpu")).data_ptr() == first.data_ptr()
    second = seed_tensor(places[1], torch.device("cpu"))
    slots.fill(11)
    assert [first.tolist(), second.tolist()] == [[derive_seed(11, 0)], [derive_seed(11, 1)]]
    # Triton compiles kernels anew for other addresses.
    assert [slot.data_ptr() % 16 for slot in (first, second)] == [0, 0]
    with pytest.raises(RuntimeError, match="more than 2 places"):
        seed_tensor(places[2], torch.device("cpu"))


@pytest.mark.parametrize("configuration", ["v1", "v3, sampled, gaussian"])
def test_the_model_compiles_whole(configuration, column):
    """torch.compile without a graph break: the same loss and gradients."""
    model = model_of(configuration, column.device)
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
    """Lets a CPU record a step, which it runs; returns the current stream, the side one, and where was recorded."""
    current, side, recorded = Stream("current"), Stream("side"), []

    @contextlib.contextmanager
    def record(graph, stream=None):
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
    assert recorded == [side]
    assert (side.waited, current.waited) == (["current"], ["side"])


def test_a_step_that_raises_is_waited_for_and_taken_back(recording, monkeypatch):
    """Its kernels may still run on the side stream when what they write is put back."""
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
    """What was recorded would be computed with weights, or a state, that nobody reads any more."""
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

    for count, change in enumerate((weights_assigned, one_weight_moved, state_loaded), start=1):
        step = model.capture(optimizer)
        step()
        change()
        with pytest.raises(RuntimeError, match="lie elsewhere now, record the step anew"):
            step()
        assert len(replays) == count


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
