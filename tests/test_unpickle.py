"""The restricted unpickler: arrays, matrices and dictionaries of any protocol, and nothing else."""

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from tiny_data import TINY_FEATURES, Call, load_tiny, write_planetoid

from seegera_fast.datasets.unpickle import read_pickle

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
