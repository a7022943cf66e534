"""Readers, the restricted unpickler, downloads and the digits graph."""

import dataclasses
import functools
import hashlib
import http.server
import io
import os
import pickle
import socket
import struct
import sys
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

import seegera_fast as sf
from seegera_fast.command.main import main
from seegera_fast.datasets import registry
from seegera_fast.datasets.download import download
from seegera_fast.datasets.npz import KINDS
from seegera_fast.datasets.planetoid import PARTS
from seegera_fast.datasets.unpickle import read_pickle
from seegera_fast.tables.matrices import checked_csr

STATISTICS = {  # nodes, undirected edges, features, classes
    "cora": (2708, 5278, 1433, 7),
    "citeseer": (3327, 4552, 3703, 6),
    "pubmed": (19717, 44324, 500, 3),
    "photo": (7650, 119081, 745, 8),
    "computers": (13752, 245861, 767, 10),
    "cs": (18333, 81894, 6805, 15),
    "physics": (34493, 247962, 8415, 5),
    "digits": (1797, 12339, 64, 10),
}


def data_root() -> Path:
    """The folder of the real files, which may not exist."""
    return Path(os.environ.get("SEEGERA_DATA") or "no folder").expanduser()


def real(*names: str) -> list:
    """Parameters for the data sets; those without files are skipped."""
    cases = []
    for name in names:
        data_set = registry.DATA_SETS[name]
        there = all((data_root() / data_set.folder / file).is_file() for file in data_set.sha256)
        reason = f"no files of {name} under SEEGERA_DATA"
        cases.append(pytest.param(name, marks=pytest.mark.skipif(not there, reason=reason)))
    return cases


# A tiny Planetoid folder: 8 nodes, of which 5 are known, 6 and 5 are test nodes in this order and 7 is isolated.
TINY_FEATURES = np.array(
    [[1, 0, 1], [0, 2, 0], [0, 0, 0], [1, 1, 1], [0, 0, 3], [4, 0, 0], [0, 5, 5], [0, 0, 0]], dtype=np.float32
)
TINY_LABELS = np.array([0, 1, 1, 0, 1, 0, 1, -1])
TINY_GRAPH = {0: [1, 1, 3], 1: [0], 2: [2], 3: [0, 4], 4: [3, 6], 5: [6], 6: [4, 5], 7: []}
TINY_EDGES = [[0, 1], [0, 3], [3, 4], [4, 6], [5, 6]]


def one_hot(labels: np.ndarray) -> np.ndarray:
    return np.eye(2, dtype=np.int32)[labels]


def tiny_parts() -> dict:
    features = scipy.sparse.csr_matrix(TINY_FEATURES)
    return {
        "x": features[:2],
        "y": one_hot(TINY_LABELS[:2]),
        "tx": features[[6, 5]],
        "ty": one_hot(TINY_LABELS[[6, 5]]),
        "allx": features[:5],
        "ally": one_hot(TINY_LABELS[:5]),
        "graph": TINY_GRAPH,
        "test.index": "6\n5\n",
    }


def write_planetoid(root: Path, changes: dict | None = None, protocol: int = 2) -> Path:
    folder = root / "Planetoid" / "Cora" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in {**tiny_parts(), **(changes or {})}.items():
        path = folder / f"ind.cora.{part}"
        if isinstance(value, str):
            path.write_text(value)
        else:
            path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol))
    return folder


