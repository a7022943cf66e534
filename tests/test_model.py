"""The whole model: variants, objective, masking, saving."""

import json
import math

import numpy as np
import pytest
import safetensors.torch
import scipy.sparse
import torch

import seegera_fast as sf
from seegera_fast.masking import mask_features, mask_structure
from seegera_fast.objective import balance

SMALL = {"embedding_dim": 3, "hidden_dim": 4}


def small_graph(dtype=torch.float64, nodes=14, features=6, binary=True):
    rng = np.random.default_rng(3)
    upper = np.triu(rng.random((nodes, nodes)) < 0.3, 1)
    values = (rng.random((nodes, features)) < 0.4) * (1 if binary else rng.integers(1, 5, (nodes, features)))
    values[2] = 0
    values[:, 1] = 0
    return sf.Graph(scipy.sparse.csr_matrix(upper | upper.T), scipy.sparse.csr_matrix(values), dtype=dtype)


# Each value of each field at least once, and the pairs of fields that meet in the code.
VARIANTS = [
    {},
    {"variant": "independent"},
    {"variant": "independent", "noisy_variance": True, "mixture": "joint"},
    {"noisy_variance": True, "num_importance_samples": 2, "num_mixture_samples": 3},
    {"encoder": "mlp", "decoder": "mlp", "likelihood": "mse"},
    {"encoder": "mlp", "encoder_layers": 1, "decoder": "mlp", "decoder_layers": 1, "likelihood": "gaussian"},
    {"encoder_layers": 1, "decoder_layers": 1},
    {"encoder_layers": 3, "decoder_layers": 3, "likelihood": "gaussian", "scaling": "sum"},
    {"decoder": "inner_product", "num_importance_samples": 3, "num_mixture_samples": 0},
    {"feature_embeddings": False},
    {"feature_embeddings": False, "decoder_layers": 1, "likelihood": "mse"},
    {"mixture": "joint", "scaling": "sum", "num_mixture_samples": 2, "num_importance_samples": 2},
    {"negatives": 10, "noise_dim": 1, "noise_prob": 0.2},
    {"negatives": "edges", "noise_dim": 0},
    {"feature_side": False, "dropout": 0.2},
    {"feature_side": False, "mixture": "joint", "num_importance_samples": 2},
    {"dropout": 0.3, "structure_masking_rate": 0.4, "feature_masking_rate": 0.3, "num_importance_samples": 2},
    {"dropout": 0.3, "decoder": "mlp", "variant": "independent", "structure_masking_rate": 0.2},
]


@pytest.mark.parametrize("fields", VARIANTS, ids=lambda fields: json.dumps(fields) if fields else "defaults")
def test_every_parameter_gets_a_finite_gradient_and_a_seed_fixes_all(fields):
    graph = small_graph()
    model = sf.SeeGera(graph, **SMALL, **fields)
    output = model(graph, seed=5, warmup=0.5)
    output.loss.backward()
    assert list(output.terms) == ["link", *["feature"] * fields.get("feature_side", True), "prior", "mixture"]
    assert all(torch.isfinite(term) for term in output.terms.values())
    for name, parameter in model.named_parameters():
        unused = fields.get("feature_embeddings") is False and name.startswith("feature_")
        assert torch.isfinite(parameter.grad).all(), name
        if parameter.numel() and not unused:
            assert parameter.grad.abs().max() > 0, name
    again = sf.SeeGera(graph, **SMALL, **fields)(graph, seed=5, warmup=0.5).loss
    assert torch.equal(again, output.loss)
    assert not torch.equal(model(graph, seed=6, warmup=0.5).loss, output.loss)
    assert torch.equal(model(graph, seed=torch.tensor([5]), warmup=0.5).loss, output.loss)


@pytest.mark.parametrize("extra", [0, 2])
def test_paper_scaling_is_the_bound_written_with_torch_distributions(extra):
    graph = small_graph()
    model = sf.SeeGera(graph, **SMALL, scaling="sum", num_mixture_samples=extra, num_importance_samples=2)
    seed, warmup = 9, 0.7
    loss = model(graph, seed=seed, warmup=warmup).loss

    from seegera_fast.seeds import derive_seed

    nodes, features = model.encode(graph.propagation, graph.features, extra + 2, derive_seed(seed, 2))
    z_nodes, z_features = model._sample(nodes, features, derive_seed(seed, 3))
    x, a_hat = graph.features.to_dense(), graph.propagation.to_dense()
    target = graph.adjacency.to_dense() + torch.eye(graph.num_nodes, dtype=torch.float64)
    bernoulli, normal = torch.distributions.Bernoulli, torch.distributions.Normal
    weights = []
    for j in range(2):
        z, z_feature = z_nodes[:, j], z_features[:, j]
        average = torch.nan_to_num(x @ z_feature / x.sum(1, keepdim=True))
        hidden = torch.relu(a_hat @ torch.cat([z, average], 1) @ model.decoder.layers[0].weight)
        logits = a_hat @ hidden @ model.decoder.last.weight
        value = bernoulli(logits=z @ z.T).log_prob(target).sum() + bernoulli(logits=logits).log_prob(x).sum()
        for rows, psi in ((z, nodes), (z_feature, features)):
            value += warmup * normal(0, 1).log_prob(rows).sum()
            chosen = [*range(extra), extra + j]
            scale = torch.exp(psi.log_var / 2)
            density = torch.stack([normal(psi.mean[:, k], scale[:, 0]).log_prob(rows).sum(1) for k in chosen], 1)
            value -= warmup * (torch.logsumexp(density, 1) - math.log(extra + 1)).sum()
        weights.append(value)
    expected = -(torch.logsumexp(torch.stack(weights), 0) - math.log(2))
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)


