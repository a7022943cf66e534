"""What a model predicts: deviations of links over draws, missing attributes, calibrated probabilities, and rankings."""

import copy

import cases
import numpy as np
import pytest
import safetensors.torch
import scipy.special
import scipy.stats
import torch
from threadpoolctl import threadpool_limits
from tolerances import assert_same_bits

import seegera_fast as sf
from seegera_fast.calibration import Calibration, fit_calibration, reliability
from seegera_fast.tasks.ranking import hits_at, mean_reciprocal_rank

SMALL = {"embedding_dim": 5, "hidden_dim": 6}
KINDS = {
    "plain": {},
    "several samples": {"num_importance_samples": 3, "num_mixture_samples": 2},
    "noisy variance": {"noisy_variance": True},
    "no noise": {"noise_dim": 0, "num_mixture_samples": 0},
    "independent": {"variant": "independent"},
    "gaussian": {"likelihood": "gaussian"},
    "inner product": {"decoder": "inner_product"},
    "one sample": {"num_importance_samples": 1, "num_mixture_samples": 0},
}
PAIRS = torch.tensor([[0, 1], [3, 4], [16, 2], [5, 5]])


def model(kind="plain", name="random", **options):
    return sf.SeeGera(cases.graph(name, "unit"), **SMALL, **{**KINDS[kind], **options})


# --- deviations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_mean_and_deviation_over_the_draws(kind):
    made = model(kind)
    mean, deviation = made.link_scores(PAIRS, draws=19, seed=3)
    graph = made.graph
    seeds = [sf.seeds.derive_seed(3, part) for part in range(3)]
    z = torch.cat([made._node_samples(graph, seed) for seed in seeds], dim=1)[:, :19].detach().numpy()
    probability = scipy.special.expit((z[PAIRS[:, 0]] * z[PAIRS[:, 1]]).sum(axis=2))
    assert np.allclose(mean, probability.mean(axis=1), rtol=1e-12)
    assert np.allclose(deviation, probability.std(axis=1, ddof=1), rtol=1e-10)
    assert len(np.unique(z[0, :, 0])) == 19
    again = made.link_scores(PAIRS, draws=19, seed=3)
    assert torch.equal(again.mean, mean)
    assert torch.equal(again.deviation, deviation)
    assert not torch.equal(made.link_scores(PAIRS, draws=19, seed=4).mean, mean)


def test_deviation_is_that_of_the_posterior():
    made = model("no noise")
    graph, draws = made.graph, 20_000
    with torch.no_grad():
        mu = made.node_mean(graph.propagation, graph.features, 1, 0.0, 0)[:, 0].numpy()
        sigma = made.node_log_var(graph.propagation, graph.features, 1, 0.0, 0)[:, 0].div(2).exp().numpy()
    z = mu + sigma * np.random.default_rng(5).normal(size=(draws, *mu.shape))
    probability = scipy.special.expit((z[:, PAIRS[:, 0]] * z[:, PAIRS[:, 1]]).sum(axis=2))
    mean, deviation = made.link_scores(PAIRS, draws=draws)
    # Five standard errors of two such means; a deviation's is smaller.
    near = 5 * np.sqrt(2 / draws) * probability.std(axis=0)
    assert (abs(mean.numpy() - probability.mean(axis=0)) < near).all()
    assert (abs(deviation.numpy() - probability.std(axis=0)) < near).all()


def test_what_draws_may_be():
    made = model()
    for draws in (1, 0, -1):
        with pytest.raises(ValueError, match="draws: got"):
            made.link_scores(PAIRS, draws=draws)
    with pytest.raises(TypeError, match=r"draws: got 2\.5, want an int or None"):
        made.link_scores(PAIRS, draws=2.5)
    assert [len(part) for part in made.link_scores(PAIRS[:0], draws=2)] == [0, 0]
    assert made.float().link_scores(PAIRS, draws=2).mean.dtype == torch.float32


# --- links -----------------------------------------------------------------------------------------------------------


def best(made, pairs, k, **options):
    """The k pairs with the largest probabilities, one pair after the other."""
    if not pairs:
        return []
    scores = made.link_scores(torch.tensor(pairs), **options).tolist()
    return [pair for _, pair in sorted(zip(scores, pairs, strict=True), key=lambda entry: (-entry[0], entry[1]))][:k]


