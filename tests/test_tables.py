"""Graphs from tables: names of nodes, formats, and what is wrong in a user's file."""

import contextlib
import csv
import gzip
import io
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_properties_files import little_memory

import seegera_fast as sf
from seegera_fast.command.main import main
from seegera_fast.command.output import write_table
from seegera_fast.tables import edges as edges_module
from seegera_fast.tables import lines as lines_module
from seegera_fast.tables import names as names_module
from seegera_fast.tables import text as text_module
from seegera_fast.tables.join import parts_of_graph
from seegera_fast.tables.names import Names
from seegera_fast.tables.reading import Reading

PATH = "ann,bob\nbob,eve\n"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def table(write):
    """Makes a graph from contents of files. Warnings are errors."""

    def table(edges, features=None, labels=None, **options):
        files = {"edges.csv": edges, "features.csv": features, "labels.csv": labels}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return sf.Graph.from_table(
                *(None if content is None else write(name, content) for name, content in files.items()), **options
            )

    return table


def arrow():
    return [pytest.importorskip(name) for name in ("pyarrow", "pyarrow.feather", "pyarrow.parquet")]


def links(graph):
    """The edges, by name."""
    nodes = range(graph.num_nodes) if graph.nodes is None else graph.nodes.tolist()
    return [(nodes[low], nodes[high]) for low, high in graph.edges().tolist()]


# --- which nodes there are -------------------------------------------------------------------------------------------

NAMED = [
    ("1 2\n2 3\n", [1, 2, 3]),
    ("10 2\n2 -3\n", [-3, 2, 10]),
    ("0 99999999\n", [0, 99999999]),
    ("9007199254740993 9007199254740992\n", [2**53, 2**53 + 1]),
    ("9223372036854775807 -9223372036854775808\n", [-(2**63), 2**63 - 1]),
    ("1.0 2.0\n2.0 3\n", [1, 2, 3]),
    ("9223372036854775808 2\n", ["2", "9223372036854775808"]),
    ("9007199254740993.0 2\n", ["2", "9007199254740993.0"]),
    ("007 7\n7 8\n", ["007", "7", "8"]),
    ("-0 x\n", ["-0", "x"]),
    ("NA null\nnull None\nNone nan\n", ["NA", "None", "nan", "null"]),
    ("ann Ann\nANN ann\n", ["ANN", "Ann", "ann"]),
    ("é e\u0301\n", ["e\u0301", "é"]),
    ("b a\nc b\n", ["a", "b", "c"]),
    ("#, C\n", None),
    ("C#,F#\n", ["C#", "F#"]),
    ("Ann Lee,Bob\n", ["Ann Lee", "Bob"]),
    (" ann , bob\t\n", ["ann", "bob"]),
    ('" ann",ann\n', [" ann", "ann"]),
    ('"Lee, B","say ""x"""\n', ["Lee, B", 'say "x"']),
    ('"a b" c\n', ["a b", "c"]),
    ("a\u00a0b c\u2003d\n", ["a\u00a0b", "c\u2003d"]),
    ("a\tb c\n", ["a", "b c"]),
    ("a;b c\n", ["a", "b c"]),
    ("\ufeffann,bob\r\nbob,eve\r\n", ["ann", "bob", "eve"]),
    ("ann,bob\rbob,eve", ["ann", "bob", "eve"]),
    ("% 2 3\n# a, b\n\nann,bob\n\n", ["ann", "bob"]),
]


@pytest.mark.parametrize(("content", "nodes"), NAMED, ids=[repr(content) for content, _ in NAMED])
def test_names(table, content, nodes):
    if nodes is None:
        with pytest.raises(ValueError, match="holds no edges"):
            table(content)
        return
    graph = table(content)
    assert graph.nodes.tolist() == nodes
    assert graph.nodes.dtype == (np.int64 if isinstance(nodes[0], int) else object)
    lines = re.split(r"[\r\n]+", content.strip())
    assert graph.num_edges == sum(line[0] not in "%#" for line in lines)


@pytest.mark.parametrize("content", ["0 1\n1 2\n2 0\n", "0,1\n1, 2 # note\n0 2 1\n", "source,target\n0,1\n1,2\n0,2\n"])
def test_integers_from_0_are_numbers(table, content):
    graph = table(content)
    assert graph.nodes is None
    assert graph.edges().tolist() == [[0, 1], [0, 2], [1, 2]]
    assert table(content, names=True).nodes.tolist() == [0, 1, 2]


