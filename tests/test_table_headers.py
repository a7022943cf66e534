"""Which line of a table is its header, and which columns are the ends, the names and the label."""

import shutil

import numpy as np
import pytest
from people import PATH

import seegera_fast as sf
from seegera_fast.command.main import main

NUMBERS = "0,1\n1,2\n2,3\n"
IDS = "1,2\n2,3\n3,4\n"


def links(graph):
    return [tuple(graph.nodes[list(pair)].tolist()) for pair in graph.edges().tolist()]


def features_of(graph):
    """The features of each node by the name of the node."""
    rows = graph.features.to_dense().tolist()
    return dict(zip(graph.nodes.tolist(), rows, strict=True))


# --- edges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "edges"),
    [
        ("u,v\nv,w\nw,u\n", [("u", "v"), ("u", "w"), ("v", "w")]),
        ("i j\nj k\nk i\n", [("i", "j"), ("i", "k"), ("j", "k")]),
        ("u,v,1.0\nv,w,1\n", [("u", "v"), ("v", "w")]),
        ("u,v,weight\na,b,1\n", [("a", "b")]),
        ("u,v\na,b\n", [("a", "b")]),
        ("source,target,2019,2020\na,b,1,2\n", [("a", "b")]),
        ("from,to,2020\na,b,3\n", [("a", "b")]),
        ("from,to,2020\n1,2,3\n", [(1, 2)]),
        ("A1,B1,1\n17,18,1\n18,19,1\n", [("17", "18"), ("18", "19"), ("A1", "B1")]),
        (",0,1\n0,5,6\n1,6,7\n", [(5, 6), (6, 7)]),
        ("a,b,1\nb,c,1\n", [("a", "b"), ("b", "c")]),
        ("source,target,\na,b,\n", [("a", "b")]),
        ("a,b\n0,1\n1,c\n", [("0", "1"), ("1", "c"), ("a", "b")]),
        ("0,1\na,b\n0,a\n", [("0", "1"), ("0", "a"), ("a", "b")]),
    ],
)
def test_whether_the_first_line_is_an_edge(table, content, edges):
    assert links(table(content)) == edges


@pytest.mark.parametrize(
    ("content", "edges", "message"),
    [
        (
            "source,target\nsource,b\nb,target\n",
            3,
            "got 'source target', which is read as an edge, because other lines",
        ),
        (
            "u,v\nv,w\nw,x\n",
            2,
            "got 'u v', which is read as names of columns, though other lines have these.*header=False",
        ),
        ("u,v,3\na,b,1\n", 1, "got 'u v 3', which is read as names of columns, though there is a number in it"),
        ("0,1\na,b\nb,c\n", 2, "got '0 1', which is read as names of columns, because no other line has integers"),
    ],
)
def test_a_first_line_that_may_be_either_is_said(write, content, edges, message):
    with pytest.warns(UserWarning, match=f"e.csv, line 1: {message}"):
        graph = sf.Graph.from_table(write("e.csv", content), weighted=False)
    assert graph.num_edges == edges


def test_names_that_come_again_far_below_are_said(write):
    """The first block of lines doesn't have them."""
    lines = "".join(f"n{k},n{k + 1}\n" for k in range(500_000))
    with pytest.warns(UserWarning, match="got 'u v', which is read as names of columns, though other lines"):
        sf.Graph.from_table(write("e.csv", f"u,v\n{lines}n0,u\nn0,v\n"))


@pytest.mark.parametrize(
    "content",
    [
        "id,from,to\n1,a,b\n2,b,c\n",
        "EDGE_ID,From,To\n1,a,b\n2,b,c\n",
        "day,citing,cited\n1,a,b\n2,b,c\n",
        "user,from,to\n1,a,b\n2,b,c\n",
        ",source,target\n0,a,b\n1,b,c\n",
        ",x,y\n0,a,b\n1,b,c\n",
        "Unnamed: 0,x,y\n0,a,b\n1,b,c\n",
        ",x,y,weight\n0,a,b,1\n1,b,c,1\n",
        "from,to,source,target\na,b,1,2\nb,c,3,4\n",
    ],
)
def test_columns_with_names_of_ends_are_the_ends(table, content):
    assert links(table(content)) == [("a", "b"), ("b", "c")]


