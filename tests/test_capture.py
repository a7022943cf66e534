"""A training step can be recorded: it reads nothing on the host and has its seeds in slots, or is refused."""

import contextlib
import functools

import pytest
import torch
from configurations import CONFIGURATIONS, model_of
from contract import Column
from tolerances import assert_same_bits
from torch.utils._python_dispatch import TorchDispatchMode

import seegera_fast as sf
from seegera_fast import backends
from seegera_fast.capture import check_capturable
from seegera_fast.seeds import SeedSlots, derive_seed, seed_tensor

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
    """torch.compile without a graph break: the same loss and gradients. Losses of other models: test_compile.py."""
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
