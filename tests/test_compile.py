"""Models in torch.compile and torch.export, and with hooks on their layers.

The first line of each test's docstring is a row of the table in docs/pytorch.md: what somebody does: what happens.
"""

import copy
import io

import pytest
import torch
from small_steps import assert_all_same, gradients, graph, model
from tolerances import assert_same_bits
from torch.nn.utils import prune

import seegera_fast as sf


def compiled_losses(made, seeds, warmups=None, **options):
    """The losses of a compiled model, and how many graphs it was compiled to."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(made, backend="aot_eager", **options)
    warmups = warmups or [1.0] * len(seeds)
    losses = [compiled(seed=seed, warmup=t).loss.detach() for seed, t in zip(seeds, warmups, strict=True)]
    return losses, torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    "fields", [{}, {"negatives": 3, "variant": "independent"}, {"likelihood": "gaussian"}], ids=str
)
def test_compile(fields):
    """`torch.compile(model, fullgraph=True)` with a tensor as the seed: compiles once, numbers as without"""
    made = model(dropout=0.3, **fields)
    losses, graphs = compiled_losses(made, [torch.tensor([5 + step]) for step in range(8)], fullgraph=True)
    assert graphs == 1
    for step, loss in enumerate(losses):
        assert_same_bits(loss, made(seed=5 + step).loss.detach())


def test_compile_with_other_warmups():
    """`torch.compile(model, fullgraph=True)` with a number as `warmup`: compiles at most twice"""
    made, warmups = model(), [epoch / 300 for epoch in range(1, 12)]
    losses, graphs = compiled_losses(made, [torch.tensor([5])] * len(warmups), warmups, fullgraph=True)
    assert graphs <= 2
    for warmup, loss in zip(warmups, losses, strict=True):
        assert_same_bits(loss, made(seed=5, warmup=warmup).loss.detach())


def test_compile_after_a_move():
    """`torch.compile` after `model.double()`: as before it; call it once without for a graph that is new"""
    made = model().double()
    torch.compiler.reset()
    loss = torch.compile(made, fullgraph=True, backend="eager")(seed=torch.tensor([5])).loss
    assert_same_bits(loss.detach(), made(seed=5).loss.detach())


@pytest.mark.parametrize(
    "fields",
    [{"structure_masking_rate": 0.0, "feature_masking_rate": 0.0, "negatives": 40}, {"negatives": "edges"}, {}],
    ids=str,
)
def test_compile_of_batches(fields):
    """`torch.compile(model)` on graphs of other sizes: compiles twice"""
    made = model(prepare=False, **fields)
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(made, backend="eager", fullgraph=True)
    for nodes in (30, 40, 50, 60):
        part = graph(nodes=nodes)
        want = made(part, seed=5).loss.detach()
        assert_same_bits(compiled(part, seed=torch.tensor([5])).loss.detach(), want)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_compile_without_kernels():
    """`torch.compile(model)` where there are no kernels: the model runs as without it"""
    made, eager = model(), model()
    torch.compiler.reset()
    made.compile(backend="aot_eager")
    with sf.use_backend("reference"):
        assert_all_same(gradients(made), gradients(eager))


@pytest.mark.parametrize(("seeds", "most"), [([*range(3, 10), -(2**63)], 2), ([None] * 8, 1)], ids=["int", "None"])
def test_compile_with_other_seeds(seeds, most):
    """`torch.compile(model)` with a number as the seed, or none: compiles at most twice"""
    made, eager = model(), model()
    losses, graphs = compiled_losses(made, seeds)
    assert graphs <= most
    for seed, loss in zip(seeds, losses, strict=True):
        assert_same_bits(loss, eager(seed=seed).loss.detach())


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict):
    """`torch.export.export(model)` with a tensor as the seed: works, also saved; the loaded program needs the import"""
    made, file = model(), io.BytesIO()
    torch.export.save(torch.export.export(made, (), {"seed": torch.tensor([3])}, strict=strict), file)
    file.seek(0)
    program = torch.export.load(file).module()
    for seed in (3, 4):
        found, expected = program(seed=torch.tensor([seed])), made(seed=seed)
        assert type(found) is type(expected)
        assert_same_bits(found.loss, expected.loss)
        assert_all_same(found.samples, expected.samples)


def test_copies_of_a_compiled_model():
    """`copy.deepcopy`, `AveragedModel` after `model.compile()`: the copy computes with its own weights"""
    made = model()
    made.compile(backend="eager")
    want = made(seed=1).loss
    for copied in (copy.deepcopy(made), torch.optim.swa_utils.AveragedModel(made).module):
        assert_same_bits(copied(seed=1).loss, want)
        for parameter in copied.parameters():
            torch.nn.init.zeros_(parameter)
        assert copied(seed=1).loss != want
    assert_same_bits(made(seed=1).loss, want)


@pytest.mark.parametrize("fields", [{}, {"decoder": "mlp"}], ids=str)
def test_hooks(fields):
    """hooks on layers, `torch.nn.utils.prune`: called in each step; `embed(rows_at_once=...)` refuses them by name"""
    made = model(**fields)
    layers = [name for name, _ in made.named_modules() if name.rsplit(".")[-1] in {"first", "last", "0", "1"}]
    assert {"decoder.last", "decoder.layers.0", "node_mean.first", "node_log_var.rest.0"} <= {*layers}
    called = []
    handles = [
        made.get_submodule(name).register_forward_pre_hook(lambda *_, name=name: called.append(name)) for name in layers
    ]
    made(seed=1)
    assert sorted(called) == sorted(layers)
    with pytest.raises(ValueError, match=r"^rows_at_once, out: got a model with a hook on node_mean\.first, as"):
        made.embed(rows_at_once=5)
    for handle in handles:
        handle.remove()
    made.embed(rows_at_once=5)
    pruned, other = model(**fields), model(seed=3, **fields)
    for each in (pruned, other):
        for name in layers:
            prune.random_unstructured(each.get_submodule(name), "weight", 0.5)
    other.load_state_dict(pruned.state_dict())
    assert_all_same(gradients(other), gradients(pruned))
    gradient, mask = gradients(pruned)["decoder.last.weight_orig"], pruned.decoder.last.weight_mask
    assert gradient[mask == 0].abs().max() == 0 < gradient[mask == 1].abs().max()
