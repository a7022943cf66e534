"""Names of features: graphs and models keep them, and a graph with others is refused."""

import numpy as np
import pytest
import torch

import seegera_fast as sf

pytestmark = pytest.mark.usefixtures("somewhere")


def test_names_of_features_are_kept(tmp_path):
    names = ["size", "weight"]
    graph = sf.Graph(np.zeros((3, 3)), np.eye(3)[:, :2], feature_names=names)
    assert graph.feature_names.tolist() == names
    assert graph.with_features(np.ones((3, 2)), names[::-1]).feature_names.tolist() == names[::-1]
    assert graph.with_features(np.ones((3, 2))).feature_names is None
    assert graph.to(dtype=torch.float64).feature_names.tolist() == names
    model = sf.SeeGera(graph, embedding_dim=2, hidden_dim=2)
    model.save(tmp_path / "model")
    assert sf.SeeGera.load(tmp_path / "model", graph).feature_names == ("size", "weight")
    other = sf.Graph(np.zeros((3, 3)), np.eye(3)[:, :2], feature_names=names[::-1])
    with pytest.raises(
        ValueError,
        match=r"order .feature 0 is 'weight', want 'size'.: put the columns into the order 'size', 'weight'$",
    ):
        model.embed(other)
    with pytest.raises(ValueError, match=r"another order .feature 0 is 'weight', want 'size'"):
        sf.SeeGera.load(tmp_path / "model", other)
    longer = sf.Graph(np.zeros((3, 3)), np.eye(3), feature_names=[*names, "age"])
    with pytest.raises(
        ValueError, match=r"graph: has other features than the model .extra: 'age'., want its 2 features$"
    ):
        model.embed(longer)
    assert model.embed(sf.Graph(np.zeros((3, 3)), np.eye(3)[:, :2])).shape == (3, 2)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], r"feature_names: got shape \(1,\), want one name per column of the features: \[2\]"),
        (["a", "a"], "feature_names: got 'a' twice, want different names"),
        ([1, 2], "feature_names: got .*, want strings"),
        ("ab", "feature_names: got 'ab', want a list of strings"),
    ],
)
def test_what_names_of_features_may_be(names, message):
    with pytest.raises((TypeError, ValueError), match=message):
        sf.Graph(np.zeros((3, 3)), np.ones((3, 2)), feature_names=names)


@pytest.mark.parametrize(
    ("categories", "people", "message"),
    [
        ("city,chess", "", "than the model (missing: 'chess'; extra: 'chess=0', 'chess=1'), want its 4"),
        (
            "city",
            "name,tall,city,go\n",
            "graph: has other features than the model (missing: 'chess'; extra: 'go')",
        ),
        ("city", "name,chess,city,tall\n", "another order (feature 0 is 'chess', want 'tall'): put the columns into"),
    ],
)
def test_features_of_other_names_or_order_are_refused(run, files, trained, tmp_path, categories, people, message):
    text = files[3].read_text(encoding="utf-8")
    (tmp_path / "people.csv").write_text((people or text.split("\n")[0] + "\n") + text.partition("\n")[2], "utf-8")
    other = ["--edges", files[1], "--features", tmp_path / "people.csv", "--categories", categories]
    for command in ("complete", "links", "embed"):
        status, _, err = run(command, trained / "model.safetensors", *other)
        assert status == 2
        assert message in err


def test_a_category_more_and_one_less(run, files, trained, tmp_path):
    """Rome is there, but behind a new one."""
    text = files[3].read_text(encoding="utf-8")
    (tmp_path / "people.csv").write_text(text.replace("Ann,0,Bern", "Ann,0,Oslo"), "utf-8")
    status, _, err = run("embed", trained / "model.safetensors", *files[:3], tmp_path / "people.csv")
    assert (status, "has other features than the model (extra: 'city=Oslo'), want its 4" in err) == (2, True), err


def test_forgotten_features(run, files, trained, tmp_path):
    """The command names the file of the training; where nothing names it, the graph is refused."""
    status, _, err = run("embed", trained / "model.safetensors", *files[:2], "--quiet")
    names = "'tall', 'chess', 'city=Bern', 'city=Rome'"
    assert status == 2
    assert f"--features: got none, and {trained / 'model.safetensors'} has 4 features ({names}), those of" in err
    assert f"people.csv by {trained / 'results.json'}; want a table with them\n" in err
    (tmp_path / "model.safetensors").write_bytes((trained / "model.safetensors").read_bytes())
    status, _, err = run("embed", "model.safetensors", *files[:2], "--quiet")
    assert status == 2
    assert "was given no features, so that each node is a feature of its own, want --features with the 4 of" in err
    assert f"the model: {names}" in err
