"""The whole model: seeds, scores, refusals, saving; its numbers are checked in test_model_oracle.py."""

import json

import numpy as np
import pytest
import safetensors.torch
import scipy.sparse
import torch

import seegera_fast as sf
from seegera_fast.objective import balance

SMALL = {"embedding_dim": 3, "hidden_dim": 4}


def small_graph(dtype=torch.float64, nodes=14, features=6, binary=True):
    rng = np.random.default_rng(3)
    upper = np.triu(rng.random((nodes, nodes)) < 0.3, 1)
    values = (rng.random((nodes, features)) < 0.4) * (1 if binary else rng.integers(1, 5, (nodes, features)))
    values[2] = 0
    values[:, 1] = 0
    return sf.Graph(scipy.sparse.csr_matrix(upper | upper.T), scipy.sparse.csr_matrix(values), dtype=dtype)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"negatives": 10, "dropout": 0.3, "structure_masking_rate": 0.4, "feature_masking_rate": 0.3},
        {"variant": "independent", "noisy_variance": True, "num_importance_samples": 2},
        {"encoder": "mlp", "decoder": "mlp", "likelihood": "gaussian", "negatives": "edges"},
    ],
    ids=json.dumps,
)
def test_a_seed_fixes_all_that_is_drawn(fields):
    graph = small_graph()
    model = sf.SeeGera(graph, **SMALL, **fields)
    loss = model(graph, seed=5, warmup=0.5).loss
    assert torch.equal(sf.SeeGera(graph, **SMALL, **fields)(graph, seed=5, warmup=0.5).loss, loss)
    assert torch.equal(model(graph, seed=torch.tensor([5]), warmup=torch.tensor([0.5])).loss, loss)
    assert not torch.equal(model(graph, seed=6, warmup=0.5).loss, loss)


def test_mixture_has_a_gradient_where_the_released_form_underflows():
    graph = small_graph(torch.float32)
    model = sf.SeeGera(graph, embedding_dim=512, hidden_dim=8, num_mixture_samples=3)
    nodes, features = model.encode(graph.propagation, graph.features, 4, 0)
    z, _ = model._sample(nodes, features, 1)
    kernel = torch.exp(-0.5 * ((z - nodes.mean) ** 2 / nodes.log_var.exp()).sum(2))
    assert (kernel == 0).all()
    density = sf.ops.mixture_density(z, *nodes)
    (gradient,) = torch.autograd.grad(density.sum(), nodes.log_var)
    assert torch.isfinite(density).all()
    assert gradient.abs().max() > 0.1


@pytest.mark.parametrize(("present", "cells"), [(0, 9), (9, 9), (3, 9), (0, 1), (1, 1), (1000, 9)])
def test_balance_is_finite_and_positive(present, cells):
    for binary in (True, False):
        norm, weight = balance(present, cells, binary=binary)
        assert 0 < norm < float("inf")
        assert 0 <= weight < float("inf")


@pytest.mark.parametrize("nodes", [1, 2])
def test_tiny_and_edgeless_graphs_train(nodes):
    graph = sf.Graph(np.zeros((nodes, nodes)), np.ones((nodes, 2)))
    model = sf.SeeGera(graph, **SMALL)
    model(graph).loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_scores_and_reconstructions():
    graph = small_graph(torch.float32)
    model = sf.SeeGera(graph, **SMALL, num_importance_samples=2)
    pairs = graph.edges()
    embedding = model.embed()
    assert embedding.shape == (graph.num_nodes, 3)
    assert not embedding.requires_grad
    rows, cols = torch.tensor([0, 3, 3]), torch.tensor([1, 0, 5])
    values = model.reconstruct_features(rows, cols)
    assert values.shape == (3,)
    assert ((values > 0) & (values < 1)).all()
    assert torch.equal(values[1:], model.reconstruct_features(rows[1:], cols[1:]))
    assert model.link_scores(pairs[:0]).shape == (0,)
    with pytest.raises(ValueError, match="pairs: got numbers from 0 to 14, want 0 to 13"):
        model.link_scores([[0, 14]])
    with pytest.raises(ValueError, match="cols"):
        model.reconstruct_features([0], [6])
    with pytest.raises(ValueError, match="feature_side: got False"):
        sf.SeeGera(graph, **SMALL, feature_side=False).reconstruct_features([0], [0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_numbers_of_nodes_in_any_integers(dtype):
    graph = small_graph(torch.float32)
    model = sf.SeeGera(graph, **SMALL)
    pairs, rows, cols = graph.edges()[:5], torch.tensor([1, 0, 13]), torch.tensor([1, 0, 5])
    assert torch.equal(model.link_scores(pairs.to(dtype)), model.link_scores(pairs))
    found = model.reconstruct_features(rows.to(dtype), cols.to(dtype))
    assert torch.equal(found, model.reconstruct_features(rows, cols))


def test_numbers_of_nodes_in_arrays_of_any_kind():
    """Those that torch.as_tensor refuses, or warns of: other byte orders, backwards, read-only, lists of tensors."""
    pairs = small_graph().edges()[:5].numpy()
    model = sf.SeeGera(small_graph(torch.float32), **SMALL)
    want = model.link_scores(pairs)
    read_only = pairs.copy()
    read_only.flags.writeable = False
    for given in (pairs.astype(">i4"), pairs[::-1][::-1], np.asfortranarray(pairs), read_only, pairs.tolist()):
        assert torch.equal(model.link_scores(given), want)
    assert torch.equal(model.link_scores(pairs[:, ::-1]), want)
    assert torch.equal(model.link_scores([list(map(torch.tensor, pair)) for pair in pairs.tolist()]), want)
    assert model.link_scores(np.zeros((0, 2), int)).shape == model.link_scores([[]][:0] or np.zeros((0, 2))).shape
    with pytest.raises(ValueError, match="pairs: got 1 masked entries, want none"):
        model.link_scores(np.ma.masked_equal([[0, 1]], 1))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.complex64])
