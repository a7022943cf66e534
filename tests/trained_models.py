"""Weighted graphs of any number of nodes, and models after a step on one."""

import numpy as np
import torch

import seegera_fast as sf

SMALL = {"embedding_dim": 3, "hidden_dim": 4}
FEATURES = 5


def graph(count, seed=0, *, features=FEATURES, p=0.15, dtype=torch.float32, **options):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((count, count)) * (rng.random((count, count)) < p), 1)
    upper[np.arange(count - 1), np.arange(1, count)] = 0.5
    values = (rng.random((count, features)) < 0.4) * rng.random((count, features))
    return sf.Graph(upper + upper.T, values, weighted=True, dtype=dtype, **options)


def trained(given, **fields):
    """A model after a step on its graph."""
    model = sf.SeeGera(given, **{**SMALL, **fields}, seed=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(seed=1).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return model


def assert_all_equal(found, wanted):
    assert len(found) == len(wanted)
    assert all(torch.equal(got, want) for got, want in zip(found, wanted, strict=True))
