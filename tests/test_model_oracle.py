"""The model against its equations in dense float64: loss, terms, gradients, embedding, scores, reconstruction."""

import functools
import itertools
import math

import pytest
import torch
from model_oracle import ModelOracle, derived
from tolerances import assert_close, assert_same_bits

import seegera_fast as sf

NODES, FEATURES = 12, 7

CHOICES = {
    "variant": ("correlated", "independent"),
    "encoder": ("gcn", "mlp"),
    "encoder_layers": ("1", "2", "3"),
    "decoder": ("gcn", "mlp", "inner_product"),
    "decoder_layers": ("1", "2", "3"),
    "likelihood": ("bernoulli", "mse", "gaussian"),
    "mixture": ("per_node", "joint"),
    "scaling": ("mean", "sum"),
    "noisy_variance": ("no", "yes"),
    "J,K": ("2,3", "3,2"),
    "negatives": ("all", "edges", "11"),
    "dropout": ("0", "0.4"),
    "masked": ("no", "yes"),
    "side": ("full", "no_embeddings", "none"),
    "weights": ("ones", "reals"),
    "values": ("ones", "reals"),
}

# Two choices of two fields meet in at least one row, wherever the model has both; "-" where a field has no effect.
TABLE = """
correlated  gcn 1 gcn           3 gaussian  per_node sum  no  3,2 edges 0   no  full          reals ones
correlated  gcn 3 gcn           2 mse       per_node mean yes 2,3 all   0   no  full          reals ones
correlated  mlp 3 gcn           1 bernoulli per_node mean yes 3,2 11    0.4 no  full          ones  ones
correlated  mlp 1 gcn           1 gaussian  per_node sum  no  2,3 11    0.4 yes full          reals reals
correlated  mlp 1 mlp           2 mse       joint    mean no  3,2 edges 0.4 no  full          reals reals
correlated  mlp 3 mlp           3 bernoulli per_node mean no  3,2 edges 0   yes full          ones  reals
correlated  mlp 2 inner_product - bernoulli per_node mean yes 2,3 11    0.4 yes full          reals reals
correlated  mlp 2 inner_product - mse       joint    sum  no  2,3 11    0   yes full          ones  reals
independent gcn 2 gcn           1 gaussian  joint    mean no  3,2 edges 0.4 yes full          reals reals
independent mlp 3 gcn           2 bernoulli per_node sum  no  3,2 all   0.4 yes full          reals ones
independent mlp 2 mlp           3 mse       per_node mean no  2,3 all   0.4 no  full          reals ones
independent mlp 3 mlp           3 gaussian  joint    sum  yes 2,3 11    0   yes full          reals ones
independent gcn 3 inner_product - bernoulli joint    sum  no  2,3 edges 0   no  full          ones  ones
independent mlp 1 inner_product - bernoulli joint    mean no  3,2 all   0.4 yes full          reals reals
independent mlp 3 inner_product - mse       joint    sum  yes 3,2 all   0.4 no  full          reals ones
correlated  gcn 3 gcn           3 gaussian  joint    mean no  3,2 all   0.4 no  no_embeddings ones  reals
correlated  gcn 2 gcn           2 mse       per_node mean no  2,3 11    0.4 yes no_embeddings reals reals
correlated  gcn 2 mlp           1 gaussian  joint    mean yes 2,3 11    0   no  no_embeddings ones  ones
correlated  mlp 1 mlp           2 gaussian  per_node sum  yes 2,3 all   0   yes no_embeddings ones  ones
correlated  mlp 3 mlp           1 mse       per_node sum  no  2,3 edges 0.4 no  no_embeddings ones  ones
correlated  mlp 2 mlp           2 gaussian  joint    mean yes 3,2 edges 0.4 no  no_embeddings reals reals
independent gcn 1 gcn           3 mse       per_node sum  yes 2,3 edges 0   yes no_embeddings ones  reals
independent gcn 2 gcn           2 bernoulli joint    sum  yes 2,3 11    0   no  no_embeddings ones  reals
independent gcn 1 mlp           1 mse       per_node mean yes 3,2 all   0   yes no_embeddings ones  reals
independent gcn 1 mlp           3 bernoulli joint    mean yes 2,3 11    0.4 yes no_embeddings reals reals
independent mlp 3 mlp           1 bernoulli per_node sum  yes 3,2 11    0   no  no_embeddings reals reals
-           gcn 1 -             - -         per_node mean yes 2,3 11    0   no  none          ones  reals
-           mlp 2 -             - -         joint    sum  no  3,2 11    0.4 yes none          reals ones
-           gcn 3 -             - -         joint    sum  yes 2,3 all   0.4 yes none          ones  reals
-           mlp 2 -             - -         per_node sum  yes 3,2 edges 0   yes none          reals ones
"""