def test_numbers_of_nodes_that_are_no_integers(dtype):
    model = sf.SeeGera(small_graph(), **SMALL)
    ones = torch.ones(2, dtype=torch.int64)
    for name, call in {
        "pairs": lambda index: model.link_scores(index[None]),
        "rows": lambda index: model.reconstruct_features(index, ones),
        "cols": lambda index: model.reconstruct_features(ones, index),
    }.items():
        with pytest.raises(TypeError, match=f"{name}: got {dtype}, want integers"):
            call(ones.to(dtype))
    with pytest.raises(ValueError, match=r"pairs: got shape \(2,\), want \[m, 2\]"):
        model.link_scores(ones)
    for pairs in (None, [[1, 2], [3]], [[0, 2**70]]):
        with pytest.raises(TypeError, match=r"pairs: got (NoneType|list) that is no tensor of integers"):
            model.link_scores(pairs)
    for pairs in ("ab", [["Ann", 3]], np.array([["Ann", "Bob"]]), np.array([["Ann", 1]], object)):
        with pytest.raises(TypeError, match=r"^pairs: got words, want integers: node k has the name graph.nodes\[k\]"):
            model.link_scores(pairs)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (1.5, TypeError, "seed: got 1.5, want an int"),
        (2**70, ValueError, "seed: got 1180591620717411303424, want a number of 64 bits"),
        (torch.tensor(1.5), TypeError, r"seed: got torch\.float32"),
    ],
)
def test_a_wrong_seed(seed, error, message):
    model = sf.SeeGera(small_graph(), **SMALL)
    for call in (model, model.embed, lambda seed: model.reconstruct_features([0], [0], seed=seed)):
        with pytest.raises(error, match=message):
            call(seed=seed)
    if isinstance(seed, int):
        with pytest.raises(error, match=message):
            sf.SeeGera(small_graph(), **SMALL, seed=seed)


def test_only_the_loss_wants_non_edges_and_features_in_its_range(tmp_path):
    """A model that was trained on a part of the graph embeds and scores all of it."""
    nodes = 10
    pairs, features = np.stack(np.triu_indices(nodes, 1), axis=1), np.eye(nodes)
    adjacency = scipy.sparse.coo_matrix((np.ones(27), pairs[:27].T), shape=(nodes, nodes))
    dense = sf.Graph(adjacency + adjacency.T, features)
    for negatives in ("edges", 20):
        model = sf.SeeGera(dense.with_edges(pairs[:20]), **SMALL, negatives=negatives)
        model.save(tmp_path / "model.safetensors")
        loaded = sf.SeeGera.load(tmp_path / "model.safetensors", dense.with_features(3 * features))
        assert loaded.embed().shape == (nodes, 3)
        assert loaded.link_scores(pairs).shape == (len(pairs),)
        assert loaded.reconstruct_features([0], [0]).shape == (1,)
        with pytest.raises(ValueError, match='likelihood: got "bernoulli" with features from 0 to 3'):
            loaded()
        with pytest.raises(ValueError, match=f'negatives: got {negatives!r} .* want "all" or 1 to 18 non-edges'):
            model(dense)


