"""What tests of the command share: a small graph's files, what a run writes, and what a refusal looks like."""

import json
from pathlib import Path

import numpy as np
import scipy.sparse

NODES, FEATURES = 18, 12
SMALL = ["--set", "embedding_dim=6", "--set", "hidden_dim=7"]
RESULTS = ["embedding.npy", "links.csv", "model.safetensors", "picture.png", "report.html", "results.json"]
WRITTEN = ["checkpoint.safetensors", *RESULTS]
RECORDS = Path(__file__).resolve().parents[1] / "docs" / "results" / "trials"
EDGES = "".join(f"{i} {k}\n" for i in range(10) for k in range(i + 1, 10) if (i < 5) == (k < 5) and (i + k) % 7)
# Nothing is held out but a tenth for the test, so that a few epochs of such a small graph are a run.
QUICK = ["--epochs", "2", "--split", "0,0.1", "--set", "embedding_dim=4", "--set", "hidden_dim=5"]
WITHOUT_PICTURE = "import seegera_fast.command.written as t; t.save_picture = lambda file, **content: None"


def two_groups():
    """Two cliques with two bridges, features that tell them apart, and which clique a node is in."""
    labels = np.arange(NODES) // (NODES // 2)
    edges = [(i, k) for i in range(NODES) for k in range(i + 1, NODES) if labels[i] == labels[k]]
    edges += [(0, NODES - 1), (1, NODES - 2)]
    draws = np.random.default_rng(0).random((NODES, FEATURES))
    likely = (np.arange(FEATURES) % 2)[None, :] == labels[:, None]
    return np.array(edges), (draws < np.where(likely, 0.8, 0.2)).astype(np.float64), labels


def write_groups(folder):
    """Writes that graph's files; gives the options that name them."""
    edges, features, labels = two_groups()
    np.savetxt(folder / "groups.csv", edges, fmt="%d", delimiter=",")
    scipy.sparse.save_npz(folder / "features.npz", scipy.sparse.csr_matrix(features))
    np.savetxt(folder / "labels.txt", labels, fmt="%d")
    names = {"--edges": "groups.csv", "--features": "features.npz", "--labels": "labels.txt"}
    return [text for option, name in names.items() for text in (option, str(folder / name))]


def refused(outcome, *parts):
    """Asserts exit status 2 and one line of error that contains all the parts."""
    status, out, err = outcome
    assert (status, out) == (2, "")
    *before, line = err.splitlines()
    assert line.startswith("seegera-fast: error: ")
    assert not any("Traceback" in text or text.startswith("seegera-fast: error") for text in before)
    for part in parts:
        assert part in line


def results_in(folder):
    return json.loads((folder / "results.json").read_bytes())