CONFIGURATIONS = [dict(zip(CHOICES, row.split(), strict=True)) for row in TABLE.strip().splitlines()]
# VGAE; the paper's J = K = 1; and without extra draws, a sum of features beyond half of the cells.
CONFIGURATIONS += [
    {"side": "none", "J,K": "1,0", "noise_dim": "0", "encoder": "gcn"},
    {"J,K": "1,1", "dropout": "0.4", "masked": "yes"},
    {"J,K": "2,0", "likelihood": "mse", "values": "counts"},
]
# The ReLU after the last layer.
CONFIGURATIONS += [
    {"encoder": "gcn", "encoder_layers": "1", "encoder_output": "relu", "J,K": "2,2", "likelihood": "mse_relu"},
    {"encoder": "gcn", "encoder_layers": "2", "encoder_output": "relu", "J,K": "1,1", "noisy_variance": "yes"},
    {"encoder": "mlp", "encoder_output": "relu", "J,K": "2,1", "likelihood": "mse_relu", "dropout": "0.4"},
    {"variant": "independent", "encoder_output": "relu", "decoder": "inner_product", "J,K": "1,1"},
]


def named(choices: dict[str, str]) -> str:
    return "-".join(choice for choice in choices.values() if choice != "-")


each_configuration = pytest.mark.parametrize("choices", CONFIGURATIONS, ids=named)


