"""Training in batches: parts of a graph, subgraphs of some parts, loaders, and the loop that takes them."""

from __future__ import annotations

import functools
import importlib.util
import io
import itertools
import math
import re
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import assert_same_bits

import seegera_fast as sf
from seegera_fast import Batches, Checkpoint, SeeGera, partition, tasks
from seegera_fast.batches import LoadedBatches, PartBatches, WholeGraph, source_of
from seegera_fast.distributed import Processes
from seegera_fast.nn import Decoded
from seegera_fast.objective import Posterior, Targets, _drawn, bound
from seegera_fast.seeds import derive_seed
from seegera_fast.steps import EagerSteps, run_epoch
from seegera_fast.support import progress
from seegera_fast.training import TrainingConfig, TrainingFailure, train

METHODS = [
    pytest.param("metis", marks=pytest.mark.skipif(not importlib.util.find_spec("pymetis"), reason="needs pymetis")),
    "streaming",
]
SMALL = {"embedding_dim": 4, "hidden_dim": 5, "encoder_layers": 1, "decoder_layers": 1}


def ring_of_cliques(cliques: int, size: int, lonely: int = 0, dtype=torch.float32) -> sf.Graph:
    """Cliques with a link from each to the next, whose nodes have scattered numbers, and nodes without links."""
    n = cliques * size + lonely
    rng = np.random.default_rng(3)
    place = rng.permutation(n)
    pairs = [(c * size + i, c * size + k) for c in range(cliques) for i in range(size) for k in range(i)]
    pairs += [(c * size, (c + 1) % cliques * size + 1) for c in range(cliques)]
    edges = place[np.array(pairs)].T
    clique = np.full(n, -1)
    clique[place[: cliques * size]] = np.repeat(np.arange(cliques), size)
    features = (rng.random((n, 7)) < np.where(np.arange(7) % 3 == clique[:, None] % 3, 0.8, 0.1)).astype(float)
    both = np.concatenate([edges, edges[::-1]], axis=1)
    made = sf.Graph.from_edge_index(both, features, n, clique % 3, dtype=dtype)
    made.cliques = torch.from_numpy(clique)
    return made


@functools.cache
def graph(dtype=torch.float32) -> sf.Graph:
    return ring_of_cliques(8, 6, dtype=dtype)


def parts_of(graph: sf.Graph) -> torch.Tensor:
    return graph.cliques


# ---- Parts


@pytest.mark.parametrize("method", METHODS)
def test_parts_are_the_cliques(method):
    whole = ring_of_cliques(8, 6, lonely=16)
    part = whole.with_parts(8, method).parts
    assert part.dtype == torch.int64
    # 48 nodes with links and 16 without: all parts are of one size.
    assert part.bincount().tolist() == [8] * 8
    sizes = partition.part_sizes(part, whole.adjacency)
    if method == "metis":
        assert sizes.cut == 8
    # Of 128 links, parts drawn at random cut 112.
    assert sizes.cut <= 32
    assert sizes.links.sum() + sizes.cut == 128
    assert torch.equal(part, ring_of_cliques(8, 6, lonely=16).with_parts(8, method).parts)


@given(st.integers(2, 60), st.floats(0.02, 0.5), st.integers(1, 12), st.integers(0, 99), st.integers(8, 4096))
def test_every_node_has_a_part_and_no_part_is_too_large(n, density, parts, seed, at_once):
    parts = min(parts, n)
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < density, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adjacency = sf.Graph(upper | upper.T, np.ones((n, 1))).adjacency
    with pytest.MonkeyPatch.context() as patch:
        # Blocks of any size.
        patch.setattr(partition, "AT_ONCE", at_once)
        part = partition.partition(adjacency, parts, "streaming")
        sizes = partition.part_sizes(part, adjacency)
    assert 0 <= int(part.min()) <= int(part.max()) < parts
    assert int(part.bincount().max()) <= math.ceil(1.05 * n / parts) + 1
    same = part[adjacency.row] == part[adjacency.col]
    assert sizes.cut == int((~same).sum()) // 2
    assert sizes.links.tolist() == part[adjacency.row][same].bincount(minlength=len(sizes.links)).div(2).tolist()


