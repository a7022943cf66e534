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
    with pytest.raises(ValueError, match="graph: feature 0 is 'weight', want 'size': the 2 features of the model"):
        model.embed(other)
    with pytest.raises(ValueError, match="graph: feature 0 is 'weight', want 'size'"):
        sf.SeeGera.load(tmp_path / "model", other)
    longer = sf.Graph(np.zeros((3, 3)), np.eye(3), feature_names=[*names, "age"])
    with pytest.raises(ValueError, match="graph: feature 2 is 'age', want no more"):
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
        ("city,chess", "", "graph: feature 1 is 'city=Bern', want 'chess'"),
        ("city", "name,tall,city,go\n", "graph: feature 1 is 'go', want 'chess'"),
        ("city", "name,chess,city,tall\n", "graph: feature 0 is 'chess', want 'tall'"),
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