@pytest.mark.parametrize(
    ("header", "ends"),
    [
        ("person_a,person_b,from,to", [0, 1]),
        ("id,kind,from,to", [2, 3]),
        ("id,source,target,source_name,target_name", [1, 2]),
        ("user_id,item,source,target", [0, 1]),
    ],
)
def test_ends_that_may_be_others_are_said(write, header, ends):
    names = header.split(",")
    columns = {name: [f"{name}{k}" for k in range(2)] for name in names}
    found = " and ".join(repr(names[end]) for end in ends)
    with pytest.warns(UserWarning, match=f"edges: got the columns .*, of which {found} are read as the ends"):
        graph = sf.Graph.from_table(columns)
    assert {name for pair in links(graph) for name in pair} == {f"{names[end]}{k}" for end in ends for k in range(2)}


@pytest.mark.parametrize(
    ("header", "doubtful"),
    [
        ("tx,sender,receiver,amount", True),
        ("order,customer,product,qty", True),
        ("date,customer,product,qty", True),
        ("date,customer,qty", True),
        (",tx,sender,receiver", True),
        ("sender,receiver,amount,time", False),
        ("user,movie,rating,session", False),
        (",sender,receiver", False),
        ("sender,receiver", False),
    ],
)
def test_columns_whose_names_are_not_those_of_ends(write, recwarn, header, doubtful):
    """The first two are read, and a third that may be one of the ends is not passed over without a word."""
    width = header.count(",") + 1
    content = "\n".join([header, *(",".join(str(10 * k + place) for place in range(width)) for k in (1, 2, 3))])
    path = write("e.csv", content)
    assert sf.Graph.from_table(path).num_edges == 3
    one, two = header.removeprefix(",").split(",")[:2]
    said = [str(warning.message) for warning in recwarn]
    assert any(f"of which '{one}' and '{two}' are read as the ends" in message for message in said) == doubtful
    recwarn.clear()
    sf.Graph.from_table(path, source=one, target=two)
    assert not recwarn.list
    assert not doubtful or "source= and target= state others" in said[0]


def test_columns_that_are_stated_beside_the_ends(table):
    content = "sender,receiver,euros,booked\n1,2,5,7\n2,3,5,8\n"
    assert table(content, weight="euros", time=3).nodes.tolist() == [1, 2, 3]


def test_names_that_two_kinds_of_nodes_share_are_said(write, table):
    said = r"e.csv: 2 names are in both of the columns 'user_id' and 'MovieID', such as '2', .* such as 'u1' and 'm1'$"
    with pytest.warns(UserWarning, match=said):
        graph = sf.Graph.from_table(write("e.csv", "user_id,MovieID,rating\n1,2,5\n2,3,4\n3,4,4\n"))
    assert graph.num_nodes == 4
    assert table("user_id,movie_id\nu1,m1\nu2,m1\n", header=True).num_nodes == 3
    assert table("user_id,friend_id\n1,2\n2,3\n").num_nodes == 3


def test_a_node_of_an_odd_cycle_is_named():
    """As its user names it; most often both sides were numbered alike."""
    for nodes, name in ((["ann", "bob", "eve"], "'ann'"), ([7, 8, 9], "7"), (None, "0")):
        graph = sf.Graph(1 - np.eye(3), nodes=nodes)
        said = f"not bipartite: node {name} is in a part with an odd cycle.* different names, such as 'u1' and 'm1'$"
        with pytest.raises(ValueError, match=said):
            sf.tasks.split_links(graph, sides="auto")


def test_a_header_of_usual_names_above_few_edges_is_said(write, table):
    with pytest.warns(UserWarning, match=r"line 1: got 'customer product', which is read as an edge.*header=True"):
        sf.Graph.from_table(write("e.csv", "customer,product\nann,tea\nbob,milk\neve,rice\n"))
    assert table("ann,bob\neve,zoe\nmax,kim\n").num_nodes == 6


def test_ends_that_are_stated_are_not_doubtful(table):
    content = "person_a,person_b,from,to\na,b,1,2\nb,c,3,4\n"
    assert links(table(content, source="person_a")) == [("a", "b"), ("b", "c")]
    with pytest.raises(ValueError, match=r"weight: got 'w', which .*edges.csv has twice, want its number from 0"):
        table("a,b,w,w\nx,y,1,2\n", weight="w")
    assert table("a,b,w,w\nx,y,1,2\n", weight=3, header=True).weights.tolist() == [2, 2]