def test_released_scaling_is_the_mean_of_weighted_cross_entropies():
    graph = small_graph()
    model = sf.SeeGera(graph, **SMALL, dropout=0.0)
    output = model(graph, seed=1)
    from seegera_fast.seeds import derive_seed

    nodes, features = model.encode(graph.propagation, graph.features, 2, derive_seed(1, 2))
    z_nodes, z_features = model._sample(nodes, features, derive_seed(1, 3))
    _, decoded = model._decode(graph.propagation, graph.features, z_nodes, z_features, derive_seed(1, 4))
    n, l = graph.num_nodes, graph.num_features
    x, adjacency = graph.features.to_dense(), graph.adjacency.to_dense()

    def cross_entropy(logits, target, present):
        cells = logits.numel()
        weight = (cells - present) / present
        mean = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, pos_weight=weight)
        return cells / (2 * (cells - present)) * mean

    z = z_nodes[:, 0]
    link = cross_entropy(z @ z.T, adjacency + torch.eye(n, dtype=torch.float64), adjacency.sum())
    feature = cross_entropy(decoded.hidden[:, 0] @ decoded.weight, x, x.sum())
    torch.testing.assert_close(output.terms["link"], -link.detach())
    torch.testing.assert_close(output.terms["feature"], -feature.detach())
    normal = torch.distributions.Normal(0, 1)
    prior = normal.log_prob(z).sum() / n**2 + normal.log_prob(z_features).sum() / l**2
    torch.testing.assert_close(output.terms["prior"], prior.detach())


@pytest.mark.parametrize("scaling", ["sum", "mean"])
def test_without_a_feature_side_noise_and_extra_draws_it_is_vgae(scaling):
    graph = small_graph(binary=False)
    fields = {"feature_side": False, "noise_dim": 0, "num_mixture_samples": 0, "scaling": scaling}
    model = sf.SeeGera(graph, **SMALL, **fields)
    output = model(graph, seed=4, warmup=0.3)

    from seegera_fast.seeds import derive_seed

    nodes, none = model.encode(graph.propagation, graph.features, 1, derive_seed(4, 2))
    assert none is None
    z = model._sample(nodes, None, derive_seed(4, 3))[0][:, 0]
    n, logits = graph.num_nodes, z @ z.T
    adjacency = graph.adjacency.to_dense()
    target = adjacency + torch.eye(n, dtype=torch.float64)
    normal = torch.distributions.Normal
    divergence = normal(nodes.mean[:, 0], torch.exp(nodes.log_var[:, 0] / 2)).log_prob(z) - normal(0, 1).log_prob(z)
    if scaling == "sum":
        expected = 0.3 * divergence.sum() - torch.distributions.Bernoulli(logits=logits).log_prob(target).sum()
    else:
        absent = n**2 - adjacency.sum()
        weight = absent / adjacency.sum()
        mean = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, pos_weight=weight)
        expected = n**2 / (2 * absent) * mean + 0.3 * divergence.sum() / n**2
    torch.testing.assert_close(output.loss, expected, rtol=1e-10, atol=0)
    with pytest.raises(ValueError, match="feature_side: got False"):
        model.reconstruct_features([0], [0])


def test_gradient_of_the_loss_matches_finite_differences():
    graph = small_graph(nodes=7, features=4)
    model = sf.SeeGera(
        graph, embedding_dim=2, hidden_dim=3, encoder_layers=1, num_importance_samples=2, dropout=0.2, scaling="sum"
    )
    for parameter in (
        model.node_mean.first.noise_weight,
        model.feature_log_var.outer.weight,
        model.decoder.last.weight,
    ):
        model.zero_grad()
        model(graph, seed=3).loss.backward()
        step = 1e-6
        for index in ((0, 0), (1, 1)):
            with torch.no_grad():
                parameter[index] += step
                above = model(graph, seed=3).loss.item()
                parameter[index] -= 2 * step
                below = model(graph, seed=3).loss.item()
                parameter[index] += step
            slope = (above - below) / (2 * step)
            assert parameter.grad[index].item() == pytest.approx(slope, rel=1e-5, abs=1e-6)


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