def test_numbers_without_edges_are_said(write):
    with pytest.warns(UserWarning, match=r"edges.csv: 3 of the numbers from 0 to 5 have no edges.*names=True"):
        graph = sf.Graph.from_table(write("edges.csv", "0 2\n2 5\n"))
    assert graph.num_nodes == 6
    assert graph.nodes is None
    assert sf.Graph.from_table(write("edges.csv", "0 2\n2 5\n"), names=True).num_nodes == 3


def test_nodes_from_1_with_rows_for_each(write, table):
    np.save(write("f.npy", b""), np.ones((3, 2)))
    edges = write("edges.csv", "1 2\n2 3\n")
    with pytest.raises(ValueError, match=r"line 2: got node 3, but .*f.npy has 3 rows: want 0 to 2; .*from 1\?"):
        sf.Graph.from_table(edges, edges.with_name("f.npy"))
    np.save(edges.with_name("f.npy"), np.ones((4, 2)))
    with pytest.warns(UserWarning, match="smallest node is 1"):
        assert sf.Graph.from_table(edges, edges.with_name("f.npy")).num_nodes == 4
    graph = table("1 2\n2 3\n", "1 5 1\n3 7 1\n2 6 1\n", "3 1\n1 0\n2 0\n")
    assert graph.features.to_dense()[:, 0].tolist() == [5, 6, 7]
    assert graph.labels.tolist() == [0, 0, 1]


def test_features_that_are_all_numbers_where_0_is_missing(write, table):
    """They have names if the first column holds all nodes of the edges, else row i is node i."""
    edges = "1 2\n2 3\n"
    graph = table(edges, "3 5\n1 6\n2 7\n")
    assert graph.nodes.tolist() == [1, 2, 3]
    assert graph.features.to_dense().flatten().tolist() == [6, 7, 5]
    with pytest.warns(UserWarning, match="smallest node is 1"):
        graph = sf.Graph.from_table(write("e.csv", edges), write("f.csv", "1 0\n0 1\n1 1\n0 0\n"))
    assert graph.nodes is None
    assert graph.features.shape == (4, 2)
    with pytest.raises(ValueError, match="line 4: got a second row for '2', whose first is line 3"):
        table(edges, "3 5\n1 6\n2 7\n2 8\n")


def test_a_column_that_looks_like_names(write):
    edges, features = write("e.csv", "0 1\n1 2\n"), write("f.csv", "2,5\n0,6\n1,7\n")
    with pytest.warns(UserWarning, match=r"f.csv: the first column holds each number from 0 to 2 once.*names=True"):
        assert sf.Graph.from_table(edges, features).num_features == 2
    graph = sf.Graph.from_table(edges, features, names=True)
    assert graph.features.to_dense().flatten().tolist() == [6, 7, 5]


def test_few_words_among_integers_are_said(write):
    lines = "".join(f"{k} {k + 1}\n" for k in range(30))
    with pytest.warns(UserWarning, match=r"edges.csv, line 31: got '1_0', and 1 of the 32 names are not integers"):
        graph = sf.Graph.from_table(write("edges.csv", f"{lines}1_0 2\n"))
    assert graph.nodes[:3].tolist() == ["0", "1", "10"]
    with pytest.raises(ValueError, match="line 31: got '1_0 2', want two node numbers"):
        sf.Graph.from_table(write("edges.csv", f"{lines}1_0 2\n"), names=False)


# --- headers, columns, weights and times -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("source,target\nann,bob\nbob,eve\n", {}),
        ("SRC\tDst\nann\tbob\nbob\teve\n", {}),
        ("x,y,strength\nann,bob,1\nbob,eve,1\n", {}),
        ("x,y\nann,bob\nbob,eve\n", {"header": True}),
        ("n,y,x\n1,bob,ann\n2,eve,bob\n", {"source": "x", "target": "y"}),
        ("1,bob,ann\n2,eve,bob\n", {"source": 2, "target": 1}),
        ("ann,bob\nbob,eve\n", {"header": False}),
    ],
)
def test_headers(table, content, options):
    assert links(table(content, **options)) == [("ann", "bob"), ("bob", "eve")]