def tiny_members() -> dict:
    # Stored: 0-1 both ways, 2-0 one way with weight 2, the self-loop 3-3, and a zero at 3-1.
    adjacency = scipy.sparse.csr_matrix(([1.0, 1.0, 2.0, 0.0, 1.0], ([0, 1, 2, 3, 3], [1, 0, 0, 1, 3])), shape=(4, 4))
    features = scipy.sparse.csr_matrix(np.array([[0, 7.0], [1, 0], [0, 0], [2, 105]], dtype=np.float32))
    members = {"labels": np.array([0, 1, 1, 0])}
    for prefix, matrix in (("adj", adjacency), ("attr", features)):
        members |= {f"{prefix}_{part}": np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr")}
        members[f"{prefix}_shape"] = np.array(matrix.shape)
    return members


def write_npz(root: Path, changes: dict | None = None) -> Path:
    path = root / "Amazon" / "Photo" / "raw" / "amazon_electronics_photo.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    members = {**tiny_members(), **(changes or {})}
    np.savez(path, **{key: value for key, value in members.items() if value is not None})
    return path


def load_tiny(root: Path, name: str = "cora", **options) -> sf.Graph:
    return sf.datasets.load(name, root, download=False, **options)


class TestRealFiles:
    @pytest.mark.parametrize("name", real(*STATISTICS))
    def test_statistics(self, name, recwarn):
        graph = sf.datasets.load(name, data_root(), download=False)
        classes = torch.unique(graph.labels[graph.labels >= 0]).numel()
        assert (graph.num_nodes, graph.num_edges, graph.num_features, classes) == STATISTICS[name]
        assert graph.name == name
        assert not recwarn.list

    @pytest.mark.parametrize("name", real("cora", "citeseer", "pubmed"))
    def test_public_split(self, name):
        graph = sf.datasets.load(name, data_root(), download=False)
        train, valid, test = (graph.masks[key] for key in ("train", "valid", "test"))
        classes = STATISTICS[name][3]
        assert [int(mask.sum()) for mask in (train, valid, test)] == [20 * classes, 500, 1000]
        assert not ((train & valid) | (train & test) | (valid & test)).any()
        assert torch.bincount(graph.labels[train]).tolist() == [20] * classes

    @pytest.mark.parametrize("name", real("citeseer"))
    def test_isolated_nodes_have_no_label_and_no_features(self, name):
        graph = sf.datasets.load(name, data_root(), download=False)
        unknown = graph.labels < 0
        assert int(unknown.sum()) == 15
        assert not any(bool((mask & unknown).any()) for mask in graph.masks.values())
        assert not graph.features.to_dense()[unknown].any()

    @pytest.mark.parametrize("name", real("cs", "physics"))
    def test_counts_are_kept(self, name):
        values = sf.datasets.load(name, data_root(), download=False).features.values
        assert values.max() > 1
        assert torch.equal(values, values.round())


class TestPlanetoid:
    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_every_protocol(self, tmp_path, protocol, recwarn):
        write_planetoid(tmp_path, protocol=protocol)
        graph = load_tiny(tmp_path)
        assert graph.features.to_dense().numpy().tolist() == TINY_FEATURES.tolist()
        assert graph.labels.tolist() == TINY_LABELS.tolist()
        assert graph.edges().tolist() == TINY_EDGES
        assert {key: mask.nonzero().ravel().tolist() for key, mask in graph.masks.items()} == {
            "train": [0, 1],
            "valid": [2, 3, 4],
            "test": [5, 6],
        }
        assert not recwarn.list

    def test_row_without_a_class(self, tmp_path):
        ally = tiny_parts()["ally"]
        ally[4] = 0
        write_planetoid(tmp_path, {"ally": ally})
        assert load_tiny(tmp_path).labels[4] == -1

    @pytest.mark.parametrize(
        ("changes", "file", "message"),
        [
            ({"y": one_hot(TINY_LABELS[:3])}, "x", "2 rows, but 3 rows of labels"),
            ({"tx": scipy.sparse.csr_matrix((2, 4), dtype=np.float32)}, "tx", "4 columns, but allx has 3"),
            ({"ty": np.eye(3, dtype=np.int32)[:2]}, "tx", "3 classes, but ally has 2"),
            ({"x": scipy.sparse.csr_matrix((6, 3)), "y": one_hot(TINY_LABELS[:6])}, "x", "more than the 5 of allx"),
            ({"x": np.ones((2, 3))}, "x", "holds ndarray, want a SciPy CSR matrix"),
            ({"ally": scipy.sparse.csr_matrix((5, 2))}, "ally", "want a NumPy array with one row"),
            ({"ally": np.zeros(5)}, "ally", "want a NumPy array with one row"),
            ({"graph": np.zeros(3)}, "graph", "holds ndarray, want a dictionary"),
            ({"graph": {**TINY_GRAPH, 0: (1, 3)}}, "graph", "want a list of neighbours"),
            ({"graph": {**TINY_GRAPH, 0: [1, 8]}}, "graph", "got node 8, want integers from 0 to 7"),
            ({"graph": {**TINY_GRAPH, 0: [-1]}}, "graph", "got node -1"),
            ({"graph": {**TINY_GRAPH, 0: [1.0]}}, "graph", "got node 1.0"),
            ({"graph": {**TINY_GRAPH, 0: [2**70]}}, "graph", f"got node {2**70}"),
            ({"test.index": "6\n8\n"}, "test.index", "line 2: got '8', want one node number from 5 to 7"),
            ({"test.index": "6\n4\n"}, "test.index", "line 2: got '4', want one node number from 5 to 7"),
            ({"test.index": "6\n6\n"}, "test.index", "listed twice"),
            ({"test.index": "6\n"}, "test.index", "1 node numbers, but tx has 2 rows"),
            ({"test.index": "6\nfive\n"}, "test.index", "line 2: got '.*', want one node number from 5 to 7"),
            ({"test.index": "6\n\u0665\n"}, "test.index", "line 2: got '.*', want one node number from 5 to 7"),
        ],
    )
    def test_parts_that_do_not_fit(self, tmp_path, changes, file, message):
        write_planetoid(tmp_path, changes)
        with pytest.raises(ValueError, match=message) as raised:
            load_tiny(tmp_path)
        assert f"ind.cora.{file}" in str(raised.value)

    @pytest.mark.parametrize("part", [part for part in PARTS if part != "test.index"])
    def test_truncated_file(self, tmp_path, part):
        path = write_planetoid(tmp_path) / f"ind.cora.{part}"
        content = path.read_bytes()
        for length in (0, 1, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:length])
            with pytest.raises(ValueError, match="corrupt or truncated") as raised:
                load_tiny(tmp_path)
            assert str(path) in str(raised.value)


