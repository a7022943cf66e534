"""Graphs in folders of arrays: what is saved is what is opened, nothing is half written, damage is named."""

import copy
import json
import os
import pickle
import shutil
import warnings

import cases
import numpy as np
import pytest
import torch
from disk import largest_file
from hypothesis import given
from hypothesis import strategies as st

import seegera_fast as sf
from seegera_fast import graph_files, tasks
from seegera_fast.support import array_folder, atomic

PARTS = ("rowptr", "col", "values")


def named_graph(**options):
    """A graph with all that a graph may have."""
    table = {"from": ["Ann", "Bob", "é", "Ann"], "to": ["Bob", "Eve", "Ann", "\ud800"]}
    table |= {"weight": [1, 2, 3.5, 1], "time": [4.0, 3, 2, 1]}
    labels = {"name": ["Ann", "Bob", "Eve", "é"], "label": ["x", "y", "", "x"]}
    masks = {"a/b": np.array([1, 0, 1, 0, 1], bool), "\udfff": np.ones(5, bool)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sf.Graph.from_table(
            table, None, labels, weight="weight", time="time", name="fr", masks=masks, **{"label": "label", **options}
        )


def same_matrix(one, two):
    equal = all(torch.equal(getattr(one, part), getattr(two, part)) for part in PARTS)
    return equal and (one.shape, one.symmetric, one.hollow) == (two.shape, two.symmetric, two.hollow)


def same(one, two):
    """Whether two graphs are the same, in all that a graph has."""
    for name in set(vars(one)) | set(vars(two)):
        if name in (*one._kept_names, "folder"):
            continue
        first, second = getattr(one, name), getattr(two, name)
        if isinstance(first, sf.SparseMatrix):
            equal = same_matrix(first, second)
        elif isinstance(first, torch.Tensor):
            equal = isinstance(second, torch.Tensor) and first.dtype == second.dtype and torch.equal(first, second)
        elif isinstance(first, np.ndarray):
            equal = isinstance(second, np.ndarray) and first.dtype == second.dtype and first.tolist() == second.tolist()
        elif name == "masks":
            equal = list(first) == list(second) and all(torch.equal(first[key], second[key]) for key in first)
        else:
            equal = first == second
        if not equal:
            return False
    return True


def mapped_file(tensor):
    """The file whose map a tensor's numbers lie in."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            ends, *_, path = line.split(maxsplit=5)
            low, high = (int(end, 16) for end in ends.split("-"))
            if low <= tensor.data_ptr() < high:
                return path.strip()
    return None


@pytest.fixture
def folder(tmp_path):
    named_graph().save(tmp_path / "graph")
    return tmp_path / "graph"


# --- what is saved is what is opened ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", [None, True, False])
@pytest.mark.parametrize(
    "graph",
    [
        named_graph(),
        cases.graph("random", "counts"),
        sf.Graph(np.zeros((1, 1))),
        sf.Graph(np.zeros((3, 3)), np.zeros((3, 2)), nodes=[7, -1, 3], labels=[1, -1, 0], dtype=torch.float64),
        sf.Graph(np.zeros((2, 2)), labels=["", ""]),
    ],
    ids=["named", "random", "one", "no-edges", "unlabelled"],
)
def test_it_comes_back(graph, verify, tmp_path):
    graph.save(tmp_path / "graph")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened = sf.Graph.open(tmp_path / "graph", verify=verify)
    assert same(graph, opened)
    assert opened.folder.as_written()
    assert os.listdir(tmp_path) == ["graph"]


def test_what_few_graphs_have_comes_back(tmp_path):
    part = cases.graph("random", "counts").subgraph([5, 2, 3, 11])
    part.parts, part.data_set = torch.tensor([1, 0, 1, 0]), "cora"
    part.save(tmp_path / "graph")
    opened = sf.Graph.open(tmp_path / "graph", verify=True)
    assert opened.node_numbers.tolist() == [5, 2, 3, 11]
    assert opened.parts.tolist() == [1, 0, 1, 0]
    assert opened.data_set == "cora"
    write(tmp_path / "graph", parts=[1, -1, 0, 0])
    with pytest.raises(ValueError, match=r"parts\.npy: got -1, want numbers from 0"):
        sf.Graph.open(tmp_path / "graph", verify=True)


def test_a_part_of_it_is_that_of_the_graph_in_memory(folder):
    graph = named_graph()
    assert same(sf.Graph.open(folder).subgraph([3, 0, 1]), graph.subgraph([3, 0, 1]))


def test_plain_numpy_reads_the_files(folder):
    graph = named_graph()
    assert np.load(folder / "col.npy").tolist() == graph.adjacency.col.tolist()
    assert np.load(folder / "nodes.letters.npy").tobytes().decode("utf-8", "surrogatepass") == "".join(graph.nodes)
    assert json.loads((folder / "graph.json").read_text())["entries"] == graph.adjacency.nnz


def test_arrays_lie_in_the_map_and_writing_to_them_changes_no_file(folder):
    opened, before = sf.Graph.open(folder), (folder / "col.npy").read_bytes()
    for name, matrix in (("", opened.adjacency), ("features_", opened.features)):
        for part in PARTS:
            assert mapped_file(getattr(matrix, part)) == str(folder / f"{name}{part}.npy")
    opened.adjacency.col.fill_(0)
    assert (folder / "col.npy").read_bytes() == before
    assert same(sf.Graph.open(folder, verify=True), named_graph())


def test_all_methods_work_on_it(tmp_path):
    graph = cases.graph("random", "counts")
    graph.save(tmp_path / "graph")
    opened = sf.Graph.open(tmp_path / "graph")
    assert same_matrix(opened.propagation, graph.propagation)
    assert same(opened.with_edges(opened.edges()[::2]), graph.with_edges(graph.edges()[::2]))
    assert same(opened.to(dtype=torch.float64), graph.to(dtype=torch.float64))
    options = {"epochs": 2, "embedding_dim": 4, "hidden_dim": 4, "progress": False}
    one, two = (tasks.embed(each, **options) for each in (graph, opened))
    assert torch.equal(one.model.embed(), two.model.embed())


def test_copies_and_pickles_are_in_memory(folder):
    opened = sf.Graph.open(folder)
    for copied in (copy.deepcopy(opened), pickle.loads(pickle.dumps(opened))):
        assert copied.folder is None
        assert same(copied, opened)


# --- nothing is half written, and nothing of the user's is written over ----------------------------------------------


def test_a_full_disk_leaves_nothing(tmp_path):
    graph = cases.graph("random", "counts")
    with largest_file(150), pytest.raises(OSError, match=r"graph/\w+\.npy can't be written: File too large"):
        graph.save(tmp_path / "graph")
    assert not os.listdir(tmp_path)


def test_a_graph_is_replaced_whole_or_not_at_all(folder):
    opened, graph = sf.Graph.open(folder), cases.graph("random", "counts")
    with largest_file(1000), pytest.raises(OSError, match=r"can't be written"):
        graph.save(folder)
    assert same(sf.Graph.open(folder, verify=True), opened)
    graph.save(folder)
    assert same(sf.Graph.open(folder, verify=True), graph)
    # The files that are mapped are still there, though no longer in a folder.
    opened.require_unchanged()
    assert same(opened, named_graph())
    assert os.listdir(folder.parent) == ["graph"]


def test_it_can_be_saved_where_it_was_opened_from(folder):
    sf.Graph.open(folder).save(folder)
    assert same(sf.Graph.open(folder, verify=True), named_graph())


def test_a_foreign_folder_is_not_written_over(tmp_path, folder):
    graph, foreign = named_graph(), tmp_path / "foreign"
    foreign.mkdir()
    graph.save(foreign)  # it was empty
    (foreign / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"foreign: is not replaced, because it also holds 'notes.txt'"):
        graph.save(foreign)
    shutil.rmtree(foreign)
    foreign.mkdir()
    (foreign / "graph.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match=r"foreign: is not replaced, because Graph.save did not write it"):
        graph.save(foreign)
    with pytest.raises(ValueError, match=r"graph.json: is there and is no folder"):
        graph.save(foreign / "graph.json")
    assert os.listdir(foreign) == ["graph.json"]
    with pytest.raises(OSError, match=r"missing/graph can't be written"):
        graph.save(tmp_path / "missing" / "graph")


def test_what_a_killed_process_left_is_removed(tmp_path):
    left = tmp_path / ".graph.00000000.part"
    left.mkdir()
    (left / "col.npy").write_bytes(b"half")
    named_graph().save(tmp_path / "graph")
    assert os.listdir(tmp_path) == ["graph"]


def test_a_graph_that_could_not_be_replaced_is_put_back(folder, monkeypatch):
    rename, graph = os.replace, cases.graph("random", "counts")

    def once(source, target):
        if target == folder:
            monkeypatch.setattr(os, "replace", rename)
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "replace", once)
    with pytest.raises(OSError, match=r"graph can't be written: Input/output error"):
        graph.save(folder)
    assert os.listdir(folder.parent) == ["graph"]
    assert same(sf.Graph.open(folder, verify=True), named_graph())


def test_a_graph_that_a_killed_process_moved_away_is_put_back(folder):
    former, graph = folder.with_name(".graph.00000000.former"), cases.graph("random", "counts")
    folder.rename(former)
    with largest_file(1000), pytest.raises(OSError, match=r"can't be written"):
        graph.save(folder)
    assert os.listdir(folder.parent) == ["graph"]
    assert same(sf.Graph.open(folder, verify=True), named_graph())
    # It was killed after the new one was in its place.
    shutil.copytree(folder, former)
    graph.save(folder)
    assert os.listdir(folder.parent) == ["graph"]
    assert same(sf.Graph.open(folder, verify=True), graph)


def test_a_graph_that_another_process_is_replacing_is_left_to_it(folder):
    former = folder.with_name(".graph.00000000.former")
    folder.rename(former)
    descriptor = os.open(former, os.O_RDONLY)
    assert atomic.hold(descriptor)
    cases.graph("random", "counts").save(folder)
    os.close(descriptor)
    assert sorted(os.listdir(folder.parent)) == [former.name, "graph"]


def test_a_graph_that_was_moved_away_from_a_longer_name_is_left(tmp_path):
    other = tmp_path / ".graph.old.00000000.former"
    named_graph().save(other)
    named_graph().save(tmp_path / "graph")
    assert sorted(os.listdir(tmp_path)) == [other.name, "graph"]


# --- damage ----------------------------------------------------------------------------------------------------------


def test_what_is_no_folder_of_a_graph_is_named(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match=r"missing: there is no such folder, want one that Graph.save"):
        sf.Graph.open(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"col.npy: is a file, want a folder"):
        sf.Graph.open(folder / "col.npy")
    with pytest.raises(ValueError, match=r"has no graph.json, want a folder"):
        sf.Graph.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "web"}, "format: got 'web', want 'seegera-fast graph'"),
        ({"version": 2}, "got format version 2, want 1: a newer version wrote it"),
        ({"entries": 4}, "is damaged: its content does not have the checksum"),
    ],
)
def test_a_foreign_or_changed_json_is_named(folder, change, message):
    path = folder / "graph.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=rf"graph\.json: .*{message}"):
        sf.Graph.open(folder)


def write(folder, **arrays):
    """Writes other arrays into a folder, with their checksums, as a program that does not know graphs might."""
    content = json.loads((folder / "graph.json").read_text())
    facts = {name: value for name, value in content.items() if name not in ("format", "version", "files", "crc32")}
    writer = array_folder.FolderWriter(folder, folder)
    writer._files = content["files"]
    for name, values in arrays.items():
        writer.array(name, np.asarray(values))
    writer.finish(graph_files.KIND, facts)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("rowptr", [0, 2, 4, 3, 6], "got numbers that fall, want ascending ones"),
        ("rowptr", [1, 2, 3, 4, 6], "got numbers from 1 to 6, want 0 to 6"),
        ("col", [1, 3, 0, 2, 1, 4], "got 4, want 0 to 3"),
        ("col", [3, 1, 0, 2, 1, 0], "got columns that do not ascend in their row"),
        ("col", [1, 3, 0, 1, 1, 0], "got an edge from a node to itself"),
        ("col", [1, 2, 0, 2, 1, 0], "got a directed graph"),
        ("values", np.array([1, 1, 1, 1, 1, 2], np.float32), "got 2.0, want ones"),
        ("weights", np.array([1, 3, 1, 2, 2, -3], np.float32), "got -3.0, want numbers above 0"),
        ("weights", np.array([1, 3, 1, 2, 2, 4], np.float32), "got a directed graph"),
        (
            "weights",
            np.array([1, 3, 1, 2, 2], np.float32),
            r"got float32 of shape \(5,\), want float32",
        ),
        ("features_values", np.array([1, 1, np.nan, 1], np.float32), "got nan, want numbers"),
        ("features_col", [0, 1, 2, 9], "got 9, want 0 to 3"),
        ("labels", [0, 1, 2, 0], "got 2, want numbers below 2"),
        ("labels", [0.0, 1.0, 1.0, 0.0], r"got float64 of shape \(4,\), want int64"),
        ("masks", np.full((2, 4), 2, np.uint8).view(bool), "got 2, want 0 or 1"),
        ("nodes.ends", [3, 6, 4, 11], "got numbers that fall"),
    ],
)
def test_numbers_that_are_no_graph_are_named(tmp_path, name, values, message):
    table = {"from": ["Ann", "Bob", "é"], "to": ["Bob", "Eve", "Ann"], "weight": [1, 2, 3]}
    labels = {"name": ["Ann", "Bob", "Eve", "é"], "label": ["x", "y", "", "x"]}
    masks = {key: np.ones(4, bool) for key in "ab"}
    sf.Graph.from_table(table, None, labels, weight="weight", masks=masks).save(tmp_path / "graph")
    write(tmp_path / "graph", **{name: values})
    place = "col" if "directed" in message else name.replace(".", r"\.")
    with pytest.raises(ValueError, match=rf"{place}\.npy: {message}"):
        sf.Graph.open(tmp_path / "graph", verify=True)


def test_a_copy_is_read_and_the_files_that_were_written_are_not(folder, monkeypatch):
    read = []
    monkeypatch.setattr(array_folder.ArrayFolder, "verify", lambda found: read.append(found.path))
    sf.Graph.open(folder)
    copied = shutil.copytree(folder, folder.with_name("copy"))
    sf.Graph.open(copied, verify=False)
    assert not read
    sf.Graph.open(copied)
    assert read == [copied]


def test_a_folder_that_is_changed_while_it_is_open(folder):
    opened, path = sf.Graph.open(folder), folder / "features_values.npy"
    for _ in range(2):
        with open(path, "r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(b"\0\0\0\0")
        for use in (
            lambda: tasks.split_links(opened),
            lambda: sf.SeeGera(opened, embedding_dim=2, hidden_dim=2),
            lambda: opened.save(folder.with_name("other")),
        ):
            with pytest.raises(ValueError, match=r"features_values.npy: was changed while it was open"):
                use()
    assert not folder.with_name("other").exists()


def test_another_name_or_mode_of_a_file_is_no_change(folder):
    opened = sf.Graph.open(folder)
    os.link(folder / "col.npy", folder.with_name("hard"))
    os.chmod(folder / "rowptr.npy", 0o600)
    opened.require_unchanged()
    # Neither is the file that was written for sure, and so all are read.
    assert not sf.Graph.open(folder).folder.as_written()


KINDS = ("flip", "cut", "longer", "gone", "other")


@given(data=st.data(), kind=st.sampled_from(KINDS), position=st.floats(0, 1, exclude_max=True))
def test_any_damage_is_named_or_harmless(tmp_path_factory, data, kind, position):
    folder = tmp_path_factory.mktemp("damaged") / "graph"
    graph = named_graph()
    graph.save(folder)
    names = sorted(os.listdir(folder))
    path = folder / data.draw(st.sampled_from(names))
    content = bytearray(path.read_bytes())
    at = int(position * len(content))
    if kind == "flip":
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del content[at:]
    elif kind == "longer":
        content[at:at] = b"0" * data.draw(st.integers(1, 200))
    elif kind == "other":
        content = bytearray((folder / data.draw(st.sampled_from(names))).read_bytes())
    path.unlink() if kind == "gone" else path.write_bytes(content)
    try:
        opened = sf.Graph.open(folder)
    except ValueError as error:
        named = path.name in str(error)
    else:
        named = same(opened, graph)
    assert named