def test_save_and_load(tmp_path):
    graph = small_graph(torch.float32)
    model = sf.SeeGera(graph, **SMALL, variant="independent", negatives=7)
    model.save(tmp_path / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    loaded = sf.SeeGera.load(tmp_path / "model.safetensors", graph)
    assert loaded.config == model.config
    assert torch.equal(loaded.embed(), model.embed())
    without = sf.SeeGera.load(tmp_path / "model.safetensors")
    assert torch.equal(without.embed(graph), model.embed())
    with pytest.raises(ValueError, match="loaded without one"):
        without.embed()
    with pytest.raises(ValueError, match="graph: has 15 nodes, want 14, those of the model"):
        sf.SeeGera.load(tmp_path / "model.safetensors", small_graph(nodes=15))
    (tmp_path / "other.safetensors").write_bytes(b"not such a file")
    with pytest.raises(ValueError, match="not a safetensors file"):
        sf.SeeGera.load(tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"embeding_dim": 3}, TypeError, "the nearest: embedding_dim"),
        ({"variant": "v9"}, ValueError, "variant: got 'v9', want one of 'correlated', 'independent'"),
        (
            {"variant": "v3"},
            ValueError,
            "variant: got 'v3', which is a variant of a task; want of a model 'independent'",
        ),
        ({"embedding_dim": 0}, ValueError, "embedding_dim: got 0, want 1 to 2147483647"),
        ({"embedding_dim": 2.5}, TypeError, "embedding_dim: got 2.5, want an int"),
        ({"embedding_dim": 10**20}, ValueError, r"embedding_dim: got 10{20}, want 1 to 2147483647"),
        ({"num_importance_samples": 0}, ValueError, "num_importance_samples: got 0"),
        ({"dropout": 1.0}, ValueError, r"dropout: got 1.0, want a number in \[0, 1\)"),
        ({"structure_masking_rate": -0.1}, ValueError, "structure_masking_rate: got -0.1"),
        ({"noisy_variance": 1}, TypeError, "noisy_variance: got 1, want True or False"),
        ({"negatives": "some"}, ValueError, "negatives: got 'some'"),
        ({"negatives": 10**6}, ValueError, "negatives: got 1000000"),
        ({"decoder": "inner_product", "likelihood": "gaussian"}, ValueError, "has no variances"),
        ({"decoder": "inner_product", "feature_embeddings": False}, ValueError, "feature_embeddings"),
    ],
)
def test_configuration_errors(fields, error, message):
    with pytest.raises(error, match=message):
        sf.SeeGera(small_graph(), **fields)


def test_bernoulli_refuses_counts_and_forward_refuses_another_graph():
    counts = small_graph(binary=False)
    with pytest.raises(ValueError, match="want values in"):
        sf.SeeGera(counts, likelihood="bernoulli")
    sf.SeeGera(counts, **SMALL, likelihood="mse")(counts).loss.backward()
    model = sf.SeeGera(small_graph(), **SMALL)
    with pytest.raises(TypeError, match=r"graph: got int, want a seegera_fast\.Graph"):
        model(3)
    with pytest.raises(ValueError, match="graph: has 7 features, want 6, those of the model"):
        model(small_graph(features=7))


def test_building_leaves_the_random_state_alone_and_a_bad_header_is_named(tmp_path):
    before = torch.random.get_rng_state()
    sf.SeeGera(small_graph(), **SMALL)
    assert torch.equal(torch.random.get_rng_state(), before)
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "bad", {"format": "seegera_fast.SeeGera/1"})
    with pytest.raises(ValueError, match="lacks config, seed, num_nodes, num_features in its header"):
        sf.SeeGera.load(tmp_path / "bad")
    with pytest.raises(TypeError, match=r"seed: got 1\.5, want an int"):
        sf.SeeGera(small_graph(), seed=1.5)


def test_a_file_that_is_no_model_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    sf.SeeGera(small_graph(), **SMALL).save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    first = next(iter(tensors))
    others = {
        "lacks the tensor": (header, {}),
        f"lacks the tensor {first}": (header, {name: tensors[name] for name in tensors if name != first}),
        "has a tensor 'more', which": (header, {**tensors, "more": torch.zeros(1)}),
        f"has {first} as torch.float64 ": (header, {**tensors, first: tensors[first][:1].clone()}),
        f"has {first} as torch.int64 ": (header, {**tensors, first: tensors[first].long()}),
        r"has a header that isn't that of a model \(Expecting value": ({**header, "config": "a"}, tensors),
        r"has a header that isn't that of a model \(size: is not a field": (
            {**header, "config": '{"size": 1}'},
            tensors,
        ),
        r"has a header that isn't that of a model \(num_nodes: got 'a', want an int from 1 to": (
            {**header, "num_nodes": "a"},
            tensors,
        ),
    }
    for message, (texts, parts) in others.items():
        safetensors.torch.save_file(parts, path, texts)
        with pytest.raises(ValueError, match=rf"path: .*model\.safetensors {message}") as caught:
            sf.SeeGera.load(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"path: .* is a folder, want a file"):
        sf.SeeGera.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        sf.SeeGera.load(tmp_path / "absent")


def test_biases_of_the_mlp_decoder_start_at_zero():
    decoder = sf.SeeGera(small_graph(), **SMALL, decoder="mlp", likelihood="gaussian").decoder
    assert (decoder.log_var_weight[-1] == 0).all()
    assert decoder.log_var_weight[:-1].abs().min() > 0