@pytest.mark.parametrize("kind", ["plain", "noisy variance", "independent"])
@pytest.mark.parametrize("name", ["random", "hub", "complete", "no_edges"])
def test_top_links_are_those_of_all_pairs(kind, name):
    made = model(kind, name)
    n = made.num_nodes
    edges = {tuple(edge) for edge in made.graph.edges().tolist()}
    missing = [(i, j) for i in range(n) for j in range(n) if i != j and (min(i, j), max(i, j)) not in edges]
    side = torch.arange(n) % 2
    for k in (1, 3, n - 1):
        found = made.top_links(k, seed=4)
        wanted = [pair for i in range(n) for pair in best(made, [pair for pair in missing if pair[0] == i], k, seed=4)]
        assert list(map(tuple, found.pairs.tolist())) == wanted
        assert torch.equal(found.probabilities, made.link_scores(found.pairs.reshape(-1, 2), seed=4))
        found = made.top_links(k, [2, 0], seed=4)
        assert list(map(tuple, found.pairs.tolist())) == [
            pair for i in (2, 0) for pair in best(made, [pair for pair in missing if pair[0] == i], k, seed=4)
        ]
        found = made.top_links(k, per_node=False, seed=4)
        assert list(map(tuple, found.pairs.tolist())) == best(made, [p for p in missing if p[0] < p[1]], k, seed=4)
        across = [pair for pair in missing if pair[0] < pair[1] and side[pair[0]] != side[pair[1]]]
        found = made.top_links(k, per_node=False, sides=side, seed=4)
        assert list(map(tuple, found.pairs.tolist())) == best(made, across, k, seed=4)


def test_the_sides_of_a_bipartite_graph_are_found():
    adjacency = torch.zeros(9, 9)
    adjacency[:4, 4:] = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]])
    graph = sf.Graph(adjacency + adjacency.T)
    made = sf.SeeGera(graph, embedding_dim=3, hidden_dim=4)
    side = torch.arange(9) > 3
    found = [
        made.top_links(20, per_node=False, sides=sides).pairs for sides in ("auto", side, side.long(), side.tolist())
    ]
    assert len(found[0]) == 4 * 5 - 8
    assert (side[found[0]].sum(dim=1) == 1).all()
    assert all(torch.equal(found[0], other) for other in found[1:])
    with pytest.raises(ValueError, match="sides: got 'auto', but the graph is not bipartite"):
        model().top_links(1, sides="auto")
    with pytest.raises(ValueError, match="sides: got 'both', want one of 'auto'"):
        made.top_links(1, sides="both")


def test_nodes_on_no_side_get_no_links():
    made = model()
    side = torch.arange(made.num_nodes) % 3 - 1
    found = made.top_links(16, sides=side).pairs
    assert set(found[:, 0].tolist()) == set(torch.nonzero(side >= 0).flatten().tolist())
    assert (side[found] >= 0).all()


def test_links_of_another_graph_are_known():
    made = model()
    suggested = made.top_links(1, per_node=False)
    known = sf.Graph.from_edge_index(
        torch.cat([made.graph.edges(), suggested.pairs]).T, made.graph.features, dtype=torch.float64
    )
    assert (
        made.top_links(2, per_node=False).pairs[1].tolist()
        == made.top_links(1, per_node=False, known=known).pairs[0].tolist()
    )


def test_suggested_links_may_be_calibrated():
    made = model()
    made.calibration = Calibration(0.5, -3.0, 2.0)
    plain, found = made.top_links(2), made.top_links(2, calibrated=True)
    assert torch.equal(plain.pairs, found.pairs)
    assert torch.equal(found.probabilities, made.link_scores(found.pairs, calibrated=True))
    assert (found.probabilities < plain.probabilities).all()


def test_what_k_of_links_may_be():
    made = model()
    for k in (0, 17):
        with pytest.raises(ValueError, match=f"k: got {k}, want 1 to 16"):
            made.top_links(k)
    with pytest.raises(ValueError, match="k: got 137, want 1 to 136"):
        made.top_links(137, per_node=False)
    with pytest.raises(ValueError, match="nodes: got numbers from 3 to 17, want 0 to 16"):
        made.top_links(1, [3, 17])
    with pytest.raises(ValueError, match="graph: has one node, want at least two"):
        sf.SeeGera(sf.Graph([[0]]), embedding_dim=2, hidden_dim=2).top_links(1)
    assert made.link_scores([]).shape == (0,)


