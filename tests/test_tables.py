"""Graphs from tables: names of nodes, headers, columns, weights, times, features and labels."""

import re
import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from memory import little_memory
from people import FEATURES, PATH

import seegera_fast as sf


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
    said = r"f.csv: the first column holds different integers, as the nodes of .*e.csv are, .*names=True"
    with pytest.warns(UserWarning, match=said):
        assert sf.Graph.from_table(edges, features).num_features == 2
    graph = sf.Graph.from_table(edges, features, names=True)
    assert graph.features.to_dense().flatten().tolist() == [6, 7, 5]
    # One more than the graph has, and not all of those that it has.
    for content in ("2,5\n0,6\n1,7\n9,8\n", "2,5\n0,6\n-4,7\n9,8\n"):
        with pytest.warns(UserWarning, match=said):
            assert sf.Graph.from_table(edges, write("f.csv", content)).features.shape == (4, 2)


GUESSED = r"the column 'x' is read as the names of the nodes; node= says which .*, names=False that there is none$"


def test_integers_that_are_names_by_their_place_are_said(write):
    """Of a table with a header, whose first column may be a feature of nodes that are numbered from 0."""
    pandas = pytest.importorskip("pandas")
    edges, columns = {"from": [0, 1], "to": [1, 2]}, {"x": [2, 1, 0], "y": [7, 8, 9]}
    for features in (columns, pandas.DataFrame(columns), write("f.csv", "x,y\n2,7\n1,8\n0,9\n")):
        with pytest.warns(UserWarning, match=f"^(features|.*f.csv): {GUESSED}"):
            assert sf.Graph.from_table(edges, features).feature_names.tolist() == ["y"]
        assert sf.Graph.from_table(edges, features, node="x").feature_names.tolist() == ["y"]
        assert sf.Graph.from_table(edges, features, names=False).feature_names.tolist() == ["x", "y"]
    for names in ([1, 1, 0], [0.1, 1, 0], [7, 8, 9]):
        for part in ("features", "labels"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with pytest.raises(ValueError, match=f"^{part}.*; {GUESSED}"):
                    sf.Graph.from_table(edges, **{part: {**columns, "x": names}})


def test_a_wrong_weight_is_told_once():
    with pytest.raises(
        ValueError, match=r"^edges, row 0: got -1 in column 'weight', want a weight of 0 or more, in the digits 0 to 9$"
    ):
        sf.Graph.from_table({"from": [0, 1], "to": [1, 2], "weight": [-1, 1]})


@pytest.mark.parametrize(
    ("features", "width"),
    [("0,5\n1,6\n1,7\n", 2), ("0.5,5\n0,6\n1,7\n", 2), ("8,5\n9,6\n1,7\n", 2), ("2\n0\n1\n", 1)],
)
def test_a_first_column_of_numbers_is_a_feature(table, features, width):
    assert table("0 1\n1 2\n", features).features.shape == (3, width)


def test_a_header_of_numbers_above_rows_without_names_is_said(write):
    """As pandas writes a data frame without names of columns."""
    edges, features, labels = (
        write(name, content)
        for name, content in (("e.csv", "0 1\n1 2\n"), ("f.csv", "0,1\n.5,2\n.5,3\n.1,4\n"), ("l.csv", "0\n1\n1\n0\n"))
    )
    with pytest.warns(UserWarning, match=r"f.csv: has 4 rows, .*; header=True and names=False if the first row, '0 1'"):
        assert sf.Graph.from_table(edges, features).num_nodes == 4
    with pytest.warns(UserWarning, match=r"l.csv: has 4 rows, .*; header=True if the first row, '0', is"):
        assert sf.Graph.from_table(edges, None, labels).num_nodes == 4
    graph = sf.Graph.from_table(edges, features, labels, header=True, names=False)
    assert graph.feature_names.tolist() == ["0", "1"]
    assert graph.labels.tolist() == [1, 1, 0]


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
        ("from_id,to_id\nann,bob\nbob,eve\n", {}),
        ("id,source,target\n7,ann,bob\n8,bob,eve\n", {}),
        ("kind,Source,since,Target\nk,ann,1,bob\nk,bob,2,eve\n", {}),
        ("source,target,src,dst\nann,bob,x,y\nbob,eve,y,z\n", {}),
        ("user_id,place,rating,source\nann,bob,1,web\nbob,eve,2,app\n", {}),
        ("id,source,target\nbob,ann,1\neve,bob,2\n", {"source": "source", "target": "id"}),
        ("id,source,target\n1,bob,ann\n2,eve,bob\n", {"source": "target"}),
        ("id,source,target\n1,bob,ann\n2,eve,bob\n", {"source": "target", "target": "source"}),
        ("ann,u,bob\nbob,v,eve\n", {"target": 2}),
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


# --- features and labels ---------------------------------------------------------------------------------------------


def test_features_and_labels_join_by_name(table):
    graph = table(PATH, FEATURES, "name,city\nbob,Rome\neve,\nann,Bern\n")
    assert graph.features.to_dense().tolist() == [[1, 2], [2, 1000], [3, 0.5]]
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.classes == ("Bern", "Rome")
    assert table(PATH, None, "ann 2\nbob -1\neve 0\n").labels.tolist() == [2, -1, 0]
    # As pandas writes integers some of which are missing.
    graph = table(PATH, None, "name,y\nann,2.0\nbob,\neve,0.0\n")
    assert graph.labels.tolist() == [2, -1, 0]
    assert graph.classes is None
    assert table(PATH, None, "ann,1.0\nbob,2.0-beta\neve,1.0\n").classes == ("1.0", "2.0-beta")


@pytest.mark.parametrize("header", ["label", "Class", "category"])
@pytest.mark.parametrize("words", [["b", "a", "b", "a"], ["1", "0", "1", "0"]])
def test_labels_in_one_column_under_a_header(write, table, recwarn, header, words):
    graph = table("0,1\n1,2\n2,3\n", None, "\n".join([header, *words]))
    assert graph.labels.tolist() == [1, 0, 1, 0]
    edges = "0,1\n1,2\n2,3\n"
    with pytest.warns(UserWarning, match=r"l.csv: has 5 rows, .* is 3, .* no edges; header=True if the first row, 'x'"):
        sf.Graph.from_table(write("e.csv", edges), None, write("l.csv", "\n".join(["x", *"baba"])))
    # Answers that are also names of columns.
    assert table(edges, None, "y\nn\ny\nn\n").labels.tolist() == [1, 0, 1, 0]
    recwarn.clear()
    assert sf.Graph.from_table(write("e.csv", edges), np.eye(6)).num_nodes == 6
    assert not recwarn.list


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
    ("ann,1\nbob,x\neve,2\n", "line 2: got 'x' in column 1, want finite numbers, in the digits 0 to 9; words are"),
    (
        "name,age\nann,1\nbob,Rome\n",
        "line 3: got 'Rome' in column 'age', want finite numbers, in the digits 0 to 9; words are",
    ),
    (
        "ann,1\nbob,\neve,2\n",
        "line 2: got an empty field in column 1, want finite numbers, in the digits 0 to 9; a separator",
    ),
    ("name,x,y\nann,1,2\nbob,,3\n", "line 3: got an empty field in column 'x', want finite numbers"),
    (
        "name;x\nann;1\nbob;1,5\n",
        "line 3: got '1,5' in column 'x', want finite numbers, in the digits 0 to 9; decimals",
    ),
    ("ann,1\nbob,nan\neve,2\n", "line 2: got 'nan' in column 1, want finite numbers"),
    ("ann,1\nbob,1_0\neve,2\n", "line 2: got '1_0' in column 1, want finite numbers"),
    ("ann,1\nbob,١\neve,2\n", "line 2: got '١' in column 1, want finite numbers"),
    (
        "ann,1\nbob,1,2\neve,2\n",
        "line 2: got 'bob 1 2', want finite numbers, in the digits 0 to 9 (3 columns",
    ),
    ("ann,1\n,2\n", "line 2: got an empty field in column 0, want"),
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
        (
            "ann,0.13\nbob,2.71\neve,1.11\n",
            "line 1: got '0.13', want one integer, or one word per node, and",
        ),
        ("ann,1.0\nbob,\neve,1.5\n", "line 3: got '1.5', want one integer, or one word per node, and no real"),
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
    with pytest.raises(ValueError, match="line 1: got 'x' in column 1, want finite numbers"):
        table(PATH, "ann,x\nbob,2\neve,3\n")
