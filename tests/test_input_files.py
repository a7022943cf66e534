"""Files of edges, features and labels: the same graph from every format, and refusals by file and line."""

import numpy as np
import pytest
import scipy.sparse
import torch
from command import NODES, SMALL, refused, two_groups

import seegera_fast as sf

pytestmark = pytest.mark.usefixtures("one_thread")


def test_files_in_every_format_give_the_same_graph(tmp_path):
    edges, features, labels = two_groups()
    adjacency = scipy.sparse.coo_matrix((np.ones(len(edges)), edges.T), shape=(NODES, NODES))
    adjacency = adjacency + adjacency.T
    tmp_path.joinpath("commas.csv").write_text("# source, target\n" + "".join(f"{i},{k}\n" for i, k in edges))
    tmp_path.joinpath("blanks.txt").write_text(
        "\ufeff0 0\n\n" + "".join(f" {k}\t{i}  # back\r\n{i} {k} 1.0\n" for i, k in edges), encoding="utf-8"
    )
    for form in ("csr", "csc", "coo"):
        scipy.sparse.save_npz(tmp_path / f"{form}.npz", adjacency.asformat(form))
        scipy.sparse.save_npz(tmp_path / f"features-{form}.npz", scipy.sparse.csr_array(features).asformat(form))
    np.save(tmp_path / "features.npy", features)
    np.savetxt(tmp_path / "features.csv", features, delimiter=", ")
    np.save(tmp_path / "labels.npy", labels.astype(np.int32))
    np.savetxt(tmp_path / "labels.txt", labels, fmt="%d", header="class")
    expected = sf.Graph(adjacency, features, labels)
    for edge_name in ("commas.csv", "blanks.txt", "csr.npz", "csc.npz", "coo.npz"):
        graph = sf.Graph.from_table(tmp_path / edge_name)
        assert torch.equal(graph.adjacency.to_dense(), expected.adjacency.to_dense())
        assert graph.name == edge_name.split(".")[0]
        assert graph.num_features == NODES
    for name in ("features-csr.npz", "features-csc.npz", "features-coo.npz", "features.npy", "features.csv"):
        graph = sf.Graph.from_table(tmp_path / "commas.csv", tmp_path / name)
        assert torch.equal(graph.features.to_dense(), expected.features.to_dense())
    for name in ("labels.npy", "labels.txt"):
        assert torch.equal(sf.Graph.from_table(tmp_path / "csr.npz", None, tmp_path / name).labels, expected.labels)


def test_weights_of_an_edge_list(tmp_path):
    (tmp_path / "weights.txt").write_text("0 1 2\n1 2 0.5\n2 1 0.25\n")
    with pytest.warns(UserWarning, match="weighted=True"):
        plain = sf.Graph.from_table(tmp_path / "weights.txt")
    weighted = sf.Graph.from_table(tmp_path / "weights.txt", weighted=True)
    dense = np.array([[1, 2, 0], [2, 1, 0.5], [0, 0.5, 1]])
    scale = 1 / np.sqrt(dense.sum(axis=1))
    assert np.allclose(weighted.propagation.to_dense().numpy(), dense * scale[:, None] * scale[None, :])
    assert not torch.equal(plain.propagation.to_dense(), weighted.propagation.to_dense())
    assert torch.equal(plain.adjacency.to_dense(), weighted.adjacency.to_dense())


def test_the_command_names_its_options_for_arguments(run, tmp_path):
    (tmp_path / "e.txt").write_text("0 1 2\n1 2 0.5\n2 3 1\n")
    (tmp_path / "f.csv").write_text("x,y\n3,7\n1,8\n0,9\n2,0\n")
    argv = ["train", "--edges", tmp_path / "e.txt", "--features", tmp_path / "f.csv", "--task", "embed", "--epochs", 1]
    status, _, err = run(*argv, "--out", tmp_path / "out", "--quiet", *SMALL)
    assert status == 0
    for part in (
        "e.txt: got edge weights other than 1, which are ignored; --weighted keeps them\n",
        "the names of the nodes; --node says which one that is, --no-names that there is none\n",
    ):
        assert part in err