@pytest.mark.parametrize("method", METHODS)
def test_few_links_are_cut_on_digits(method):
    digits = sf.datasets.load("digits")
    cut = partition.part_sizes(digits.with_parts(16, method).parts, digits.adjacency).cut / digits.num_edges
    # Parts drawn at random cut 15 of 16.
    assert cut < 0.25


def test_without_metis_parts_are_made_by_streaming(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    expected = ring_of_cliques(8, 6).with_parts(8, "streaming").parts
    with pytest.warns(UserWarning, match=r"METIS cuts fewer links.*seegera-fast\[scale\]"):
        assert torch.equal(ring_of_cliques(8, 6).with_parts(8).parts, expected)
    with pytest.raises(ValueError, match='method: got "metis", want the package pymetis'):
        ring_of_cliques(8, 6).with_parts(8, "metis")


def test_what_was_cut_is_kept_until_the_links_change(monkeypatch):
    whole = ring_of_cliques(8, 6)
    first = Batches(8, method="streaming").part_of(whole)
    calls = []
    make = partition.partition
    monkeypatch.setattr(partition, "partition", lambda *given: calls.append(given) or make(*given))
    assert Batches(8, method="streaming").part_of(whole) is first
    assert Batches(8, method="streaming").part_of(whole.with_features(torch.ones(48, 2))) is first
    assert not calls
    fewer = whole.with_edges(whole.edges()[1:])
    assert Batches(8, method="streaming").part_of(fewer) is not first
    assert len(calls) == 1
    # Parts that the graph was given stay with it, and are taken where as many are wanted.
    given = whole.with_parts(7 - parts_of(whole))
    fewer = given.with_edges(given.edges()[1:])
    for batches in (Batches(), Batches(8)):
        assert torch.equal(batches.part_of(fewer), given.parts)
    assert not torch.equal(Batches(8, method="streaming").part_of(whole), given.parts)
    assert given.subgraph([0, 1]).parts is None
    assert given.with_parts(None).parts is None


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        (49, ValueError, "parts: got 49, want 1 to 48"),
        (0, ValueError, "parts: got 0, want"),
        (2.0, TypeError, "parts: got 2.0, want an int"),
        ([0] * 47, ValueError, r"parts: got shape \(47,\), want \(48,\), the part of each node of this graph"),
        ([0.5] * 48, TypeError, "parts: got torch.float"),
        ([-1] + [0] * 47, ValueError, "parts: got numbers from -1 to 0, want 0 to 47"),
        ([0] * 47 + [2**40], ValueError, "parts: got numbers from 0 to 1099511627776, want 0 to 47"),
        ([0] * 47 + [2], ValueError, r"parts: 1 of 3 have no nodes inside \(part 1\)"),
        ([0] * 47 + [1], ValueError, r"parts: 1 of 2 have no links inside \(part 1\)"),
    ],
)
def test_parts_that_are_none_are_refused(parts, error, message):
    with pytest.raises(error, match=message):
        graph().with_parts(parts, "streaming")


def test_attributes_of_batches_are_checked():
    for given_, error, message in (
        ({"parts": "8"}, TypeError, "parts: got '8'"),
        ({"parts": [[0]]}, ValueError, r"parts: got shape \(1, 1\)"),
        ({"parts": 8, "per_batch": 9}, ValueError, "per_batch: got 9, want at most 8, the number of parts"),
        ({"parts": 8, "per_batch": 0}, ValueError, "per_batch: got 0"),
        ({"parts": 8, "per_step": 0}, ValueError, "per_step: got 0"),
        ({"parts": 8, "method": "Metis"}, ValueError, "method: got 'Metis', want one of 'auto', 'metis', 'streaming'"),
    ):
        with pytest.raises(error, match=message):
            Batches(**given_)
    with pytest.raises(ValueError, match="parts: got None and a graph without parts"):
        Batches().part_of(graph())
    with pytest.raises(ValueError, match="per_batch: got 9, want at most 8"):
        Batches(parts_of(graph()), per_batch=9).part_of(graph())
    with pytest.raises(ValueError, match="per_batch: got 9, want at most 8"):
        Batches(per_batch=9).part_of(graph().with_parts(8, "streaming"))


# ---- Batches of parts


def made(source, epoch, seed=1):
    return [[make() for make in step] for step in source.steps(seed, epoch)]


