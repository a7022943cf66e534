"""Random graphs and configurations: the model against the reference, and no error but TypeError and ValueError."""

import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import assert_program_close, assert_same_bits

import seegera_fast as sf
from seegera_fast.training import TrainingConfig, train

# --- what is drawn ---------------------------------------------------------------------------------------------------

RATES = st.sampled_from([0.0, 0.2, 0.5, 0.9, 0.99])


def adjacency_of(kind, n, rng):
    """A symmetric boolean matrix: no edges, all, few, a hub, a path, or two halves that don't meet."""
    matrix = np.zeros((n, n), bool)
    if kind == "complete":
        matrix[:] = True
    elif kind == "random":
        matrix = rng.random((n, n)) < rng.random()
    elif kind == "hub":
        matrix[0] = True
    elif kind == "path":
        matrix[np.arange(n - 1), np.arange(1, n)] = True
    elif kind == "halves":
        half = np.arange(n) < n // 2
        matrix = half[:, None] == half[None, :]
    matrix |= matrix.T
    np.fill_diagonal(matrix, False)
    return matrix


def features_of(kind, n, rng):
    """A feature matrix ``n x l``; only "identity", "binary", "zeros" and "ones" fit the likelihood "bernoulli"."""
    width = int(rng.integers(1, 9))
    if kind == "identity":
        return None
    if kind in ("zeros", "ones"):
        return np.full((n, width), float(kind == "ones"))
    values = rng.random((n, width)) < 0.4
    if kind == "counts":
        return values * rng.integers(1, 1000, (n, width))
    if kind == "normal":
        return rng.standard_normal((n, width))
    if kind == "large":
        return values * 1e6 * rng.standard_normal((n, width))
    return values.astype(float)


FEATURES = ("identity", "binary", "zeros", "ones", "counts", "normal", "large")
ADJACENCIES = ("empty", "complete", "random", "hub", "path", "halves")


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    adjacency = adjacency_of(draw(st.sampled_from(ADJACENCIES)), n, rng)
    features = features_of(draw(st.sampled_from(FEATURES)), n, rng)
    weighted = draw(st.booleans())
    matrix = scipy.sparse.csr_matrix(adjacency * (np.triu(rng.random((n, n))) if weighted else 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sf.Graph(matrix, features, weighted=weighted, dtype=torch.float64)


def configurations(**fixed):
    drawn = {
        "variant": st.sampled_from(["correlated", "independent"]),
        "embedding_dim": st.integers(1, 5),
        "hidden_dim": st.integers(1, 5),
        "encoder": st.sampled_from(["gcn", "mlp"]),
        "decoder": st.sampled_from(["gcn", "mlp", "inner_product"]),
        "encoder_layers": st.integers(1, 3),
        "encoder_output": st.sampled_from(["linear", "relu"]),
        "decoder_layers": st.integers(1, 3),
        "noise_dim": st.integers(0, 3),
        "noise_prob": st.sampled_from([0.0, 0.5, 1.0]),
        "noisy_variance": st.booleans(),
        "num_importance_samples": st.integers(1, 3),
        "num_mixture_samples": st.integers(0, 3),
        "dropout": RATES,
        "likelihood": st.sampled_from(["bernoulli", "mse", "gaussian", "mse_relu"]),
        "mixture": st.sampled_from(["per_node", "joint"]),
        "scaling": st.sampled_from(["mean", "sum"]),
        "structure_masking_rate": RATES,
        "feature_masking_rate": RATES,
        "negatives": st.sampled_from(["all", "all", "edges", 1, 3]),
        "feature_embeddings": st.booleans(),
        "feature_side": st.booleans(),
    }
    return st.fixed_dictionaries({**drawn, **{name: st.just(value) for name, value in fixed.items()}})


def model_of(graph, fields):
    """The model; None: a combination that the configuration or the graph doesn't allow was refused."""
    try:
        return sf.SeeGera(graph, **fields)
    except (TypeError, ValueError) as refusal:
        message = str(refusal)
    assert ": got " in message, message
    return None


def step(model, seed, backend):
    """Loss and terms of one step, and its gradients, by name."""
    model.zero_grad()
    with sf.use_backend(backend):
        output = model(seed=seed, warmup=0.7)
        output.loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {"loss": output.loss.detach(), **output.terms}, gradients


# --- properties ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["bernoulli", "mse", "gaussian", "mse_relu"])
@pytest.mark.parametrize("variant", ["correlated", "independent"])
@given(data=st.data())
def test_a_step_of_any_configuration_is_that_of_the_reference(variant, likelihood, data):
    graph = data.draw(graphs())
    fields = data.draw(configurations(variant=variant, likelihood=likelihood))
    seed = data.draw(st.integers(-(2**63), 2**63 - 1))
    model = model_of(graph, fields)
    if model is None:
        return
    expected, actual = step(model, seed, "reference"), step(model, seed, "cpu")
    assert_program_close(actual[0], expected[0])
    assert_program_close(actual[1], expected[1], loss=expected[0]["loss"].item())
    single = sf.SeeGera(graph.to(dtype=torch.float32), **fields)
    terms, gradients = step(single, seed, "cpu")
    for name, value in {**terms, **gradients}.items():
        assert value.isfinite().all(), f"{name} in float32"


@given(data=st.data())
def test_any_configuration_trains_scores_and_is_saved(data, tmp_path_factory):
    graph = data.draw(graphs()).to(dtype=torch.float32)
    fields = data.draw(configurations())
    model = model_of(graph, fields)
    if model is None:
        return
    train(model, TrainingConfig(epochs=2, learning_rate=1e-3, patience=None), seed=3, progress=False)
    pairs = torch.cartesian_prod(torch.arange(graph.num_nodes), torch.arange(graph.num_nodes))
    scores = model.link_scores(pairs)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert model.embed().isfinite().all()
    if fields["feature_side"]:
        rows = torch.arange(graph.num_nodes)
        assert model.reconstruct_features(rows, rows * 0).isfinite().all()
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    model.save(path)
    assert_same_bits(sf.SeeGera.load(path, graph).embed(), model.embed(), name="embedding")