@pytest.mark.parametrize("kind", ["gcn", "mlp"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_an_encoder_ends_linearly_so_that_means_and_log_variances_may_be_negative(layers, kind):
    graph = small_graph()
    model = sf.SeeGera(graph, **SMALL, encoder=kind, encoder_layers=layers)
    nodes, _ = model.encode(graph.propagation, graph.features, 2, 0)
    for numbers in nodes:
        assert numbers.min() < 0 < numbers.max()


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.99])
def test_masking_counts_are_exact_and_masks_follow_the_seed(rate):
    graph = small_graph()
    propagation, edges = mask_structure(graph, rate, 1)
    assert edges == graph.num_edges - math.floor(rate * graph.num_edges)
    assert (propagation.nnz - graph.num_nodes) // 2 == edges
    dense = propagation.to_dense()
    kept = ((dense != 0) & ~torch.eye(graph.num_nodes, dtype=torch.bool)).double()
    degree = kept.sum(1) + 1
    expected = (kept + torch.eye(graph.num_nodes)) / torch.sqrt(degree[:, None] * degree[None])
    torch.testing.assert_close(dense, expected)
    assert torch.equal(dense, dense.T)
    masked = mask_features(graph.features, rate, 1)
    gone = (masked.to_dense() == 0) & (graph.features.to_dense() != 0)
    assert gone.sum() == math.floor(rate * graph.features.nnz)
    torch.testing.assert_close(masked.transposed.to_dense(), masked.to_dense().T)
    assert torch.equal(mask_structure(graph, rate, 1)[0].col, propagation.col)
    if rate == 0.3:
        assert not torch.equal(mask_structure(graph, rate, 2)[0].col, propagation.col)


def test_masks_are_uniform_over_edges():
    graph = small_graph()
    dense_edges = graph.edges()
    counts = torch.zeros(graph.num_edges)
    for seed in range(400):
        propagation, _ = mask_structure(graph, 0.5, seed)
        counts += (propagation.to_dense()[dense_edges[:, 0], dense_edges[:, 1]] != 0).float()
    share = counts / 400
    # Six standard deviations of a share over 400 draws.
    assert (share - 0.5).abs().max() < 6 * math.sqrt(0.25 / 400) + 1 / graph.num_edges


def test_masking_only_acts_in_training_and_embed_is_steady():
    graph = small_graph()
    model = sf.SeeGera(graph, **SMALL, structure_masking_rate=0.5, feature_masking_rate=0.5, dropout=0.5)
    plain = sf.SeeGera(graph, **SMALL)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(graph, seed=2).loss, plain.eval()(graph, seed=2).loss)
    assert not torch.equal(model.train()(graph, seed=2).loss, plain.train()(graph, seed=2).loss)
    assert torch.equal(model.embed(), model.embed(graph, seed=0))
    assert model.training


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
    expected = torch.sigmoid(embedding @ embedding.T)[pairs[:, 0], pairs[:, 1]]
    torch.testing.assert_close(model.link_scores(pairs), expected)
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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_numbers_of_nodes_in_any_integers(dtype):
    graph = small_graph(torch.float32)
    model = sf.SeeGera(graph, **SMALL)
    pairs, rows, cols = graph.edges()[:5], torch.tensor([1, 0, 13]), torch.tensor([1, 0, 5])
    assert torch.equal(model.link_scores(pairs.to(dtype)), model.link_scores(pairs))
    found = model.reconstruct_features(rows.to(dtype), cols.to(dtype))
    assert torch.equal(found, model.reconstruct_features(rows, cols))


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
    for pairs in (None, "ab", [[1, 2], [3]], [[0, 2**70]]):
        with pytest.raises(TypeError, match=r"pairs: got (NoneType|str|list) that is no tensor of integers"):
            model.link_scores(pairs)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (1.5, TypeError, "seed: got float, want an int"),
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
    with pytest.raises(ValueError, match="graph: has 15 nodes and 6 features, want 14 and 6"):
        sf.SeeGera.load(tmp_path / "model.safetensors", small_graph(nodes=15))
    (tmp_path / "other.safetensors").write_bytes(b"not such a file")
    with pytest.raises(ValueError, match="not a safetensors file"):
        sf.SeeGera.load(tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"embeding_dim": 3}, TypeError, "the nearest: embedding_dim"),
        ({"variant": "v9"}, ValueError, "variant: got 'v9', want one of 'correlated', 'independent'"),
        ({"embedding_dim": 0}, ValueError, "embedding_dim: got 0, want at least 1"),
        ({"embedding_dim": 2.5}, TypeError, "embedding_dim: got 2.5, want an int"),
        ({"embedding_dim": 10**20}, ValueError, r"embedding_dim: got 10{20}, want a number below 2\^31"),
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
    with pytest.raises(ValueError, match="graph: has 9 nodes"):
        model(small_graph(nodes=9))


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
        "has a tensor more, which": (header, {**tensors, "more": torch.zeros(1)}),
        f"has {first} as torch.float64 ": (header, {**tensors, first: tensors[first][:1].clone()}),
        f"has {first} as torch.int64 ": (header, {**tensors, first: tensors[first].long()}),
        r"has a header that isn't that of a model \(Expecting value": ({**header, "config": "a"}, tensors),
        r"has a header that isn't that of a model \(size: is not a field": (
            {**header, "config": '{"size": 1}'},
            tensors,
        ),
        r"has a header that isn't that of a model \(invalid literal": ({**header, "num_nodes": "a"}, tensors),
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
