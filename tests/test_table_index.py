"""The index of pandas that has no name: where it holds the names of the rows, and where it says nothing."""

import warnings

import pytest

import seegera_fast as sf
from seegera_fast import Graph

pandas = pytest.importorskip("pandas")
EDGES = {"source": [0, 1, 2], "target": [1, 2, 3]}
VALUES = pandas.DataFrame({"x": [1.5, 2.5, 3.5, 4.5]})
REVERSED = VALUES.sort_values("x", ascending=False)


def given(frame, kind, folder):
    """A data frame, or what else holds it with its index."""
    if kind == "series":
        return frame["x"]
    if kind == "arrow":
        return pytest.importorskip("pyarrow").Table.from_pandas(frame)
    if kind == "frame":
        return frame
    getattr(frame, f"to_{kind}")(folder / kind)
    return folder / kind


def features_of(edges, features, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Graph.from_table(edges, features, **options).features.to_dense().tolist()


@pytest.mark.parametrize("kind", ["frame", "series", "parquet", "feather", "arrow"])
def test_an_index_in_another_order_joins(tmp_path, kind):
    want = [[1.5], [2.5], [3.5], [4.5]]
    for frame in (VALUES, REVERSED, VALUES.iloc[::-1], VALUES.loc[[2, 0, 3, 1]], REVERSED.rename_axis("id")):
        assert features_of(EDGES, given(frame, kind, tmp_path)) == want
    words = {"source": ["A", "B"], "target": ["B", "C"]}
    assert features_of(words, given(VALUES[:3].set_axis(list("CBA")), kind, tmp_path)) == [[3.5], [2.5], [1.5]]
    with pytest.warns(UserWarning, match="2 names are not in .*: their features are 0"):
        graph = Graph.from_table(EDGES, given(REVERSED[REVERSED.x > 3], kind, tmp_path))
    assert graph.features.to_dense().tolist() == [[0], [0], [3.5], [4.5]]
    pairs = pandas.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1), ("b", 2)])
    with pytest.raises(ValueError, match=r"row 0: got \('a', 1\), want words or integers as names"):
        Graph.from_table(EDGES, given(VALUES.set_axis(pairs), kind, tmp_path))


def test_labels_with_an_index_in_another_order(tmp_path):
    labels = pandas.Series([0, 1, 1, 2], index=[3, 2, 1, 0])
    nodes = pandas.DataFrame({"x": [0.5, 1.5, 1.5, 2.5], "label": labels})
    for found in (labels, labels.to_frame(), given(labels.to_frame("y"), "parquet", tmp_path), nodes[["label"]]):
        assert Graph.from_table(EDGES, None, found).labels.tolist() == [2, 1, 1, 0]
    # Counted, labels are no names, and the table has no column for them.
    assert Graph.from_table(EDGES, None, labels.reset_index(drop=True)).labels.tolist() == [0, 1, 1, 2]
    both = pandas.DataFrame({"x": [0.5, 1.5, 1.5, 2.5], "label": [0, 1, 1, 2]}, index=[3, 2, 1, 0])
    graph = Graph.from_table(EDGES, both, both)
    assert graph.features.to_dense().flatten().tolist() == [2.5, 1.5, 1.5, 0.5]
    assert graph.labels.tolist() == [2, 1, 1, 0]
    assert graph.feature_names.tolist() == ["x"]


def test_a_column_of_names_beside_an_index():
    """What a filter or an order leaves as index says nothing beside a column that holds names."""
    edges = {"source": [5, 6], "target": [6, 7]}
    rows = {"who": [7, 5, 6], "age": [1.5, 2.5, 3.5]}
    for frame in (
        pandas.DataFrame(rows, index=[8, 3, 2]),
        pandas.DataFrame({"id": rows["who"], "age": rows["age"]}, index=list("xyz")),
        pandas.DataFrame(rows, index=pandas.date_range("2026-01-01", periods=3)),
    ):
        assert features_of(edges, frame) == [[2.5], [3.5], [1.5]]
    assert features_of(edges, pandas.DataFrame(rows, index=list("xyz")), node="who") == [[2.5], [3.5], [1.5]]
    filtered = pandas.DataFrame({"a": [5, 6], "b": [6, 7]}, index=[9, 4])
    assert Graph.from_table(filtered, source=0).nodes.tolist() == [5, 6, 7]


