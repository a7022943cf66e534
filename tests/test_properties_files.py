"""Damaged files: each is read, or refused by an error that names it, without memory for what it only declares."""

import contextlib
import io
import json
import resource
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from memory import MOST_MEMORY, little_memory
from tiny_data import load_tiny, write_npz, write_planetoid

import seegera_fast as sf
from seegera_fast.command.main import main
from seegera_fast.experiments.trials import read_record
from seegera_fast.training import TrainingConfig, train

NODES = 6
RECORDS = Path(__file__).parents[1] / "docs/results/trials"
WIDTHS = {"embedding_dim": 2, "hidden_dim": 2}
EDGES = "# a path\n0 1\n1,2,0.5\n2 3\n3 4 1e-3\n4\t5\n"

# --- files and their readers -----------------------------------------------------------------------------------------


def path_graph():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sf.Graph(np.eye(NODES, k=1), np.eye(NODES, 3))


def model():
    return sf.SeeGera(path_graph(), **WIDTHS)


def train_on(path, resume):
    return train(
        model(),
        TrainingConfig(epochs=2, patience=None),
        progress=False,
        checkpoint=sf.Checkpoint(path, every=1, resume=resume),
    )


def write_features(path):
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(np.eye(NODES, 3)))


def write_adjacency(path):
    scipy.sparse.save_npz(path, scipy.sparse.coo_matrix(np.eye(NODES, k=1) + np.eye(NODES, k=-1)))


def with_features(path):
    return sf.Graph.from_table(beside(path, "edges.txt"), path)


def with_labels(path):
    return sf.Graph.from_table(beside(path, "edges.txt"), None, path)


def beside(path, name):
    path = path.with_name(name)
    path.write_text(EDGES)
    return path


def write_results(path):
    model().save(path.with_name("model.safetensors"))
    beside(path, "edges.txt")
    np.save(path.with_name("features.npy"), np.eye(NODES, 3))
    path.write_text(json.dumps({"configuration": {"normalize_features": False}, "data": {"weighted": False}}))


def embed_with_results(path):
    folder = path.parent
    names = [str(folder / name) for name in ("model.safetensors", "edges.txt", "features.npy", "embedding.npy")]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = main(["embed", names[0], "--edges", names[1], "--features", names[2], "--out", names[3], "--quiet"])
    assert status in (0, 2)
    if status:
        raise ValueError(said.getvalue())


def planetoid(part):
    return lambda path: write_planetoid(path.parents[3]), lambda path: load_tiny(path.parents[3])


# name -> (writes the file, reads it)
FILES = {
    "model.safetensors": (lambda path: model().save(path), lambda path: sf.SeeGera.load(path, path_graph())),
    "checkpoint.safetensors": (lambda path: train_on(path, False), lambda path: train_on(path, True)),
    "edges.txt": (lambda path: path.write_text(EDGES), sf.Graph.from_table),
    "adjacency.npz": (write_adjacency, sf.Graph.from_table),
    "features.txt": (lambda path: path.write_text("1 0 2.5\n" * NODES), with_features),
    "features.npy": (lambda path: np.save(path, np.eye(NODES, 3)), with_features),
    "features.npz": (write_features, with_features),
    "labels.txt": (lambda path: path.write_text("0\n1\n-1\n0\n2\n1\n"), with_labels),
    "labels.npy": (lambda path: np.save(path, np.arange(NODES)), with_labels),
    "Planetoid/Cora/raw/ind.cora.graph": planetoid("graph"),
    "Planetoid/Cora/raw/ind.cora.allx": planetoid("allx"),
    "Planetoid/Cora/raw/ind.cora.ally": planetoid("ally"),
    "Planetoid/Cora/raw/ind.cora.test.index": planetoid("test.index"),
    "Amazon/Photo/raw/amazon_electronics_photo.npz": (
        lambda path: write_npz(path.parents[3]),
        lambda path: load_tiny(path.parents[3], "photo"),
    ),
    "attribute-citeseer-v3-paper-seed0.json": (
        lambda path: path.write_text((RECORDS / path.name).read_text()),
        read_record,
    ),
    "results.json": (write_results, embed_with_results),
}

# --- damage ----------------------------------------------------------------------------------------------------------

VALUES = st.sampled_from(
    [None, True, -5, 2.5, "7", "x", "", 10**9, 10**30, 2**63, -(2**63) - 1, float("nan"), float("inf"), [], [3], {}, 0]
)
NUMBERS = st.sampled_from([b"-1", b"99999999", b"1_0", b"1e400", b"nan", b"9" * 40, b"0x10", b"2147483647", b"", b"\0"])


