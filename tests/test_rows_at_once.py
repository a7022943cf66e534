"""Embeddings some rows at a time: the same numbers, in little memory, and written where the user wants."""

import json

import numpy as np
import pytest
import torch
from tolerances import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from trained_models import SMALL, assert_all_equal, graph, trained

import seegera_fast as sf
from seegera_fast.blocks import EmbeddingRows

ENCODERS = [
    {},
    {"encoder_layers": 1, "num_importance_samples": 3},
    {"encoder_layers": 3, "embedding_dim": 9, "noise_dim": 0},
    {"encoder_layers": 3, "hidden_dim": 9, "num_importance_samples": 2},
    {"encoder": "mlp"},
    {"encoder": "mlp", "encoder_layers": 1, "noise_dim": 0, "num_importance_samples": 2},
    {"encoder": "mlp", "encoder_layers": 3, "embedding_dim": 9, "num_importance_samples": 3},
    {"encoder_layers": 1, "encoder_output": "relu", "num_importance_samples": 2},
    {"encoder_layers": 2, "encoder_output": "relu"},
    {"encoder_layers": 3, "embedding_dim": 9, "encoder_output": "relu"},
    {"encoder": "mlp", "encoder_output": "relu"},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fields", ENCODERS, ids=json.dumps)
def test_rows_at_a_time_are_the_whole(fields, dtype):
    # The second graph is in the dense layout.
    for given in (graph(40, dtype=dtype), graph(130, features=140, p=0.6, dtype=dtype)):
        model = trained(given, likelihood="mse", **fields)
        for parameter in model.parameters():
            if parameter.ndim == 1:
                torch.nn.init.normal_(parameter.data, generator=torch.Generator().manual_seed(0))
        whole = model.embed(seed=5)
        assert torch.equal(model.embed(seed=5, rows_at_once=given.num_nodes), whole)
        assert torch.equal(model.embed(seed=torch.tensor([5]), rows_at_once=1000), whole)
        for rows in (7, given.num_nodes - 1):
            assert_close(model.embed(seed=5, rows_at_once=rows), whole.double(), terms=200)


def test_rows_may_be_shared():
    """By processes, each of which has some rows of a matrix and all of the one before."""
    given = graph(30)
    model = trained(given)
    previous, shares = None, (range(11), range(11, 30))
    ranks = [EmbeddingRows(model.node_mean, given, 1, 5, rows_at_once=9) for _ in shares]
    for step in range(len(ranks[0].widths)):
        parts = [rank.compute(step, rows, previous) for rank, rows in zip(ranks, shares, strict=True)]
        previous = torch.cat(parts)
        assert previous.shape == (30, ranks[0].widths[step])
    assert_close(previous, model.embed(seed=5).double(), terms=20)


def test_where_embeddings_are_written(tmp_path):
    given = graph(40)
    model = trained(given)
    whole = model.embed()
    np.save(tmp_path / "whole.npy", whole.numpy())
    found = model.embed(out=tmp_path / "e.npy")
    assert torch.equal(found, whole)
    assert (tmp_path / "e.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    # The result is private.
    found += 1
    assert (tmp_path / "e.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert torch.equal(model.embed(out=str(tmp_path / "e.npy"), rows_at_once=40), whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.npy", "whole.npy"]
    tensor, array = torch.zeros(40, 3), np.zeros((40, 3), np.float32)
    across = torch.zeros(3, 40).T
    pages = np.lib.format.open_memmap(tmp_path / "map.npy", mode="w+", dtype=np.float32, shape=(40, 3))
    for out in (tensor, array, across, pages):
        assert torch.equal(model.embed(out=out), whole)
        assert torch.equal(torch.as_tensor(out), whole)
    pages.flush()
    assert (tmp_path / "map.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert torch.equal(model.embed(graph(13), out=tmp_path / "e.npy"), model.embed(graph(13)))


def test_places_that_embeddings_are_not_written_to(tmp_path, monkeypatch):
    model = trained(graph(9))
    read_only = np.zeros((9, 3), np.float32)
    read_only.flags.writeable = False
    for out, error, words in (
        ("e.txt", ValueError, "out: got 'e.txt', want a name that ends in .npy"),
        ("", ValueError, "out: got '', want a path"),
        (3, TypeError, "out: got 3, want None, a path, a tensor or a NumPy array"),
        (np.zeros((9, 3)), TypeError, "out: got float64, want float32, as the model"),
        (torch.zeros(9, 3, dtype=torch.float64), TypeError, "out: got torch.float64, want torch.float32"),
        (torch.zeros(9, 4), ValueError, r"out: got shape \(9, 4\), want \(9, 3\)"),
        (np.zeros((9, 3, 1), np.float32), ValueError, r"out: got shape \(9, 3, 1\), want \(9, 3\)"),
        (torch.zeros(9, 3).to_sparse(), TypeError, "out: got a tensor of layout"),
        (torch.zeros(9, 3, requires_grad=True), ValueError, "out: got a tensor that requires a gradient"),
        (torch.zeros(9, 3, device="meta"), ValueError, "out: is on meta"),
        (read_only, ValueError, "out: got an array that is read-only"),
        (torch.zeros(1, 3).expand(9, 3), ValueError, r"out: got strides \(0, 1\), want positive ones"),
        (np.zeros((9, 3), np.float32)[::-1], ValueError, r"out: got strides \(-12, 4\), want positive ones"),
        (np.zeros((9, 3), ">f4"), TypeError, "out: got >f4, want float32, as the model"),
        (tmp_path / "none" / "e.npy", OSError, "e.npy can't be written"),
    ):
        with pytest.raises(error, match=words):
            model.embed(out=out)
    with pytest.raises(ValueError, match="rows_at_once: got 0, want at least 1"):
        model.embed(rows_at_once=0)
    # An earlier file stays if the work fails.
    (tmp_path / "e.npy").write_bytes(b"earlier")
    monkeypatch.setattr(EmbeddingRows, "compute", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.embed(out=tmp_path / "e.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["e.npy"]
    assert (tmp_path / "e.npy").read_bytes() == b"earlier"


def test_progress_of_rows(monkeypatch, capsys):
    monkeypatch.setattr("seegera_fast.support.progress.LINE_SECONDS", 0.0)
    model = trained(graph(9))
    model.embed(rows_at_once=3, progress=True)
    lines = capsys.readouterr().err.splitlines()
    # Three matrices of nine rows.
    assert lines[0].startswith("row 3 of 27, ")
    assert lines[0].endswith(" left")
    model.embed(rows_at_once=3)
    assert capsys.readouterr().err == ""


class Largest(TorchDispatchMode):
    """Notes the largest result of an operation, in numbers, of those that are not in the memory of an argument."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        given = {part.untyped_storage().data_ptr() for part in tree_leaves(args) if isinstance(part, torch.Tensor)}
        for part in tree_leaves(made):
            if isinstance(part, torch.Tensor) and part.untyped_storage().data_ptr() not in given:
                self.numbers = max(self.numbers, part.numel())
        return made


def test_no_layer_is_in_memory_as_a_whole(tmp_path):
    given = graph(600, p=0.01)
    model = sf.SeeGera(graph(9), embedding_dim=48, hidden_dim=64)
    whole = model.embed(given)
    given._forget()
    with Largest() as largest:
        found = model.embed(given, out=tmp_path / "e.npy", rows_at_once=50)
    # Of all nodes there is the noise, of c columns; a layer would be 600 x 48.
    assert 600 * 5 <= largest.numbers < 600 * 10
    assert_close(found, whole.double(), terms=64)
    assert "propagation" not in given.__dict__
    assert given.features._transposed is None


def test_embedding_makes_no_transpose():
    given = graph(9)
    model = sf.SeeGera(graph(12), **SMALL)
    model.embed(given)
    model.link_scores([[0, 1]], given)
    assert given.features._transposed is None
    # Gradients afterwards are right.
    fresh = graph(9)
    gradients = []
    for each in (given, fresh):
        model.zero_grad()
        model(each, seed=1).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert_all_equal(*gradients)
