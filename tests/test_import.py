"""The command ``import``: the folder holds the graph that ``from_table`` makes, however little memory sorting has."""

import gzip
import json
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from disk import largest_file
from test_graph_files import same

import seegera_fast as sf
from seegera_fast import importing
from seegera_fast.command.main import main
from seegera_fast.command.options import name_of_folder, sizes
from seegera_fast.tables import edges as edges_module
from seegera_fast.tables import on_disk
from seegera_fast.tables.reading import Reading

GENERATOR = np.random.default_rng(5)


def table(names, edges=400):
    """Rows of edges with weights, some 0, and times; some edges are there twice, and some join a node with itself."""
    rows = [names[k] for k in GENERATOR.integers(0, len(names), 2 * edges)]
    weights, times = GENERATOR.integers(0, 4, edges), GENERATOR.integers(0, 99, edges)
    return list(zip(rows[:edges], rows[edges:], weights.tolist(), times.tolist(), strict=True))


NUMBERS = table([str(k) for k in range(60)])
WORDS = table([f"ä{k}" for k in range(60)])
ODD = table(["0", "00", *map(str, range(1, 50))])


def write(path, rows, width=4, header=None):
    text = "".join(",".join(map(str, row[:width])) + "\n" for row in rows)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write((header or "") + text)
    return path


def both(tmp_path, edges, memory, *more, **options):
    """The graph of a table, the one of its folder, and what is warned of either."""
    options = {"weighted": "weight" in options, **options}
    with warnings.catch_warnings(record=True) as one:
        warnings.simplefilter("always")
        wanted = sf.Graph.from_table(edges, *more, **options)
    with warnings.catch_warnings(record=True) as two:
        warnings.simplefilter("always")
        reading = Reading(**options).checked()
        importing.import_tables(tmp_path / "out", edges, *more, reading=reading, memory=memory)
    return wanted, sf.Graph.open(tmp_path / "out", verify=True), sorted(map(text, one)), sorted(map(text, two))


def text(warning):
    return str(warning.message)


@pytest.mark.parametrize("memory", [1, 10_000, 10**9], ids=["a-row", "some", "all"])
@pytest.mark.parametrize(
    ("rows", "width", "options"),
    [
        (NUMBERS, 2, {}),
        (NUMBERS, 3, {}),
        (NUMBERS, 3, {"weight": 2}),
        (NUMBERS, 4, {"weight": 2, "time": 3}),
        (WORDS, 2, {}),
        (WORDS, 4, {"time": 3}),
        (ODD, 2, {}),
        ([(f"u{a}", f"i{b}", w, t) for a, b, w, t in NUMBERS], 2, {}),
        ([("7", "7", 1, 1)], 2, {}),
        ([("7", "8", 0, 1)], 3, {"weight": 2}),
    ],
    ids=["numbers", "ignored", "weights", "times", "words", "timed", "odd", "sides", "loop", "vanished"],
)
def test_it_is_the_graph_of_the_table(tmp_path, monkeypatch, rows, width, options, memory):
    for module in (on_disk, edges_module):
        monkeypatch.setattr(module, "EDGES", 70)
    edges = write(tmp_path / "edges.csv", rows, width)
    wanted, found, said, said_too = both(tmp_path, edges, memory, **options)
    assert same(wanted, found)
    assert said == said_too
    assert sorted(os.listdir(tmp_path)) == ["edges.csv", "out"]
    assert "scratch" not in os.listdir(tmp_path / "out")


@pytest.mark.parametrize("header", ["", "alpha,beta\n"], ids=["edges", "names-of-columns"])
def test_edges_are_in_files(tmp_path, monkeypatch, header):
    monkeypatch.setattr(edges_module, "EDGES", 70)
    spread, ranges = on_disk.OnDisk._spread, []

    def watched(store, edges, *given):
        assert all(isinstance(column, np.memmap) for column in edges.ends)
        ranges.append(spread(store, edges, *given))
        return ranges[-1]

    monkeypatch.setattr(on_disk.OnDisk, "_spread", watched)
    edges = write(tmp_path / "edges.csv", NUMBERS, 2, header)
    wanted, found, *_ = both(tmp_path, edges, 40 * 100)
    assert same(wanted, found)
    # 400 edges in both directions, a hundred in memory at once.
    assert len(ranges[0]) == 8
    both(tmp_path, edges, 10**9)
    assert len(ranges[1]) == 1


def test_features_labels_and_a_table_in_memory(tmp_path):
    nodes = sorted({row[0] for row in WORDS} | {row[1] for row in WORDS})
    features = {"node": nodes[::-1], "x": np.arange(len(nodes)), "y": np.ones(len(nodes))}
    labels = {"node": nodes[3:], "label": [f"c{k % 3}" for k in range(len(nodes) - 3)]}
    edges = {name: [row[k] for row in WORDS] for k, name in enumerate(("from", "to", "weight", "at"))}
    wanted, found, said, said_too = both(tmp_path, edges, 3000, features, labels, weight="weight", time="at")
    assert same(wanted, found)
    assert said == said_too
    assert found.classes == ("c0", "c1", "c2")


