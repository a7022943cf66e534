"""A graph is read and prepared as that of the training, or a warning or an error says what differs."""

import json
import warnings

import numpy as np
import pytest
import torch
from friends import SMALL

import seegera_fast as sf
from seegera_fast.support.warning import warn_outside

pytestmark = pytest.mark.usefixtures("somewhere")


def test_tables_are_read_as_in_training(run, tmp_path):
    """Of the options for tables, those that are given count more than those of the training."""
    names = [f"n{k}" for k in range(9)]
    rows = [(k, (k + step) % 9) for k in range(9) for step in (1, 2)]
    (tmp_path / "e.csv").write_text("w;a;b\n" + "".join(f"{1 + k % 3};{names[k]};{names[j]}\n" for k, j in rows))
    (tmp_path / "f.csv").write_text(
        "who;size;city\n" + "".join(f"{name};{k};c{k % 2}\n" for k, name in enumerate(names))
    )
    files = ["--edges", "e.csv", "--features", "f.csv"]
    options = ["--source", "a", "--target", 2, "--weight", "w", "--categories", "city", "--separator", "semicolon"]
    options += ["--node", "who", "--comments", "% x"]
    assert run("train", *files, *options, "--task", "embed", "--epochs", 2, "--out", "out", *SMALL)[0] == 0
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert content["data"]["tables"]["categories"] == ["city"]
    status, _, err = run("embed", "out/model.safetensors", *files, "--out", "e.npy")
    assert status == 0
    want = "--source a --target 2 --weight w --node who --categories city --separator semicolon --comments '% x'"
    assert f"tables are read as in training, by out/results.json: {want}\n" in err
    assert "edges weighted" in err
    assert np.array_equal(np.load("e.npy"), np.load("out/embedding.npy"))
    for command in ("links", "complete"):
        assert run(command, "out/model.safetensors", *files, "--top", 1)[0] == 0
    (tmp_path / "g.csv").write_text((tmp_path / "e.csv").read_text().replace("w;a;b", "w;x;b"))
    status, _, err = run(
        "embed", "out/model.safetensors", "--edges", "g.csv", *files[2:], "--source", "x", "--out", "e.npy"
    )
    assert status == 0
    assert "--source" not in err
    _, _, err = run("embed", "out/model.safetensors", "--edges", "g.csv", *files[2:], "--out", "e.npy", "--quiet")
    assert "source: got 'a', want one of w, x, b (g.csv)" in err
    assert err.endswith("; as in training, by out/results.json: --source a, unless it is given here\n")


@pytest.mark.parametrize("given", [[], ["--label", 2], ["--label", "class"]], ids=str)
def test_the_label_is_no_feature_where_no_labels_are_read(run, tmp_path, given):
    """The results say which column it is; other tables may lack it."""
    (tmp_path / "e.csv").write_text("source,target\n" + "".join(f"n{k},n{(k + 1) % 9}\n" for k in range(9)))
    (tmp_path / "p.csv").write_text("id,age,class\n" + "".join(f"n{k},{30 + k},{k % 2}\n" for k in range(9)))
    (tmp_path / "q.csv").write_text("id,age\n" + "".join(f"n{k},{30 + k}\n" for k in range(9)))
    tables = ["--edges", "e.csv", "--features", "p.csv"]
    fields = ["--set", "likelihood=mse", *given]
    run_of = ["--task", "embed", "--epochs", 1, "--out", "out", *SMALL]
    assert run("train", *tables, "--labels", "p.csv", *fields, *run_of)[0] == 0
    for features in ("p.csv", "q.csv"):
        assert run("embed", "out/model.safetensors", *tables[:3], features, "--out", "e.npy")[0] == 0
        assert np.array_equal(np.load("e.npy"), np.load("out/embedding.npy"))


def test_columns_of_tables_that_are_given_no_more_are_not_asked_for(run, tmp_path):
    (tmp_path / "e.csv").write_text("source,target\n" + "".join(f"n{k},n{(k + 1) % 9}\n" for k in range(9)))
    (tmp_path / "l.csv").write_text("id,class\n" + "".join(f"n{k},{k % 2}\n" for k in range(9)))
    tables = ["--edges", "e.csv", "--labels", "l.csv", "--label", "class", "--node", "id"]
    assert run("train", *tables, "--task", "embed", "--epochs", 1, "--out", "out", *SMALL)[0] == 0
    status, _, err = run("embed", "out/model.safetensors", *tables[:2], "--out", "e.npy")
    assert (status, "as in training" in err) == (0, False), err
    assert np.array_equal(np.load("e.npy"), np.load("out/embedding.npy"))
    (tmp_path / "a.csv").write_text("source,target\nn1,n2\n")
    status, _, err = run("embed", "out/model.safetensors", "--edges", "a.csv", "--out", "e.npy", "--label", "class")
    assert (status, "--label" in err, "as in training" in err) == (2, True, False)


