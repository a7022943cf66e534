"""seegera-fast links and complete: tables with names, and nothing of the user's is written over."""

import numpy as np
import pytest
from friends import SMALL, graph_of, table

import seegera_fast as sf
from seegera_fast.command.output import write_table
from seegera_fast.support.hints import shown_name

pytestmark = pytest.mark.usefixtures("somewhere")


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
    assert run("links", trained / "model.safetensors", *files, "--of", "NA", "--of", "NA", "--top", 1)[0] == 0
    assert [row[0] for row in table(tmp_path / "links.csv")[1:]] == ["NA"]


def test_more_than_there_are(run, files, trained, tmp_path):
    """All are written then."""
    graph = graph_of(files)
    absent = graph.adjacency.non_edge_count
    assert run("links", trained / "model.safetensors", *files, "--whole", "--top", 10**6, "--draws", 0)[0] == 0
    assert len(table(tmp_path / "links.csv")) == 1 + absent
    assert run("links", trained / "model.safetensors", *files, "--top", 10**6, "--draws", 0)[0] == 0
    assert len(table(tmp_path / "links.csv")) == 1 + 2 * absent
    assert run("complete", trained / "model.safetensors", *files, "--top", 10**6)[0] == 0
    assert len(table(tmp_path / "attributes.csv")) == 1 + graph.num_nodes * graph.num_features - graph.features.nnz


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


@pytest.mark.parametrize(
    ("command", "name", "why"),
    [
        ("links", "links.csv", "is no table of this command"),
        ("complete", "attributes.csv", "is no table of this command"),
        ("embed", "embedding.npy", "is there already"),
    ],
)
def test_no_other_file_is_written_over_unless_it_is_named(run, files, trained, tmp_path, command, name, why):
    (tmp_path / name).write_text("node,note\nAnn,mine\n")
    given = [command, trained / "model.safetensors", *files]
    status, _, err = run(*given)
    assert status == 2
    assert f"--out: {name} {why}, and would be lost; want another name, or --out {name} to replace it" in err
    assert (tmp_path / name).read_text() == "node,note\nAnn,mine\n"
    assert run(*given, "--out", name)[0] == 0
    assert b"mine" not in (tmp_path / name).read_bytes()


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
    assert "than the model (missing: 'Bob'; extra: 'Wolf'; the graph was given none, so that each node is one)" in err
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


def test_very_long_names_are_cut_at_once():
    assert len(shown_name("x" * 10**6)) < 100
    assert shown_name("ab") == "ab"
