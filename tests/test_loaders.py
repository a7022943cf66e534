"""Loaders of PyTorch Geometric as batches: what they give, and what is refused in place of batches."""

from __future__ import annotations

import contextlib
import functools
from types import SimpleNamespace

import pytest
import torch
from cliques import SMALL, Loader, graph, halves, made, parts_of
from short_runs import without_seconds

from seegera_fast import Batches, Checkpoint, Graph, SeeGera, tasks
from seegera_fast.batches import source_of


@pytest.mark.parametrize("numbered", [True, False])
def test_a_loader_gives_the_batches(numbered):
    source = source_of(graph(), Loader(graph(), halves(), numbered))
    steps = made(source, 1)
    assert [len(step) for step in steps] == [1, 1]
    for [batch], numbers in zip(steps, halves(), strict=True):
        expected = graph().subgraph(list(numbers))
        found = batch.arguments["graph"]
        assert torch.equal(found.adjacency.to_dense(), expected.adjacency.to_dense())
        assert torch.equal(found.features.to_dense(), expected.features.to_dense())
        assert batch.arguments["whole"] is graph()


def test_loaders_of_pytorch_geometric_train_all_tasks():
    from torch_geometric.loader import RandomNodeLoader

    data = Loader(graph(), ()).data
    fields = {"epochs": 2, "progress": False, "likelihood": "mse", **SMALL}
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    for task in (tasks.link_prediction, tasks.attribute_inference, tasks.node_classification, tasks.embed):
        # It shuffles by torch's generator.
        runs = [task(graph(), batches=RandomNodeLoader(data, 3, shuffle=True), **fields) for _ in range(2)]
        assert len({record["loss"] for record in runs[0].history}) == 2
        for record, other in zip(runs[0].history, runs[1].history, strict=True):
            assert record["loss"] == other["loss"]
        assert runs[0].fields["loader"] == "RandomNodeLoader"
        assert runs[0].fields["batches"] == 3
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("place", ["loader", "sampler", "batch_sampler"])
def test_a_loader_with_a_generator_of_its_own_has_the_same_batches_in_each_run(place, tmp_path):
    from torch_geometric.loader import RandomNodeLoader

    def loader(seed=5):
        generator = torch.Generator().manual_seed(seed)
        data = Loader(graph(), ()).data
        if place == "loader":
            return RandomNodeLoader(data, 4, shuffle=True, generator=generator)
        sampler = torch.utils.data.RandomSampler(range(48), generator=generator)
        if place == "sampler":
            return RandomNodeLoader(data, 4, sampler=sampler)
        batches = torch.utils.data.BatchSampler(sampler, 12, drop_last=False)
        return torch.utils.data.DataLoader(range(48), batch_sampler=batches, collate_fn=collate(data))

    def collate(data):
        return lambda numbers: data.subgraph(torch.as_tensor(numbers))

    def run(batches, epochs=4, checkpoint=None):
        return tasks.embed(graph(), batches=batches, epochs=epochs, checkpoint=checkpoint, progress=False, **SMALL)

    given = loader()
    before = given.generator, given.batch_sampler.sampler.generator
    states = [None if generator is None else generator.get_state() for generator in before]
    expected = run(given)
    path = tmp_path / "c.safetensors"
    run(loader(), 2, Checkpoint(path))
    for found in (run(given), run(loader(seed=6)), run(loader(), 4, Checkpoint(path, resume=True))):
        assert without_seconds(found.history) == without_seconds(expected.history)
    assert len({record["loss"] for record in expected.history}) == 4
    for generator, state in zip(before, states, strict=True):
        assert generator is None or torch.equal(generator.get_state(), state)


class Clusters(list):
    """Stands for a ClusterData, which needs a package of its own to be made."""