def test_two_words_above_integers_are_a_header(table):
    assert table("x,y\n1,2\n2,3\n").nodes.tolist() == [1, 2, 3]
    assert table("x,y\n1,2\n2,3\n", header=False).nodes.tolist() == ["1", "2", "3", "x", "y"]


def test_a_first_line_that_may_be_a_header_is_said(write):
    content = "person,friend\n" + "ann,bob\nbob,eve\neve,ann\n"
    with pytest.warns(UserWarning, match=r"line 1: got 'person friend', which is read as an edge.*header=True"):
        assert sf.Graph.from_table(write("e.csv", content)).num_nodes == 5
    assert sf.Graph.from_table(write("e.csv", content), header=True).num_nodes == 3


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("ann bob 2\nbob eve .5\neve bob 0.25\n", {"weighted": True}),
        ("a,b,weight\nann,bob,2\nbob,eve,0.5\n", {"weighted": True}),
        ("a,b,t,w\nann,bob,9,2\nbob,eve,9,0.5\n", {"weight": "w"}),
        ("ann,bob,9,2\nbob,eve,9,0.5\n", {"weight": 3}),
    ],
)
def test_weights(table, content, options):
    graph = table(content, **options)
    assert links(graph) == [("ann", "bob"), ("bob", "eve")]
    assert graph.weights.tolist() == [2, 2, 0.5, 0.5]


def test_weights_that_are_wanted_and_not_named(table):
    with pytest.raises(ValueError, match=r"got the columns 'a, b, strength', want weight="):
        table("a,b,strength\nann,bob,2\n", weighted=True)


TIMES = [("3", "1", "2"), ("2026-01-03", "2026-01-01T00:00:00Z", "2026-01-02T01:00:00+01:00")]


@pytest.mark.parametrize("times", TIMES)
def test_times(table, times):
    graph = table(f"a,b,t\nb,a,{times[0]}\na,b,{times[1]}\nb,c,{times[2]}\n", time="t")
    assert links(graph) == [("a", "b"), ("b", "c")]
    first, second = graph.edge_times.tolist()
    assert second - first == (1 if times[0] == "3" else 86400)
    early = graph.with_edges(graph.edges()[graph.edge_times <= first])
    assert links(early) == [("a", "b")]
    assert early.edge_times.tolist() == [first]
    assert early.nodes.tolist() == ["a", "b", "c"]
    assert torch.equal(graph.to(dtype=torch.float64).edge_times, graph.edge_times)
    assert table("a,b\n").edge_times is None


def test_edges_of_weight_0(write):
    """They are edges, and vanish with their times where weights are kept."""
    path = write("e.csv", "a,b,w,t\na,b,1,5\na,c,0,6\nb,c,2,7\n")
    with pytest.warns(UserWarning, match="weight"):
        graph = sf.Graph.from_table(path, weight="w", time="t", weighted=False)
    assert links(graph) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert graph.edge_times.tolist() == [5, 6, 7]
    with pytest.warns(UserWarning, match="which vanish"):
        graph = sf.Graph.from_table(path, weight="w", time="t")
    assert links(graph) == [("a", "b"), ("b", "c")]
    assert graph.edge_times.tolist() == [5, 7]


def test_loops_are_counted(write):
    with pytest.warns(UserWarning, match=r"e.csv: 2 edges are from a node to itself"):
        graph = sf.Graph.from_table(write("e.csv", "ann,bob\neve,eve\nann,ann\n"))
    assert links(graph) == [("ann", "bob")]
    assert graph.nodes.tolist() == ["ann", "bob", "eve"]


def test_both_directions_and_repeated_lines_are_one_edge(table):
    assert links(table("a,b\nb,a\na,b\nc,b\n")) == [("a", "b"), ("b", "c")]


# --- features and labels ---------------------------------------------------------------------------------------------

FEATURES = "name,age,size\neve,3,0.5\nann,1,2\nbob,2,1e3\n"


def test_features_and_labels_join_by_name(table):
    graph = table(PATH, FEATURES, "name,city\nbob,Rome\neve,\nann,Bern\n")
    assert graph.features.to_dense().tolist() == [[1, 2], [2, 1000], [3, 0.5]]
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.classes == ("Bern", "Rome")
    assert table(PATH, None, "ann 2\nbob -1\neve 0\n").labels.tolist() == [2, -1, 0]


