"""A small model, its gradients, and the backends that it runs on."""

import numpy as np
import torch
from tolerances import assert_same_bits

import seegera_fast as sf

FIELDS = {"embedding_dim": 3, "hidden_dim": 4, "structure_masking_rate": 0.2, "feature_masking_rate": 0.2}
KERNELS = [name for name in ("cpu", "reference") if sf.backends.NAMED[name].missing is None]


def graph(dtype=torch.float32, nodes=12):
    rng = np.random.default_rng(0)
    upper = np.triu(rng.random((nodes, nodes)) < 0.4, 1)
    return sf.Graph((upper | upper.T).astype(float), rng.random((nodes, 5)) < 0.5, dtype=dtype)


def model(**options):
    return sf.SeeGera(graph(), **{**FIELDS, **options})


def gradients(made, seed=1, **options):
    made.zero_grad()
    made(seed=seed, **options).loss.backward()
    return {name: parameter.grad for name, parameter in made.named_parameters()}


def assert_all_same(got, want):
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert_same_bits(got[name], value, name=name)