# --- features and labels: headers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [["y", "n", "y"], ["type", "x", "y"], ["target", "control", "target"]])
def test_a_name_of_the_edges_is_no_header(table, labels):
    rows = "".join(f"{name},{label}\n" for name, label in zip(["ann", "bob", "eve"], labels, strict=True))
    for header in ("", "name,label\n", "who,group\n"):
        graph = table(PATH, None, header + rows)
        assert [graph.classes[label] for label in graph.labels.tolist()] == labels


@pytest.mark.parametrize(
    ("edges", "header"),
    [
        (IDS, "id,2019,2020"),
        (IDS, "who,2019,2020"),
        (IDS, "who,age,2020"),
        (IDS, "id,0,1"),
        (IDS, ",0,1"),
        ("a,b\nb,c\n", "id,0,1"),
        ("a,b\nb,c\n", ",0,1"),
        ("a,b\nb,c\n", ",2019,2020"),
    ],
)
def test_names_of_columns_may_be_numbers(table, edges, header):
    names = ["1", "2", "3", "4"] if edges == IDS else ["a", "b", "c"]
    graph = table(edges, header + "\n" + "".join(f"{name},.5,{k}\n" for k, name in enumerate(names)))
    assert [str(name) for name in graph.nodes] == names
    assert graph.feature_names.tolist() == header.split(",")[1:]
    graph = table(edges, None, "id,2020\n" + "".join(f"{name},{k % 2}\n" for k, name in enumerate(names)))
    assert graph.labels.tolist() == [k % 2 for k in range(len(names))]


@pytest.mark.parametrize(
    ("edges", "row"), [(PATH, "id,.5,1"), (PATH, "id,2,2"), (PATH, "max,2019,2020"), (IDS, "max,.5,2")]
)
def test_a_row_of_a_node_without_edges_is_no_header(write, edges, row):
    below = "ann,1,2\nbob,3,4\neve,5,6\n" if edges == PATH else "1,1,2\n2,3,4\n3,5,6\n4,5,6\n"
    with pytest.warns(UserWarning, match=f"line 1: 1 name is not in .*, such as '{row.partition(',')[0]}'"):
        graph = sf.Graph.from_table(write("e.csv", edges), write("f.csv", f"{row}\n{below}"))
    assert graph.feature_names is None
    assert features_of(graph)[row.partition(",")[0]] == [float(number) for number in row.split(",")[1:]]


def test_a_label_that_comes_again_is_no_name_of_a_column(write):
    edges = write("e.csv", PATH)
    with pytest.warns(UserWarning, match="line 1: 1 name is not in .*, such as 'max'"):
        graph = sf.Graph.from_table(edges, None, write("l.csv", "max,y\nann,n\nbob,y\neve,n\n"))
    assert dict(zip(graph.nodes.tolist(), graph.labels.tolist(), strict=True))["max"] == 1
    with pytest.warns(UserWarning, match="got 'id y', which is read as names of columns, though its words come again"):
        graph = sf.Graph.from_table(edges, None, write("l.csv", "id,y\nann,n\nbob,y\neve,n\n"))
    assert graph.nodes.tolist() == ["ann", "bob", "eve"]


@pytest.mark.parametrize(
    ("header", "message"),
    [("0,1", "because '0' is not among the edges"), (",2019", "because its first field is empty")],
)
def test_a_header_of_numbers_that_may_be_a_row_is_said(write, header, message):
    names = ["ann", "bob", "eve"] if header[0] == "0" else "123"
    features = write("f.csv", header + "\n" + "".join(f"{name},{k}\n" for k, name in enumerate(names)))
    edges = write("e.csv", PATH if header[0] == "0" else "1,2\n2,3\n")
    with pytest.warns(UserWarning, match=f"f.csv, line 1: got .*, which is read as names of columns, {message}"):
        graph = sf.Graph.from_table(edges, features)
    assert graph.features.to_dense().flatten().tolist() == [0, 1, 2]