def test_a_cluster_loader_gives_the_batches():
    from torch_geometric.loader import ClusterLoader

    data = Loader(graph(), ()).data
    del data.n_id
    adjacency = graph().adjacency
    clusters = Clusters([0, 1])
    clusters.data = data
    clusters.partition = SimpleNamespace(
        indptr=adjacency.rowptr, index=adjacency.col, partptr=torch.tensor([0, 24, 48]), sparse_format="csr"
    )
    steps = made(source_of(graph(), ClusterLoader(clusters, batch_size=1)), 1)
    for [batch], numbers in zip(steps, halves(), strict=True):
        expected = graph().subgraph(list(numbers))
        assert torch.equal(batch.arguments["graph"].adjacency.to_dense(), expected.adjacency.to_dense())


def test_a_loader_sees_nothing_that_is_held_out():
    """The loader has all links and features; the batches have those of the training graph."""
    split = tasks.split_links(graph(), seed=4)
    source = source_of(split.train, Loader(graph(), [range(48)]), numbered=True)
    [[batch]] = made(source, 1)
    assert torch.equal(batch.arguments["graph"].edges(), split.train.edges())
    with pytest.raises(ValueError, match="batches: data: has no n_id, want the numbers of its nodes"):
        tasks.link_prediction(graph(), batches=Loader(graph(), halves(), numbered=False), progress=False, epochs=1)


@pytest.mark.parametrize(
    ("batches", "error", "message"),
    [
        (3, TypeError, "batches: got 3, want a seegera_fast.Batches, or a loader of Data"),
        ("abc", TypeError, "batches: got 'abc'"),
        (iter([1]), TypeError, "batches: got a list_iterator, which has an end"),
        ([], ValueError, "batches: got a loader without any batch"),
        ([3], TypeError, "batches: data: got 3"),
        (Batches(49), ValueError, "parts: got 49, want 1 to 48"),
        (Batches([0] * 9), ValueError, "parts: got shape"),
    ],
)
def test_what_are_no_batches_is_refused_before_the_first_step(batches, error, message, monkeypatch):
    monkeypatch.setattr(SeeGera, "forward", None)
    with pytest.raises(error, match=message):
        tasks.embed(graph(), batches=batches, epochs=1, progress=False)


def test_batches_that_do_not_fit_are_refused_before_the_first_step(monkeypatch):
    monkeypatch.setattr(SeeGera, "forward", None)
    other = graph().with_features(torch.ones(48, 5))
    for numbered in (True, False):
        with pytest.raises(ValueError, match="batches: data: has 5 features, want 7"):
            tasks.embed(graph(), batches=Loader(other, halves(), numbered), epochs=1, progress=False)
    without = Graph(graph().adjacency)
    data = Loader(graph(), (), numbered=False).data
    del data.x
    for whole in (without, graph()):
        # A batch of all nodes of the one, and of as many as the other has features.
        batch = data.subgraph(torch.arange(whole.num_features).flip(0))
        with pytest.raises(ValueError, match="batches: data: has neither n_id nor x, want n_id, the numbers of its"):
            tasks.embed(whole, batches=[batch], epochs=1, progress=False)
    with pytest.raises(ValueError, match="batches: n_id: got numbers from 0 to 47, want 0 to 23"):
        tasks.embed(graph().subgraph(range(24)), batches=Loader(graph(), [range(48)]), epochs=1, progress=False)
    batches = Batches(parts_of(graph()))
    with pytest.raises(ValueError, match=r'batches: got some with variant "independent" \(v1\)'):
        tasks.embed(graph(), variant="v1", batches=batches, epochs=1, progress=False)