def test_one_table_for_both(write, table):
    nodes = write("nodes.csv", "city,age,name\nRome,1,ann\nBern,2,bob\nRome,3,eve\n")
    graph = sf.Graph.from_table(write("e.csv", PATH), nodes, nodes, node="name", label="city")
    assert graph.features.to_dense().flatten().tolist() == [1, 2, 3]
    assert graph.classes == ("Bern", "Rome")
    graph = sf.Graph.from_table(write("e.csv", PATH), nodes, node="name", categories=["city"])
    assert graph.features.to_dense().tolist() == [[1, 0, 1], [2, 1, 0], [3, 0, 1]]


def test_names_in_one_table_only_are_said(write):
    edges, features = write("e.csv", PATH), write("f.csv", "ann,1\nbob,2\nmax,4\nzoe,5\n")
    with pytest.warns(UserWarning, match="not in") as said:
        graph = sf.Graph.from_table(edges, features, write("l.csv", "ann,0\nbob,1\neve,0\nmax,1\nzoe,1\n"))
    messages = [str(warning.message) for warning in said]
    assert graph.nodes.tolist() == ["ann", "bob", "eve", "max", "zoe"]
    assert graph.features.to_dense().flatten().tolist() == [1, 2, 0, 4, 5]
    assert graph.labels.tolist() == [0, 1, 0, 1, 1]
    together = "\n".join(messages)
    assert re.search(r"f.csv, line 3: 2 names are not in .*e.csv, such as 'max': nodes without edges", together)
    assert re.search(r"e.csv: 1 name is not in .*f.csv, such as 'eve': their features are 0", together)


BAD_ROWS = [
    ("name,age\nann,1\nbob,2\nann,3\n", "line 4: got a second row for 'ann', whose first is line 2"),
    ("ann,1\nbob,x\neve,2\n", "line 2: got 'bob x', want finite numbers, in the digits 0 to 9 (column 1)"),
    (
        "name,age\nann,1\nbob,Rome\n",
        "line 3: got 'bob Rome', want finite numbers, in the digits 0 to 9 (column 'age'); words are",
    ),
    ("ann,1\nbob,\neve,2\n", "line 2: got 'bob', want finite numbers"),
    ("ann,1\nbob,nan\neve,2\n", "line 2: got 'bob nan', want finite numbers"),
    ("ann,1\nbob,1_0\neve,2\n", "line 2: got 'bob 1_0', want finite numbers"),
    ("ann,1\nbob,١\neve,2\n", "line 2: got 'bob ١', want finite numbers"),
    (
        "ann,1\nbob,1,2\neve,2\n",
        "line 2: got 'bob 1 2', want finite numbers, in the digits 0 to 9 (3 columns",
    ),
    ("ann,1\n,2\n", "line 2: got an empty name"),
    ("name,age\n", "holds no rows"),
    ("max,1\nzoe,2\n", "got no name that is in"),
    ("ann\nbob\neve\n", "want finite numbers"),
]


@pytest.mark.parametrize(("content", "part"), BAD_ROWS, ids=[part for _, part in BAD_ROWS])
def test_wrong_features(table, content, part):
    with little_memory(), pytest.raises(ValueError, match=re.escape("features.csv")) as raised:
        table(PATH, content)
    assert part in str(raised.value)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("ann,1\nbob,x\neve,2\n", "line 2: got 'x', want one integer as in line 1"),
        ("ann,x\nbob,1\n", "line 2: got '1', want one word as in line 1"),
        ("ann,1\nann,1\n", "line 2: got a second row for 'ann', whose first is line 1"),
        ("ann,1,2\nbob,1,2\n", "want label="),
        ("name,label\n", "holds no labels"),
        ("ann,9223372036854775808\n", "line 1: got '9223372036854775808', want one integer"),
        ("1\n2\n0\n", "labels.csv has rows without names"),
    ],
)
def test_wrong_labels(table, content, part):
    with pytest.raises(ValueError, match=r"(labels|edges).csv") as raised:
        table(PATH, None, content)
    assert part in str(raised.value)


