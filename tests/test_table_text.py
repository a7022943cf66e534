"""The text of tables: lines, quotes, comments and encodings, and how what is wrong in it is named."""

import gzip
import re

import numpy as np
import pytest
import torch
from memory import little_memory
from people import PATH

import seegera_fast as sf
from seegera_fast.command.output import write_table
from seegera_fast.tables import edges as edges_module
from seegera_fast.tables import lines as lines_module
from seegera_fast.tables import text as text_module
from seegera_fast.tables.join import parts_of_graph
from seegera_fast.tables.reading import Reading

BAD_EDGES = [
    ("ann,bob\n,eve\n", "line 2: got an empty field in column 0, want the names of two nodes"),
    ("ann,bob,\nbob,eve,\n", "line 1: got an empty field in column 2, want the names of two nodes"),
    ("ann,bob,\nbob,eve,\n", "; a separator at the end of a line begins another column"),
    ("ann;bob;1,5\n", "separator=';', and decimals are written with a point"),
    ("ann;bob;1\nbob;eve;1,5\n", "line 2: got '1,5' in column 2, want the names of two nodes"),
    ("ann;bob;1\nbob;eve;1,5\n", "; decimals are written with a point, as in 1.5"),
    ("from,to,weight\na,b,2\nb,c,-1\n", "line 3: got '-1' in column 'weight', want a weight of 0 or more"),
    ("ann,knows,bob\n", "line 1: got 'bob' in column 2, want the names of two nodes"),
    ("ann,knows,bob\n", "; source=0 and target=2 if these are a node, a kind of edge, and a node"),
    ("sep=;\nann;bob\n", "line 1: got 'sep=;', want the names of two nodes"),
    ("sep=;\nann;bob\n", "leave out this line for Excel, separator= states it"),
    ("ann,bob\neve\n", "line 2: got 'eve', want the names of two nodes"),
    ("ann bob\n\n# x\na b c d\n", "line 4: got 'a b c d'"),
    ("source,target\nann,bob\nbob,eve,3\n", "line 3: got 'bob eve 3'"),
    ("ann,bob,x\n", "line 1: got 'x' in column 2, want"),
    ("ann,bob,1\nbob,eve,-1\n", "line 2: got '-1' in column 2, want"),
    ("ann,bob,1\nbob,eve,\n", "line 2: got an empty field in column 2, want"),
    ("0 1 2 3\n", "line 1: got '0 1 2 3'"),
    ("a,b;c\n", "line 1: got both commas and semicolons"),
    ('a,b\na,"b\nc,d\n', "line 2: got 'a,\"b', want"),
    ('a,b\na,"b\nc,d\n', "a quote is opened there, and not closed in the lines below"),
    ('a,"b\nc",d\n', "line 1: got 'd' in column 2, want"),
    ('a,"b\nc"\nd,e\nf\n', "line 4: got 'f', want"),
    ('"a,b\n"c,d\n', "line 1: got '\"a,b\\n\"c,d', want"),
    ('a,b"c"\n', "line 1"),
    ("0 1\n0,1,5\nx 1\n", "line 3: got 'x 1', want the names of two nodes (words or integers) and optionally a weight"),
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
    (
        "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n",
        "is a matrix in the format Matrix Market",
    ),
    (gzip.compress(b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 3\n"), "scipy.io.mmread"),
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
    with pytest.raises(ValueError, match=r"line 800001: got an empty field"):
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


@pytest.mark.parametrize("comments", ["", "%"])
@pytest.mark.parametrize(
    ("content", "nodes"),
    [
        ("#a,#b\n#c,#d\n", ["#a", "#b", "#c", "#d"]),
        ("#1,2\n3,4\n", ["#1", "2", "3", "4"]),
        ("1,2\n#3,4\n", ["#3", "1", "2", "4"]),
        ("1,2 #\n3,4\n", ["1", "2 #", "3", "4"]),
    ],
)
def test_a_letter_that_starts_no_comment_is_part_of_a_name(table, content, nodes, comments):
    assert table(content, comments=comments).nodes.tolist() == nodes
    with pytest.raises(ValueError, match="line 3") as raised:
        table(content + "x,y,z,w\n", comments=comments)
    assert str(raised.value).endswith("a line of comment starts with %" if comments else "as in the lines above)")


def test_comments_after_numbers(table):
    """In the first line, a letter right after a number is part of a name."""
    assert table("1#a,2#b\n3#c,1#a\n").nodes.tolist() == ["1#a", "2#b", "3#c"]
    assert table("0,1 # \xe9\n1,2\t#x\n \t# y\n0,2#z\n").edges().tolist() == [[0, 1], [0, 2], [1, 2]]
    assert table(b"0,1 # \xe9\n1,2\n").num_edges == 2
    with pytest.raises(ValueError, match="line 1: is not a text file in UTF-8"):
        table(b"0,1#\xe9\n1,2\n")


@pytest.mark.parametrize(
    ("features", "part"),
    [
        ("1\t0,5\t1,5\n2\t0,25\t2,5\n3\t1\t2\n", "line 1: got '0,5' in column 1, want finite numbers"),
        ("1\t5\n2\t0,25\n3\t1\n", "line 2: got '0,25' in column 1, want finite numbers"),
        ("id\tx\n1\t0,5\n2\t7\n3\t8\n", "line 2: got '0,5' in column 'x', want finite numbers"),
        ("1\t\t5\n2\t\t6\n3\t\t7\n", "want finite numbers, in the digits 0 to 9, and no empty fields"),
    ],
)
def test_decimal_commas_and_empty_fields_between_tabs_are_refused(table, features, part):
    with pytest.raises(ValueError, match=re.escape("features.csv")) as raised:
        table("1 2\n2 3\n", features)
    assert part in str(raised.value)


def test_commas_part_the_fields_of_a_file_of_numbers(table):
    assert table("10 5,20\n20 7,30\n").nodes.tolist() == ["10 5", "20", "20 7", "30"]
    # In part of the lines only, and beside blanks where the first line has none.
    for content in ("5 1\n1,7\n", "5, 1\n1\t7\n", "5\t1\n1 ,\t7\n"):
        assert table(content, weighted=True).nodes.tolist() == [1, 5, 7]
    # This may be an edge of weight 0.5, or one from 1 to "7 0.5", or a decimal comma.
    for content in ("5 1\n1,7 0.5\n", "5 1 1\n1 7,5 2\n", "5 1 # 2\n1 7,5 # 2\n"):
        with pytest.raises(ValueError, match=r"line 2: .*by blanks or by commas; separator=' ' keeps commas"):
            table(content, weighted=True)
    assert table("5 1\n1 7,5\n", separator=" ").nodes.tolist() == ["1", "5", "7,5"]
