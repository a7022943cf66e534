"""PyTorch's habits around the model and the operations.

The first line of each test's docstring is a row of the table in docs/pytorch.md: what somebody does: what happens.
"""

import copy
import functools
import io
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from small_steps import FIELDS, KERNELS, assert_all_same, gradients, graph, model
from tolerances import assert_close, assert_same_bits
from torch.utils.checkpoint import checkpoint

import seegera_fast as sf
from seegera_fast import precision


def run(program, **environment):
    """Runs a program in a process of its own and returns what it prints."""
    command = [sys.executable, "-W", "error::UserWarning", "-c", textwrap.dedent(program)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


# --- contexts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", KERNELS)
def test_inference_mode(backend):
    """`torch.inference_mode()`, and training later: works, also with a graph and a model that were made inside of it"""
    with sf.use_backend(backend):
        want = gradients(model())
        made = model()
        with torch.inference_mode():
            made.embed()
            made(seed=3)
            inside = model()
            other = graph().to(dtype=torch.float64).to(dtype=torch.float32)
        assert_all_same(gradients(made), want)
        assert_all_same(gradients(inside), want)
        assert_all_same(
            gradients(sf.SeeGera(other.with_edges(other.edges()).with_features(graph().features), **FIELDS)), want
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", KERNELS)
def test_autocast(backend, dtype):
    """`torch.autocast`: dense products of bfloat16 where they are fast, everything else in float32"""
    with sf.use_backend(backend):
        made = model()
        with precision.at("medium"):
            want = gradients(made)
            loss = made(seed=1).loss
        made.zero_grad()
        with torch.autocast("cpu", dtype):
            output = made(seed=1)
            assert_same_bits(output.loss, loss)
            if backend == "cpu":
                assert_all_same(gradients(made), want)
                made.zero_grad()
            z = torch.nn.Linear(4, 3)(torch.ones(12, 1, 4))
            assert z.dtype == dtype
            assert sf.ops.link_likelihood(z, made.graph.adjacency).dtype == torch.float32
        output.loss.backward()
        assert_all_same({name: parameter.grad for name, parameter in made.named_parameters()}, want)


@pytest.mark.parametrize("backend", KERNELS)
def test_float32_matmul_precision(backend):
    """`torch.set_float32_matmul_precision`: holds for the operations, forward and backward"""
    with sf.use_backend(backend):
        made = model()
        plain = gradients(made)
        with precision.at("medium"):
            rounded = gradients(made)
        names = [name for name, value in plain.items() if not torch.equal(value, rounded[name])]
        fast = precision.fast(backend, torch.device("cpu"))
        assert bool(names) == ("medium" in fast), names
        for name, value in plain.items():
            assert (rounded[name] - value).norm() <= 0.1 * value.norm() + 1e-6, name


def test_grad_scaler():
    """`torch.amp.GradScaler`: works"""
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    want = {
        name: p.detach() - 1e-2 * g
        for (name, p), g in zip(made.named_parameters(), gradients(made).values(), strict=True)
    }
    optimizer.zero_grad()
    scaler.scale(made(seed=1).loss).backward()
    scaler.step(optimizer)
    scaler.update()
    for name, parameter in made.named_parameters():
        assert_close(parameter.detach(), want[name].double(), terms=4, name=name)


@pytest.mark.parametrize("backend", KERNELS)
def test_default_dtype(backend):
    """`torch.set_default_dtype`, `torch.set_default_device`: no effect; a model has its graph's dtype and device"""

    def trained():
        batches = sf.Batches(parts=3, per_batch=2)
        return sf.tasks.link_prediction(graph(nodes=30), epochs=2, batches=batches, progress=False, **FIELDS)

    with sf.use_backend(backend):
        want, found = gradients(model()), [trained()]
        for settings in ({"dtype": torch.float64}, {"dtype": torch.float64, "device": "meta"}):
            torch.set_default_dtype(settings["dtype"])
            torch.set_default_device(settings.get("device"))
            try:
                made = model()
                assert_all_same(gradients(made), want)
                made.link_scores([[0, 1]])
                made.reconstruct_features([0], [1])
                found.append(trained())
            finally:
                torch.set_default_dtype(torch.float32)
                torch.set_default_device(None)
        with torch.device("meta"):
            assert_all_same(gradients(model()), want)
    assert found[0].auc == found[1].auc == found[2].auc
    assert_all_same(found[2].model.state_dict(), found[0].model.state_dict())


def test_tasks_without_gradients():
    """`torch.no_grad()`, `torch.inference_mode()` around a task: it trains all the same"""
    plain = graph(nodes=30)
    for task in (
        sf.tasks.embed,
        sf.tasks.link_prediction,
        sf.tasks.attribute_inference,
        sf.tasks.node_classification,
    ):
        run = functools.partial(task, epochs=2, progress=False, **FIELDS)
        want = run(sf.Graph(plain.adjacency, plain.features, torch.arange(30) % 3))
        for context in (torch.no_grad, torch.inference_mode):
            with context():
                found = run(sf.Graph(plain.adjacency, plain.features, torch.arange(30) % 3))
                assert not torch.is_grad_enabled()
            assert_all_same(found.model.state_dict(), want.model.state_dict())
            for name in ("valid_auc", "mse", "accuracy"):
                assert getattr(found, name, None) == getattr(want, name, None)


def test_checkpointing():
    """`torch.utils.checkpoint` around a step: right with `model(seed=...)`; without a seed it is refused"""
    made = model()
    want = gradients(made)
    for reentrant in (True, False):
        made.zero_grad()
        unused = torch.zeros((), requires_grad=True)  # what the older form needs
        checkpoint(lambda _: made(seed=1).loss, unused, use_reentrant=reentrant).backward()
        assert_all_same({name: parameter.grad for name, parameter in made.named_parameters()}, want)
        with pytest.raises(RuntimeError, match=r"seed: got none in a backward pass.*model\(seed=...\)"):
            checkpoint(lambda _: made().loss, unused, use_reentrant=reentrant).backward()


def test_manual_seed():
    """`torch.manual_seed`: no effect; the seeds are `SeeGera(seed=...)` and `model(seed=...)`"""
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        made = model(seed=5)
        found.append(float(made().loss))
        assert torch.equal(torch.get_rng_state(), before)
    assert found[0] == found[1] != float(model(seed=6)().loss)


def test_state_dict():
    """`load_state_dict` and going on: the weights, not the count of steps; `model(seed=epoch)` draws anew"""
    made, other = model(), model()
    first = float(made().loss)
    other.load_state_dict(made.state_dict())
    assert float(other().loss) == first != float(made().loss)
    assert float(other(seed=7).loss) == float(made(seed=7).loss)


# --- torch.func -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", KERNELS)
def test_functional_call(backend):
    """`torch.func.functional_call` with `grad`, `vjp`, `jacrev`: right gradients"""
    made = model()
    parameters = {name: parameter.detach() for name, parameter in made.named_parameters()}

    def loss(given, *graphs):
        with sf.use_backend(backend):
            return torch.func.functional_call(made, given, graphs, {"seed": 1}).loss

    # Of a graph that is new, the propagation is computed inside of the transform.
    for graphs in ((), (graph(nodes=20),)):
        found = torch.func.grad(loss)(parameters, *graphs)
        with sf.use_backend(backend):
            made.zero_grad()
            made(*graphs, seed=1).loss.backward()
        for name, parameter in made.named_parameters():
            assert_close(found[name], parameter.grad.double(), terms=100, name=name)


@pytest.mark.filterwarnings("error:There is a performance drop")
def test_vmap():
    """`torch.vmap` over tensors, seeds or weights of several models: right; draws are computed in one call"""
    made = [model(seed=seed) for seed in range(3)]
    stacked, _ = torch.func.stack_module_state(made)
    losses = torch.vmap(lambda given: torch.func.functional_call(made[0], given, (), {"seed": 1}).loss)(stacked)
    for number, each in enumerate(made):
        assert_close(losses[number], each(seed=1).loss.detach().double(), terms=100)
    seeds = torch.arange(3)
    found = torch.vmap(lambda seed: made[0](seed=seed))(seeds)
    for number in range(3):
        each = made[0](seed=number)
        assert_close(found.loss[number].detach(), each.loss.detach().double(), terms=100)
        assert found.samples.keys() == each.samples.keys()
        for name, values in each.samples.items():
            assert_close(found.samples[name][number], values.double(), terms=100)
    assert torch.isfinite(torch.vmap(lambda seed: made[0](graph(nodes=20), seed=seed).loss)(seeds)).all()


def test_forward_mode():
    """`torch.func.jvp`, `jacfwd`, `hessian`: refused by name; `use_backend("reference")` has them"""
    z = torch.ones(3, 2, 4)
    if "cpu" in KERNELS:
        with pytest.raises(NotImplementedError, match="standard_normal_density: has no forward-mode derivative"):
            torch.func.jvp(sf.ops.standard_normal_density, (z,), (z,))
        with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="has no forward-mode"):
            sf.ops.standard_normal_density(torch.autograd.forward_ad.make_dual(z, z))
    with sf.use_backend("reference"):
        _, tangent = torch.func.jvp(sf.ops.standard_normal_density, (z,), (z,))
        made, other = model(), graph(nodes=20)
        given = {name: parameter.detach() for name, parameter in made.named_parameters()}
        torch.func.jvp(lambda given: torch.func.functional_call(made, given, (other,)).loss, (given,), (given,))
    assert_close(tangent, torch.full((2,), -12.0, dtype=torch.float64), terms=12)


# --- copies ----------------------------------------------------------------------------------------------------------


def test_copies_share_the_graph():
    """`copy.deepcopy(model)`, `AveragedModel(model)`: the weights are copied, the graph is shared"""
    made = model()
    made(seed=1)
    copied = copy.deepcopy(made)
    averaged = torch.optim.swa_utils.AveragedModel(made)
    averaged.update_parameters(made)
    for other in (copied, averaged.module):
        assert other.graph is made.graph
        assert_all_same(other.state_dict(), made.state_dict())
        assert all(p.data_ptr() != q.data_ptr() for p, q in zip(other.parameters(), made.parameters(), strict=True))
        assert_all_same(gradients(other), gradients(made))


def test_pickles():
    """`pickle`, `torch.save(model)`: hold the graph, but nothing that is computed from it"""
    made = model()
    small = len(pickle.dumps(made))
    want = gradients(made)
    made.embed()
    assert len(pickle.dumps(made)) <= small + 64
    assert_all_same(gradients(pickle.loads(pickle.dumps(made))), want)
    file = io.BytesIO()
    torch.save(made, file)
    file.seek(0)
    assert_all_same(gradients(torch.load(file, weights_only=False)), want)


def test_double_and_to():
    """`model.double()`, `model.to(device)`: the model's graph follows; for another, the message says `graph.to(...)`"""
    made = model().double()
    assert made.graph.dtype == torch.float64
    assert made(seed=1).loss.dtype == torch.float64
    with pytest.raises(
        TypeError, match=r"graph: got torch.float32, want torch.float64, .* graph.to\(dtype=torch.float64\)"
    ):
        made(graph(), seed=1)
    made = made.float()
    assert_all_same(gradients(made), gradients(model()))
    with pytest.raises(
        TypeError, match=r"model: has weights of torch.float16, want torch.float32 or torch.float64: model.float\(\)"
    ):
        model().half()(seed=1)
    with pytest.raises(ValueError, match="graph: is on cpu, want meta"):
        model().to("meta")(seed=1)


def test_another_graph():
    """`model(other)`, `model.embed(other)`: any number of nodes, with the model's features; v1 refuses and says why"""
    other = graph(nodes=20)
    made = model()
    assert torch.isfinite(made(other, seed=1).loss)
    assert made.embed(other).shape == (20, 3)
    with pytest.raises(ValueError, match=r'graph: has 20 nodes, want 12, .* variant "independent" \(v1\)'):
        model(variant="independent")(other)


def test_embedding_into_memory_of_ones_own(tmp_path):
    """`model.embed(out=...)`: into a tensor, an array or a memory map, or a `.npy` file, some rows at a time"""
    made = model()
    want, out = made.embed(), torch.empty(12, 3)
    assert made.embed(out=out) is out
    assert_same_bits(out, want)
    assert_same_bits(made.embed(out=tmp_path / "e.npy"), want)
    assert np.array_equal(np.load(tmp_path / "e.npy", mmap_mode="r"), want.numpy())


def test_features_with_a_gradient():
    """features that require a gradient: refused; a graph's features are constants"""
    features = torch.rand(12, 3, requires_grad=True)
    with pytest.raises(ValueError, match="features: got a tensor that requires a gradient, want a constant"):
        sf.Graph(graph().adjacency, features)
    with pytest.raises(ValueError, match="features: got a tensor that requires a gradient"):
        graph().with_features(features)
    sf.Graph(graph().adjacency, features.detach())
    matrix = graph().adjacency
    learned = matrix.with_values(torch.ones(matrix.nnz, requires_grad=True))
    if "cpu" in KERNELS:
        with sf.use_backend("cpu"), pytest.raises(ValueError, match="values of a matrix: got a tensor that requires"):
            sf.ops.sparse_matmul(learned, torch.ones(12, 3))
        with sf.use_backend("cpu"), torch.no_grad():
            sf.ops.sparse_matmul(learned, torch.ones(12, 3))
    with sf.use_backend("reference"):
        sf.ops.sparse_matmul(learned, torch.ones(12, 3)).sum().backward()
    assert learned.values.grad.tolist() == [3] * matrix.nnz


# --- processes -------------------------------------------------------------------------------------------------------


def test_what_importing_leaves_out():
    """`import seegera_fast`: leaves torch._dynamo, scikit-learn and the like to what needs them"""
    printed = run(
        """
        import sys
        import torch
        before = set(sys.modules)
        import seegera_fast
        late = ["torch._dynamo", "sympy", "sklearn", "matplotlib", "pandas", "pyarrow", "networkx", "torch_geometric"]
        print([name for name in late if name in sys.modules and name not in before])
        """
    )
    assert printed.strip() == "[]"


def test_importing_twice():
    """importing twice in one process: `importlib.reload` works; a whole second import is refused"""
    printed = run(
        """
        import importlib, sys
        import seegera_fast
        importlib.reload(seegera_fast)
        for name in [name for name in sys.modules if name.startswith("seegera_fast")]:
            del sys.modules[name]
        try:
            import seegera_fast
        except ImportError as error:
            print(error)
        """
    )
    assert printed.startswith("seegera_fast: is imported a second time in this process")
    assert len(printed.splitlines()) == 1


@pytest.mark.slow
def test_distributed_data_parallel():
    """`DistributedDataParallel`: works; without a seed each rank draws its own noise, masks and non-edges"""
    printed = run(
        """
        import os, tempfile, torch, torch.distributed as dist, torch.multiprocessing as mp
        import seegera_fast as sf
        from torch.nn.parallel import DistributedDataParallel

        def work(rank, file, results):
            dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
            graph = sf.Graph(torch.ones(8, 8).triu(1) + torch.ones(8, 8).tril(-1), torch.eye(8)[:, :4])
            model = sf.SeeGera(graph, embedding_dim=3, hidden_dim=4, structure_masking_rate=0.3)
            assert all(parameter.numel() for parameter in model.parameters())
            parallel = DistributedDataParallel(model)
            loss = parallel().loss
            loss.backward()
            gradient = sum(float(parameter.grad.abs().sum()) for parameter in model.parameters())
            weights = sum(float(parameter.detach().sum()) for parameter in model.parameters())
            results.put((rank, weights, gradient, loss.item()))
            dist.destroy_process_group()

        if __name__ == "__main__":
            results = mp.get_context("fork").Queue()
            file = os.path.join(tempfile.mkdtemp(), "meeting")
            mp.start_processes(work, (file, results), nprocs=2, start_method="fork")
            first, second = sorted(results.get() for _ in "ab")
            assert first[1:3] == second[1:3]
            assert first[3] != second[3]
            print("fine")
        """
    )
    assert printed.splitlines()[-1] == "fine"


@pytest.mark.slow
def test_workers():
    """a `DataLoader` with workers: works; after a plain fork torch's threads hang"""
    printed = run(
        """
        import torch, seegera_fast as sf

        class Sums(torch.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, number):
                z = torch.full((4000, 2, 16), float(number))
                return sf.ops.standard_normal_density(z)

        torch.set_num_threads(2)
        Sums()[0]
        loaded = list(torch.utils.data.DataLoader(Sums(), num_workers=2, timeout=60))
        assert all(torch.equal(found[0], Sums()[number]) for number, found in enumerate(loaded))
        print("fine")
        """
    )
    assert printed.splitlines()[-1] == "fine"
