"""Eight threads use the package at the same time, and change the number of torch's threads: the bits are those of one.

Python switches between the threads as often as it can, so that what two of them do in between is often half done.
"""

import json
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from tolerances import assert_same_bits

import seegera_fast as sf
from seegera_fast import backends
from seegera_fast.training import TrainingConfig, Validation, train

ROOT = Path(__file__).resolve().parents[1]
THREADS = 8

# As different as eight threads allow. Masking, dropout, noise and negatives are drawn in each.
CONFIGURATIONS = {
    "correlated": {"dropout": 0.2, "structure_masking_rate": 0.3, "feature_masking_rate": 0.2},
    "independent": {"variant": "independent", "noisy_variance": True, "num_importance_samples": 3},
    "negatives": {"negatives": "edges", "decoder": "gcn", "likelihood": "bernoulli", "dropout": 0.1},
    "links only": {"feature_side": False, "encoder": "mlp", "num_mixture_samples": 3},
}
SIZES = {"embedding_dim": 24, "hidden_dim": 64, "noise_dim": 3}


def make_graph(nodes=700, columns=40):
    """A graph with nothing computed yet, and a weight matrix of which torch sums with several threads."""
    rng = np.random.default_rng(5)
    edges = rng.integers(0, nodes, (2, 4 * nodes))
    features = scipy.sparse.random(nodes, columns, 0.1, random_state=rng, data_rvs=lambda size: rng.random(size))
    return sf.Graph.from_edge_index(np.concatenate([edges, edges[::-1]], axis=1), features, nodes)


@pytest.fixture(autouse=True)
def switching_often():
    interval, threads = sys.getswitchinterval(), torch.get_num_threads()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)
    torch.set_num_threads(threads)


def at_once(work, *, change_threads=False):
    """Calls ``work(number)`` in eight threads, which begin together, and returns the results in order."""
    barrier = threading.Barrier(THREADS)

    def run(number):
        barrier.wait(timeout=60)
        if change_threads:
            torch.set_num_threads(1 + number % 3)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def train_and_embed(name, seed, graph, change=lambda step: None):
    """Everything that a run gives: first and last weights, losses, embeddings, scores."""
    model = sf.SeeGera(graph, seed=seed, **SIZES, **CONFIGURATIONS[name])
    found = {f"first {key}": value.clone() for key, value in model.state_dict().items()}
    change(1)
    result = train(model, TrainingConfig(epochs=2, warmup_epochs=2), seed=seed, progress=False)
    found["losses"] = torch.tensor([[line["loss"], line["link"]] for line in result.history], dtype=torch.float64)
    found.update(model.state_dict())
    change(2)
    found["embedding"] = model.embed(seed=3)
    found["scores"] = model.link_scores(torch.tensor([[0, 1], [5, 4]]))
    if model.config.feature_side:
        found["features"] = model.reconstruct_features(torch.tensor([0, 1]), torch.tensor([2, 3]))
    return found


def assert_same(found, expected, title):
    assert found.keys() == expected.keys(), title
    for key, value in found.items():
        assert_same_bits(value, expected[key], name=f"{title}: {key}")