def test_options_of_one_table_say_nothing_of_the_other(table):
    features, labels = "name,age,city\nann,1,x\nbob,2,y\neve,3,x\n", "ann,r\nbob,s\neve,r\n"
    assert table(PATH, features, labels, categories=["city"]).labels.tolist() == [0, 1, 0]
    graph = table(PATH, "ann,1\nbob,2\neve,3\n", "name,class\nann,r\nbob,s\neve,r\n", label="class")
    assert graph.features.to_dense().flatten().tolist() == [1, 2, 3]
    # The column of the names is one of both.
    with pytest.raises(ValueError, match=r"node: got 'name', want one of ann, r \(.*labels.csv\)"):
        table(PATH, features, labels, node="name", categories=["city"])
    with pytest.raises(ValueError, match=r"labels.csv: got the column 'class' of a table without a header"):
        table(PATH, None, "ann,r\nbob,class\n", label="class", header=False)


def test_an_index_without_a_name_is_left_out(table):
    """As pandas writes it before a column of names."""
    graph = table(
        IDS, ",id,age\n0,4,40\n1,3,30\n2,2,20\n3,1,10\n", "Unnamed: 0,id,label\n0,4,1\n1,3,0\n2,2,-1\n3,1,-1\n"
    )
    assert features_of(graph) == {1: [10], 2: [20], 3: [30], 4: [40]}
    assert graph.labels.tolist() == [-1, -1, 0, 1]


@pytest.mark.filterwarnings("ignore:.* not in ")
def test_an_index_beside_stated_names_is_left_out(write):
    rows = write("f.csv", ",age,who\n0,40,4\n1,30,3\n2,20,2\n3,10,1\n")
    graph = sf.Graph.from_table(write("e.csv", IDS), rows, node="who")
    assert graph.feature_names.tolist() == ["age"]
    assert features_of(graph) == {1: [10], 2: [20], 3: [30], 4: [40]}


@pytest.mark.parametrize("options", [{}, {"header": True}])
def test_two_columns_of_one_name_are_refused(table, options):
    with pytest.raises(ValueError, match=r"features.csv: got the column 'x' twice, want different names"):
        table(PATH, "name,x,x\nann,1,2\nbob,2,3\neve,3,4\n", **options)


# --- features and labels: columns ------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", " "])
@pytest.mark.parametrize("options", [{}, {"label": 1}, {"node": 0}])
def test_labels_beside_names_are_those_of_the_names(table, separator, options):
    labels = "3,1\n0,0\n1,1\n2,0\n".replace(",", separator)
    assert table(NUMBERS, None, labels, **options).labels.tolist() == [0, 1, 0, 1]
    array = np.array([[3, "b"], [0, "a"], [1, "b"], [2, "a"]], object)
    assert sf.Graph.from_table(np.array([[0, 1], [1, 2], [2, 3]]), None, array).labels.tolist() == [0, 1, 0, 1]


def test_names_of_labels_alone_are_refused_beside_rows_without(write):
    with pytest.raises(ValueError, match=r"features: got rows without names, and names in .*l.csv"):
        sf.Graph.from_table(write("e.csv", NUMBERS), np.eye(4), write("l.csv", "3,1\n0,0\n1,1\n2,0\n"), label=1)


PEOPLE = "name,age,class\nann,31,1\nbob,45,0\neve,28,1\n"


@pytest.mark.parametrize("label", [None, 2, "class"])
@pytest.mark.parametrize("copied", [False, True])
def test_the_label_is_no_feature_of_its_table(write, label, copied):
    people = write("people.csv", PEOPLE)
    other = people
    if copied:
        other = people.parent / "there" / ".." / "people.csv"
        other.parent.parent.mkdir()
    graph = sf.Graph.from_table(write("e.csv", PATH), people, other, label=label)
    assert graph.feature_names.tolist() == ["age"]
    assert graph.labels.tolist() == [1, 0, 1]
    # Without labels, its name or number says what a model was trained without.
    graph = sf.Graph.from_table(write("e.csv", PATH), people, label=label)
    assert graph.feature_names.tolist() == ["age"] + ["class"] * (label is None)


@pytest.mark.parametrize("label", [None, "label", 2])
def test_the_label_is_no_feature_of_its_data_frame(label):
    rows = {"name": ["ann", "bob", "eve"], "age": [1, 2, 3], "label": ["x", "y", "x"]}
    edges = {"a": ["ann", "bob"], "b": ["bob", "eve"]}
    graph = sf.Graph.from_table(edges, rows, rows, label=label)
    assert graph.feature_names.tolist() == ["age"]
    assert graph.classes == ("x", "y")


