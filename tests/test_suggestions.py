"""seegera-fast links and complete, and what train writes beside scores: tables with names, and a page."""

import csv
import dataclasses
import html.parser
import json
import re
import warnings

import numpy as np
import pytest
import torch

import seegera_fast as sf
from seegera_fast.command import suggestions
from seegera_fast.command.main import main
from seegera_fast.command.output import write_table
from seegera_fast.support import html as pages
from seegera_fast.support.hints import shown_name
from seegera_fast.support.report import number_texts

SMALL = ["--set", "embedding_dim=6", "--set", "hidden_dim=8", "--set", "likelihood=mse", "--quiet"]
NAMES = ["Ann", "Bob", "Zoë", "林檎", 'O"Neil', "a,b", "</script>", "x y", "NA", "1", "q", "r", "s", "t", "u", "v"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Options that name a small graph's tables."""
    folder = tmp_path_factory.mktemp("tables")
    draws = np.random.default_rng(0).random((len(NAMES), len(NAMES)))
    near = np.add.outer(np.arange(16) // 8, -(np.arange(16) // 8)) == 0
    with open(folder / "friends.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["from", "to"])
        writer.writerows(
            [NAMES[i], NAMES[j]] for i in range(16) for j in range(i) if draws[i, j] < (0.8 if near[i, j] else 0.1)
        )
    with open(folder / "people.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "tall", "city", "chess"])
        writer.writerows([name, i % 2, ["Bern", "Rome"][i // 8], int(i % 3 == 0)] for i, name in enumerate(NAMES))
    return ["--edges", folder / "friends.csv", "--features", folder / "people.csv", "--categories", "city"]


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    """The folder of a run on that graph."""
    out = tmp_path_factory.mktemp("run") / "out"
    more = ["--epochs", 30, "--seed", 3, "--set", "learning_rate=0.01", "--out", out, *SMALL]
    assert main([str(text) for text in ("train", *files, *more)]) == 0
    return out


@pytest.fixture(autouse=True)
def somewhere(monkeypatch, tmp_path):
    """The command writes into the working folder."""
    monkeypatch.chdir(tmp_path)


def graph_of(files):
    return sf.Graph.from_table(files[1], files[3], categories=["city"])


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


# --- links -----------------------------------------------------------------------------------------------------------


def test_links_of_each_node(run, files, trained, tmp_path):
    status, printed, err = run("links", trained / "model.safetensors", *files, "--top", 3)
    assert status == 0
    assert "not calibrated" not in err
    graph = graph_of(files)
    model = sf.SeeGera.load(trained / "model.safetensors", graph)
    found = model.top_links(3, calibrated=True)
    deviation = model.link_scores(found.pairs, draws=64, calibrated=True).deviation
    header, *rows = table(tmp_path / "links.csv")
    assert header == ["node", "other", "probability", "deviation"]
    assert [row[:2] for row in rows] == graph.nodes[found.pairs].tolist()
    assert np.allclose([float(row[2]) for row in rows], found.probabilities, rtol=1e-6)
    assert np.allclose([float(row[3]) for row in rows], deviation, rtol=1e-6)
    assert f"{len(rows)} links" in printed
    assert rows[0][0] in printed
    assert (tmp_path / "links-probabilities.png").read_bytes().startswith(b"\x89PNG")


def test_links_of_the_whole_graph_and_of_some_nodes(run, files, trained, tmp_path):
    graph = graph_of(files)
    model = sf.SeeGera.load(trained / "model.safetensors", graph)
    assert run("links", trained / "model.safetensors", *files, "--top", 4, "--whole", "--draws", 0)[0] == 0
    header, *rows = table(tmp_path / "links.csv")
    assert header == ["node", "other", "probability"]
    assert [row[:2] for row in rows] == graph.nodes[model.top_links(4, per_node=False).pairs].tolist()
    assert run("links", trained / "model.safetensors", *files, "--of", "林檎", "--of", "NA", "--top", 2)[0] == 0
    assert [row[0] for row in table(tmp_path / "links.csv")[1:]] == ["林檎", "林檎", "NA", "NA"]


def test_links_as_parquet(run, files, trained, tmp_path):
    import pyarrow.parquet as parquet

    assert run("links", trained / "model.safetensors", *files, "--out", "a.parquet", "--top", 2)[0] == 0
    assert run("links", trained / "model.safetensors", *files, "--out", "a.csv", "--top", 2)[0] == 0
    columns = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert list(columns) == table(tmp_path / "a.csv")[0]
    assert columns["node"] == [row[0] for row in table(tmp_path / "a.csv")[1:]]
    assert columns["probability"] == pytest.approx([float(row[2]) for row in table(tmp_path / "a.csv")[1:]])


def test_parquet_without_pyarrow(run, files, trained, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    status, _, err = run("links", trained / "model.safetensors", *files, "--out", "a.parquet")
    assert status == 2
    assert "a.parquet: Parquet files need pyarrow, which is not installed: pip install" in err
    assert list(tmp_path.iterdir()) == []


def test_links_across_the_sides_of_a_bipartite_graph(run, tmp_path):
    (tmp_path / "bought.csv").write_text(
        "user,item\n" + "".join(f"u{i},i{j}\n" for i in range(8) for j in range(6) if (i * j) % 5 < 3)
    )
    options = ["--edges", "bought.csv"]
    assert run("train", *options, "--bipartite", "--epochs", 5, "--out", "out", *SMALL)[0] == 0
    _, _, err = run("links", "out/model.safetensors", *options, "--top", 3)
    assert "links across the two sides, as in training, by out/results.json; --no-bipartite: any links" in err
    assert run("links", "out/model.safetensors", *options, "--no-bipartite", "--top", 12, "--out", "any.csv")[0] == 0
    assert any(row[0][0] == row[1][0] for row in table(tmp_path / "any.csv")[1:])
    for path in ("links.csv", "out/links.csv"):
        rows = table(tmp_path / path)[1:]
        assert rows
        assert all({row[0][0], row[1][0]} == {"u", "i"} for row in rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--of", "Zoe"], "--of: got 'Zoe', which is no node of the graph; the nearest: 'Zoë'"),
        (["--of", "%%%%"], "--of: got '%%%%', which is no node of the graph; want one of its 16 nodes, such as"),
        (["--top", "16"], "--top: got 16, want 1 to 15"),
        (["--top", "0"], "argument --top: got '0', want an integer, 1 or more"),
        (["--draws", "1"], "argument --draws: got '1', want 0, or an integer of 2 or more"),
        (["--out", "a.txt"], "--out: got 'a.txt', want a name that ends in .csv or .parquet"),
        (["--bipartite"], "not bipartite"),
    ],
)
def test_wrong_options_of_links(run, files, trained, tmp_path, options, message):
    status, out, err = run("links", trained / "model.safetensors", *files, *options)
    assert (status, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


# --- attributes ------------------------------------------------------------------------------------------------------


def test_attributes_by_name(run, files, trained, tmp_path):
    status, printed, _ = run("complete", trained / "model.safetensors", *files, "--top", 2)
    assert status == 0
    graph = graph_of(files)
    found = sf.SeeGera.load(trained / "model.safetensors", graph).top_attributes(2)
    header, *rows = table(tmp_path / "attributes.csv")
    assert header == ["node", "feature", "value"]
    assert graph.feature_names.tolist() == ["tall", "chess", "city=Bern", "city=Rome"]
    assert [row[0] for row in rows] == graph.nodes[found.nodes].tolist()
    assert [row[1] for row in rows] == graph.feature_names[found.features].tolist()
    assert np.allclose([float(row[2]) for row in rows], found.values, rtol=1e-6)
    assert f"{len(rows)} attributes" in printed


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


# --- as in training ---------------------------------------------------------------------------------------------------


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
    status, _, err = run("embed", "out/model.safetensors", "--edges", "g.csv", *files[2:], "--source", "x")
    assert status == 0
    assert "--source" not in err
    assert "source: got 'a'" in run("embed", "out/model.safetensors", "--edges", "g.csv", *files[2:])[2]


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


# --- what must not happen --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name", "option"),
    [
        ("links", "links.csv", "--edges"),
        ("complete", "attributes.csv", "--features"),
        ("train", "links.csv", "--edges"),
    ],
)
def test_no_table_of_the_user_is_written_over(run, files, trained, tmp_path, command, name, option):
    tables = list(files)
    original = tables[tables.index(option) + 1].read_bytes()
    (tmp_path / name).write_bytes(original)
    tables[tables.index(option) + 1] = name
    more = ["--out", tmp_path, "--epochs", 2, *SMALL] if command == "train" else [trained / "model.safetensors"]
    status, _, err = run(command, *([] if command == "train" else more), *tables, *(more if command == "train" else []))
    assert status == 2
    assert f"{name} is what {option} names, and would be lost; want another place" in err
    assert (tmp_path / name).read_bytes() == original


def test_nothing_is_written_into_the_folder_of_a_graph(run, files, trained, tmp_path):
    graph_of(files).save("web")
    (tmp_path / "again").symlink_to("web")
    before, model = sorted((tmp_path / "web").iterdir()), trained / "model.safetensors"
    for command, out in (
        (("embed", model), "web/labels.npy"),
        (("embed", model), "again/new.npy"),
        (("links", model), "./web/new.csv"),
        (("complete", model), "web/new.csv"),
        (("train", *SMALL), "web"),
        (("train", *SMALL), "web/run"),
    ):
        status, _, err = run(*command, "--graph", "web", "--out", out)
        assert status == 2
        assert "is in the folder that --graph names, want another place" in err
    assert sorted((tmp_path / "web").iterdir()) == before
    sf.Graph.open("web", verify=True)
    assert run("embed", model, "--graph", "web", "--out", "web.npy")[0] == 0


def test_a_graph_of_other_nodes_is_refused(run, tmp_path):
    (tmp_path / "a.csv").write_text("from,to\nAnn,Bob\nBob,Eve\nEve,Zoe\nZoe,Max\n")
    (tmp_path / "b.csv").write_text("from,to\nAnn,Wolf\nWolf,Eve\nEve,Zoe\nZoe,Max\n")
    assert run("train", "--edges", "a.csv", "--task", "embed", "--epochs", 2, "--out", "out", *SMALL)[0] == 0
    status, _, err = run("links", "out/model.safetensors", "--edges", "b.csv")
    assert status == 2
    assert "graph: feature 1 is 'Eve', want 'Bob'" in err
    sf.Graph.from_table("a.csv").save("web")
    for source in (["--edges", "a.csv"], ["--graph", "web"]):
        status, _, err = run("complete", "out/model.safetensors", *source)
        assert status == 2
        assert "the graph has no features, so that each node is its own, and none is missing" in err
    assert not (tmp_path / "attributes.csv").exists()
    status, printed, _ = run("links", "out/model.safetensors", "--edges", "a.csv")
    assert (status, "12 links" in printed) == (0, True)


def test_sides_are_the_columns_of_the_table(run, tmp_path):
    (tmp_path / "b.csv").write_text("user,item\nAnn,zebra\nBob,zebra\nBob,yak\nZoe,Apple\nMax,Apple\nMax,dog\n")
    graph = sf.Graph.from_table(tmp_path / "b.csv")
    users = {"Ann", "Bob", "Zoe", "Max"}
    assert {name for name, side in zip(graph.nodes, graph.sides, strict=True) if side == 0} == users
    assert run("train", "--edges", "b.csv", "--task", "embed", "--epochs", 2, "--out", "out", *SMALL)[0] == 0
    assert run("links", "out/model.safetensors", "--edges", "b.csv", "--bipartite", "--top", 7)[0] == 0
    pairs = [set(row[:2]) for row in table(tmp_path / "links.csv")[1:]]
    assert {"Ann", "Apple"} in pairs
    assert all(len(pair & users) == 1 for pair in pairs)
    edges = graph.edges().T
    unknown = sf.Graph.from_edge_index(edges, num_nodes=graph.num_nodes)
    with pytest.warns(UserWarning, match="sides: the graph falls into 2 parts"):
        sf.tasks.split_links(unknown, 0.2, 0.0, sides="auto")


def test_names_with_ends_of_lines_stay_one_field(tmp_path):
    names = np.array(["a\nb", "c\rd", "e"], object)
    with open(tmp_path / "t.csv", "wb") as file:
        write_table(file, {"node": names, "value": np.array([1.0, 2.0, 3.0])}, ".csv")
    assert [row[0] for row in table(tmp_path / "t.csv")[1:]] == names.tolist()


def test_huge_losses_are_drawn(run, tmp_path):
    for points in ([(1, 1e18)], [(1, -1e308), (2, 1e308)]):
        drawn = pages.lines({"loss": points}, x="epoch")
        assert "nan" not in drawn
        assert "inf" not in drawn


def test_very_long_names_are_cut_at_once():
    assert len(shown_name("x" * 10**6)) < 100
    assert shown_name("ab") == "ab"


# --- names of features -----------------------------------------------------------------------------------------------


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


# --- what train writes -----------------------------------------------------------------------------------------------


def test_train_writes_tables_with_names(files, trained):
    graph = graph_of(files)
    model = sf.SeeGera.load(trained / "model.safetensors", graph)
    header, *rows = table(trained / "embedding.csv")
    assert header == ["node", *(f"z{k}" for k in range(6))]
    assert [row[0] for row in rows] == graph.nodes.tolist()
    assert np.allclose(np.array([row[1:] for row in rows], float), np.load(trained / "embedding.npy"), rtol=1e-6)
    header, *rows = table(trained / "links.csv")
    found = model.top_links(100, per_node=False, calibrated=True)
    assert [row[:2] for row in rows] == graph.nodes[found.pairs].tolist()
    content = json.loads((trained / "results.json").read_text())
    assert set(content["reliability"]) == {"plain", "calibrated"}
    assert content["calibration"] == dataclasses.asdict(model.calibration)
    assert "mrr" in content["ranking"]


class Reader(html.parser.HTMLParser):
    """Collects what a page asks a network for, the headings, the cells and the tags that are open at the end."""

    def __init__(self):
        super().__init__()
        self.asked, self.open, self.cells, self.headings, self.scripts = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.asked += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br", "path", "circle", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.asked += [value for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)
        elif self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)
        elif self.open and self.open[-1] == "script":
            self.scripts.append(data)


def test_the_page_needs_nothing_but_itself(trained):
    page = (trained / "report.html").read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert reader.asked == reader.open == []
    assert not re.search(r"url\(|@import|fetch\(", page)
    wanted = ["Scores", "Reliability", "Training", "Embedding", "Suggested links", "Settings", "Machine and versions"]
    assert reader.headings[1:] == wanted
    for name in table(trained / "links.csv")[1][:2]:
        assert name in reader.cells
    assert json.loads(reader.scripts[0]) == NAMES_IN_ORDER
    assert sf.__version__ in reader.cells


NAMES_IN_ORDER = sorted(NAMES)


def test_texts_of_a_page_are_shown_as_they_are():
    strange = "<b>&\"'\0\x1b\ud800"
    assert pages.text(strange) == "&lt;b&gt;&amp;&quot;&#x27;" + 3 * "\N{REPLACEMENT CHARACTER}"
    page = pages.page(strange, strange, [(strange, pages.table([strange], [[strange]]), True)])
    assert "<b>" not in page
    page.encode()
    drawn = pages.scatter(np.zeros((2, 2)), ["</script><script>", strange])
    assert drawn.count("</script>") == 1


@pytest.mark.parametrize(
    ("values", "options", "texts"),
    [
        ([0.5, 0.25], {}, ["0.5000", "0.2500"]),
        ([0.99999696, 0.9999952, 0.9], {"probabilities": True}, ["0.999997", "0.999995", "0.900000"]),
        ([0.99999, 0.99999], {"probabilities": True}, ["0.99999", "0.99999"]),
        ([1.0, 1 - 1e-12, 0.5], {"probabilities": True}, ["> 0.9999999", "> 0.9999999", "0.5000"]),
        ([1.0, 0.99996], {}, ["1.00000", "0.99996"]),
        ([1e-6, 1.05e-6, 0.25], {"apart": False}, ["0.000001", "0.000001", "0.250000"]),
        ([1e-14, 0.5, 0.0, -3.25], {}, ["1.0e-14", "0.5000", "0.0000", "-3.2500"]),
        ([0.1, 0.1 + 1e-13], {}, ["0.1000", "0.1000"]),
        ([], {}, []),
    ],
)
def test_numbers_have_as_many_digits_as_tell_them_apart(values, options, texts):
    assert number_texts(values, **options) == texts


def test_sure_links_are_told_apart(run, files, trained, tmp_path, monkeypatch):
    """On the screen and on the page. The file has all digits."""
    near = np.array([0.99999696, 0.999995232, 0.99998885, 0.99998665, 0.99997431], np.float32)

    def sure(*given, **options):
        links = suggestions.suggested_links(*given, **options)
        links["probability"] = near
        links["deviation"] = near * np.float32(1e-6)
        return {name: column[:5] for name, column in links.items()}

    monkeypatch.setattr("seegera_fast.command.written.suggested_links", sure)
    printed = run("train", *files, "--epochs", 1, "--out", "out", *SMALL)[1]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for text in ("0.999997", "0.999995", "0.999989", "0.999987", "0.999974"):
        assert text in printed
        assert f"<td class=number>{text}</td><td class=number>0.000001</td>" in page
    assert np.array_equal(np.array([row[2] for row in table(tmp_path / "out" / "links.csv")[1:]], np.float32), near)


def test_cells_of_numbers():
    drawn = pages.table(["name", "n", "p"], [["a", 1234567, 0.123456], ["b", None, None]])
    assert "<td class=number>1,234,567</td><td class=number>0.1235</td>" in drawn
    assert drawn.count('<td class="soft number">none</td>') == 2


def test_lines_stay_on_the_drawing():
    for points in ([(1, 5.0)], [(1, 5.0), (2, 5.0)], [(1, -3.0), (9, 1e9)]):
        drawn = pages.lines({"loss": points}, x="epoch")
        line = re.search(r'points="([^"]*)"', drawn)[1]
        at = np.array([pair.split(",") for pair in line.split()], float)
        assert (at >= 0).all()
        assert (at <= [pages.WIDTH, pages.HEIGHT]).all()


def test_a_large_graph_gets_no_links(run, tmp_path, monkeypatch):
    monkeypatch.setattr("seegera_fast.command.written.MOST_NODES", 5)
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,d\nd,e\ne,f\nf,a\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "links.csv").write_text("of an earlier run")
    status, printed, _ = run("train", "--edges", "edges.csv", "--task", "embed", "--epochs", 2, "--out", "out", *SMALL)
    assert status == 0
    assert "new links" not in printed
    assert not (tmp_path / "out" / "links.csv").exists()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Suggested links" not in page
    assert "Scores" not in page