def test_an_epoch_has_every_node_once():
    source = source_of(graph(), Batches(parts_of(graph()), per_batch=3, per_step=2))
    assert (source.count, source.steps_per_epoch) == (3, 2)
    orders = []
    for epoch in (1, 2):
        steps = made(source, epoch)
        assert [len(step) for step in steps] == [2, 1]
        subgraphs = [batch.arguments["graph"] for step in steps for batch in step]
        assert [one.num_nodes for one in subgraphs] == [18, 18, 12]
        numbers = torch.cat([one.node_numbers for one in subgraphs])
        assert numbers.sort().values.tolist() == list(range(48))
        orders.append(numbers.tolist())
        seeds = [batch.seed for step in steps for batch in step]
        assert len({*seeds, derive_seed(1, epoch)}) == 4
        for one in subgraphs:
            nodes = one.node_numbers
            assert torch.equal(one.adjacency.to_dense(), graph().adjacency.to_dense()[nodes][:, nodes])
            assert torch.equal(one.features.to_dense(), graph().features.to_dense()[nodes])
    assert orders[0] != orders[1]
    again = [batch for step in made(source_of(graph(), Batches(parts_of(graph()), 3)), 2) for batch in step]
    assert torch.cat([batch.arguments["graph"].node_numbers for batch in again]).tolist() == orders[1]


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_of_a_graph_in_memory_and_in_a_folder_are_the_same(weighted, tmp_path):
    """The former is copied in the order of its parts."""
    links = graph().adjacency.to_dense()
    nodes = torch.arange(48.0) + 1
    whole = sf.Graph((links * nodes * nodes[:, None]).numpy(), graph().features, weighted=weighted)
    whole.save(tmp_path / "graph")
    batches = Batches(parts_of(graph()), per_batch=3)
    for one, other in zip(
        *(made(source_of(of, batches), 1) for of in (whole, sf.Graph.open(tmp_path / "graph"))), strict=True
    ):
        one, other = (step[0].arguments["graph"] for step in (one, other))
        assert one.node_numbers.tolist() == other.node_numbers.tolist()
        assert (one.node_numbers.diff() < 0).any()
        assert_same_bits(one.propagation.to_dense(), other.propagation.to_dense(), name="propagation")
        assert_same_bits(one.features.to_dense(), other.features.to_dense(), name="features")


def test_averages_that_are_made_with_a_batch_are_those_of_its_steps():
    batches = Batches(parts_of(graph()), per_batch=3)
    for kind in (batches, Loader(graph(), halves())):
        plain, averaging = (source_of(graph(), kind, averaging=flag) for flag in (False, True))
        for one, other in zip(*(made(source, 1) for source in (plain, averaging)), strict=True):
            one, other = (step[0].arguments["graph"].features for step in (one, other))
            # Before anything asks for it.
            assert "row_normalized" in vars(other)
            assert "row_normalized" not in vars(one)
            for flip in (lambda features: features, lambda features: features.transposed):
                for forms in ((one, other), (one.row_normalized, other.row_normalized)):
                    for name, want, got in zip(
                        ("rowptr", "col", "values"), *(flip(form).by_rows for form in forms), strict=True
                    ):
                        assert_same_bits(got, want, name=name)
            assert_same_bits(
                other.transposed.row_normalized.values, one.transposed.row_normalized.values, name="by column"
            )