def test_the_label_is_no_feature_of_a_table_of_numbers(table, write):
    rows = write("f.csv", ".5,7,1\n.5,8,0\n.1,9,1\n.2,6,0\n")
    for options in ({}, {"names": False}):
        graph = sf.Graph.from_table(write("e.csv", NUMBERS), rows, rows, label=2, **options)
        assert graph.features.to_dense()[:, 1].tolist() == [7, 8, 9, 6]
        assert (graph.num_features, graph.labels.tolist()) == (2, [1, 0, 1, 0])
    named = write("f.csv", "3,7,1\n1,8,0\n2,9,1\n4,6,0\n")
    graph = sf.Graph.from_table(write("e.csv", IDS), named, named, label=2)
    assert features_of(graph) == {1: [8], 2: [9], 3: [7], 4: [6]}
    assert graph.labels.tolist() == [0, 1, 1, 0]


def test_a_feature_with_the_name_of_the_label_is_said(write):
    edges, people = write("e.csv", PATH), write("people.csv", PEOPLE)
    other = write("l.csv", "name,class\nann,x\nbob,y\neve,x\n")
    for label in (None, "class", 1):
        with pytest.warns(UserWarning, match=r"people.csv: the column 'class' is read as a feature, and .*l.csv has"):
            graph = sf.Graph.from_table(edges, people, other, label=label)
        assert graph.feature_names.tolist() == ["age", "class"]
    shutil.copy(people, people.with_name("copy.csv"))
    with pytest.warns(UserWarning, match="the column 'class' is read as a feature"):
        sf.Graph.from_table(edges, people, people.with_name("copy.csv"))


def test_categories_that_are_numbers_in_a_table_of_numbers(table):
    graph = table(NUMBERS, ".5,7\n.5,8\n.1,7\n.2,7\n", categories=[1])
    assert graph.features.to_dense()[:, 1:].tolist() == [[1, 0], [0, 1], [1, 0], [1, 0]]


def test_labels_with_names_beside_features_of_numbers(write):
    """Features have the names of the labels where their first column looks like them; else they are refused."""
    edges, labels = write("e.csv", NUMBERS), write("l.csv", "3,1\n0,0\n1,1\n2,0\n")
    graph = sf.Graph.from_table(edges, write("f.csv", "3,.3\n1,.1\n0,0\n2,.2\n"), labels, label=1)
    assert graph.features.to_dense().flatten().tolist() == pytest.approx([0, 0.1, 0.2, 0.3])
    assert graph.labels.tolist() == [0, 1, 0, 1]
    for features in (".5,1.5\n.25,2\n3,4\n4,1\n", "1,0\n0,1\n1,1\n0,0\n"):
        with pytest.raises(
            ValueError, match=r"f\.csv: got rows whose first column does not look like names, and names in"
        ):
            sf.Graph.from_table(edges, write("f.csv", features), labels, label=1)


CITIES = "name,city,age\nann,x,1\nbob,y,2\neve,x,3\n"


@pytest.mark.parametrize(
    ("features", "labels", "options", "message"),
    [
        (CITIES, None, {"categories": ["city", "city"]}, r"categories: got 'city' twice \(.*features.csv\)"),
        (CITIES, None, {"categories": ["city", 1]}, r"categories: got 1 twice"),
        (CITIES, None, {"categories": ["name", "city"]}, r"categories: got 'name', the column of .* as the names"),
        ("1,5\n2,6\n", None, {"categories": [0]}, r"categories: got 0, the column of .*names=False that there is none"),
        (None, "1,0\n0,1\n", {"label": 0}, r"label: got 0, the column of .*labels.csv that is read as the names"),
        (None, "label,id\nx,0\ny,1\n", {"label": "label"}, r"label: got 'label', .* node= says which one"),
    ],
)
def test_wrong_columns(table, features, labels, options, message):
    with pytest.raises(ValueError, match=message):
        table(NUMBERS if features != CITIES else PATH, features, labels, **options)


def test_a_category_that_is_the_label_is_refused(write, capsys):
    rows, edges = write("f.csv", CITIES), write("e.csv", PATH)
    with pytest.raises(ValueError, match="categories: got 'city', which is the label, and so no feature"):
        sf.Graph.from_table(edges, rows, rows, label=1, categories=["city"])
    command = ["import", edges, "--features", rows, "--categories", "city,city", "--out", edges.with_name("out")]
    assert main([str(text) for text in command]) == 2
    assert "categories: got 'city' twice" in capsys.readouterr().err
    assert not edges.with_name("out").exists()