# --- attributes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nodes", [None, [3, 0, 3], []], ids=["all", "some", "none"])
def test_top_attributes_are_those_of_all_entries(kind, nodes):
    made = model(kind)
    n, l = made.num_nodes, made.num_features
    grid = torch.cartesian_prod(torch.arange(n), torch.arange(l))
    value = made.reconstruct_features(*grid.t(), seed=4).reshape(n, l)
    present = torch.zeros(n, l, dtype=torch.bool)
    present[made.graph.features.row, made.graph.features.col] = True
    for k in (1, 4, l):
        found = made.top_attributes(k, nodes, seed=4)
        wanted = []
        for node in range(n) if nodes is None else nodes:
            candidates = [r for r in range(l) if not present[node, r]]
            wanted += [(node, r) for r in sorted(candidates, key=lambda r: (-value[node, r], r))[:k]]
        assert list(zip(found.nodes.tolist(), found.features.tolist(), strict=True)) == wanted
        assert torch.allclose(found.values, value[found.nodes, found.features], rtol=1e-12)


def test_top_attributes_are_float32_in_autocast():
    made = sf.SeeGera(sf.datasets.load("digits"), embedding_dim=4, hidden_dim=8)
    # Operations of the reference do, too, on every processor.
    with sf.use_backend("reference"):
        want = made.top_attributes(2)
        with torch.autocast("cpu", torch.bfloat16):
            found = made.top_attributes(2)
    assert torch.equal(found.features, want.features)
    assert_same_bits(found.values, want.values)


def test_equal_attributes_come_in_the_order_of_their_numbers():
    made = model()
    for weight in made.decoder.parameters():
        torch.nn.init.zeros_(weight)
    present = set(made.graph.features.col[made.graph.features.row == 2].tolist())
    missing = [r for r in range(made.num_features) if r not in present]
    assert made.top_attributes(9, [2]).features.tolist() == missing


def test_a_node_with_every_attribute_has_no_suggestion():
    graph = sf.Graph(np.zeros((2, 2)), np.array([[1, 1, 1], [0, 1, 0]]))
    assert sf.SeeGera(graph, **SMALL).top_attributes(2).nodes.tolist() == [1, 1]


def test_what_k_and_nodes_may_be():
    made = model()
    for k in (0, 10):
        with pytest.raises(ValueError, match=f"k: got {k}, want 1 to 9"):
            made.top_attributes(k)
    with pytest.raises(ValueError, match="nodes: got numbers from 3 to 17, want 0 to 16"):
        made.top_attributes(1, [3, 17])
    with pytest.raises(ValueError, match=r"nodes: got shape \(1, 1\), want \[m\]"):
        made.top_attributes(1, [[3]])
    with pytest.raises(ValueError, match="feature_side: got False"):
        model(feature_side=False).top_attributes(1)


# --- calibration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e5])
def test_a_calibration_finds_the_probabilities_that_links_were_drawn_with(scale):
    rng = np.random.default_rng(1)
    products = 4 * rng.normal(size=40_000)
    width = 2 * np.median(abs(products))
    linked = rng.random(40_000) < scipy.special.expit(1.2 * np.arcsinh(products / width) - 1)
    products, linked = torch.from_numpy(products * scale), torch.from_numpy(linked)
    found = fit_calibration(products, linked)
    assert found.scale == pytest.approx(width * scale)
    assert abs(found.slope - 1.2) < 0.06
    assert abs(found.intercept + 1) < 0.05
    assert reliability(found(products), linked).error < 0.01
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert fit_calibration(products, linked) == found


def test_further_pairs_make_a_calibration_more_exact():
    """They change neither what is fitted nor the share of links: only the chance in it is less."""
    rng = np.random.default_rng(4)

    def fitted(links, others, further):
        made = [torch.from_numpy(rng.normal(loc, size=count)) for loc, count in ((1, links), (0, others), (0, further))]
        linked = torch.arange(links + others) < links
        return fit_calibration(torch.cat(made[:2]), linked, made[2] if further else None)

    alone = [fitted(200, 200, 0) for _ in range(30)]
    more = [fitted(200, 200, 10_000) for _ in range(30)]
    exact = fitted(200_000, 200_000, 0)
    for name in ("slope", "intercept"):
        spread = [np.std([getattr(found, name) for found in runs]) for runs in (alone, more)]
        assert spread[1] < 0.85 * spread[0], name
        assert abs(np.mean([getattr(found, name) for found in more]) - getattr(exact, name)) < 0.06