def test_one_batch_of_all_parts_is_the_whole_graph():
    model = SeeGera(graph(), seed=2, structure_masking_rate=0.3, dropout=0.2, **SMALL)
    # In parts whose nodes follow each other, since the nodes of a batch are in the order of its parts.
    [[batch]] = made(source_of(graph(), Batches(torch.arange(48) // 24, per_batch=2)), 1)
    for warmup in (0.3, 1.0):
        whole = model(seed=batch.seed, warmup=warmup)
        part = model(seed=batch.seed, warmup=warmup, **batch.arguments)
        assert_same_bits(part.loss.detach(), whole.loss.detach(), name="loss")
    # Parts whose nodes do not follow each other put them in another order, once for all epochs.
    part = torch.arange(48) % 3
    source = source_of(graph(), Batches(part, per_batch=3))
    [[first]], [[second]] = made(source, 1), made(source, 2)
    assert second.arguments["graph"] is first.arguments["graph"]
    assert second.seed != first.seed
    assert_same_bits(first.arguments["graph"].node_numbers, torch.argsort(part, stable=True), name="order")
    # With the weights of a part of itself, too.
    model = SeeGera(graph(torch.float64), seed=2, scaling="sum", negatives="edges", **SMALL)
    whole, part = model(seed=5), model(seed=5, whole=model.graph)
    assert part.loss.item() == pytest.approx(whole.loss.item(), rel=1e-13)


def gradient(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_a_step_of_two_batches_has_the_mean_of_their_gradients(scaling):
    fields = {"structure_masking_rate": 0.3, "feature_masking_rate": 0.2, "dropout": 0.1, "negatives": "edges"}
    model = SeeGera(graph(torch.float64), seed=2, scaling=scaling, **fields, **SMALL)
    source = source_of(model.graph, Batches(parts_of(graph()), per_batch=4, per_step=2))
    model.train()
    found, losses = [], []
    for batch in itertools.chain(*made(source, 3)):
        model.zero_grad()
        output = model(seed=batch.seed, warmup=0.5, **batch.arguments)
        output.loss.backward()
        found.append(gradient(model))
        losses.append(output.loss.item())
    told, stepped = [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer.register_step_pre_hook(lambda *_: stepped.append(gradient(model)))
    record = run_epoch(
        model, EagerSteps(model, optimizer), source, 1, 3, 0.5, lambda *done: told.append(done), Processes.current()
    )
    mean = torch.stack(found).mean(dim=0)
    assert len(stepped) == 1
    assert float((stepped[0] - mean).norm() / mean.norm()) < 1e-12
    assert record["loss"] == pytest.approx(sum(losses) / 2, rel=1e-13)
    assert told == [(2, 2)]


def fixed(n, l=7, d=3):
    """Samples, their posteriors and a decoder that do not depend on a graph: nodes, features, hidden layer, weights."""
    make = functools.partial(torch.randn, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    nodes = make(n, 1, d), Posterior(make(n, 2, d), make(n, 1, d))
    features = make(l, 1, d), Posterior(make(l, 2, d), make(l, 1, d))
    return nodes, features, make(n, 1, 4), make(4, l)


def terms(config, whole, fixed_parts, nodes=None):
    """The terms of the bound of a graph, or of the part of some nodes, for fixed samples."""
    (z, psi), features, hidden, weight = fixed_parts
    part, rows = (whole, slice(None)) if nodes is None else (whole.subgraph(nodes), nodes)
    psi = Posterior(*(tensor[rows] for tensor in psi))
    targets = Targets(part.adjacency, part.features, False, part.num_edges, None if nodes is None else whole)
    decoded = Decoded(hidden[rows], weight, None)
    output = bound(config, targets, [(z[rows], psi), features], z[rows], decoded, warmup=1.0, seed=3)
    return {**output.samples, "loss": output.loss.reshape(1)}


def test_what_batches_estimate_without_bias():
    """All batches of 2 of 4 parts of one size: the means of the terms are those of the whole graph."""
    whole = ring_of_cliques(4, 3, dtype=torch.float64)
    part = whole.cliques
    config = sf.SeeGeraConfig(scaling="sum", likelihood="mse", num_mixture_samples=1)
    exact = terms(config, whole, fixed(12))
    batches = [torch.isin(part, torch.tensor(two)).nonzero()[:, 0] for two in itertools.combinations(range(4), 2)]
    found = [terms(config, whole, fixed(12), nodes) for nodes in batches]
    for name in ("feature", "prior", "mixture"):
        values = torch.cat([one[name] for one in found])
        assert values.std() > 1e-3
        assert values.mean().item() == pytest.approx(exact[name].item(), rel=1e-12), name
    # The links and the other pairs count as those of the whole in every batch: exact where all scores are equal.
    (z, psi), *others = fixed(12)
    zero = [(torch.zeros_like(z), psi), *others]
    for nodes in batches:
        link = terms(config, whole, zero, nodes)["link"].item()
        assert link == pytest.approx(terms(config, whole, zero)["link"].item(), rel=1e-12)
        assert link == pytest.approx(-(12**2) * math.log(2), rel=1e-12)
    # And a part of all parts has the bound of the whole.
    everything = terms(config, whole, fixed(12), torch.arange(12))
    for name, value in exact.items():
        assert everything[name].item() == pytest.approx(value.item(), rel=1e-12), name


def test_a_batch_without_other_pairs_counts_its_links():
    whole = ring_of_cliques(4, 3, dtype=torch.float64)
    part = whole.cliques
    clique = (part == 0).nonzero()[:, 0]
    config = sf.SeeGeraConfig(scaling="sum", likelihood="mse", negatives="edges")
    (z, psi), *others = fixed(12)
    link = terms(config, whole, [(torch.zeros_like(z), psi), *others], clique)["link"].item()
    # 16 links in both directions and 12 self-loops.
    assert link == pytest.approx(-(2 * 16 + 12) * math.log(2), rel=1e-12)


def test_no_more_negatives_are_drawn_than_a_batch_has():
    clique = graph().subgraph((parts_of(graph()) < 1).nonzero()[:, 0])
    two = graph().subgraph((parts_of(graph()) < 2).nonzero()[:, 0])
    model = SeeGera(graph(), seed=2, negatives=300, **SMALL)
    with pytest.raises(ValueError, match=r"negatives: got 300 \(300\)"):
        model(two, seed=1)
    assert model(two, seed=1, whole=graph()).loss.isfinite()
    assert model(clique, seed=1, whole=graph()).loss.isfinite()
    with pytest.raises(TypeError, match="whole: got 3, want a Graph or None"):
        model(two, seed=1, whole=3)


def test_how_many_negatives_are_drawn():
    # A triangle, and three nodes without links.
    edges = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
    whole = sf.Graph.from_edge_index(edges, np.ones((6, 1)), 6)
    for nodes, negatives, count in (
        ([0, 1, 2], "edges", "all"),
        ([0, 1, 3], "edges", 1),
        ([0, 1, 3], 7, 2),
        ([0, 1, 3], "all", "all"),
        # Not all pairs where there are no links: the batch may be large.
        ([3, 4, 5], "edges", 1),
    ):
        part = whole.subgraph(nodes)
        targets = Targets(part.adjacency, part.features, False, part.num_edges, whole)
        assert _drawn(negatives, targets) == count, (nodes, negatives)
    model = SeeGera(whole, seed=2, negatives="edges", **SMALL)
    assert model(whole.subgraph([3, 4, 5]), seed=1, whole=whole).loss.isfinite()


# ---- Loaders


class Loader:
    """Data with the nodes of some lists, as the loaders of PyTorch Geometric give them."""

    def __init__(self, whole, numbers, numbered=True):
        from torch_geometric.data import Data

        edge_index = torch.stack([whole.adjacency.row, whole.adjacency.col])
        self.data = Data(edge_index=edge_index, x=whole.features.to_dense(), num_nodes=whole.num_nodes)
        if numbered:
            self.data.n_id = torch.arange(whole.num_nodes)
        self.numbers = numbers

    def __iter__(self):
        for numbers in self.numbers:
            yield self.data.subgraph(torch.as_tensor(numbers))


def halves():
    return [range(24), range(24, 48)]


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
    with pytest.raises(ValueError, match="batches: n_id: got numbers from 0 to 47, want 0 to 23"):
        tasks.embed(graph().subgraph(range(24)), batches=Loader(graph(), [range(48)]), epochs=1, progress=False)
    batches = Batches(parts_of(graph()))
    with pytest.raises(ValueError, match=r'batches: got some with variant "independent" \(v1\)'):
        tasks.embed(graph(), variant="v1", batches=batches, epochs=1, progress=False)


def test_v1_without_a_feature_side_has_batches():
    result = tasks.embed(
        graph(), variant="v1", batches=Batches(parts_of(graph())), epochs=1, progress=False, feature_side=False, **SMALL
    )
    assert math.isfinite(result.history[0]["loss"])


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


# ---- Runs

# Everything that draws random numbers is on.
FIELDS = {
    "epochs": 4,
    "learning_rate": 1e-2,
    "dropout": 0.2,
    "structure_masking_rate": 0.3,
    "feature_masking_rate": 0.2,
    "negatives": "edges",
    "evaluate_every": 2,
    "warmup_epochs": 3,
    "progress": False,
    "seed": 5,
    **SMALL,
}
SOURCES = {
    "parts": lambda: Batches(8, per_batch=2, per_step=3, method="streaming"),
    "loader": lambda: Loader(graph(), halves()),
}


def without_seconds(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_goes_on_to_the_same_bits(source, tmp_path):
    def run(epochs, checkpoint=None):
        fields = {**FIELDS, "epochs": epochs}
        return tasks.link_prediction(graph(), batches=SOURCES[source](), checkpoint=checkpoint, **fields)

    path = tmp_path / "c.safetensors"
    run(2, Checkpoint(path))
    result, expected = run(4, Checkpoint(path, resume=True)), run(4)
    assert without_seconds(result.history) == without_seconds(expected.history)
    assert result.auc == expected.auc
    for name, tensor in expected.model.state_dict().items():
        assert_same_bits(result.model.state_dict()[name], tensor, name=name)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        (None, "parts (checkpoint: 8, this run: absent)"),
        (Batches(4, 2, 3, "streaming"), "parts (checkpoint: 8, this run: 4)"),
        (Batches(8, 1, 3, "streaming"), "per_batch (checkpoint: 2, this run: 1)"),
        (Batches(8, 2, 1, "streaming"), "per_step (checkpoint: 3, this run: 1)"),
        ("turned", "which differs in partition (checkpoint: "),
    ],
)
def test_a_checkpoint_of_other_batches_is_refused(batches, words, tmp_path):
    path = tmp_path / "c.safetensors"
    first = tasks.embed(graph(), batches=SOURCES["parts"](), checkpoint=Checkpoint(path), **FIELDS)
    assert {name: first.fields[name] for name in ("parts", "per_batch", "per_step")} == {
        "parts": 8,
        "per_batch": 2,
        "per_step": 3,
    }
    if batches == "turned":
        batches = Batches(7 - parts_of(graph()), 2, 3)
    with pytest.raises(ValueError, match=re.escape(words)):
        tasks.embed(graph(), batches=batches, checkpoint=Checkpoint(path, resume=True), **FIELDS)


def test_adams_number_of_steps_is_checked(tmp_path):
    path = tmp_path / "c.safetensors"
    tasks.embed(graph(), batches=SOURCES["parts"](), checkpoint=Checkpoint(path), **FIELDS)
    header, tensors = _read(path)
    step = next(name for name in tensors if name.endswith("/step"))
    tensors[step] = torch.tensor(4.0)
    _write(path, header, tensors)
    with pytest.raises(ValueError, match=r"has 4 in adam/.*, want 8, the number of steps"):
        tasks.embed(graph(), batches=SOURCES["parts"](), checkpoint=Checkpoint(path, resume=True), **FIELDS)


def _read(path):
    import safetensors.torch

    with safetensors.safe_open(path, framework="pt") as file:
        return file.metadata(), safetensors.torch.load_file(path)


def _write(path, header, tensors):
    import safetensors.torch

    safetensors.torch.save_file(tensors, path, header)


DIGITS = {"epochs": 15, "embedding_dim": 16, "hidden_dim": 16, "learning_rate": 1e-2, "warmup_epochs": 15}


@functools.cache
def on_digits(task, batched):
    batches = Batches(16, 4, method="streaming") if batched else None
    more = {"classifier_epochs": 60, "evaluate_every": 5} if task == "node_classification" else {}
    fields = {**DIGITS, "progress": False, **more}
    return getattr(tasks, task)(sf.datasets.load("digits"), batches=batches, **fields)


@pytest.mark.parametrize(
    ("task", "score", "sign", "margin"),
    [
        ("link_prediction", "auc", 1, 0.02),
        ("attribute_inference", "mse", -1, 0.01),
        ("node_classification", "accuracy", 1, 0.05),
    ],
)
def test_batches_learn_as_well_as_the_whole_graph(task, score, sign, margin):
    """In the same number of epochs, which are more steps here."""
    whole, batched = (getattr(on_digits(task, batched), score) for batched in (False, True))
    assert sign * batched > sign * whole - margin


def kept_of(graph):
    """What was computed of a whole graph and is kept."""
    found = {*graph.__dict__, *graph.adjacency.__dict__, *graph.features.__dict__}
    found &= {"propagation", "_looped", "above", "row", "order", "non_edges", "dense"}
    return found if graph.features._transposed is None else {*found, "transposed"}


def test_nothing_of_the_whole_graph_is_made_for_batches():
    """Not its propagation matrix, nor its list of edges, nor the transpose of its features."""
    whole = ring_of_cliques(8, 6)
    tasks.embed(whole, batches=Batches(8, 2, method="streaming"), **FIELDS)
    assert not kept_of(whole)
    # Nor by validations and scores, beside what the split has made.
    found = tasks.node_classification(whole, batches=Batches(8, 2, method="streaming"), classifier_epochs=2, **FIELDS)
    assert found.accuracy is not None
    assert not kept_of(whole)
    split = tasks.split_links(whole)
    before = kept_of(whole), kept_of(whole.with_edges(split.train.edges()))
    found = tasks.link_prediction(whole, split=split, batches=Batches(8, 2, method="streaming"), **FIELDS)
    assert found.valid_auc is not None
    assert (kept_of(whole), kept_of(found.model.graph)) == before
    SeeGera(whole, prepare=True, **SMALL)
    assert {"propagation", "_looped"} <= {*whole.__dict__}


def test_warmup_counts_epochs(monkeypatch):
    model = SeeGera(graph(), seed=3, prepare=False, **SMALL)
    calls, forward = [], model.forward
    monkeypatch.setattr(model, "forward", lambda **given: calls.append(given) or forward(**given))
    source = source_of(graph(), Batches(parts_of(graph()), per_batch=4))
    training = train(model, TrainingConfig(epochs=2, warmup_epochs=2), source=source)
    assert [call["warmup"] for call in calls] == [0.5, 0.5, 1.0, 1.0]
    assert [record["epoch"] for record in training.history] == [1, 2]


def test_ctrl_c_within_an_epoch_leaves_the_weights_of_the_one_before(monkeypatch):
    run = functools.partial(tasks.embed, graph(), batches=Batches(parts_of(graph()), per_batch=3))
    expected = run(**{**FIELDS, "epochs": 2})
    calls, forward = [], SeeGera.forward

    def interrupted(model, **given):
        calls.append(given)
        # Three batches an epoch: the third epoch has taken two steps.
        if len(calls) == 9:
            raise KeyboardInterrupt
        return forward(model, **given)

    monkeypatch.setattr(SeeGera, "forward", interrupted)
    found = run(**FIELDS)
    assert found.interrupted
    assert len(calls) == 9
    assert without_seconds(found.history) == without_seconds(expected.history)
    for name, tensor in expected.model.state_dict().items():
        assert_same_bits(found.model.state_dict()[name], tensor, name=name)


def test_a_nan_in_a_batch_stops_before_the_step():
    model = SeeGera(graph(), seed=3, prepare=False, likelihood="mse", scaling="sum", **SMALL)
    source = source_of(graph(), Batches(parts_of(graph()), per_batch=4))
    steps = source.steps

    def spoiled(seed, epoch):
        for number, step in enumerate(steps(seed, epoch)):
            if (epoch, number) == (2, 1):
                before.update({name: tensor.clone() for name, tensor in model.state_dict().items()})
                spoil = step[0]().arguments["graph"]
                spoil.features.values[0] = math.nan
                batch = step[0]()._replace(arguments={"graph": spoil, "whole": graph()})
                step = [lambda batch=batch: batch]
            yield step

    before = {}
    source.steps = spoiled
    with pytest.raises(TrainingFailure, match="epoch 2: link became NaN"):
        train(model, TrainingConfig(epochs=3), source=source, progress=False)
    for name, tensor in model.state_dict().items():
        assert_same_bits(tensor, before[name], name=name)


def test_progress_within_an_epoch(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    clock = itertools.count(0, 60)
    monkeypatch.setattr(progress, "monotonic", lambda: float(next(clock)))
    batches = Batches(parts_of(graph()), per_batch=2)
    shown = []
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        tasks.embed(graph(), batches=batches, epochs=2, progress=True, **SMALL)
        shown.append(stream.getvalue())
    assert "epoch 0 of 2, batch 1 of 4 of the next, " in shown[0]
    assert " left" in shown[0].splitlines()[0]
    assert "2/2" in shown[1]
    assert "2.0/2" not in shown[1]


def test_kinds_of_sources():
    assert isinstance(source_of(graph(), None), WholeGraph)
    assert isinstance(source_of(graph(), Batches(parts_of(graph()))), PartBatches)
    assert isinstance(source_of(graph(), Loader(graph(), halves())), LoadedBatches)
