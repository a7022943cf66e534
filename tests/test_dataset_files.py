"""Readers of the files of data sets: Planetoid, archives of NumPy, and the matrices in them."""

import os

import numpy as np
import pytest
import scipy.sparse
import torch
from tiny_data import (
    TINY_EDGES,
    TINY_FEATURES,
    TINY_GRAPH,
    TINY_LABELS,
    Call,
    load_tiny,
    one_hot,
    tiny_members,
    tiny_parts,
    write_npz,
    write_planetoid,
)

from seegera_fast.datasets.npz import KINDS
from seegera_fast.datasets.planetoid import PARTS
from seegera_fast.tables.matrices import checked_csr


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
            (
                {"x": scipy.sparse.csr_matrix(np.eye(2, 3))},
                "x",
                "not the first ones of .*allx, want files of one edition",
            ),
            ({"y": one_hot(TINY_LABELS[1:3])}, "y", "not the first ones of .*ally, want files of one edition"),
            ({"x": np.ones((2, 3))}, "x", "holds ndarray, want a SciPy CSR matrix"),
            ({"ally": scipy.sparse.csr_matrix((5, 2))}, "ally", "want a NumPy array with one row"),
            ({"ally": np.zeros(5)}, "ally", "want a NumPy array with one row"),
            ({"ally": np.array([*one_hot(TINY_LABELS[:4]), [1, 1]])}, "ally", "row 4 is no class, want rows of zeros"),
            ({"ty": np.array([[0, 1], [np.nan, 0]])}, "ty", "row 1 is no class"),
            ({"ty": np.array([[0, -3], [1, 0]])}, "ty", "row 0 is no class"),
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


class TestNpz:
    def test_values_and_edges(self, tmp_path, recwarn):
        write_npz(tmp_path)
        graph = load_tiny(tmp_path, "photo")
        assert graph.edges().tolist() == [[0, 1], [0, 2]]
        assert graph.features.to_dense().tolist() == [[0, 7], [1, 0], [0, 0], [2, 105]]
        assert graph.labels.tolist() == [0, 1, 1, 0]
        assert graph.masks == {}
        assert not recwarn.list

    def test_values_that_need_float64(self, tmp_path):
        path = write_npz(tmp_path, {"attr_data": np.array([7, 1, 2, 1e39])})
        with pytest.raises(ValueError, match=r"features: got 1e\+39 .* torch.float32 cannot hold") as raised:
            load_tiny(tmp_path, "photo")
        assert str(path.parent) in str(raised.value)
        assert load_tiny(tmp_path, "photo", dtype=torch.float64).features.to_dense().max() == 1e39

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
            ({"labels": np.array([0, 1, 2, 2**63 + 5], np.uint64)}, "got the label 9223372036854775813"),
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