@pytest.mark.parametrize("given", [[], ["--label", "class"]], ids=str)
def test_a_feature_that_is_called_as_the_label_of_another_table_stays_one(run, tmp_path, given):
    (tmp_path / "e.csv").write_text("source,target\n" + "".join(f"n{k},n{(k + 1) % 9}\n" for k in range(9)))
    (tmp_path / "p.csv").write_text("id,age,class\n" + "".join(f"n{k},{30 + k},{k % 2}\n" for k in range(9)))
    (tmp_path / "l.csv").write_text("id,class\n" + "".join(f"n{k},{k % 3}\n" for k in range(9)))
    tables = ["--edges", "e.csv", "--features", "p.csv"]
    run_of = ["--task", "embed", "--epochs", 1, "--out", "out", "--set", "likelihood=mse", *SMALL]
    assert run("train", *tables, "--labels", "l.csv", *given, *run_of)[0] == 0
    for labels in ([], ["--labels", "l.csv"]):
        assert run("embed", "out/model.safetensors", *tables, *labels, "--out", "e.npy")[0] == 0
        assert np.array_equal(np.load("e.npy"), np.load("out/embedding.npy"))


def test_the_label_of_a_table_without_a_header_is_no_feature(run, tmp_path):
    (tmp_path / "e.csv").write_text("".join(f"n{k},n{(k + 1) % 9}\n" for k in range(9)))
    (tmp_path / "p.csv").write_text("".join(f"n{k},{30 + k},{k % 2},{k % 3}\n" for k in range(9)))
    tables = ["--edges", "e.csv", "--features", "p.csv"]
    run_of = ["--task", "embed", "--epochs", 1, "--out", "out", "--set", "likelihood=mse", *SMALL]
    assert run("train", *tables, "--labels", "p.csv", "--label", 3, *run_of)[0] == 0
    assert run("embed", "out/model.safetensors", *tables, "--out", "e.npy")[0] == 0
    assert np.array_equal(np.load("e.npy"), np.load("out/embedding.npy"))


def test_columns_whose_names_are_numbers(run, tmp_path):
    """A name of digits stands in quotes, since it would be the number of a column."""
    (tmp_path / "e.csv").write_text("2020,1,0\n" + "".join(f"{k},n{k},n{(k + 1) % 9}\n" for k in range(1, 9)))
    given = ["--source", '"1"', "--target", '"0"', "--weight", '"2020"']
    files = ["--edges", "e.csv"]
    assert run("train", *files, *given, "--task", "embed", "--epochs", 1, "--out", "out", *SMALL)[0] == 0
    tables = json.loads((tmp_path / "out" / "results.json").read_text())["data"]["tables"]
    assert tables == {"source": "1", "target": "0", "weight": "2020"}
    status, _, err = run("embed", "out/model.safetensors", *files, "--out", "e.npy")
    assert status == 0
    assert """--source '"1"' --target '"0"' --weight '"2020"'\n""" in err
    assert np.array_equal(np.load("e.npy"), np.load("out/embedding.npy"))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"weight": [1]},
            "results.json: data.tables.weight: got a list of 1, want the name of a column, or its number",
        ),
        ({"header": 1}, "results.json: data.tables.header: got 1, want true or false"),
        ({"comment": "#"}, "results.json: has a field 'data.tables.comment', which does not belong there"),
        ([], "results.json: data.tables: got [], want an object with fields"),
    ],
)
def test_wrong_tables_in_results_are_refused(run, files, trained, tmp_path, tables, message):
    content = json.loads((trained / "results.json").read_text())
    content["data"]["tables"] = tables
    (tmp_path / "results.json").write_text(json.dumps(content))
    (tmp_path / "model.safetensors").write_bytes((trained / "model.safetensors").read_bytes())
    status, _, err = run("embed", "model.safetensors", *files)
    assert (status, message in err) == (2, True), err


def test_a_model_says_how_its_graph_was_prepared(tmp_path):
    """In Python, where nothing else would: weights of edges, and features that were divided by their sums."""
    draws = np.random.default_rng(0)
    adjacency = np.triu(draws.random((12, 12)) < 0.5, 1) * 2.0
    graph = sf.Graph(adjacency + adjacency.T, draws.random((12, 5)) > 0.5, weighted=True)
    small = {"epochs": 1, "embedding_dim": 2, "hidden_dim": 2, "progress": False}
    model = sf.tasks.attribute_inference(graph, normalize_features=True, **small).model
    model.save(tmp_path / "model")
    loaded = sf.SeeGera.load(tmp_path / "model")
    assert (loaded.weighted, loaded.normalize_features) == (model.weighted, model.normalize_features) == (True, True)
    meant = graph.with_features(graph.features.row_normalized)
    plain = sf.Graph(graph.adjacency.to_scipy(), meant.features.to_scipy())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.embed(meant)
        with pytest.raises(UserWarning, match="graph: its features are not normalised, and those in training were"):
            loaded.top_attributes(1, graph=graph)
        with pytest.raises(UserWarning, match="graph: its edges have no weights, and those in training had"):
            sf.SeeGera.load(tmp_path / "model", plain)
        other = sf.SeeGera(plain, embedding_dim=2, hidden_dim=2)
        with pytest.raises(UserWarning, match="graph: its edges have weights, and those in training had none"):
            other.embed(graph)


def test_a_graph_of_another_kind_is_told_once_at_the_users_line():
    adjacency = np.eye(6, k=1) + np.eye(6, k=-1)
    weighted = sf.Graph(2 * adjacency, weighted=True)
    model = sf.SeeGera(sf.Graph(adjacency), embedding_dim=2, hidden_dim=2)
    with pytest.warns(UserWarning, match="graph: its edges have weights") as caught:
        model.link_scores([[0, 1]], weighted, draws=2)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_warning_is_at_the_users_line_below_a_decorator_of_torch():
    with pytest.warns(UserWarning, match="^so$") as caught:
        torch.no_grad()(warn_outside)("so")
    assert [warning.filename for warning in caught] == [__file__]
