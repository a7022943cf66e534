"""Presets are the paper's tables of hyper-parameters, and data sets have theirs."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from communities import SMALL, TASKS, VARIANTS, planted

from seegera_fast import Graph, SeeGeraConfig, datasets, tasks
from seegera_fast.tasks import presets
from seegera_fast.tasks.classifier import ClassifierConfig
from seegera_fast.training import TrainingConfig

DATA_SETS = ("cora", "citeseer", "pubmed", "photo", "computers", "cs", "physics")

# The paper's tables of hyper-parameters for v3: L1, L2, learning rate, dropout, weight decay, alpha 1, alpha 2; for
# node classification learning rate, dropout and weight decay of the classifier, too.
PAPER = {
    "link_prediction": """
        2 3 1e-3 0.3 5e-5 0.3 0.0
        1 2 1e-3 0.0 1e-4 0.6 0.0
        2 1 5e-3 0.5 0.0 0.3 0.1
        1 1 5e-3 0.0 0.0 0.5 0.0
        2 2 1e-3 0.0 0.0 0.4 0.0
        1 2 1e-3 0.0 0.0 0.5 0.5
        2 2 1e-3 0.0 0.0 0.2 0.0
    """,
    "attribute_inference": """
        1 1 1e-3 0.1 5e-5 0.4 0.0
        1 1 1e-3 0.0 0.0 0.3 0.0
        2 2 1e-3 0.0 0.0 0.0 0.1
        2 3 1e-3 0.0 0.0 0.3 0.0
        2 3 1e-3 0.0 0.0 0.2 0.0
        1 3 1e-3 0.0 0.0 0.1 0.5
        2 2 1e-3 0.0 0.0 0.0 0.0
    """,
    "node_classification": """
        2 2 1e-3 0.3 1e-3 0.2 0.1 1e-3 0.9 1e-3
        2 2 5e-3 0.3 5e-4 0.0 0.0 1e-3 0.9 0.0
        2 1 5e-3 0.7 0.0 0.0 0.0 1e-3 0.3 0.0
        1 2 1e-3 0.0 5e-4 0.5 0.5 5e-3 0.7 5e-5
        1 3 5e-3 0.0 5e-4 0.0 0.0 5e-3 0.3 1e-4
        2 3 1e-2 0.1 1e-3 0.4 0.0 1e-2 0.0 1e-3
        1 3 1e-2 0.0 0.0 0.0 0.0 1e-2 0.5 5e-5
    """,
}
COLUMNS = (
    "encoder_layers",
    "decoder_layers",
    "learning_rate",
    "dropout",
    "weight_decay",
    "structure_masking_rate",
    "feature_masking_rate",
    "classifier_learning_rate",
    "classifier_dropout",
    "classifier_weight_decay",
)
# Where the released program differs from the paper, it is followed.
RELEASED = {
    ("node_classification", "pubmed", "learning_rate"): 5e-4,
    ("node_classification", "cs", "structure_masking_rate"): 0.0,
}


def configured(task: str, name: str, variant: str) -> tuple[SeeGeraConfig, TrainingConfig, dict]:
    """The configurations that a preset makes, and its fields with all defaults filled in."""
    values = presets.load(task, name, variant)
    own = {f"classifier_{field.name}": field.default for field in fields(ClassifierConfig)}
    own = {**own, "normalize_features": False}
    parts = []
    for kind in (SeeGeraConfig, TrainingConfig):
        known = {field.name for field in fields(kind)}
        parts.append(kind(**{key: value for key, value in values.items() if key in known}))
    classifier = {key: values[key] for key in values if key in own}
    ClassifierConfig(**{key.removeprefix("classifier_"): v for key, v in classifier.items() if "classifier" in key})
    strangers = set(values) - {field.name for part in parts for field in fields(part)} - set(own)
    assert not strangers
    return (*parts, {**vars(parts[0]), **vars(parts[1]), **own, **values})


@pytest.mark.parametrize("task", TASKS)
def test_presets_are_the_papers_tables(task):
    rows = [line.split() for line in PAPER[task].split("\n") if line.strip()]
    for name, row in zip(DATA_SETS, rows, strict=True):
        _, _, values = configured(task, name, "v3")
        for column, figure in zip(COLUMNS, row, strict=False):
            wanted = RELEASED.get((task, name, column), float(figure))
            assert values[column] == wanted, f"{task}, {name}, {column}"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("task", TASKS)
def test_every_preset_is_valid(task, variant):
    assert set(presets.names(task)) == {*DATA_SETS, "digits", "default"}
    for name in presets.names(task):
        model, _, values = configured(task, name, variant)
        assert model.variant == ("independent" if variant == "v1" else "correlated")
        if variant != "v3":
            assert model.structure_masking_rate == model.feature_masking_rate == 0
        if task == "attribute_inference":
            assert model.likelihood == "mse" or name == "digits"
            assert values["normalize_features"] == (name in ("cora", "citeseer", "pubmed"))
        elif name in DATA_SETS:
            assert model.likelihood == ("bernoulli" if name in ("cora", "citeseer") else "mse")
            assert not values["normalize_features"]
        if task != "node_classification" and name in DATA_SETS:
            assert (values["epochs"], values["patience"], values["warmup_epochs"]) == (3500, 100, 300)


@pytest.mark.parametrize("task", TASKS)
def test_v2_is_v3_without_masking(task):
    rates = ("structure_masking_rate", "feature_masking_rate")
    for name in presets.names(task):
        second, third = (presets.load(task, name, variant) for variant in ("v2", "v3"))
        assert {key: value for key, value in third.items() if key not in rates} == second


@pytest.mark.parametrize(
    ("task", "name", "figures"),
    [
        (
            "link_prediction",
            "cora",
            "encoder_layers 1 decoder_layers 1 learning_rate 1e-3 weight_decay 5e-5 dropout 0.1",
        ),
        ("link_prediction", "citeseer", "encoder_layers 1 decoder_layers 1 weight_decay 0"),
        ("link_prediction", "photo", "encoder_layers 1 decoder_layers 1 learning_rate 1e-3"),
        ("node_classification", "cora", "epochs 500 evaluate_every 50 weight_decay 5e-4 classifier_weight_decay 0"),
        ("node_classification", "citeseer", "evaluate_every 50 encoder_layers 1 decoder_layers 3 learning_rate 5e-4"),
        ("node_classification", "cs", "epochs 20 evaluate_every 1 encoder_layers 1 learning_rate 1e-3 dropout 0.1"),
        ("node_classification", "physics", "classifier_learning_rate 5e-3 classifier_weight_decay 5e-4"),
        ("node_classification", "photo", "weight_decay 1e-4 classifier_learning_rate 1e-3 classifier_dropout 0.1"),
        ("node_classification", "computers", "decoder_layers 1 weight_decay 5e-5 classifier_dropout 0.5"),
    ],
)
def test_presets_of_v1(task, name, figures):
    values = configured(task, name, "v1")[2]
    words = figures.split()
    for column, figure in zip(words[::2], words[1::2], strict=True):
        assert values[column] == float(figure), column


def test_presets_of_the_schedule_and_of_widths():
    values = configured("node_classification", "pubmed", "v3")[2]
    wanted = {"epochs": 1000, "evaluate_every": 10, "evaluate_after": 800, "embedding_dim": 1024, "hidden_dim": 1024}
    assert {key: values[key] for key in wanted} == wanted
    for task in TASKS:
        for name in DATA_SETS:
            for variant in VARIANTS:
                kinds = {getattr(configured(task, name, variant)[0], part) for part in ("encoder", "decoder")}
                released = (task, variant) == ("node_classification", "v1")
                assert kinds == {"mlp" if name == "cs" and not released else "gcn"}
    assert configured("link_prediction", "cora", "v3")[0].embedding_dim == 512


def test_unknown_presets_name_the_nearest():
    with pytest.raises(ValueError, match=r"name: got 'citeseeer', which is not known; the nearest: citeseer"):
        presets.load("link_prediction", "citeseeer")
    with pytest.raises(ValueError, match="task: got 'link_predict', which is not known; the nearest: link_prediction"):
        presets.load("link_predict", "cora")
    with pytest.raises(ValueError, match=r"variant: got 'correlated', which is a variant of a model; want .* 'v2' .*"):
        presets.load("link_prediction", "cora", "correlated")
    with pytest.raises(ValueError, match="variant: got 'v4', which is not known; want one of v1, v2, v3"):
        presets.load("link_prediction", "cora", "v4")
    with pytest.raises(TypeError, match="name: got 3"):
        presets.load("link_prediction", 3)
    # The table of what data sets have in common is no preset.
    with pytest.raises(ValueError, match="name: got 'common'"):
        presets.load("link_prediction", "common")


@pytest.mark.parametrize("task", TASKS)
def test_a_data_set_has_its_preset(task, tmp_path):
    base = planted()
    named = Graph(base.adjacency, base.features, base.labels, name="cora")
    named.data_set = "cora"
    short = {"epochs": 1, **({"classifier_epochs": 2} if task == "node_classification" else {}), **SMALL}
    result = TASKS[task](named, **short)
    assert result.preset == "cora"
    preset = presets.load(task, "cora", "v3")
    assert result.fields == {**preset, **result.fields, **short}
    assert result.fields["dropout"] == result.model.config.dropout == preset["dropout"]
    assert result.model.config.hidden_dim == SMALL["hidden_dim"]
    other = TASKS[task](named, "photo", "v1", **short)
    assert (other.preset, other.model.config.variant) == ("photo", "independent")
    assert TASKS[task](base, **short).preset == "default"


def test_a_name_gives_no_preset(tmp_path):
    """A user's file may be called cora.csv. Copies of a data set are still of it."""
    (tmp_path / "cora.csv").write_text("".join(f"{k},{(k + step) % 12}\n" for k in range(12) for step in (1, 2)))
    own = Graph.from_table(tmp_path / "cora.csv")
    assert (own.name, own.data_set) == ("cora", None)
    assert tasks.embed(own, epochs=1, **SMALL).preset == "default"
    digits = datasets.load("digits")
    for graph in (digits, digits.with_edges(digits.edges()[:50]), digits.to(dtype=torch.float64)):
        assert graph.data_set == "digits"