@st.composite
def damaged(draw, content):
    """The content with a few bytes changed, cut off, put in, taken out or put twice, or a number replaced."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        end = min(at + draw(st.sampled_from([1, 2, 8, 100])), len(content))
        kind = draw(st.sampled_from(["change", "flip", "cut", "insert", "remove", "twice", "zeros", "number"]))
        if kind == "change":
            content = content[:at] + draw(st.binary(min_size=1, max_size=8)) + content[end:]
        elif kind == "flip":
            content = (
                content[:at]
                + bytes([content[at] ^ 1 << draw(st.integers(0, 7))] if content else [])
                + content[at + 1 :]
            )
        elif kind == "cut":
            content = content[:at]
        elif kind == "insert":
            content = content[:at] + draw(st.binary(min_size=1, max_size=20)) + content[at:]
        elif kind == "remove":
            content = content[:at] + content[end:]
        elif kind == "twice":
            content = content[:end] + content[at:end] * draw(st.integers(1, 3)) + content[end:]
        elif kind == "zeros":
            content = content[:at] + bytes(end - at) + content[end:]
        else:
            digits = [k for k, byte in enumerate(content) if 48 <= byte <= 57]
            if digits:
                at = digits[draw(st.integers(0, len(digits) - 1))]
                content = content[:at] + draw(NUMBERS) + content[at + 1 :]
    return content


def fields_of(value, path=()):
    """The paths to all values of a JSON value, its own included."""
    yield path
    if isinstance(value, dict):
        for key, member in value.items():
            yield from fields_of(member, (*path, key))
    elif isinstance(value, list):
        for number, member in enumerate(value):
            yield from fields_of(member, (*path, number))


def replaced(value, path, new):
    if not path:
        return new
    value = value.copy()
    value[path[0]] = replaced(value[path[0]], path[1:], new)
    return value


def read_or_refused(read, path):
    """Reads a file, which may be refused by an error that names it; checks the memory that was taken."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = None
    with little_memory(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(path)
        except (ValueError, OSError) as refusal:
            error = refusal
    assert error is None or path.name in str(error), repr(error)
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert taken < MOST_MEMORY, f"{taken:,} bytes were taken"


@pytest.fixture(scope="module", params=FILES)
def file(request, tmp_path_factory):
    """A file that can be read: its reader, its path and its content."""
    write, read = FILES[request.param]
    path = tmp_path_factory.mktemp("files") / request.param
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(path)
        content = path.read_bytes()
        read(path)
    return read, path, content


tensor_files = pytest.mark.parametrize("file", ["model.safetensors", "checkpoint.safetensors"], indirect=True)


@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_by_name(file, data):
    read, path, content = file
    path.write_bytes(data.draw(damaged(content)))
    read_or_refused(read, path)


@tensor_files
@given(data=st.data())
def test_a_header_with_another_value_is_read_or_refused_by_name(file, data):
    read, path, content = file
    header, tensors = parts_of(content)
    header = {key: decoded(text) for key, text in header.items()}
    key = data.draw(st.sampled_from(sorted(header)))
    where = data.draw(st.sampled_from(list(fields_of(header[key]))))
    changed = replaced(header, (key, *where), data.draw(VALUES))
    text = {key: value if isinstance(value, str) else json.dumps(value) for key, value in changed.items()}
    path.write_bytes(safetensors.torch.save(tensors, text))
    read_or_refused(read, path)


@tensor_files
@given(data=st.data())
def test_other_tensors_are_read_or_refused_by_name(file, data):
    read, path, content = file
    header, tensors = parts_of(content)
    key = data.draw(st.sampled_from(sorted(tensors)))
    tensor = tensors.pop(key)
    change = data.draw(st.sampled_from(["gone", "renamed", "int32", "float64", "half", "flat", "nan", "one more row"]))
    if change == "renamed":
        tensors[data.draw(st.sampled_from(["", "/", "a/b", key + "/x", key[1:]]))] = tensor
    elif change in ("int32", "float64", "half"):
        tensors[key] = tensor.to(getattr(torch, change))
    elif change == "flat":
        tensors[key] = tensor.reshape(-1)
    elif change == "nan":
        tensors[key] = tensor * float("nan")
    elif change == "one more row":
        tensors[key] = torch.cat([tensor.reshape(-1, 1), tensor.reshape(-1, 1)])
    path.write_bytes(safetensors.torch.save(tensors, header))
    read_or_refused(read, path)


def parts_of(content):
    """The header and the tensors of a safetensors file."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length])["__metadata__"], safetensors.torch.load(content)


def decoded(text):
    try:
        return json.loads(text)
    except ValueError:
        return text
