"""Hostile files of users and of data sets: refused by file and reason, without memory for what they only declare."""

import os
import pickle
import re
import warnings
import zipfile

import numpy as np
import pytest
import scipy.sparse
import torch
from memory import little_memory
from tiny_data import load_tiny, tiny_members, tiny_parts, write_npz, write_planetoid

import seegera_fast as sf

EDGES = "0 1\n1 2\n2 3\n"
MOST = 2**31 - 1

read_graph = sf.Graph.from_table


@pytest.fixture
def edges(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text(EDGES)
    return path


def refused(read, path, *parts):
    """The file is refused by an error that names it, without much memory; the message holds all the parts."""
    with little_memory(), pytest.raises(ValueError, match=re.escape(str(path))) as raised:
        read()
    message = str(raised.value)
    for part in parts:
        assert part in message
    assert len(message) < 1000
    return message


def adjacency(form="csr", n=4):
    return scipy.sparse.csr_matrix(np.eye(n, k=1) + np.eye(n, k=-1)).asformat(form)


def parts_of(matrix):
    """The members of an archive of SciPy."""
    names = ("row", "col") if matrix.format == "coo" else ("indices", "indptr")
    return {
        "format": np.array(matrix.format.encode()),
        "shape": np.array(matrix.shape),
        "data": matrix.data,
        **{name: getattr(matrix, name) for name in names},
    }


# --- .npy and .npz ---------------------------------------------------------------------------------------------------


def npy(header, content=b"", version=1):
    """The bytes of an array file with any header."""
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + content


def header(shape, descr="'<f8'", order="False"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


ARRAYS = {
    "nothing": (b"", "header"),
    "10^12 numbers": (npy(header("(1000000, 1000000)"), bytes(64)), "(1000000, 1000000)"),
    "10^30 numbers": (npy(header("(1000000000000000, 1000000000000000)"), bytes(64)), "holds 64 bytes"),
    "10^30 and none": (npy(header(f"(0, {10**30})")), "dimension"),
    "a size of 5,000 digits": (npy(header(f"({'9' * 5000}, 1)")), "header"),
    "negative sizes": (npy(header("(-4, -2)"), bytes(64)), "(-4, -2)"),
    "one negative size": (npy(header("(-4, 2)"), bytes(64)), "(-4, 2)"),
    "too few values": (npy(header("(4, 2)"), bytes(56)), "holds 56 bytes"),
    "too many values": (npy(header("(4, 2)"), bytes(72)), "holds 72 bytes"),
    "a list as shape": (npy(header("[4, 2]"), bytes(64)), "header"),
    "no order": (npy(header("(4, 2)", order="3"), bytes(64)), "header"),
    "objects": (npy(header("(4, 2)", "'|O'"), bytes(64)), "object"),
    "arrays of 10^8 numbers": (npy(header("(4, 2)", "('<f8', (100000000,))"), bytes(64)), "numbers"),
    "texts of 10^8 letters": (npy(header("(4, 2)", "'<U100000000'"), bytes(64)), "<U100000000"),
    "an unknown type": (npy(header("(4, 2)", "'<f3'"), bytes(64)), "header"),
    "an unclosed bracket": (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2"), "header"),
    "5,000 brackets": (npy("(" * 5000), "header"),
    "5,000 minus signs": (npy("-" * 5000 + "1"), "header"),
    "zeros": (npy("\0" * 100), "header"),
    "no dictionary": (npy("[]"), "header"),
    "a header of 4 GB": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + header("(4, 2)").encode(), "header"),
    "a header of 20 kB": (npy(header("(4, 2)") + " " * 20000, bytes(64)), "header"),
    "version 9": (npy(header("(4, 2)"), bytes(64), version=9), "header"),
    "magic alone": (b"\x93NUMPY", "header"),
}
hostile_arrays = pytest.mark.parametrize(("content", "part"), ARRAYS.values(), ids=ARRAYS)


@hostile_arrays
def test_array_files(edges, tmp_path, content, part):
    for name in ("features.npy", "labels.npy"):
        path = tmp_path / name
        path.write_bytes(content)
        files = (edges, path) if name == "features.npy" else (edges, None, path)
        message = refused(lambda files=files: read_graph(*files), path, "NumPy array file")
        assert part in message or "want integers" in message


def write_archive(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def bytes_of(array):
    array = np.asarray(array)
    kind = np.lib.format.dtype_to_descr(array.dtype)
    return npy(header(array.shape, repr(kind)), array.tobytes())


@hostile_arrays
@pytest.mark.parametrize("member", ["data", "indices", "indptr", "shape"])
def test_archives_with_such_members(tmp_path, member, content, part):
    members = {name: bytes_of(array) for name, array in parts_of(adjacency()).items()}
    path = tmp_path / "adjacency.npz"
    write_archive(path, {**members, member: content})
    assert part in refused(lambda: read_graph(path), path, member)


@hostile_arrays
@pytest.mark.parametrize("member", ["adj_indptr", "attr_data", "labels"])
def test_data_sets_with_such_members(tmp_path, member, content, part):
    path = write_npz(tmp_path)
    write_archive(path, {**{name: bytes_of(array) for name, array in tiny_members().items()}, member: content})
    assert part in refused(lambda: load_tiny(tmp_path, "photo"), path, member)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("bad", ["negative", "beyond", "float", "short", "2 dimensions"])
def test_archives_with_wrong_indices(edges, tmp_path, form, bad):
    members = parts_of(adjacency(form))
    name = "col" if form == "coo" else "indices"
    values = members[name].copy()
    if bad in ("negative", "beyond"):
        values[1] = -1 if bad == "negative" else 4
    members[name] = {"float": values.astype(float), "short": values[:-1], "2 dimensions": values[None]}.get(bad, values)
    path = tmp_path / "matrix.npz"
    np.savez(path, **members)
    refused(lambda: read_graph(path), path, ": got ")
    refused(lambda: read_graph(edges, path), path, ": got ")


@pytest.mark.parametrize(
    ("form", "shape"),
    [
        ("coo", (MOST, MOST)),
        ("coo", (4, MOST)),
        ("coo", (2**31, 2**31)),
        ("coo", (10**12, 10**12)),
        ("coo", (-4, -4)),
        ("csr", (4, MOST)),
        ("csc", (MOST, 4)),
        ("csr", (MOST, MOST)),
    ],
)
def test_archives_of_few_bytes_that_declare_many_rows_or_columns(edges, tmp_path, form, shape):
    path = tmp_path / "matrix.npz"
    np.savez_compressed(path, **{**parts_of(adjacency(form)), "shape": np.array(shape)})
    refused(lambda: read_graph(path), path, ": got ")
    refused(lambda: read_graph(edges, path), path, ": got ")


def test_nodes_without_edges_need_the_format_csr(tmp_path):
    """Its row pointers hold the number of nodes; a file in coordinates holds only the edges."""
    n = 2_100_000
    matrix = scipy.sparse.coo_matrix((np.ones(2), ([0, 1], [1, 0])), shape=(n, n))
    scipy.sparse.save_npz(tmp_path / "coo.npz", matrix)
    refused(lambda: read_graph(tmp_path / "coo.npz"), tmp_path / "coo.npz", "format csr")
    scipy.sparse.save_npz(tmp_path / "csr.npz", matrix.tocsr(), compressed=False)
    assert read_graph(tmp_path / "csr.npz").num_nodes == n


def test_data_sets_of_few_bytes_that_declare_many_columns(tmp_path):
    path = write_npz(tmp_path, {"attr_shape": np.array([4, MOST])})
    refused(lambda: load_tiny(tmp_path, "photo"), path, "4 x 2147483647")
    matrix = tiny_parts()["allx"]
    matrix._shape = (5, MOST)
    folder = write_planetoid(tmp_path, {"allx": matrix})
    refused(lambda: load_tiny(tmp_path), folder / "ind.cora.allx", "5 x 2147483647")


def inflate(path, name, size):
    """Adds a member of many zeros to an archive, which takes 1/1000 of them."""
    content = npy(header(f"({size // 8},)"))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open(f"{name}.npy", "w") as file:
        file.write(content)
        for _ in range(size // 2**20):
            file.write(bytes(2**20))


def test_archives_that_inflate_to_a_thousandfold(tmp_path):
    path = tmp_path / "adjacency.npz"
    np.savez(path, **{key: value for key, value in parts_of(adjacency()).items() if key != "data"})
    inflate(path, "data", 80 * 2**20)
    refused(lambda: read_graph(path), path, "declares 8388", "in a file of")
    path = write_npz(tmp_path, {"attr_data": None})
    inflate(path, "attr_data", 80 * 2**20)
    refused(lambda: load_tiny(tmp_path, "photo"), path, "declares 8388", "in a file of")


@pytest.mark.parametrize("declared", [60 * 2**20, 2**31])
def test_archives_whose_directory_declares_more_than_a_member_holds(tmp_path, declared):
    path = tmp_path / "adjacency.npz"
    members = {name: bytes_of(array) for name, array in parts_of(adjacency()).items()}
    members["data"] = npy(header(f"({(declared - 128) // 8},)").ljust(118), bytes(48))
    write_archive(path, members)
    content = path.read_bytes()
    old = len(members["data"]).to_bytes(4, "little")
    at = content.rfind(b"data.npy") - 46 + 24  # the uncompressed size in the archive's directory
    assert content[at : at + 4] == old
    path.write_bytes(content[:at] + declared.to_bytes(4, "little") + content[at + 4 :])
    refused(lambda: read_graph(path), path, "adjacency.npz")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_that_numpy_does_not_write(tmp_path, compression):
    """They are decompressed without a limit."""
    path = tmp_path / "adjacency.npz"
    write_archive(path, {name: bytes_of(array) for name, array in parts_of(adjacency()).items()}, compression)
    refused(lambda: read_graph(path), path, "compression")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "|b1", "<i8", "|u1", ">u2"])
def test_arrays_of_all_types_are_read(edges, tmp_path, dtype, order):
    values = np.asarray(np.arange(8).reshape(4, 2) % 3, dtype, order=order)
    np.save(tmp_path / "features.npy", values)
    graph = read_graph(edges, tmp_path / "features.npy")
    assert torch.equal(graph.features.to_dense(), torch.tensor(values.astype(np.float32)))


# --- pickles ---------------------------------------------------------------------------------------------------------


def test_one_list_named_by_many_nodes(tmp_path):
    """It would stand for far more neighbours than the file holds."""
    shared = [0, 1, 3, 4] * 1000
    folder = write_planetoid(tmp_path, {"graph": dict.fromkeys(range(8), shared)})
    refused(lambda: load_tiny(tmp_path), folder / "ind.cora.graph", "32000 neighbours")


@pytest.mark.parametrize(
    "graph",
    [
        pickle.dumps({0: [1 << 100_000]}, 2),
        b"\x80\x02}K\x00" + b"]" * 100_000 + b"a" * 99_999 + b"s.",
        b"\x80\x04}K\x00\x8e\xff\xff\xff\xff\xff\x00\x00\x00abcs.",
    ],
    ids=["a number of 30,000 digits", "lists in lists", "bytes without end"],
)
def test_pickles_of_what_cannot_be_shown(tmp_path, graph):
    folder = write_planetoid(tmp_path, {"graph": graph})
    refused(lambda: load_tiny(tmp_path), folder / "ind.cora.graph")


def test_shape_of_a_number_that_cannot_be_shown(tmp_path):
    matrix = tiny_parts()["allx"]
    matrix._shape = (5, 1 << 100_000)
    folder = write_planetoid(tmp_path, {"allx": matrix})
    refused(lambda: load_tiny(tmp_path), folder / "ind.cora.allx", "large tuple")


@pytest.mark.parametrize("word", ["1_0", "+6", "-6", "6.0", "٦", "6 5", "9" * 5000, "\0"])
def test_test_index_in_other_writings(tmp_path, word):
    folder = write_planetoid(tmp_path, {"test.index": f"5\n{word}\n".encode()})
    refused(lambda: load_tiny(tmp_path), folder / "ind.cora.test.index", "line 2", "want one node number from 5 to 7")


# --- text ------------------------------------------------------------------------------------------------------------

EDGE_FILES = [
    ("0 1\n1_0 2\n", "line 2: got '1_0 2'"),
    ("0 1\n2 1_0\n", "line 2: got '2 1_0'"),
    ("0 1\n# note\n\n١ 2\n", "line 4: got '١ 2'"),
    ("０ 1\n", "line 1"),
    ("0 1 1_0\n", "line 1: got '1_0' in column 2"),
    ("0 1 ١\n", "line 1"),
    ("+1 2\n", "line 1: got '+1 2'"),
    ("0x1 2\n", "line 1"),
    ("1e0 2\n", "line 1"),
    ("-0 2\n", "line 1"),
    ("0 ²\n", "line 1"),
    ("0 1 1e400\n", "line 1"),
    ("0 1 infinity\n", "line 1"),
    ("0 1 NaN\n", "line 1"),
    ("0 1 -1\n", "line 1"),
    ("0 9223372036854775808\n", "line 1"),
    (f"0 1\n0 {'9' * 5000}\n", "line 2"),
    ("0 1\x00\n", "line 1"),
    ("\x00" * 1000, "line 1"),
    ("0 1\n\ufeff1 2\n", "line 2"),
    ("0 1\r1_0 2\r", "line 2"),
    ("0,,1\n", "line 1: got '0,,1'"),
    (",0,1\n", "an empty field in column 0"),
    ("0,1\n1,2,\n", "line 2"),
    ("0,1\n1,2, # weight\n", "line 2"),
    ("0, ,1 2\n", "an empty field in column 1"),
    ("0 " * 10**6, "line 1: got '0 0 0"),
    ("0,1\n" * 30000 + "1_0,2\n", "line 30001"),
    ("0 1\n" * 30000 + "0 x\n", "line 30001"),
    ("0 1\n" * 30000 + "é 1\n", "line 30001"),
    ("", "holds no edges"),
    (" \n\t\n\n", "holds no edges"),
    ("# nothing\n", "holds no edges"),
    ("\ufeff", "holds no edges"),
    ("0 99999999\n", "line 1: got node 99999999 in a file of 1 edges"),
    ("0 2000001\n1 2\n", "line 1: got node 2000001 in a file of 2 edges"),
    (b"0 1\n\xff 2\n", "line 2: is not a text file"),
    ("0 1\n".encode("utf-16"), "line 1: is not a text file"),
]


@pytest.mark.parametrize(("content", "part"), EDGE_FILES, ids=[part for _, part in EDGE_FILES])
def test_edge_lists(tmp_path, content, part):
    path = tmp_path / "edges.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    refused(lambda: read_graph(path, names=False), path, part, ", want ")


@pytest.mark.parametrize(
    "word", ["1_0", "nan", "NAN", "inf", "-inf", "infinity", "1e400", "١", "1٫5", "0x1", "1,,2", "", "\0", "1\x00", "_"]
)
def test_features_as_text(edges, tmp_path, word):
    path = tmp_path / "features.csv"
    path.write_text(f"# names\n1,2,3\n\n4,{word},5\n6,7,8\n9,9,9\n")
    refused(lambda: read_graph(edges, path), path, "line 4", ", want ")


@pytest.mark.parametrize("word", ["1_0", "nan", "1.5", "1e0", "0x1", "١", "1 2", "1,", "9223372036854775808", "\0"])
def test_labels_as_text(edges, tmp_path, word):
    path = tmp_path / "labels.txt"
    path.write_text(f"1\n-1\n{word}\n3\n")
    refused(lambda: read_graph(edges, None, path), path, "line 3", "want one integer")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n", "\ufeff".encode()])
@pytest.mark.parametrize("name", ["f.txt", "f.npy", "f.npz"])
def test_empty_files(edges, tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    refused(lambda: read_graph(edges, path), path)
    if name != "f.npz":
        refused(lambda: read_graph(edges, None, path), path)
    refused(lambda: read_graph(path), path)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_arrays_without_rows_or_columns(edges, tmp_path, shape):
    np.save(tmp_path / "f.npy", np.ones(shape))
    refused(lambda: read_graph(edges, tmp_path / "f.npy"), tmp_path / "f.npy")
    np.save(tmp_path / "l.npy", np.ones(shape[0] and 3, np.int64))
    refused(lambda: read_graph(edges, None, tmp_path / "l.npy"), tmp_path if shape[0] else tmp_path / "l.npy")


def test_writings_that_are_read(tmp_path):
    """A byte order mark, three kinds of line end, zeros in front, and comments in any letters and any encoding."""
    (tmp_path / "edges.txt").write_bytes(b"\xef\xbb\xbf007 1\r0, 2 # 1_0,, \xe9\r\n 1,7, 0.5\n\t2\t3\t1e-3  \n3 4 .5#x")
    graph = read_graph(tmp_path / "edges.txt", names=False, weighted=True)
    assert graph.edges().tolist() == [[0, 2], [1, 7], [2, 3], [3, 4]]
    assert sorted(set(graph.weights.tolist())) == [np.float32(0.001), 0.5, 1]
    (tmp_path / "labels.txt").write_text("+1\n-1\n007\n" + "0\n" * 5)
    assert read_graph(tmp_path / "edges.txt", None, tmp_path / "labels.txt").labels.tolist()[:4] == [1, -1, 7, 0]


def test_errors_of_the_graph_name_the_file(edges, tmp_path):
    values = np.ones((4, 2))
    values[2, 1] = np.nan
    np.save(tmp_path / "nan.npy", values)
    refused(lambda: read_graph(edges, tmp_path / "nan.npy"), tmp_path / "nan.npy", "nan at row 2, column 1")
    (tmp_path / "large.txt").write_text("1e39\n" * 4)
    refused(lambda: read_graph(edges, tmp_path / "large.txt"), tmp_path / "large.txt", "torch.float32")
    (tmp_path / "labels.txt").write_text("1\n" * 5)
    np.save(tmp_path / "f.npy", np.ones((4, 2)))
    refused(lambda: read_graph(edges, tmp_path / "f.npy", tmp_path / "labels.txt"), tmp_path / "labels.txt", "[4]")
    negative = adjacency()
    negative.data[:] = -1
    scipy.sparse.save_npz(tmp_path / "negative.npz", negative)
    refused(lambda: read_graph(tmp_path / "negative.npz"), tmp_path / "negative.npz", "negative edge weight (-1.0)")


def test_large_node_numbers_with_something_for_each_node(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("0 2000001\n")
    np.save(tmp_path / "labels.npy", np.zeros(2_000_002, np.int8))
    assert read_graph(path, None, tmp_path / "labels.npy").num_nodes == 2_000_002
    with pytest.raises(ValueError, match=r"edge_index: got node 99999999 in 1 edges, want .*, or num_nodes"):
        sf.SparseMatrix.from_edge_index([[0], [99_999_999]])
    assert sf.SparseMatrix.from_edge_index([[0], [2_000_001]], 2_000_002).nnz == 2


def test_archives_of_regular_graphs_are_read(tmp_path):
    """Of the graphs, these compress best: each row of a complete graph repeats the one before it."""
    n = 1000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        complete = scipy.sparse.csr_matrix(np.ones((n, n)) - np.eye(n))
    scipy.sparse.save_npz(tmp_path / "complete.npz", complete)
    inflated = complete.data.nbytes + complete.indices.nbytes
    assert inflated < 400 * os.path.getsize(tmp_path / "complete.npz")
    assert read_graph(tmp_path / "complete.npz").num_edges == n * (n - 1) // 2