def test_many_names_are_numbered_by_pyarrow_into_files(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    from seegera_fast.tables import names

    monkeypatch.setattr(names, "MANY", 10)
    wanted, found, *_ = both(tmp_path, write(tmp_path / "edges.csv", WORDS, 2), 3000)
    assert same(wanted, found)


def test_the_command_writes_what_the_other_commands_take(tmp_path, capsys):
    edges = write(tmp_path / "edges.csv.gz", NUMBERS, 3, header="from,to,strength\n")
    out, given = tmp_path / "web", ["--quiet", "--epochs", "1", "--set", "embedding_dim=2", "--set", "hidden_dim=2"]
    assert main(["import", str(edges), "--weight", "strength", "--memory", "0.00001", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{out}: 60 nodes, ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = sf.Graph.from_table(edges, weight="strength")
    assert same(wanted, sf.Graph.open(out))
    assert main(["train", "--task", "embed", "--graph", str(out), *given, "--out", str(tmp_path / "run")]) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["data"]["weighted"] is True
    assert results["data"]["files"] == {"graph": str(out)}
    model = str(tmp_path / "run" / "model.safetensors")
    for source in (["--graph", str(out)], ["--edges", str(edges), "--weight", "strength"]):
        assert main(["embed", model, *source, "--out", str(tmp_path / "e.npy"), "--quiet"]) == 0
        assert np.array_equal(np.load(tmp_path / "e.npy"), np.load(tmp_path / "run" / "embedding.npy"))
    capsys.readouterr()
    assert main(["info", "--graph", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: {sizes(wanted)}; all files are as they were written\n"
    assert main(["info", "--graph", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["edges"] == wanted.num_edges
    damaged = bytearray((out / "col.npy").read_bytes())
    damaged[-8] ^= 1
    (tmp_path / "other").mkdir()
    for name in os.listdir(out):
        (tmp_path / "other" / name).write_bytes(damaged if name == "col.npy" else (out / name).read_bytes())
    assert main(["info", "--graph", str(tmp_path / "other")]) == 2
    assert "other/col.npy: is damaged: its checksum is" in capsys.readouterr().err
    for wrong, message in (
        (["--features", "x.csv"], "--features goes with --edges, got --graph"),
        (["--root", "x"], "--root goes with --data, got --graph"),
    ):
        assert main(["train", "--graph", str(out), *wrong]) == 2
        assert message in capsys.readouterr().err


def test_runs_on_the_folder_that_one_is_in_have_its_name(tmp_path, monkeypatch):
    (tmp_path / "web").mkdir()
    monkeypatch.chdir(tmp_path / "web")
    assert [name_of_folder(Path(text)) for text in (".", "..", "/", "../web", "there")] == [
        "web",
        tmp_path.name,
        "graph",
        "web",
        "there",
    ]


def test_bad_tables_and_full_disks_leave_nothing(tmp_path, capsys):
    edges = write(tmp_path / "edges.csv", [*NUMBERS, ("1", "x y,z", "", "")], 2)
    assert main(["import", str(edges), "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert "edges.csv, line 401" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "none.csv"), "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert "none.csv: No such file" in capsys.readouterr().err
    edges = write(tmp_path / "edges.csv", NUMBERS, 2)
    for size in (200, 5000):
        with largest_file(size):
            assert main(["import", str(edges), "--out", str(tmp_path / "out"), "--quiet"]) == 2
        assert re.search(r"/out(/\w+\.npy)? can't be written: File too large", capsys.readouterr().err)
    assert main(["import", str(edges), "--out", str(tmp_path), "--quiet"]) == 2
    assert "is not replaced, because Graph.save did not write it" in capsys.readouterr().err
    for wrong in ("0", "x", "-1", "nan"):
        with pytest.raises(SystemExit, match=r"2"):
            main(["import", str(edges), "--out", "o", "--memory", wrong])
        assert "want a number of GiB above 0" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["edges.csv"]


def test_weights_that_the_type_cannot_hold(tmp_path):
    edges = write(tmp_path / "edges.csv", [("0", "1", 3e38, 0), ("0", "2", 3e38, 0)], 3)
    with pytest.raises(ValueError, match=r"edges\.csv: got absolute values that add up to 6e\+38 in row 0"):
        importing.import_tables(tmp_path / "out", edges, reading=Reading(weight=2, weighted=True).checked())
    assert os.listdir(tmp_path) == ["edges.csv"]


def test_an_adjacency_of_scipy(tmp_path):
    import scipy.sparse

    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_matrix(np.eye(4, k=1) + np.eye(4, k=-1)))
    wanted, found, *_ = both(tmp_path, tmp_path / "a.npz", 1)
    assert same(wanted, found)
    assert torch.equal(wanted.adjacency.col, found.adjacency.col)