class Call:
    """Pickles as a call of ``function``."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


# As Python 2 wrote them: byte strings, the old module names.
PYTHON2_DTYPE = b"cnumpy\ndtype\nU\x02i4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
PYTHON2_ARRAY = (
    b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02K\x03\x86"
    + PYTHON2_DTYPE
    + b"%sU\x18"
    + struct.pack("<6i", 1, 200, 3, 40000, 5, 6)
    + b"tb"
)
PYTHON2_GRAPH = b"\x80\x02ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(K\x00]K\x01aK\x01]K\x00au."


def reread(tmp_path: Path, content: bytes):
    path = tmp_path / "ind.cora.x"
    path.write_bytes(content)
    return read_pickle(path)


class TestUnpickle:
    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    @pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", ">i4", "float16", ">f8", "float32"])
    @pytest.mark.parametrize("shape", [(0,), (3,), (2, 3)])
    def test_arrays(self, tmp_path, protocol, dtype, shape):
        array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
        for order in "CF":
            found = reread(tmp_path, pickle.dumps(np.asarray(array, order=order), protocol))
            assert found.dtype == array.dtype.newbyteorder("=")
            assert found.flags.writeable
            np.testing.assert_array_equal(found, array)

    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    @pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
    def test_sparse(self, tmp_path, protocol, kind):
        matrix = kind(TINY_FEATURES)
        found = reread(tmp_path, pickle.dumps(matrix, protocol))
        assert found.shape == matrix.shape
        np.testing.assert_array_equal(found.toarray(), TINY_FEATURES)

    @pytest.mark.parametrize(("fortran", "expected"), [(b"\x89", [[1, 200, 3], [40000, 5, 6]]), (b"\x88", None)])
    def test_written_by_python_2(self, tmp_path, fortran, expected):
        found = reread(tmp_path, b"\x80\x02" + PYTHON2_ARRAY % fortran + b".")
        assert found.tolist() == (expected or [[1, 3, 5], [200, 40000, 6]])

    def test_graph_written_by_python_2(self, tmp_path):
        assert reread(tmp_path, PYTHON2_GRAPH) == {0: [1], 1: [0]}

    @pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
    @pytest.mark.parametrize(
        ("function", "name"),
        [
            (os.system, f"{os.system.__module__}.system"),
            (eval, "eval"),
            (getattr, "getattr"),
            (np.load, "load"),
            (scipy.sparse.load_npz, "load_npz"),
        ],
    )
    def test_anything_else_is_refused_by_name(self, tmp_path, protocol, function, name):
        with pytest.raises(ValueError, match="refused, the pickle asks for") as raised:
            reread(tmp_path, pickle.dumps({0: [Call(function, "touched")]}, protocol))
        assert name in str(raised.value)
        assert "ind.cora.x" in str(raised.value)

    def test_nothing_runs(self, tmp_path):
        marker = tmp_path / "touched"
        write_planetoid(tmp_path, {"graph": Call(os.mkdir, str(marker))})
        with pytest.raises(ValueError, match=r"ind\.cora\.graph: refused.*mkdir"):
            load_tiny(tmp_path)
        assert not marker.exists()

    @pytest.mark.parametrize("call", [(b"(S'touched'\nios\nmkdir\n.", "os.mkdir"), (b"\x80\x02\x82\x01.", None)])
    def test_other_ways_to_name_a_class(self, tmp_path, call):
        content, name = call
        with pytest.raises(ValueError, match=name or "corrupt"):
            reread(tmp_path, content)

    def test_a_file_cannot_change_how_others_are_read(self, tmp_path):
        # BUILD with (None, {"__setstate__": list}) on the class ndarray, then on the function _reconstruct.
        for target in (b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n"):
            with pytest.raises(ValueError, match=r"ind\.cora\.x"):
                reread(tmp_path, b"\x80\x02" + target + b"N}U\x0c__setstate__c__builtin__\nlist\ns\x86b.")
        assert reread(tmp_path, pickle.dumps(np.arange(3))).tolist() == [0, 1, 2]

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.array([None, 1], dtype=object), "type 'O8', want numbers"),
            (np.array(["a"]), "want numbers"),
            (np.array([1j]), "want numbers"),
            (np.zeros(2, dtype=[("a", "i4")]), "want numbers"),
        ],
    )
    def test_only_numbers(self, tmp_path, array, message):
        with pytest.raises(ValueError, match=message):
            reread(tmp_path, pickle.dumps(array, 2))

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (b"K\x02K\x03\x86", b"K\x02K\x04\x86", "with 24 bytes"),
            (b"K\x02K\x03\x86", b"K\x02J\xff\xff\xff\xff\x86", "want 2 integers"),
            (b"K\x02K\x03\x86", b"K\x02N\x86", "want 2 integers"),
            (b"U\x02i4", b"U\x02O8", "want numbers"),
            (b"U\x02i4", b"U\x02f1", "want numbers"),
            (b"U\x01<", b"U\x01!", "want numbers"),
            (b"(K\x01K\x02", b"(K\x02", "without its contents"),
        ],
    )
    def test_crafted_array(self, tmp_path, old, new, message):
        content = b"\x80\x02" + PYTHON2_ARRAY % b"\x89" + b"."
        assert old in content
        with pytest.raises(ValueError, match=message):
            reread(tmp_path, content.replace(old, new, 1))

    def test_memo_number_larger_than_the_file(self, tmp_path):
        with pytest.raises(ValueError, match="memo number 4294967295"):
            reread(tmp_path, b"\x80\x02]r\xff\xff\xff\xff.")

    @pytest.mark.parametrize("value", [3, "text", [1, 2], None])
    def test_other_contents(self, tmp_path, value):
        with pytest.raises(ValueError, match="want a NumPy array, a SciPy CSR matrix or a dictionary"):
            reread(tmp_path, pickle.dumps(value))

    def test_damaged_bytes_give_an_array_or_a_value_error(self, tmp_path):
        generator = np.random.default_rng(0)
        refused = 0
        for protocol in (2, 4, 5):
            content = pickle.dumps(scipy.sparse.csr_matrix(TINY_FEATURES), protocol)
            for _ in range(100):
                damaged = bytearray(content)
                damaged[generator.integers(len(damaged))] = generator.integers(256)
                try:
                    found = reread(tmp_path, bytes(damaged))
                except ValueError as error:
                    assert "ind.cora.x" in str(error)  # noqa: PT017
                    refused += 1
                else:
                    assert isinstance(found, (np.ndarray, scipy.sparse.csr_matrix, dict))
        assert refused > 150


GOOD_CSR = {
    "data": np.array([1.0, 2.0]),
    "indices": np.array([0, 2], dtype=np.int32),
    "indptr": np.array([0, 1, 2], dtype=np.int32),
    "shape": (2, 3),
}


class TestCheckedCsr:
    def test_good(self):
        matrix = checked_csr(**GOOD_CSR, what="m")
        assert matrix.toarray().tolist() == [[1, 0, 0], [0, 0, 2]]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"indices": np.array([0, 3])}, "indices from 0 to 3, want 0 to 2"),
            ({"indices": np.array([-1, 0])}, "indices from -1 to 0"),
            ({"indices": np.array([0, 2**33])}, "want 0 to 2"),
            ({"indices": np.array([0.0, 2.0])}, "want one dimension of integers"),
            ({"indices": np.array([[0, 2]])}, "want one dimension of integers"),
            ({"indices": [0, 2]}, "indices as list"),
            ({"indptr": np.array([0, 2])}, "got 2 numbers as indptr, want 3 ascending numbers from 0"),
            ({"indptr": np.array([1, 1, 2])}, "ascending"),
            ({"indptr": np.array([0, 9, 2])}, "ascending"),
            ({"indptr": np.array([0, 9, 0]), "indices": np.zeros(0, int), "data": np.zeros(0)}, "ascending"),
            ({"indptr": np.array([0, 1, 3])}, "indptr up to 3"),
            ({"indptr": np.array([0, 1, 1])}, "indptr up to 1"),
            ({"data": np.array([1.0])}, "1 values"),
            ({"data": np.array([1.0, np.nan])}, "NaN or infinite"),
            ({"data": np.array([1.0, np.inf])}, "NaN or infinite"),
            ({"data": np.array([1.0, 2j])}, "want one dimension of numbers"),
            ({"shape": (2, -3)}, "got the shape"),
            ({"shape": (2, 3, 1)}, "got the shape"),
            ({"shape": (2, 2**40)}, "got the shape"),
            ({"shape": None}, "got the shape None"),
        ],
    )
    def test_bad(self, changes, message):
        with pytest.raises(ValueError, match=message) as raised:
            checked_csr(**{**GOOD_CSR, **changes}, what="the matrix of a file")
        assert str(raised.value).startswith("the matrix of a file: ")

    def test_hostile_pickle(self, tmp_path):
        matrix = tiny_parts()["allx"]
        matrix.indices[0] = 10**6
        write_planetoid(tmp_path, {"allx": matrix})
        with pytest.raises(ValueError, match=r"ind\.cora\.allx: got indices from 0 to 1000000"):
            load_tiny(tmp_path)


class TestNpz:
    def test_values_and_edges(self, tmp_path, recwarn):
        write_npz(tmp_path)
        graph = load_tiny(tmp_path, "photo")
        assert graph.edges().tolist() == [[0, 1], [0, 2]]
        assert graph.features.to_dense().tolist() == [[0, 7], [1, 0], [0, 0], [2, 105]]
        assert graph.labels.tolist() == [0, 1, 1, 0]
        assert graph.masks == {}
        assert not recwarn.list

    def test_other_members_are_not_unpickled(self, tmp_path):
        marker = tmp_path / "touched"
        write_npz(tmp_path, {"node_names": np.array([Call(os.mkdir, str(marker))], dtype=object)})
        assert load_tiny(tmp_path, "photo").num_nodes == 4
        assert not marker.exists()

    def test_pickled_member_is_refused(self, tmp_path):
        marker = tmp_path / "touched"
        path = write_npz(tmp_path, {"labels": np.array([Call(os.mkdir, str(marker))], dtype=object)})
        with pytest.raises(ValueError, match="labels: got values of type object, want numbers") as raised:
            load_tiny(tmp_path, "photo")
        assert str(path) in str(raised.value)
        assert not marker.exists()

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"labels": None, "adj_data": None}, "has no adj_data, labels"),
            ({"adj_shape": np.array([4, 5])}, "want a square matrix"),
            ({"adj_indices": np.array([1, 0, 0, 1, 4])}, "adj: got indices from 0 to 4"),
            ({"attr_shape": np.array([5, 2])}, "attr: got 5 numbers as indptr, want 6 ascending"),
            ({"attr_shape": np.array([4.0, 2.0])}, "attr: got the shape"),
            ({"attr_data": np.array([7, 1, 2, np.nan])}, "attr: got 1 values that are NaN or infinite"),
            ({"attr_indptr": np.array([0, 1, 4]), "attr_shape": np.array([2, 2])}, "2 rows of features, but 4 nodes"),
            ({"labels": np.zeros(3, int)}, "want one integer for each of 4 nodes"),
            ({"labels": np.zeros(4)}, "want one integer for each of 4 nodes"),
        ],
    )
    def test_parts_that_do_not_fit(self, tmp_path, changes, message):
        path = write_npz(tmp_path, changes)
        with pytest.raises(ValueError, match=message) as raised:
            load_tiny(tmp_path, "photo")
        assert str(path) in str(raised.value)

    def test_truncated_file(self, tmp_path):
        path = write_npz(tmp_path)
        content = path.read_bytes()
        for length in (0, 1, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:length])
            with pytest.raises(ValueError, match="corrupt or truncated archive") as raised:
                load_tiny(tmp_path, "photo")
            assert str(path) in str(raised.value)

    def test_damaged_member(self, tmp_path):
        path = write_npz(tmp_path)
        content = bytearray(path.read_bytes())
        at = content.find(tiny_members()["attr_data"].tobytes())
        assert at > 0
        content[at] ^= 1
        path.write_bytes(content)
        with pytest.raises(ValueError, match="corrupt or truncated archive"):
            load_tiny(tmp_path, "photo")

    def test_bare_array(self, tmp_path):
        path = write_npz(tmp_path)
        with open(path, "wb") as file:
            np.save(file, np.zeros(3))
        with pytest.raises(ValueError, match="corrupt or truncated archive"):
            load_tiny(tmp_path, "photo")

    def test_the_tiny_archive_has_all_members(self):
        assert set(tiny_members()) == set(KINDS)


class TestLoad:
    def test_names(self):
        assert set(sf.datasets.names()) >= set(STATISTICS)

    @pytest.mark.parametrize(
        ("name", "nearest"), [("coar", "cora"), ("pubmde", "pubmed"), ("Fysics", "physics"), ("zzz", "cora, citeseer")]
    )
    def test_unknown_name(self, name, nearest):
        with pytest.raises(ValueError, match=rf"name: got '{name}', which is no data set; .*{nearest}"):
            sf.datasets.load(name)

    def test_capitals_do_not_matter(self, tmp_path):
        write_planetoid(tmp_path)
        assert load_tiny(tmp_path, "Cora").name == "cora"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"name": 3}, "name: got 3, want a string"),
            ({"name": "cora", "root": 3}, "root: got 3, want a path"),
            ({"name": "digits", "dtype": torch.float16}, "dtype: got torch.float16"),
            ({"name": "digits", "dtype": "float32"}, "dtype: got 'float32'"),
        ],
    )
    def test_wrong_kinds(self, arguments, message):
        with pytest.raises(TypeError, match=message):
            sf.datasets.load(**arguments)

    def test_normalize_features(self, tmp_path):
        write_planetoid(tmp_path)
        features = load_tiny(tmp_path, normalize_features=True, dtype=torch.float64).features.to_dense()
        expected = torch.from_numpy(TINY_FEATURES).double()
        sums = expected.sum(dim=1, keepdim=True)
        assert torch.equal(features, torch.where(sums > 0, expected * (1 / sums), expected))
        assert features.sum(dim=1).tolist() == pytest.approx([1, 1, 0, 1, 1, 1, 1, 0])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_dtype(self, tmp_path, dtype):
        write_planetoid(tmp_path)
        graph = load_tiny(tmp_path, dtype=dtype)
        assert graph.dtype == graph.features.dtype == dtype

    def test_root_comes_before_the_variable_and_the_variable_before_the_cache(self, tmp_path, monkeypatch):
        given, variable, cache = tmp_path / "given", tmp_path / "variable", tmp_path / "cache"
        monkeypatch.setattr("platformdirs.user_cache_path", lambda name: cache / name)
        monkeypatch.setenv("SEEGERA_DATA", str(variable))
        assert registry.data_root(str(given)) == given
        assert registry.data_root() == variable
        monkeypatch.setenv("SEEGERA_DATA", "")
        assert registry.data_root() == cache / "seegera_fast"
        monkeypatch.setenv("SEEGERA_DATA", "~/graphs")
        assert registry.data_root() == Path.home() / "graphs"

    def test_variable_is_used(self, tmp_path, monkeypatch):
        write_planetoid(tmp_path)
        monkeypatch.setenv("SEEGERA_DATA", str(tmp_path))
        assert sf.datasets.load("cora", download=False).num_nodes == 8

    def test_missing_files_are_named(self, tmp_path):
        folder = write_planetoid(tmp_path)
        (folder / "ind.cora.tx").unlink()
        (folder / "ind.cora.graph").unlink()
        with pytest.raises(FileNotFoundError) as raised:
            load_tiny(tmp_path)
        assert f"cora: files missing in {folder}: ind.cora.tx, ind.cora.graph;" in str(raised.value)

    def test_every_file_has_a_digest(self):
        digests = [digest for data_set in registry.DATA_SETS.values() for digest in data_set.sha256.values()]
        assert len(digests) == len(set(digests)) == 3 * 8 + 4
        assert all(len(bytes.fromhex(digest)) == 32 for digest in digests)


CONTENT = bytes(range(256)) * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder. For a file named short.* the announced length is one byte too large."""

    def log_message(self, *arguments):
        pass

    def send_header(self, keyword, value):
        if keyword == "Content-Length" and "/short." in self.path:
            value = str(int(value) + 1)
        super().send_header(keyword, value)


