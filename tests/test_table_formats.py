"""The same graph from text, columns, data frames, Parquet and Arrow, and from what the command writes."""

import contextlib
import csv
import gzip
import io
import re
import subprocess
import sys
import warnings
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from people import FEATURES, PATH

import seegera_fast as sf
from seegera_fast.command.main import main
from seegera_fast.tables import names as names_module
from seegera_fast.tables.names import Names

LETTERS = st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n", exclude_characters="\ufeff")
WORDS = st.text(LETTERS, min_size=1, max_size=8)
ODD = [
    "NA",
    "null",
    "nan",
    "None",
    "007",
    "7",
    "#x",
    "%",
    "-",
    "1e5",
    "é",
    "e\u0301",
    '"',
    ",",
    " a",
    "a",
    "\n",
    '"\n",#x\n',
]
NAMES = st.one_of(
    st.lists(WORDS, min_size=2, max_size=9, unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=9, unique=True),
    st.lists(st.sampled_from(ODD), min_size=2, max_size=9, unique=True),
)


@st.composite
def tables(draw):
    """Names, edges and rows of features, with a node in every edge that no other node is."""
    names = draw(NAMES)
    pairs = draw(st.lists(st.tuples(*[st.sampled_from(range(len(names)))] * 2), max_size=12))
    pairs = [(low, high) for low, high in pairs if low != high]
    pairs += [(k, (k + 1) % len(names)) for k in range(len(names))]
    # Whether numbers below the normal ones of float32 stay is up to the processor's settings.
    value = st.floats(-1e6, 1e6).filter(lambda number: number == 0 or abs(number) > 1e-30)
    features = draw(st.lists(value, min_size=len(names), max_size=len(names)))
    return names, [(names[low], names[high]) for low, high in pairs], dict(zip(names, features, strict=True))


def columns_of(rows):
    kind = np.int64 if all(isinstance(value, int) for row in rows for value in row) else object
    return [np.array([row[k] for row in rows], kind) for k in (0, 1)]


def written_as_text(path, rows, separator):
    text = io.StringIO()
    csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def same(graph, other):
    assert torch.equal(graph.edges(), other.edges())
    assert graph.nodes.tolist() == other.nodes.tolist()
    assert graph.nodes.dtype == other.nodes.dtype
    assert torch.equal(graph.features.to_dense(), other.features.to_dense())