def arrays(choices: dict[str, str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights ``[n, n]`` with an isolated node, and features ``[n, l]`` with a zero row and a zero column."""
    generator = torch.Generator().manual_seed(1)

    def uniform(rows: int, columns: int) -> torch.Tensor:
        return torch.rand(rows, columns, generator=generator, dtype=torch.float64)

    adjacency = (uniform(NODES, NODES) < 0.35).double().triu(1)
    if choices.get("weights") == "reals":
        adjacency *= 0.5 + 2 * uniform(NODES, NODES)
    adjacency[3] = adjacency[:, 3] = 0
    features = (uniform(NODES, FEATURES) < 0.4).double()
    if choices.get("values") == "reals":
        values = uniform(NODES, FEATURES)
        features *= values if choices["likelihood"] == "bernoulli" else 2 * values - 0.5
    elif choices.get("values") == "counts":
        features *= (1 + 5 * uniform(NODES, FEATURES)).floor()
    features[5] = features[:, 2] = 0
    return adjacency + adjacency.T, features


def graph_and_fields(choices: dict[str, str]) -> tuple[sf.Graph, dict]:
    samples, extra = choices["J,K"].split(",")
    names = ("variant", "encoder", "encoder_output", "decoder", "likelihood", "mixture", "scaling")
    numbers = ("encoder_layers", "decoder_layers", "noise_dim")
    masked, negatives = choices.get("masked") == "yes", choices.get("negatives", "all")
    fields = {
        "embedding_dim": 3,
        "hidden_dim": 5,
        "noise_dim": 4,
        "noise_prob": 0.4,
        **{name: choices[name] for name in names if choices.get(name, "-") != "-"},
        **{name: int(choices[name]) for name in numbers if choices.get(name, "-") != "-"},
        "noisy_variance": choices.get("noisy_variance") == "yes",
        "num_importance_samples": int(samples),
        "num_mixture_samples": int(extra),
        "negatives": int(negatives) if negatives.isdigit() else negatives,
        "dropout": float(choices.get("dropout", 0)),
        "structure_masking_rate": 0.3 * masked,
        "feature_masking_rate": 0.25 * masked,
        "feature_embeddings": choices.get("side") != "no_embeddings",
        "feature_side": choices.get("side") != "none",
    }
    weighted = choices.get("weights") == "reals"
    return sf.Graph(*arrays(choices), weighted=weighted, dtype=torch.float64), fields


def oracle_of(model: sf.SeeGera, choices: dict[str, str]) -> ModelOracle:
    parameters = {name: value.detach().clone().requires_grad_() for name, value in model.state_dict().items()}
    return ModelOracle(model.config, *arrays(choices), parameters)


@functools.cache
def built(choices: tuple[tuple[str, str], ...]) -> tuple[sf.SeeGera, ModelOracle]:
    """A model and its oracle, with the same parameters: all random, also the biases that begin at zero."""
    graph, fields = graph_and_fields(dict(choices))
    model = sf.SeeGera(graph, **fields)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model, oracle_of(model, dict(choices))


def close(actual: torch.Tensor, expected: torch.Tensor, name: str) -> None:
    # A number of the result comes from all entries of Z Z^T for all samples, and passes through up to nine layers.
    assert_close(actual, expected.detach(), terms=9 * NODES**2 * 3, name=name)


@each_configuration
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_loss_terms_and_gradients(choices, training):
    model, oracle = built(tuple(choices.items()))
    model.zero_grad(set_to_none=True)
    output = model.train(training)(seed=-5, warmup=0.6)
    output.loss.backward()
    loss, terms = oracle.forward(-5, 0.6, training=training)
    assert list(output.terms) == list(terms)
    for name, term in terms.items():
        close(output.terms[name], term, name)
    close(output.loss, loss, "loss")
    found = dict(model.named_parameters())
    assert set(found) == set(oracle.parameters)
    gradients = torch.autograd.grad(loss, oracle.parameters.values(), allow_unused=True, materialize_grads=True)
    for name, gradient in zip(oracle.parameters, gradients, strict=True):
        close(found[name].grad, gradient, f"gradient of {name}")


@each_configuration
def test_embedding_scores_and_reconstruction(choices):
    model, oracle = built(tuple(choices.items()))
    model.train()
    close(model.embed(seed=7), oracle.embed(7), "embedding")
    pairs = torch.cartesian_prod(torch.arange(NODES), torch.arange(NODES))
    close(model.link_scores(pairs, seed=8), oracle.link_scores(8).flatten(), "scores")
    if model.config.feature_side:
        row, col = torch.cartesian_prod(torch.arange(NODES), torch.arange(FEATURES)).T
        close(model.reconstruct_features(row, col, seed=9), oracle.reconstruct_features(9).flatten(), "reconstruction")
    assert model.training


def test_a_call_without_arguments_draws_anew_from_the_model_s_seed():
    choices = {"J,K": "2,3", "dropout": "0.4", "masked": "yes"}
    graph, fields = graph_and_fields(choices)
    model = sf.SeeGera(graph, **fields, seed=3)
    oracle = oracle_of(model, choices)
    for step in range(2):
        loss, _ = oracle.forward(derived(3, step), 1.0, training=True)
        close(model().loss, loss, f"loss of step {step}")
    close(model.embed(), oracle.embed(0), "embedding")


@each_configuration
def test_initial_parameters(choices):
    """Glorot's uniform weights, in float32 by torch's generator, in the order of the layers; biases of zero."""
    graph, fields = graph_and_fields(choices)
    state = sf.SeeGera(graph, **fields, seed=4).state_dict()
    generator = torch.Generator().manual_seed(4)
    for name in sorted(state, key="decoder.log_var_weight".__eq__):
        rows, *columns = state[name].shape
        if name.endswith("bias"):
            expected = torch.zeros(rows)
        else:
            # The rows that meet the noise are a part of the first layer.
            layer = name.rpartition(".")[0]
            parts = (f"{layer}.weight", f"{layer}.noise_weight") if layer.endswith("first") else (name,)
            fan_in = sum(state[part].shape[0] for part in parts if part in state)
            bound = math.sqrt(6 / (fan_in + columns[0]))
            expected = torch.empty(rows, *columns).uniform_(-bound, bound, generator=generator)
        if name == "decoder.log_var_weight" and fields["decoder"] == "mlp":
            expected[-1] = 0
        assert_same_bits(state[name], expected.double(), name=name)


def test_the_table_has_each_pair_of_choices():
    met = {pair for row in CONFIGURATIONS for pair in itertools.combinations(row.items(), 2)}
    decoded = {"variant", "decoder", "decoder_layers", "likelihood"}
    missing = []
    for (first, some), (second, others) in itertools.combinations(CHOICES.items(), 2):
        for pair in itertools.product(((first, choice) for choice in some), ((second, choice) for choice in others)):
            chosen = dict(pair)
            products = chosen.get("decoder") == "inner_product"
            impossible = (chosen.get("side") == "none" and decoded & set(chosen)) or (
                products and ("decoder_layers" in chosen or {"gaussian", "no_embeddings"} & set(chosen.values()))
            )
            if not impossible and pair not in met:
                missing.append(pair)
    assert not missing