def test_weights_of_a_batch():
    """A weighted graph takes those of the Data, or by n_id its own; a graph without weights leaves them out."""
    weights = graph().adjacency.to_dense() * 2
    weighted = Graph(weights.numpy(), graph().features, weighted=True)
    run = functools.partial(tasks.embed, epochs=1, progress=False, **SMALL)
    expected = run(weighted, batches=Loader(graph(), [range(48)])).history[0]["loss"]
    data = Loader(graph(), (), numbered=False).data
    matrix = data.clone()
    pattern = graph().adjacency.rowptr, graph().adjacency.col, None
    # As torch_sparse has one without values.
    matrix.adj_t, matrix.edge_index = SimpleNamespace(csr=lambda: pattern, sparse_sizes=lambda: (48, 48)), None
    for without in (data, matrix):
        with pytest.raises(ValueError, match="batches: data: has no edge weights, and the graph has; want"):
            run(weighted, batches=[without])
    matrix.adj_t = weights.to_sparse_csr()
    for name in ("edge_weight", "edge_attr"):
        data[name] = torch.full((data.num_edges,), 2.0)
        assert run(weighted, batches=[data]).history[0]["loss"] == expected
    assert run(weighted, batches=[matrix]).history[0]["loss"] == expected
    with pytest.warns(UserWarning, match="got edge weights other than 1, which are ignored"):
        run(graph(), batches=[data])


def test_the_generator_of_torch_is_as_it_was_between_the_batches(monkeypatch):
    """The loader draws from a generator of its own; what a user draws in a step, or after an error, is the user's."""

    class Shuffled(Loader):
        def __iter__(self):
            for number in torch.randperm(len(self.numbers)).tolist():
                yield self.data.subgraph(torch.as_tensor(self.numbers[number]))

    def run(seed, fails=False):
        drawn = []

        def hook(*_):
            drawn.append(float(torch.rand(())))
            if fails:
                raise RuntimeError("in a step")

        torch.manual_seed(seed)
        with monkeypatch.context() as patch:
            patch.setattr(torch.optim.Adam, "step", hook)
            with pytest.raises(RuntimeError, match="in a step") if fails else contextlib.nullcontext() as caught:
                tasks.embed(graph(), batches=Shuffled(graph(), halves()), epochs=1, progress=False, **SMALL)
        return [*drawn, float(torch.rand(()))], caught

    for seed in (0, 1):
        torch.manual_seed(seed)
        want = torch.rand(3).tolist()
        assert run(seed)[0] == want
        # The error is kept, as a notebook does.
        found, caught = run(seed, fails=True)
        assert found == want[:2]
        assert caught is not None


def test_a_loader_that_ends_for_good_is_refused():
    class Once(Loader):
        def __iter__(self):
            numbers, self.numbers = self.numbers[:2], self.numbers[2:]
            for part in numbers:
                yield self.data.subgraph(torch.as_tensor(part))

    # One look, and one epoch.
    loader = Once(graph(), halves() * 2)
    with pytest.raises(ValueError, match="batches: got none in epoch 2, want a loader that can be iterated anew"):
        tasks.embed(graph(), batches=loader, epochs=2, progress=False, **SMALL)


class Counted(Loader):
    """A loader that says how many batches it gives."""

    def __init__(self, numbers, length):
        super().__init__(graph(), numbers)
        self.length = length

    def __len__(self):
        return self.length


@pytest.mark.parametrize("length", [1, 3])
def test_a_loader_of_another_length_is_refused(length):
    run = functools.partial(tasks.embed, graph(), epochs=1, progress=False, **SMALL)
    run(batches=Counted(halves(), 2))
    with pytest.raises(ValueError, match=f"batches: got 2 in epoch 1, want {length}, the loader's length"):
        run(batches=Counted(halves(), length))


@pytest.mark.parametrize("numbered", [True, False])
def test_a_checkpoint_of_another_loader_is_refused(numbered, tmp_path):
    checkpoint = Checkpoint(tmp_path / "c.safetensors", resume=True)
    run = functools.partial(tasks.embed, graph(), checkpoint=checkpoint, epochs=1, progress=False, **SMALL)
    for _ in range(2):
        run(batches=Loader(graph(), halves(), numbered))
    with pytest.raises(ValueError, match="which differs in first_batch "):
        run(batches=Loader(graph(), halves()[::-1], numbered))