@pytest.mark.parametrize(
    ("name", "want"), [("label", "labels="), ("categories", "features="), ("node", "features= or labels=")]
)
def test_columns_of_tables_that_are_not_there_are_refused(run, tmp_path, name, want):
    (tmp_path / "e.csv").write_text("from,to\nAnn,Bob\nBob,Eve\n")
    column = ["topic"] if name == "categories" else "topic"
    message = f"{name}: got 'topic' and no table that has it, want {want} too"
    with pytest.raises(ValueError, match=message):
        sf.Graph.from_table(tmp_path / "e.csv", **{name: column})
    in_options = message.replace("features=", "--features").replace("labels=", "--labels")
    table = ["--edges", tmp_path / "e.csv"]
    refused(run("train", *table, f"--{name}", "topic", "--out", tmp_path / "out", *SMALL), in_options)
    refused(run("import", table[1], f"--{name}", "topic", "--out", tmp_path / "web"), in_options)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "web").exists()
    if name == "categories":
        labels = tmp_path / "l.csv"
        labels.write_text("name,class\nAnn,0\nBob,1\nEve,0\n")
        refused(
            run("train", *table, "--labels", labels, "--categories", "city", "--out", tmp_path / "out"), "--features"
        )


def test_the_command_names_the_option_of_labels(run, tmp_path):
    (tmp_path / "e.csv").write_text("from,to\nAnn,Bob\nBob,Eve\n")
    outcome = run("train", "--edges", tmp_path / "e.csv", "--task", "node", "--out", tmp_path / "out", *SMALL)
    refused(outcome, "graph: has no labels, want a graph with --labels")


@pytest.mark.parametrize("more", ["", "2 3 7\n"])
def test_repeated_lines_have_the_largest_weight_whatever_other_lines_say(tmp_path, more):
    (tmp_path / "weights.txt").write_text("0 1\n0 1\n1 0\n1 2\n2 1\n" + more)
    graph = sf.Graph.from_table(tmp_path / "weights.txt", weighted=True)
    assert graph.weights.tolist() == [1, 1, 1, 1, *[7, 7] * bool(more)]