@given(tables(), st.sampled_from([",", "\t", ";", " "]))
def test_the_same_graph_from_each_format(tmp_path_factory, drawn, separator):
    names, pairs, features = drawn
    order = sorted(names)
    if not isinstance(names[0], int):
        with contextlib.suppress(ValueError):
            plain = [int(name) for name in names]
            if [str(value) for value in plain] == names:
                order = sorted(plain)
    folder = tmp_path_factory.mktemp("formats")
    ends, values = columns_of(pairs), [*features.items()]
    rows = {"node": columns_of([(name, 0) for name in names])[0], "f": np.array([value for _, value in values])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = sf.Graph.from_table({"source": ends[0], "target": ends[1]}, rows)
        assert graph.nodes.tolist() == order
        where = {str(name): place for place, name in enumerate(order)}
        for name, value in features.items():
            assert graph.features.to_dense()[where[str(name)], 0] == np.float32(value)
        edges = {frozenset((where[str(low)], where[str(high)])) for low, high in pairs}
        assert {frozenset(pair) for pair in graph.edges().tolist()} == edges
        text = written_as_text(folder / "e.csv", [("source", "target"), *pairs], separator)
        features_file = written_as_text(folder / "f.csv", [("node", "f"), *values], separator)
        same(sf.Graph.from_table(text, features_file, header=True), graph)
        (folder / "e.csv.gz").write_bytes(gzip.compress(text.read_bytes()))
        same(sf.Graph.from_table(folder / "e.csv.gz", rows, header=True), graph)
        pairs_array = np.array(pairs, ends[0].dtype)
        same(sf.Graph.from_table(pairs_array, rows), graph)


def arrow():
    return [pytest.importorskip(name) for name in ("pyarrow", "pyarrow.feather", "pyarrow.parquet")]


@given(tables())
def test_the_same_graph_from_columns(tmp_path_factory, drawn):
    pyarrow, feather, parquet = arrow()

    names, pairs, features = drawn
    folder = tmp_path_factory.mktemp("columns")
    source, target = columns_of(pairs)
    rows = {"node": columns_of([(name, 0) for name in names])[0], "f": np.array([*features.values()])}
    edge_table, row_table = pyarrow.table({"s": source, "t": target}), pyarrow.table(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = sf.Graph.from_table({"s": source, "t": target}, rows)
        same(sf.Graph.from_table(edge_table, row_table), graph)
        for name, write in (("parquet", parquet.write_table), ("feather", feather.write_feather)):
            write(edge_table, folder / f"e.{name}")
            write(row_table, folder / f"f.{name}")
            same(sf.Graph.from_table(folder / f"e.{name}", folder / f"f.{name}"), graph)


def test_data_frames(table):
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    graph = table(PATH, FEATURES, "name,city\nann,x\nbob,y\neve,x\n")
    edges = {"a": ["ann", "bob"], "b": ["bob", "eve"]}
    features = {"name": ["eve", "ann", "bob"], "age": [3, 1, 2], "size": [0.5, 2, 1e3]}
    for frame in (pandas.DataFrame, polars.DataFrame):
        found = sf.Graph.from_table(frame(edges), frame(features), {"n": ["ann", "bob", "eve"], "y": ["x", "y", "x"]})
        same(found, graph)
        assert found.classes == graph.classes
        assert torch.equal(found.labels, graph.labels)
    indexed = pandas.DataFrame(features).set_index("name")
    same(sf.Graph.from_table(pandas.DataFrame(edges), indexed), graph)
    series = pandas.Series(["x", "x", "y"], pandas.Index(["eve", "ann", "bob"], name="name"), name="city")
    for labels in (series, series.rename(None), series.to_frame()):
        found = sf.Graph.from_table(pandas.DataFrame(edges), indexed, labels)
        assert torch.equal(found.labels, graph.labels)
    with pytest.raises(ValueError, match=r"labels: got an index and a column of the name 'name', want different"):
        sf.Graph.from_table(pandas.DataFrame(edges), indexed, series.rename("name"))
    with pytest.raises(TypeError, match=r"edges: got LazyFrame, want a data frame"):
        sf.Graph.from_table(polars.DataFrame(edges).lazy())
    stamped = pandas.DataFrame({**edges, "t": pandas.to_datetime(["2026-01-02", "2026-01-01"])})
    assert np.diff(sf.Graph.from_table(stamped, time="t").edge_times).tolist() == [-86400]


def source_of(table, folder, kind):
    """A table of pyarrow, or the file of it."""
    _, feather, parquet = arrow()
    if kind != "arrow":
        {"parquet": parquet.write_table, "feather": feather.write_feather}[kind](table, folder / "table")
    return table if kind == "arrow" else folder / "table"


@pytest.mark.parametrize("kind", ["parquet", "feather", "arrow"])
def test_decimals(tmp_path, kind):
    """As data warehouses write numbers: whole ones are names and labels, and all are features, weights and times."""
    pyarrow, _, _ = arrow()
    large = 2**60 + 1

    def of(columns):
        return pyarrow.table({name: pyarrow.array(map(Decimal, column)) for name, column in columns.items()})

    ends = {"a": [large, large + 1], "b": [large + 1, large + 2], "weight": ["0.5", "2.25"], "time": ["3.5", "4"]}
    rows = {"id": [large, large + 1, large + 2], "x": ["1.5", "-2", "0"], "label": [1, 0, 1]}
    edges = {name: np.array(list(map(Decimal, column)), object) for name, column in ends.items()}
    nodes = source_of(of(rows), tmp_path, kind)
    found = sf.Graph.from_table(edges, nodes, nodes, weight="weight", time="time")
    assert found.nodes.tolist() == rows["id"]
    assert found.features.to_dense().flatten().tolist() == [1.5, -2, 0]
    assert (found.labels.tolist(), found.weights.tolist()) == ([1, 0, 1], [0.5, 0.5, 2.25, 2.25])
    assert found.edge_times.tolist() == [3.5, 4]
    for wrong in ("0.5", "NaN", "sNaN", "1e999999"):
        with pytest.raises(ValueError, match="edges, row 0: got "):
            sf.Graph.from_table({**edges, "a": np.array([Decimal(wrong), Decimal(1)], object)})
        if wrong != "0.5":
            with pytest.raises(ValueError, match="edges, row 0: got "):
                sf.Graph.from_table({**edges, "weight": np.array([Decimal(wrong), Decimal(1)], object)})


@pytest.mark.parametrize("kind", ["parquet", "feather", "arrow"])
def test_frames_that_pandas_wrote_with_an_index(tmp_path, kind):
    """pandas writes the index as the last columns."""
    pandas, (pyarrow, _, _) = pytest.importorskip("pandas"), arrow()
    edges = pandas.DataFrame({"from": [0, 1, 2], "to": [1, 2, 3], "weight": [1.0, 2, 3]}).set_index("from")
    features = pandas.DataFrame({"id": [3, 0, 2, 1], "age": [0, 1, 2, 3], "size": [0.5, 1, 2, 4]}).set_index("id")
    nameless = features.reset_index(drop=True).set_axis([5, 6, 7, 8])

    def source(frame, name):
        if kind == "arrow":
            return pyarrow.Table.from_pandas(frame)
        getattr(frame, f"to_{kind}")(tmp_path / name)
        return tmp_path / name

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = sf.Graph.from_table(edges, features, weighted=True)
        assert want.features.to_dense()[0].tolist() == [1, 1]
        same(sf.Graph.from_table(source(edges, "e"), source(features, "f"), weighted=True), want)
        found = sf.Graph.from_table(source(edges, "e"), source(nameless, "n"))
        assert found.feature_names.tolist() == ["size"]
        every_second = features.set_axis(pandas.RangeIndex(6, -2, -2, name="id"))
        want = sf.Graph.from_table(edges, every_second)
        assert want.nodes.tolist() == [0, 1, 2, 3, 4, 6]
        same(sf.Graph.from_table(source(edges, "e"), source(every_second, "r")), want)
    whole = pyarrow.Table.from_pandas(features)
    far = b'{"index_columns": [{"name": "k", "start": 0, "stop": 1' + b"0" * 30 + b', "step": 1}]}'
    for note in (
        far,
        b"[" * 10**5,
        b"\xff",
        b"[]",
        b"1",
        b"{",
        b'{"index_columns": 3}',
        b'{"index_columns": [{"name": "k"}, [], "x"]}',
    ):
        strange = whole.replace_schema_metadata({b"pandas": note})
        assert sf.Graph.from_table(edges, strange, node="id").features.to_dense()[0].tolist() == [1, 1]
    # The note of an index without a column outlives a filter, and then is of other rows.
    numbered = pyarrow.Table.from_pandas(features.set_axis(pandas.RangeIndex(4, name="k")).assign(id=[3, 0, 2, 1]))
    filtered = source_of(numbered.take([1, 3]), tmp_path, kind)
    with pytest.warns(UserWarning, match="2 names are not in"):
        found = sf.Graph.from_table(edges, filtered, node="id")
    assert found.features.to_dense().tolist() == [[1, 1], [3, 4], [0, 0], [0, 0]]
    unnamed = pyarrow.table({"__null_dask_index__": [7, 8], "s": [0, 1], "t": [1, 2]})
    note = {b"pandas": b'{"index_columns": ["__null_dask_index__"]}'}
    found = sf.Graph.from_table(source_of(unnamed.replace_schema_metadata(note), tmp_path, kind))
    assert found.edges().tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("source", "error", "part"),
    [
        ([1.0, 2.5], ValueError, "edges, row 1: got 2.5, want words or integers"),
        ([1.0, float("nan")], ValueError, "edges, row 1: got no name"),
        ([1.0, 2.0**53 + 2], ValueError, "edges, row 1: got 9007199254740994.0"),
        (["a", None], ValueError, "edges, row 1: got no name"),
        (["a", ""], ValueError, "edges, row 1: got an empty field in column 'a', want the names"),
        ([True, False], TypeError, "edges: got names of type bool"),
        ([b"a", b"b"], TypeError, "edges: got names of type"),
        (["a", ("b",)], ValueError, "edges"),
    ],
)
def test_wrong_names_in_columns(source, error, part):
    column = np.empty(2, object)
    column[:] = source
    if all(isinstance(value, (float, bool, bytes)) for value in source):
        column = np.array(source)
    with pytest.raises(error) as raised:
        sf.Graph.from_table({"a": column, "b": ["x", "y"]})
    assert part in str(raised.value)


def test_large_integers_of_columns_are_exact():
    graph = sf.Graph.from_table(np.array([[2**53 + 1, 2**53], [2**63 - 1, 2**53]]))
    assert graph.nodes.tolist() == [2**53, 2**53 + 1, 2**63 - 1]


@pytest.mark.parametrize("value", [3, object(), np.zeros(3), np.zeros((2, 1)), scipy.sparse.eye(3), None])
def test_what_is_no_table(value):
    with pytest.raises((TypeError, ValueError), match=r"^edges: "):
        sf.Graph.from_table(value)


@pytest.mark.parametrize("name", ["e.parquet", "e.feather", "e.arrow"])
def test_damaged_files_of_columns(write, tmp_path, name):
    pyarrow, feather, parquet = arrow()

    for content in (b"", b"a,b\n", b"PAR1" + b"\xff" * 60, b"ARROW1\0\0" + b"\xff" * 60, b"FEA1" + b"\0" * 20):
        with pytest.raises(ValueError, match=re.escape(name)):
            sf.Graph.from_table(write(name, content))
    save = parquet.write_table if name == "e.parquet" else feather.write_feather
    save(pyarrow.table({"a": ["x", "y"] * 100, "b": ["y", "z"] * 100}), tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for cut in range(0, len(whole), max(1, len(whole) // 40)):
        with pytest.raises(ValueError, match=re.escape(name)):
            sf.Graph.from_table(write(name, whole[:cut]))
    with contextlib.suppress(ValueError):
        for place in range(0, len(whole), max(1, len(whole) // 40)):
            sf.Graph.from_table(write(name, whole[:place] + b"\xff\xff" + whole[place + 2 :]))


WITHOUT = """
import sys
sys.modules["pyarrow"] = None
import seegera_fast as sf
graph = sf.Graph.from_table(sys.argv[1])
print(graph.nodes.tolist() == sorted(f"n{k}" for k in range(300_001)), graph.num_edges)
try:
    sf.Graph.from_table(sys.argv[2])
except ImportError as error:
    print(error)
"""


def test_without_pyarrow(write):
    """Text is read, with the same graph, and other files name what is missing."""
    edges = write("e.csv", "".join(f"n{k},n{k + 1}\n" for k in range(300_000)))
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT, edges, write("e.parquet", b"PAR1" + bytes(20))], capture_output=True, text=True
    )
    assert said.stdout.startswith("True 300000\n"), said.stderr
    assert re.search(r"e.parquet: Parquet files need pyarrow.* pip install 'seegera-fast\[tables\]'", said.stdout)


def test_pyarrow_numbers_names_as_a_dictionary_does(monkeypatch):
    pytest.importorskip("pyarrow")
    words = [f"n{k * k % 997}" for k in range(4000)]
    codes = [], []
    plain, fast = map(Names, codes)
    monkeypatch.setattr(names_module, "MANY", 10)
    monkeypatch.setattr(names_module, "AT_ONCE", 700)
    for start in range(0, 4000, 250):
        fast.add(words[start : start + 250])
    assert fast._numbers is None
    monkeypatch.setattr(names_module, "MANY", 10**9)
    for start in range(0, 4000, 250):
        plain.add(words[start : start + 250])
    assert plain.finish() == fast.finish()
    assert len(codes[0]) == len(codes[1]) == 16
    assert all(np.array_equal(one, two) for one, two in zip(*codes, strict=True))


def test_the_command_reads_and_writes_names(write, tmp_path, capsys):
    people = ["Ann Lee", "Bob, B", "#eve", " max", "zoe", 'o"x']
    quoted = ['"{}"'.format(name.replace('"', '""')) for name in people]
    pairs = [(k, (k + 1) % 6) for k in range(6)] + [(0, 2), (1, 3)]
    edges = write("friends.csv", "from,to,w\n" + "".join(f"{quoted[i]},{quoted[j]},2\n" for i, j in pairs))
    rows = write("people.csv", "who,age\n" + "".join(f"{name},{k}\n" for k, name in enumerate(quoted)))
    files = ["--edges", str(edges), "--features", str(rows), "--weight", "w", "--node", "who", "--quiet"]
    small = ["--set", "embedding_dim=2", "--set", "hidden_dim=2", "--epochs", "1"]
    assert main(["train", *files, "--task", "link", *small, "--out", str(tmp_path / "run")]) == 0
    out = tmp_path / "embedding.csv"
    assert main(["embed", str(tmp_path / "run/model.safetensors"), *files, "--out", str(out)]) == 0
    with open(out, encoding="utf-8", newline="") as file:
        found = [row[0] for row in csv.reader(file)]
    assert found == ["node", *sorted(people)]
    graph = sf.Graph.from_table(edges, out, weight="w")
    assert graph.nodes.tolist() == sorted(people)
    assert graph.num_features == 2
    capsys.readouterr()
    assert main(["train", "--data", "digits", "--weight", "w", "--out", str(tmp_path / "x")]) == 2
    assert "--weight goes with --edges" in capsys.readouterr().err