def test_rows_with_and_without_names(write):
    np.save(write("f.npy", b""), np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"f.npy: got rows without names, and names in .*l.csv"):
        sf.Graph.from_table(write("e.csv", PATH), write("e.csv", PATH).with_name("f.npy"), write("l.csv", "ann,1\n"))
    with pytest.raises(ValueError, match=r"e.csv, line 1: got 'ann bob', want two node numbers"):
        sf.Graph.from_table(write("e.csv", PATH), np.ones((3, 2)))
    scipy.sparse.save_npz(write("a.npz", b""), scipy.sparse.csr_matrix(np.eye(3, k=1) + np.eye(3, k=-1)))
    with pytest.raises(ValueError, match=r"a.npz: got an adjacency, whose nodes have no names"):
        sf.Graph.from_table(write("e.csv", PATH).with_name("a.npz"), write("f.csv", FEATURES))


def test_a_first_row_of_words(write, table):
    """It has names of columns, unless its name is that of a node."""
    with pytest.warns(UserWarning, match=r"l.csv, line 1: got 'who color', which is read as names of columns"):
        graph = sf.Graph.from_table(
            write("e.csv", PATH), None, write("l.csv", "who,color\nann,red\nbob,blue\neve,red\n")
        )
    assert graph.classes == ("blue", "red")
    assert table(PATH, None, "ann,red\nbob,blue\neve,red\n").labels.tolist() == [1, 0, 1]
    assert table(PATH, "who,age\nann,1\nbob,2\neve,3\n").features.to_dense().flatten().tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="line 1: got 'ann x', want finite numbers"):
        table(PATH, "ann,x\nbob,2\neve,3\n")


# --- wrong files -----------------------------------------------------------------------------------------------------