@pytest.mark.parametrize(("offset", "outlier"), [(-1000.0, 0.0), (1000.0, 0.0), (0.0, 0.0), (0.0, 1e3), (0.0, 1e4)])
def test_neither_outliers_nor_an_offset_spoil_a_calibration(offset, outlier):
    rng = np.random.default_rng(5)
    linked = np.arange(4000) % 2 == 0
    products = offset + rng.normal(size=4000) + 2 * linked
    if outlier:
        products[:10] = outlier * np.where(np.arange(10) < 5, 1, -1)
    products, linked = torch.from_numpy(products), torch.from_numpy(linked)
    loss = torch.nn.functional.binary_cross_entropy
    # Without outliers the exact probabilities have a loss of 0.35, and one probability for all has 0.69.
    assert loss(fit_calibration(products, linked)(products), linked.double()) < 0.45


@pytest.mark.parametrize("products", [[-1.0, -2.0, 3.0, 4.0], [-1e300, 1.0, 1.0, 1e300]])
def test_a_calibration_is_finite_where_a_threshold_separates(products):
    found = fit_calibration(torch.tensor(products, dtype=torch.float64), torch.tensor([False, False, True, True]))
    assert np.isfinite([found.slope, found.intercept]).all()
    assert torch.isfinite(found(torch.tensor(products, dtype=torch.float64))).all()


@pytest.mark.parametrize("numbers", [(1.0, 0.0, 1e-50), (1e300, 0.0, 1.0)], ids=str)
def test_a_calibration_of_single_precision_is_that_of_double(numbers):
    of, products = Calibration(*numbers), torch.tensor([0.0, 1e-30, -1.0, 1.0])
    assert torch.equal(of(products), of(products.double()).float())
    assert of(products).dtype == torch.float32


@pytest.mark.parametrize("products", [[0.0, 0.0, 0.0, 0.0], [3.0, 4.0, -1.0, -2.0]])
def test_no_calibration_turns_the_order_round(products):
    with pytest.warns(UserWarning, match="the probabilities are not calibrated: among the 2 links and 2 pairs"):
        found = fit_calibration(torch.tensor(products, dtype=torch.float64), torch.tensor([False, False, True, True]))
    assert found is None


def test_expected_calibration_error_by_hand():
    probabilities = torch.tensor([0.05, 0.1, 0.3, 0.3, 0.99, 1.0], dtype=torch.float64)
    linked = torch.tensor([False, True, False, False, True, True])
    found = reliability(probabilities, linked, bins=5)
    assert found.counts == [2, 2, 2]
    assert found.observed == [0.5, 0.0, 1.0]
    assert np.allclose(found.predicted, [0.075, 0.3, 0.995])
    assert found.error == pytest.approx((2 * 0.425 + 2 * 0.3 + 2 * 0.005) / 6)


def test_calibrated_scores_and_the_file_of_the_model(tmp_path):
    made = model()
    with pytest.raises(ValueError, match="calibrated: got True, and the model has no calibration"):
        made.link_scores(PAIRS, calibrated=True)
    plain = made.link_scores(PAIRS)
    made.calibration = Calibration(0.25, -1, 0.5)
    wanted = torch.sigmoid(0.25 * torch.asinh(torch.logit(plain) / 0.5) - 1)
    assert torch.allclose(made.link_scores(PAIRS, calibrated=True), wanted, rtol=1e-9)
    assert torch.equal(made.link_scores(PAIRS), plain)
    mean, _ = made.link_scores(PAIRS, draws=9, calibrated=True)
    assert not torch.allclose(mean, made.link_scores(PAIRS, draws=9).mean)
    made.save(tmp_path / "model")
    loaded = sf.SeeGera.load(tmp_path / "model", made.graph)
    assert loaded.calibration == copy.deepcopy(made).calibration == Calibration(0.25, -1.0, 0.5)
    made.calibration = None
    made.save(tmp_path / "model")
    assert sf.SeeGera.load(tmp_path / "model").calibration is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[1, 2]",
        '{"slope": 1, "intercept": 0}',
        '{"slope": NaN, "intercept": 0, "scale": 1}',
        '{"slope": "1", "intercept": 0, "scale": 1}',
        '{"slope": 1, "intercept": 0, "scale": 0}',
    ],
)
def test_a_damaged_calibration_in_a_file(tmp_path, text):
    made = model()
    made.calibration = Calibration(1.0, 0.0, 1.0)
    made.save(tmp_path / "model")
    with safetensors.safe_open(tmp_path / "model", "pt") as file:
        header = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    safetensors.torch.save_file(tensors, tmp_path / "damaged", {**header, "calibration": text})
    with pytest.raises(ValueError, match=r"path: .* has a header that isn't that of a model"):
        sf.SeeGera.load(tmp_path / "damaged")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None, 0.0, -1.0])