@pytest.fixture
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server(tmp_path, no_proxy):
    """Address of a server on this machine and the folder that it serves."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}/", folder
        httpd.shutdown()
        thread.join()


@pytest.fixture
def closed_address(no_proxy):
    """An address on this machine where nothing answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestDownload:
    def test_right_digest(self, server, tmp_path, capsys):
        address, served = server
        (served / "a.bin").write_bytes(CONTENT)
        target = tmp_path / "new" / "folder" / "a.bin"
        download(address + "a.bin", target, DIGEST)
        assert target.read_bytes() == CONTENT
        assert files_in(target.parent) == ["a.bin"]
        assert capsys.readouterr() == ("", "")

    def test_progress_on_a_terminal(self, tmp_path, monkeypatch):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        (tmp_path / "a.bin").write_bytes(CONTENT)
        monkeypatch.setattr(sys, "stderr", Terminal())
        download((tmp_path / "a.bin").as_uri(), tmp_path / "b.bin", DIGEST, progress=False)
        assert sys.stderr.getvalue() == ""
        download((tmp_path / "a.bin").as_uri(), tmp_path / "b.bin", DIGEST)
        assert "b.bin: 100%" in sys.stderr.getvalue()

    @pytest.mark.parametrize("quiet", [False, True])
    def test_quiet_commands_show_no_bar(self, tmp_path, monkeypatch, quiet):
        """train, embed and reproduce pass --quiet on to the download."""
        asked = []

        def fetch(*arguments, progress):
            asked.append(progress)
            raise ConnectionError("there is no network")

        monkeypatch.setattr(registry, "download_file", fetch)
        options = ["--data", "cora", "--root", str(tmp_path / "root"), *["--quiet"] * quiet]
        sf.SeeGera(sf.datasets.load("digits"), embedding_dim=1, hidden_dim=1).save(tmp_path / "model")
        commands = {
            "train": ["train", *options, "--out", str(tmp_path / "out")],
            "embed": ["embed", str(tmp_path / "model"), *options, "--out", str(tmp_path / "e.npy")],
            "reproduce": ["reproduce", *options, "--out", str(tmp_path / "out")],
        }
        for command in commands.values():
            assert main(command) == 2
        assert asked == [not quiet] * len(commands)

    def test_wrong_digest_keeps_nothing(self, server, tmp_path):
        address, served = server
        (served / "a.bin").write_bytes(CONTENT + b"!")
        target = tmp_path / "new" / "a.bin"
        with pytest.raises(ValueError, match=f"want {DIGEST}; it was not kept"):
            download(address + "a.bin", target, DIGEST)
        assert files_in(target.parent) == []

    def test_wrong_digest_leaves_the_old_file(self, server, tmp_path):
        address, served = server
        (served / "a.bin").write_bytes(CONTENT + b"!")
        target = tmp_path / "a.bin"
        target.write_bytes(b"old")
        with pytest.raises(ValueError, match="SHA-256"):
            download(address + "a.bin", target, DIGEST)
        assert target.read_bytes() == b"old"
        assert files_in(tmp_path) == ["a.bin", "served"]

    def test_transfer_that_breaks_off(self, server, tmp_path):
        address, served = server
        (served / "short.bin").write_bytes(CONTENT)
        target = tmp_path / "new" / "short.bin"
        with pytest.raises(ConnectionError, match=f"short.bin: .*{len(CONTENT)}"):
            download(address + "short.bin", target, DIGEST)
        assert files_in(target.parent) == []

    def test_missing_on_the_server(self, server, tmp_path):
        address, _ = server
        target = tmp_path / "new" / "a.bin"
        with pytest.raises(ConnectionError, match="404"):
            download(address + "a.bin", target, DIGEST)
        assert files_in(target.parent) == []

    def test_interrupt_keeps_nothing(self, tmp_path, monkeypatch):
        class Response(io.BytesIO):
            def read(self, size):
                chunk = super().read(size)
                if not chunk:
                    assert len(files_in(tmp_path)) == 1
                    raise KeyboardInterrupt
                return chunk

        response = Response(CONTENT)
        response.headers = {}
        monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: response)
        with pytest.raises(KeyboardInterrupt):
            download("http://127.0.0.1/a.bin", tmp_path / "a.bin", DIGEST)
        assert files_in(tmp_path) == []

    def test_load_downloads_once(self, tmp_path, monkeypatch):
        folder = write_planetoid(tmp_path / "source")
        digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
        entry = dataclasses.replace(registry.DATA_SETS["cora"], source=f"{folder.as_uri()}/", sha256=digests)
        monkeypatch.setitem(registry.DATA_SETS, "cora", entry)
        graph = sf.datasets.load("cora", tmp_path / "root")
        assert graph.edges().tolist() == TINY_EDGES
        assert files_in(tmp_path / "root" / entry.folder) == files_in(folder)
        folder.rename(tmp_path / "gone")
        assert sf.datasets.load("cora", tmp_path / "root").edges().tolist() == TINY_EDGES

    def test_load_offline_names_files_and_folder(self, tmp_path, monkeypatch, closed_address):
        for name, data_set in registry.DATA_SETS.items():
            monkeypatch.setitem(registry.DATA_SETS, name, dataclasses.replace(data_set, source=closed_address))
        for name in ("pubmed", "photo"):
            data_set = registry.DATA_SETS[name]
            folder = tmp_path / data_set.folder
            with pytest.raises(ConnectionError, match="download failed") as raised:
                sf.datasets.load(name, tmp_path)
            message = str(raised.value)
            assert message.startswith(f"{name}: files missing in {folder}: {', '.join(data_set.sha256)}. ")
            assert "root=" in message
            assert "SEEGERA_DATA" in message
            assert files_in(folder) == []

    def test_load_with_a_wrong_digest(self, tmp_path, monkeypatch):
        folder = write_planetoid(tmp_path / "source")
        entry = dataclasses.replace(registry.DATA_SETS["cora"], source=f"{folder.as_uri()}/")
        monkeypatch.setitem(registry.DATA_SETS, "cora", entry)
        with pytest.raises(ValueError, match=r"ind\.cora\.x: the file has SHA-256"):
            sf.datasets.load("cora", tmp_path / "root")

    def test_folder_that_cannot_be_made(self, tmp_path):
        root = tmp_path / "root"
        root.write_text("a file")
        with pytest.raises(OSError, match="photo: files missing in") as raised:
            sf.datasets.load("photo", root)
        assert not isinstance(raised.value, ConnectionError)


@pytest.fixture(scope="module")
def digits():
    return sf.datasets.load("digits", dtype=torch.float64)


class TestDigits:
    def test_features_and_labels(self, digits):
        features = digits.features.to_dense()
        assert (features.min(), features.max()) == (0, 1)
        assert torch.equal(features * 16, (features * 16).round())
        assert torch.bincount(digits.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]

    def test_needs_no_files(self, tmp_path):
        assert sf.datasets.load("digits", tmp_path, download=False).num_nodes == 1797
        assert files_in(tmp_path) == []

    def test_edges_are_the_ten_nearest_of_either_end(self, digits):
        features = digits.features.to_dense()
        distance = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
        distance.fill_diagonal_(torch.inf)
        nearest = distance.sort(dim=1, stable=True).indices[:, :10]
        expected = torch.zeros(distance.shape, dtype=torch.bool).scatter_(1, nearest, value=True)
        assert torch.equal(digits.adjacency.to_dense().bool(), expected | expected.T)