BAD_EDGES = [
    ("ann,bob\n,eve\n", "line 2: got an empty name"),
    ("ann,bob\neve\n", "line 2: got 'eve', want the names of two nodes"),
    ("ann bob\n\n# x\na b c d\n", "line 4: got 'a b c d'"),
    ("source,target\nann,bob\nbob,eve,3\n", "line 3: got 'bob eve 3'"),
    ("ann,bob,x\n", "line 1: got 'ann bob x'"),
    ("ann,bob,1\nbob,eve,-1\n", "line 2: got 'bob eve -1'"),
    ("ann,bob,1\nbob,eve,\n", "line 2: got 'bob eve'"),
    ("0 1 2 3\n", "line 1: got '0 1 2 3'"),
    ("a,b;c\n", "line 1: got both commas and semicolons"),
    ('a,b\na,"b\nc,d\n', "line 2: got 'a,\"b', want"),
    ('a,b\na,"b\nc,d\n', "a quote is opened there, and not closed in the lines below"),
    ('a,"b\nc",d\n', "line 1: got 'a b\\nc d', want"),
    ('a,"b\nc"\nd,e\nf\n', "line 4: got 'f', want"),
    ('"a,b\n"c,d\n', "line 1: got '\"a,b\\n\"c,d', want"),
    ('a,b"c"\n', "line 1"),
    ("0 1\n0,1 5\nx 1\n", "line 3: got 'x 1', want the names of two nodes (words or integers) and optionally a weight"),
    ("", "holds no edges"),
    ("# a b\n% c d\n", "holds no edges"),
    ("source,target\n", "holds no edges"),
    ("\ufeff", "holds no edges"),
    ("a b\n\x00 c\n", "line 2: is not a text file in UTF-8: got control character 0x00"),
    ("a b\n\ufeffa c\n", "line 2: is not a text file in UTF-8: got a byte order mark amid"),
    (b"a b\n\xe9 c\n", "line 2: is not a text file in UTF-8 (byte 0xe9)"),
    ("a b\n".encode("utf-16"), "line 1: is not a text file in UTF-8 but in utf-16, want encoding='utf-16'"),
    ("a b\n".encode("utf-32"), "but in utf-32"),
    ("a b\n".encode("utf-16-le"), "line 1: is not a text file in UTF-8: got control character 0x00"),
    (gzip.compress(b"a b\n" * 1000)[:-12], "damaged or incomplete gzip file"),
    (gzip.compress(b"a b\n" * 1000)[:12] + b"\xff" * 40, "damaged or incomplete gzip file"),
    (b"BZh91AY", "compressed by bzip2"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x80\x04\x95", "a pickle, which is not read"),
    (b"\x93NUMPY\x01", "an array of NumPy"),
]


@pytest.mark.parametrize(("content", "part"), BAD_EDGES, ids=[part for _, part in BAD_EDGES])
def test_wrong_edges(table, content, part):
    with little_memory(), pytest.raises(ValueError, match=re.escape("edges.csv")) as raised:
        table(content)
    assert part in str(raised.value)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("block", [None, 8])
@pytest.mark.parametrize("separator", [",", ";", " "])
def test_ends_of_lines_within_quotes_are_part_of_a_name(table, monkeypatch, block, separator):
    """Also where a block of lines ends, and where a line within begins as a comment does, or is empty."""
    if block is not None:
        monkeypatch.setattr(lines_module, "BLOCK", block)
    rows = [("two\nlines", "b"), ("b", '# "no"\n\n#comment, 3;4'), ("x", "two\nlines"), ("a, b", "c")]
    rows = [[f'"{name.replace(chr(34), chr(34) * 2)}"' for name in row] for row in rows]
    lines = [separator.join(row) for row in rows]
    graph = table("\r\n".join(['# of "friends', f"x{separator}y", *lines, ""]), names=True)
    assert graph.nodes.tolist() == sorted({"two\nlines", "b", '# "no"\n\n#comment, 3;4', "x", "a, b", "c", "y"})
    assert graph.num_edges == 5


def test_a_quote_that_is_not_closed_is_found_at_once(table, monkeypatch):
    monkeypatch.setattr(text_module, "BLOCK", 1000)
    with pytest.raises(ValueError, match=r"line 2: got 'a,\"b', want .*a quote is opened there, and not closed"):
        table('a,b\na,"b\n' + "c,d\n" * 10**6 + '"x",y\n')


def test_what_is_written_can_be_read(write, tmp_path):
    names = np.array(["a\nb", '"', ",", "#x", " y ", "z", "=1+1"], object)
    with open(tmp_path / "t.csv", "wb") as file:
        write_table(file, {"node": names, "x": np.arange(7) / 3}, ".csv")
    edges = {"from": names, "to": np.roll(names, 1)}
    graph = sf.Graph.from_table(edges, tmp_path / "t.csv", dtype=torch.float64)
    assert graph.nodes.tolist() == sorted(names)
    values = dict(zip(names, np.arange(7) / 3, strict=True))
    assert graph.features.to_dense()[:, 0].tolist() == [values[name] for name in graph.nodes]


@pytest.mark.parametrize(
    ("file", "name"), [("x.csv", "x"), ("x.csv.gz", "x"), ("a.b.TSV.GZ", "a.b"), ("x.gz", "x"), ("x", "x")]
)
def test_a_graph_has_the_name_of_its_file(write, file, name):
    content = gzip.compress(PATH.encode()) if file.lower().endswith("gz") else PATH
    assert sf.Graph.from_table(write(file, content)).name == name


def test_lines_are_named_far_below(table):
    lines = "".join(f"n{k},n{k + 1}\n" for k in range(800_000))
    with pytest.raises(ValueError, match=r"line 800001: got an empty name"):
        table(lines + ",x\n")
    with pytest.raises(ValueError, match=r"line 800001: got 'a b c d'"):
        table(lines + "a,b,c,d\n")


def test_numbers_of_lines_take_little_memory(write):
    edges = write("e.csv", "".join(f'"n, {k}",n{k + 1}\n' for k in range(9)))
    found = [block.lines for block in text_module.TextFile(edges, "words").blocks()]
    assert found == [range(1, 10)]
    edges = write("e.csv", 'a,"b,c"\n# comment\n"x\ny",b\nb,c\n')
    (found,) = (block.lines for block in text_module.TextFile(edges, "words").blocks())
    assert (found.tolist(), found.dtype) == ([1, 3, 5], np.int64)


def test_an_edge_of_a_message_is_looked_for_piece_by_piece(table, monkeypatch):
    monkeypatch.setattr(edges_module, "EDGES", 2)
    lines = "".join(f"{k},{k + 1}\n" for k in range(9))
    for wrong in ("0,77\n", "77,0\n"):
        with pytest.raises(ValueError, match=r"line 10: got node 77, but .*features\.csv has 12 rows"):
            table(lines + wrong + lines, "1\n" * 12)
    looked = []
    monkeypatch.setattr(edges_module.Edges, "first_with", lambda *given: looked.append(given))
    table(lines)
    assert not looked


@pytest.mark.parametrize(
    ("features", "labels", "part"),
    [
        ("1\n2\n3\n", "0\n1\n", r"labels\.csv: got shape \(2,\), want one label per node: \[3\]"),
        ("ann,1\nbob,2\neve,3\n", "ann,1\nann,2\n", r"labels\.csv, line 2: got a second row for 'ann'"),
    ],
)
def test_wrong_rows_are_found_before_edges_are_sorted(write, features, labels, part):
    edges = write("edges.csv", "0,1\n1,2\n" if features[0] == "1" else PATH)
    rows = write("features.csv", features), write("labels.csv", labels)
    with pytest.raises(ValueError, match=part):
        parts_of_graph(edges, *rows, Reading().checked(), build=None)


def test_encodings_that_are_stated(write):
    for encoding in ("latin-1", "utf-16", "utf-8-sig", "utf-8"):
        path = write("e.csv", "é,ö\nö,x\n".encode(encoding))
        assert sf.Graph.from_table(path, encoding=encoding).nodes.tolist() == ["x", "é", "ö"]
    with pytest.raises(ValueError, match=r"e.csv: is not text in cp1252"):
        sf.Graph.from_table(write("e.csv", b"a,\x81\n"), encoding="cp1252")
    with pytest.raises(ValueError, match=r"encoding: got 'rot13', want an encoding such as"):
        sf.Graph.from_table(path, encoding="rot13")


def test_comments(write):
    with pytest.warns(UserWarning, match=r"also below the first edge \(1 there\)"):
        graph = sf.Graph.from_table(write("e.csv", "a,b\n#x,b\nb,c\n"))
    assert graph.nodes.tolist() == ["a", "b", "c"]
    assert sf.Graph.from_table(write("e.csv", 'a,b\n"#x",b\n')).nodes.tolist() == ["#x", "a", "b"]
    assert sf.Graph.from_table(write("e.csv", "a,b\n#x,b\n"), comments="").nodes.tolist() == ["#x", "a", "b"]


@pytest.mark.parametrize(
    ("options", "error", "part"),
    [
        ({"weight": "w"}, ValueError, "weight: got 'w'"),
        ({"source": 7}, ValueError, "source: got column 7, but"),
        ({"source": 1}, ValueError, "the same column as source and target"),
        ({"source": -1}, ValueError, "source: got -1"),
        ({"time": 1.5}, TypeError, "time: got 1.5, want the name of a column"),
        ({"categories": "city"}, TypeError, "categories: got 'city', want a list or a tuple"),
        ({"separator": "::"}, ValueError, "separator: got '::'"),
        ({"header": 1}, TypeError, "header: got 1, want True or False"),
        ({"names": "yes"}, TypeError, "names: got 'yes', want True or False"),
        ({"comments": None}, TypeError, "comments: got None, want a string"),
        ({"node": "name", "header": True}, ValueError, "node"),
    ],
)
def test_wrong_arguments(table, options, error, part):
    with pytest.raises(error) as raised:
        table("a,b\nx,y\n", "x,1\ny,2\n", **options)
    assert part in str(raised.value)


# --- formats ---------------------------------------------------------------------------------------------------------

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
    with pytest.raises(TypeError, match=r"edges: got LazyFrame, want a data frame"):
        sf.Graph.from_table(polars.DataFrame(edges).lazy())
    stamped = pandas.DataFrame({**edges, "t": pandas.to_datetime(["2026-01-02", "2026-01-01"])})
    assert np.diff(sf.Graph.from_table(stamped, time="t").edge_times).tolist() == [-86400]


@pytest.mark.parametrize(
    ("source", "error", "part"),
    [
        ([1.0, 2.5], ValueError, "edges, row 1: got 2.5, want words or integers"),
        ([1.0, float("nan")], ValueError, "edges, row 1: got no name"),
        ([1.0, 2.0**53 + 2], ValueError, "edges, row 1: got 9007199254740994.0"),
        (["a", None], ValueError, "edges, row 1: got no name"),
        (["a", ""], ValueError, "edges, row 1: got an empty name"),
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


# --- the command -----------------------------------------------------------------------------------------------------


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