def test_an_index_beside_columns_that_are_no_names():
    words = {"source": ["A", "B"], "target": ["B", "C"]}
    two = pandas.DataFrame({"x": [1, 2, 3], "y": [4, 5, 6]}, index=list("CBA"))
    assert features_of(words, two) == [[3, 6], [2, 5], [1, 4]]
    for first in ([1.5, 1, 2, 3], [1, 1, 2, 3]):
        frame = pandas.DataFrame({"x": first, "y": [0, 1, 2, 3]}, index=[3, 2, 1, 0])
        assert features_of(EDGES, frame) == [[3, 3], [2, 2], [first[1], 1], [first[0], 0]]
    cities = pandas.DataFrame({"city": ["Bern", "Rome", "Oslo", "Bonn"], "y": [0, 1, 2, 3]}, index=[3, 2, 1, 0])
    assert features_of(EDGES, cities, categories=["city"])[0] == [3, 0, 1, 0, 0]
    integers = pandas.DataFrame({"x": [0, 1, 3, 2], "y": [0, 1, 2, 3]}, index=[3, 2, 1, 0])
    with pytest.warns(UserWarning, match=r"column 'x' is read as the names .*; rename_axis\('id'\) if it has"):
        Graph.from_table(EDGES, integers)


def test_names_by_what_says_so_need_no_warning(recwarn):
    pyarrow = pytest.importorskip("pyarrow")
    edges, ages = {"from": [0, 1], "to": [1, 2]}, {"age": [7, 8, 9]}
    indexed = pandas.DataFrame(ages, index=pandas.Index([2, 1, 0], name="x"))
    for features in (
        indexed,
        pyarrow.Table.from_pandas(indexed),
        {"id": [2, 1, 0], **ages},
        {"user_id": [2, 1, 0], **ages},
        {"userId": [2, 1, 0], **ages},
        {"index": [2, 1, 0], **ages},
        {"x": [0, 1, 2], **ages},
    ):
        assert Graph.from_table(edges, features).feature_names.tolist() == ["age"]
    assert Graph.from_table({"from": [5, 7], "to": [7, 9]}, {"x": [9, 5, 7], **ages}).nodes.tolist() == [5, 7, 9]
    assert not recwarn


def test_an_index_of_rows_that_are_stated_to_have_no_names():
    with pytest.warns(
        UserWarning, match=r"^features: got an index .*, and names=False, so that row i is node i; reset"
    ):
        graph = Graph.from_table(EDGES, REVERSED, names=False)
    assert graph.features.to_dense()[0].tolist() == [4.5]
    assert features_of(EDGES, VALUES, names=False)[0] == [1.5]


def test_matrices_refuse_an_index_in_another_order():
    adjacency = Graph.from_table(EDGES).adjacency.to_scipy()
    counts = pandas.Series([0, 1, 1, 0], index=[3, 2, 1, 0])
    said = r"^{0}: got an index with the numbers of the nodes in another order, want {0}\.sort_index\(\), or {0}\.reset"
    for name, call in (
        ("features", lambda: Graph(adjacency, REVERSED)),
        ("features", lambda: Graph(adjacency, REVERSED, nodes=list("abcd"))),
        ("labels", lambda: Graph(adjacency, None, counts)),
        ("features", lambda: Graph(adjacency).with_features(REVERSED)),
        ("features", lambda: sf.SeeGeraEstimator(epochs=1).fit(adjacency, features=REVERSED)),
    ):
        with pytest.raises(ValueError, match=said.format(name)):
            call()
    for frame in (REVERSED.reset_index(drop=True), VALUES.set_axis([2, 4, 6, 8]), VALUES.set_axis(list("dcba"))):
        assert Graph(adjacency, frame).features.shape == (4, 1)
    square = pandas.DataFrame(adjacency.toarray(), index=[3, 2, 1, 0], columns=[3, 2, 1, 0])
    assert Graph(square).num_edges == 3
