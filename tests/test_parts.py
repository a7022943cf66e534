"""Parts of a graph: by METIS or by streaming, of one size, and kept until the links change."""

from __future__ import annotations

import importlib.util
import math
import warnings

import numpy as np
import pytest
import torch
from cliques import graph, parts_of, ring_of_cliques
from hypothesis import given
from hypothesis import strategies as st

import seegera_fast as sf
from seegera_fast import Batches, partition

METHODS = [
    pytest.param("metis", marks=pytest.mark.skipif(not importlib.util.find_spec("pymetis"), reason="needs pymetis")),
    "streaming",
]


@pytest.mark.parametrize("method", METHODS)
def test_parts_are_the_cliques(method):
    whole = ring_of_cliques(8, 6, lonely=16)
    part = whole.with_parts(8, method).parts
    assert part.dtype == torch.int64
    # 48 nodes with links and 16 without: all parts are of one size.
    assert part.bincount().tolist() == [8] * 8
    sizes = partition.part_sizes(part, whole.adjacency)
    if method == "metis":
        assert sizes.cut == 8
    # Of 128 links, parts drawn at random cut 112.
    assert sizes.cut <= 32
    assert sizes.links.sum() + sizes.cut == 128
    assert torch.equal(part, ring_of_cliques(8, 6, lonely=16).with_parts(8, method).parts)


@given(st.integers(2, 60), st.floats(0.02, 0.5), st.integers(1, 12), st.integers(0, 99), st.integers(8, 4096))
def test_every_node_has_a_part_and_no_part_is_too_large(n, density, parts, seed, at_once):
    parts = min(parts, n)
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < density, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adjacency = sf.Graph(upper | upper.T, np.ones((n, 1))).adjacency
    with pytest.MonkeyPatch.context() as patch:
        # Blocks of any size.
        patch.setattr(partition, "AT_ONCE", at_once)
        part = partition.partition(adjacency, parts, "streaming")
        sizes = partition.part_sizes(part, adjacency)
    assert 0 <= int(part.min()) <= int(part.max()) < parts
    assert int(part.bincount().max()) <= math.ceil(1.05 * n / parts) + 1
    same = part[adjacency.row] == part[adjacency.col]
    assert sizes.cut == int((~same).sum()) // 2
    assert sizes.links.tolist() == part[adjacency.row][same].bincount(minlength=len(sizes.links)).div(2).tolist()


@pytest.mark.parametrize("method", METHODS)
def test_few_links_are_cut_on_digits(method):
    digits = sf.datasets.load("digits")
    cut = partition.part_sizes(digits.with_parts(16, method).parts, digits.adjacency).cut / digits.num_edges
    # Parts drawn at random cut 15 of 16.
    assert cut < 0.25


def test_without_metis_parts_are_made_by_streaming(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    expected = ring_of_cliques(8, 6).with_parts(8, "streaming").parts
    with pytest.warns(UserWarning, match=r"METIS cuts fewer links.*seegera-fast\[scale\]"):
        assert torch.equal(ring_of_cliques(8, 6).with_parts(8).parts, expected)
    with pytest.raises(ValueError, match='method: got "metis", want the package pymetis'):
        ring_of_cliques(8, 6).with_parts(8, "metis")


def test_what_was_cut_is_kept_until_the_links_change(monkeypatch):
    whole = ring_of_cliques(8, 6)
    first = Batches(8, method="streaming").part_of(whole)
    calls = []
    make = partition.partition
    monkeypatch.setattr(partition, "partition", lambda *given: calls.append(given) or make(*given))
    expected = first.clone()
    # What was given away may be changed.
    first[first == 5] = 0
    given = whole.with_parts(8, "streaming").parts
    assert torch.equal(given, expected)
    given[:] = 0
    assert torch.equal(Batches(8, method="streaming").part_of(whole), expected)
    assert torch.equal(Batches(8, method="streaming").part_of(whole.with_features(torch.ones(48, 2))), expected)
    assert not calls
    fewer = whole.with_edges(whole.edges()[1:])
    Batches(8, method="streaming").part_of(fewer)
    assert len(calls) == 1
    # Parts that the graph was given stay with it, and are taken where as many are wanted.
    given = whole.with_parts(7 - parts_of(whole))
    fewer = given.with_edges(given.edges()[1:])
    for batches in (Batches(), Batches(8)):
        assert torch.equal(batches.part_of(fewer), given.parts)
    assert not torch.equal(Batches(8, method="streaming").part_of(whole), given.parts)
    assert given.subgraph([0, 1]).parts is None
    assert given.with_parts(None).parts is None


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        (49, ValueError, "parts: got 49, want 1 to 48"),
        (0, ValueError, "parts: got 0, want"),
        (2.0, TypeError, "parts: got 2.0, want an int"),
        (["a"] * 48, TypeError, "parts: got words, want integers$"),
        ([0] * 47, ValueError, r"parts: got shape \(47,\), want \(48,\), the part of each node of this graph"),
        ([0.5] * 48, TypeError, "parts: got torch.float"),
        ([-1] + [0] * 47, ValueError, "parts: got numbers from -1 to 0, want 0 to 47"),
        ([0] * 47 + [2**40], ValueError, "parts: got numbers from 0 to 1099511627776, want 0 to 47"),
        ([0] * 47 + [2], ValueError, r"parts: 1 of 3 have no nodes inside \(part 1\)"),
        ([0] * 47 + [1], ValueError, r"parts: 1 of 2 have no links inside \(part 1\)"),
    ],
)
def test_parts_that_are_none_are_refused(parts, error, message):
    with pytest.raises(error, match=message):
        graph().with_parts(parts, "streaming")