def test_isolated_nodes_are_counted_by_features_or_labels(tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n")
    np.save(tmp_path / "features.npy", np.ones((4, 2)))
    (tmp_path / "labels.txt").write_text("0\n1\n-1\n")
    assert sf.Graph.from_table(tmp_path / "edges.txt", tmp_path / "features.npy").num_nodes == 4
    assert sf.Graph.from_table(tmp_path / "edges.txt", None, tmp_path / "labels.txt").num_nodes == 3
    assert sf.Graph.from_table(tmp_path / "edges.txt").num_nodes == 2


BAD_EDGES = [
    ("e.txt", b"0 1\n\n# note\n2\n", ["e.txt, line 4", "'2'", "two node numbers"]),
    ("e.txt", b"source,target\n0,x\n", ["line 2", "'0 x'", "#"]),
    ("e.txt", b"0 1\n1 1.5\n", ["line 2", "'1 1.5'", "integers from 0"]),
    ("e.txt", b"0 1\n-1 2\n", ["line 2", "'-1 2'", "integers from 0"]),
    ("e.txt", b"0 1 2 3\n", ["line 1", "'0 1 2 3'"]),
    ("e.txt", b"0 1 nan\n", ["line 1", "a weight of 0 or more"]),
    ("e.txt", b"0 1 -2\n", ["line 1", "a weight of 0 or more"]),
    ("e.txt", b"0 99999999999999999999\n", ["line 1"]),
    ("e.txt", b"0 1\n0 18\n", ["e.txt, line 2", "node 18", "18 rows", "0 to 17"]),
    ("e.txt", b"0 1\n9223372036854775807 0\n", ["line 2", "node 9223372036854775807", "18 rows"]),
    ("e.txt", b"\xff\xfe\x00\x01", ["e.txt", "not a text file"]),
    ("e.txt", b"0 1\n1_0 2\n", ["e.txt, line 2", "'1_0 2'", "two node numbers", "in the digits 0 to 9"]),
    ("e.txt", b"", ["e.txt: holds no edges", "two node numbers"]),
    ("e.txt", b" \n# nothing\n", ["e.txt: holds no edges"]),
    ("e.npy", b"", ["e.npy", "save_npz"]),
    ("e.npz", b"", ["e.npz", "save_npz"]),
    ("e.npz", b"PK\x03\x04 and no more", ["e.npz", "save_npz"]),
]


@pytest.mark.parametrize(("name", "content", "parts"), BAD_EDGES)
def test_wrong_edges_are_refused(run, own, tmp_path, name, content, parts):
    (tmp_path / name).write_bytes(content)
    refused(run("train", "--edges", tmp_path / name, *own[2:], "--out", tmp_path / "out"), *parts)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("node", [2**63 - 1, 2**63 - 2, 2**31, 10**8 + 1, 99_999_999, 2_000_001])
def test_names_that_look_like_numbers_are_no_numbers(run, tmp_path, node):
    (tmp_path / "e.txt").write_text(f"# pages\n0 1\n1 {node}\n2 3\n")
    refused(
        run("train", "--edges", tmp_path / "e.txt", "--no-names", "--out", tmp_path / "out"),
        "e.txt, line 3",
        f"node {node} in a file of 3 edges",
        "--names, or features",
    )
    assert sf.Graph.from_table(tmp_path / "e.txt").nodes.tolist() == [0, 1, 2, 3, node]


BAD_FEATURES = [
    ("f.txt", b"1 2\n3\n", ["f.txt, line 2", "1 columns, want 2"]),
    ("f.txt", b"1 2\n3 x\n", ["line 2", "'x' in column 1", "numbers"]),
    ("f.txt", b"# nothing\n", ["f.txt", "no rows"]),
    ("f.txt", b"1 1_0\n" * NODES, ["f.txt, line 1", "'1_0' in column 1", "in the digits 0 to 9"]),
    ("f.npy", b"", ["f.npy", "NumPy array file"]),
    ("f.txt", b"1 inf\n" * NODES, ["f.txt, line 1", "'inf' in column 1", "finite"]),
    ("f.txt", b"1 2\n" * 3, ["groups.csv", "node 17", "3 rows"]),
    ("f.npy", b"not an array", ["f.npy", "NumPy"]),
    ("f.npz", b"not an archive", ["f.npz", "save_npz"]),
]


@pytest.mark.parametrize(("name", "content", "parts"), BAD_FEATURES)
def test_wrong_features_are_refused(run, own, tmp_path, name, content, parts):
    (tmp_path / name).write_bytes(content)
    refused(run("train", *own[:2], "--features", tmp_path / name, "--out", tmp_path / "out"), *parts)


def test_wrong_arrays_are_refused(run, own, tmp_path):
    def check(option, array, *parts):
        name = tmp_path / "array.npy"
        np.save(name, array)
        kept = own[:2] if option == "--features" else own[:4]
        refused(run("train", *kept, option, name, "--out", tmp_path / "out"), *parts)

    check("--features", np.ones(NODES), "array.npy", "(18,)", "two dimensions")
    check("--features", np.array([[{}]] * NODES), "array.npy", "NumPy")
    check("--features", np.array([["a"]] * NODES), "array.npy", "<U1", "want numbers")
    check("--labels", np.ones(NODES), "array.npy", "float64", "want integers")
    check("--labels", np.ones(NODES + 1, np.int64), "array.npy", "(19,)", "one label per node")
    (tmp_path / "labels.txt").write_text("0\n1 2\n")
    refused(run("train", *own, "--out", tmp_path / "out"), "labels.txt, line 2", "'1 2'", "one integer")


def test_hostile_sparse_archive_is_refused(run, own, tmp_path):
    parts = {"data": np.ones(2), "indptr": np.array([0, 1, 2]), "shape": np.array([2, 2]), "format": np.array(b"csr")}
    np.savez(tmp_path / "e.npz", indices=np.array([0, 900000000]), **parts)
    refused(run("train", "--edges", tmp_path / "e.npz", "--out", tmp_path / "out"), "e.npz", "900000000")
    scipy.sparse.save_npz(tmp_path / "dia.npz", scipy.sparse.identity(4, format="dia"))
    refused(run("train", "--edges", tmp_path / "dia.npz", "--out", tmp_path / "out"), "dia.npz", "csr, csc or coo")
    scipy.sparse.save_npz(tmp_path / "wide.npz", scipy.sparse.csr_matrix(np.ones((2, 3))))
    refused(run("train", "--edges", tmp_path / "wide.npz", "--out", tmp_path / "out"), "2 x 3", "square")