@pytest.mark.parametrize("name", ["slope", "scale"])
def test_what_a_slope_and_a_scale_may_be(name, value):
    with pytest.raises((TypeError, ValueError), match=f"{name}: got"):
        Calibration(**{"slope": 1.0, "intercept": 0.0, "scale": 1.0, name: value})


# --- rankings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [3, 40, 10**9], ids=["many ties", "ties", "no ties"])
def test_hits_and_reciprocal_ranks_one_link_at_a_time(levels):
    rng = np.random.default_rng(2)
    positive, negative = rng.integers(0, levels, 30), rng.integers(0, levels, 25)
    for k in (1, 10, 25):
        hits = [sum(other >= score for other in negative) < k for score in positive]
        assert hits_at(torch.from_numpy(positive), torch.from_numpy(negative), k) == pytest.approx(np.mean(hits))
    ranks = [scipy.stats.rankdata([-score, *-negative])[0] for score in positive]
    found = mean_reciprocal_rank(torch.from_numpy(positive), torch.from_numpy(negative))
    assert found == pytest.approx(np.mean(1 / np.array(ranks)))
    own = torch.from_numpy(np.tile(negative, (30, 1)))
    assert mean_reciprocal_rank(torch.from_numpy(positive), own) == pytest.approx(found)


def test_rankings_of_empty_parts():
    none, some = torch.zeros(0), torch.ones(3)
    assert hits_at(none, some, 1) is None
    assert hits_at(some, some, 4) is None
    assert mean_reciprocal_rank(none, some) is None
    assert mean_reciprocal_rank(some, none) is None


# --- tasks -----------------------------------------------------------------------------------------------------------


def trained(**options):
    graph = cases.large_graph(300, 20)
    return sf.tasks.link_prediction(graph, epochs=5, likelihood="mse", progress=False, **SMALL, **options)


def test_link_prediction_ranks_and_calibrates():
    result = trained()
    split, calibration = result.split, result.model.calibration
    score = [torch.logit(result.model.link_scores(pairs)) for pairs in (split.test_pos, split.test_neg)]
    assert set(result.hits) == {10, 50, 100}
    assert result.hits[50] == pytest.approx(hits_at(*score, 50))
    assert result.mrr == pytest.approx(mean_reciprocal_rank(*score))
    pairs = torch.cat([split.test_pos, split.test_neg])
    linked = torch.arange(len(pairs)) < len(split.test_pos)
    assert set(result.reliability) == {"plain", "calibrated"}
    plain = reliability(result.model.link_scores(pairs), linked)
    assert result.reliability["plain"].error == pytest.approx(plain.error)
    calibrated = reliability(result.model.link_scores(pairs, calibrated=True), linked)
    assert result.reliability["calibrated"].error == pytest.approx(calibrated.error)
    valid = torch.cat([split.valid_pos, split.valid_neg])
    fitted = fit_calibration(
        torch.logit(result.model.link_scores(valid)),
        torch.arange(len(valid)) < len(split.valid_pos),
        torch.logit(result.model.link_scores(split.more_neg)),
    )
    assert calibration.slope == pytest.approx(fitted.slope)
    assert calibration.intercept == pytest.approx(fitted.intercept)
    assert calibration.scale == pytest.approx(fitted.scale)


def test_link_prediction_without_a_validation_or_a_test_part():
    result = trained(valid=0)
    assert result.model.calibration is None
    assert set(result.reliability) == {"plain"}
    result = trained(test=0)
    assert result.model.calibration is not None
    assert (result.reliability, result.hits, result.mrr) == ({}, {}, None)


def test_embed_trains_on_everything():
    graph = cases.large_graph(300, 20)
    result = sf.tasks.embed(graph, epochs=4, likelihood="mse", progress=False, seed=2, **SMALL)
    assert result.model.graph is graph
    assert (result.epochs, result.best_epoch, result.split) == (4, 4, None)
    by_hand = sf.SeeGera(graph, result.model.config, seed=2)
    sf.training.train(by_hand, sf.TrainingConfig(epochs=4), seed=2, progress=False)
    assert torch.equal(by_hand.embed(), result.model.embed())
    fields = sf.tasks.presets.load("embed", "cora")
    assert fields == {**sf.tasks.presets.load("link_prediction", "cora"), "epochs": 500}
    assert sf.tasks.presets.names("embed") == sf.tasks.presets.names("link_prediction")
    assert not hasattr(result, "auc")