def test_models_are_built_trained_and_used():
    """Each thread has its own models, and all share one graph, whose matrices they compute at the same time."""
    torch.set_num_threads(1)
    names = sorted(CONFIGURATIONS)
    expected = [train_and_embed(names[number % 4], number // 4, make_graph()) for number in range(THREADS)]
    shared = make_graph()
    before = torch.random.get_rng_state()
    found = at_once(
        lambda number: train_and_embed(
            names[number % 4], number // 4, shared, lambda step: torch.set_num_threads(1 + (number + step) % 3)
        ),
        change_threads=True,
    )
    for number in range(THREADS):
        assert_same(found[number], expected[number], f"thread {number}, {names[number % 4]}")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_models_are_built():
    """The weights follow from the model's seed alone, and building draws nothing from torch's own generator."""
    graph = make_graph(200, 100)

    def build(number):
        return [sf.SeeGera(graph, seed=number, embedding_dim=32, hidden_dim=256).state_dict() for _ in range(10)]

    expected = [build(number)[0] for number in range(THREADS)]
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    for number, models in enumerate(at_once(build)):
        for again, weights in enumerate(models):
            assert_same(weights, expected[number], f"thread {number}, model {again}")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_one_model_is_used():
    """Reading a model does not change it, not for a moment: it stays in training mode."""
    graph = make_graph(200, 20)
    model = sf.SeeGera(graph, embedding_dim=8, hidden_dim=8, dropout=0.5)
    pairs = torch.tensor([[0, 1], [2, 3], [7, 9]])

    def use(_):
        found = [
            (
                model.embed(seed=1),
                model.link_scores(pairs, seed=2),
                model.reconstruct_features(pairs[:, 0], pairs[:, 1]),
            )
            for _ in range(8)
        ]
        return found, model.training

    expected = use(0)[0][0]
    for number, (found, training) in enumerate(at_once(use)):
        for each in found:
            for value, want in zip(each, expected, strict=True):
                assert_same_bits(value, want, name=f"thread {number}")
        assert training, f"thread {number} left the model in evaluation mode"
    assert model.training


# What a graph and a matrix compute at first use.
COMPUTED = {
    "edges": lambda graph: [graph.edges()],
    "propagation": lambda graph: graph.propagation.parts,
    "self-loops": lambda graph: [graph.with_self_loops()[0].values, graph.with_self_loops()[1]],
    "fewer edges": lambda graph: graph.with_edges(graph.edges()[::2]).propagation.parts,
    "transpose": lambda graph: graph.features.parts,
    "transpose of the transpose": lambda graph: graph.features.transposed.transposed.parts,
    "other values": lambda graph: graph.features.with_values(graph.features.values + 1).parts,
    "dense": lambda graph: [graph.features.with_layout("dense").transposed.dense],
    "layout": lambda graph: [torch.tensor(graph.features.transposed.layout == "dense")],
    "row normalized": lambda graph: graph.features.row_normalized.parts,
    "order": lambda graph: [graph.features.order, graph.features.row],
    "range": lambda graph: [torch.tensor([*graph.features.value_range, graph.features.value_sum])],
    "pickle": lambda graph: [pickle.loads([pickle.dumps(graph) for _ in range(8)][-1]).edges()],
    "non-edges": lambda graph: [torch.tensor(graph.adjacency.non_edge_count)],
}


def test_what_is_computed_at_first_use():
    """Eight threads ask a new graph for the same things, each in another order."""
    names = list(COMPUTED)

    def new_graph():
        graph = make_graph(60, 9)
        return graph.with_features(graph.features.with_layout("dense"))

    expected = {name: COMPUTED[name](new_graph()) for name in names}
    for _ in range(12):
        graph = new_graph()

        def ask(number, graph=graph):
            turned = names[number:] + names[:number]
            return {name: COMPUTED[name](graph) for name in (turned if number % 2 else reversed(turned))}

        for number, found in enumerate(at_once(ask)):
            for name, tensors in found.items():
                for value, want in zip(tensors, expected[name], strict=True):
                    assert_same_bits(value, want, name=f"thread {number}: {name}")


def test_use_backend_holds_for_one_thread():
    """Threads with and without a forced backend, in nested blocks: each operation runs where its thread says."""
    matrix = sf.SparseMatrix.from_any(np.eye(3))
    automatic = backends.choose("sparse_matmul", torch.device("cpu")).name
    names = [
        name for name, backend in backends.NAMED.items() if backend.missing is None and backend.takes(matrix.device)
    ]

    def use(number):
        seen = []
        for again in range(60):
            outer, inner = names[(number + again) % len(names)], names[again % len(names)]
            if number % 4 == 3:
                seen.append((automatic, backends.choose("sparse_matmul", matrix.device).name))
                continue
            with sf.use_backend(outer):
                with sf.use_backend(inner):
                    seen.append((inner, backends.choose("sparse_matmul", matrix.device).name))
                seen.append((outer, backends.choose("sparse_matmul", matrix.device).name))
                if outer != "triton":
                    assert torch.equal(sf.ops.sparse_matmul(matrix, torch.ones(3, 1)), torch.ones(3, 1))
        seen.append((automatic, backends.choose("sparse_matmul", matrix.device).name))
        return seen

    for number, seen in enumerate(at_once(use)):
        wrong = [pair for pair in seen if pair[0] != pair[1]]
        assert not wrong, f"thread {number}: (wanted, got) {wrong[:3]}"
    assert backends.forced() is None
    assert not backends._active_blocks
    assert backends._forced_when_compiling is None


def test_runs_with_checkpoints(tmp_path):
    """Runs that fail in an epoch and go on from their checkpoints end with the bits of a run without a failure.

    Handlers of signals belong to the main thread: the other threads neither set nor lose them.
    """
    graph = make_graph(60, 9)
    handlers = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]

    def trained(number, checkpoint=None, fails=0):
        def score(epoch):
            if epoch == fails:
                raise InterruptedError
            return {"score": float(epoch)}

        model = sf.SeeGera(graph, seed=number, embedding_dim=4, hidden_dim=4)
        validation = Validation(score, lambda scores, best: scores["score"] > best["score"], ("score",))
        config = TrainingConfig(epochs=6)
        train(model, config, seed=number, validation=validation, progress=False, checkpoint=checkpoint)
        return model.state_dict()

    def fail_and_go_on(number):
        path = tmp_path / f"{number}.safetensors"
        with pytest.raises(InterruptedError):
            trained(number, sf.Checkpoint(path, every=2), fails=5)
        return trained(number, sf.Checkpoint(path, every=2, resume=True))

    expected = [trained(number) for number in range(THREADS)]
    for number, weights in enumerate(at_once(fail_and_go_on)):
        assert_same(weights, expected[number], f"thread {number}")
    assert [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)] == handlers


# In a new process nothing is imported, loaded or computed before its first use.
FIRST_USE = """
import json, sys, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import seegera_fast as sf

sys.setswitchinterval(1e-5)
graph = sf.Graph(np.ones((40, 40)) - np.eye(40))
models = [sf.SeeGera(graph, seed=3, embedding_dim=8, hidden_dim=8, dropout=0.1) for _ in range(9)]
barrier = threading.Barrier(8)

def gradients(model):
    model.zero_grad()
    model(seed=1).loss.backward()
    return [parameter.grad.double().sum().item() for parameter in model.parameters()]

def first(model):
    barrier.wait(timeout=60)
    return gradients(model)

with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(first, models[:8]))
expected = gradients(models[8])
print(json.dumps([number for number in range(8) if found[number] != expected]))
"""


def test_the_first_use_in_a_process():
    answer = subprocess.run([sys.executable, "-W", "error", "-c", FIRST_USE], capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == [], "threads with other gradients than one alone"
