"""Batches of parts: every node once in an epoch, and estimates of the bound of the whole graph."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from cliques import SMALL, Loader, graph, halves, made, parts_of, ring_of_cliques
from tolerances import assert_same_bits

import seegera_fast as sf
from seegera_fast import Batches, SeeGera
from seegera_fast.batches import LoadedBatches, PartBatches, WholeGraph, source_of
from seegera_fast.distributed import Processes
from seegera_fast.nn import Decoded
from seegera_fast.objective import Posterior, Targets, _drawn, bound
from seegera_fast.seeds import derive_seed
from seegera_fast.steps import EagerSteps, run_epoch


def test_kinds_of_sources():
    assert isinstance(source_of(graph(), None), WholeGraph)
    assert isinstance(source_of(graph(), Batches(parts_of(graph()))), PartBatches)
    assert isinstance(source_of(graph(), Loader(graph(), halves())), LoadedBatches)


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
