"""The Triton kernels with the block sizes that they have on a GPU, interpreted on the CPU, on work for several blocks.

The other tests interpret them with few large blocks, because each interpreted block takes milliseconds. Triton decides
whether to interpret when it is imported, so this file runs as a script in another process, which writes its results to
a file.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys

import ahead_of_time
import cases
import contract
import interpreter
import pytest
import test_component_log_density
import test_decoder_input
import test_dropout
import test_gcn
import test_mixture_density
import test_noisy_gcn
import test_reparameterize
import test_standard_normal_density
import torch
from tolerances import assert_close, assert_same_bits

from seegera_fast import ops, use_backend

KERNELS = "seegera_fast.kernels.triton"
# The modules in which block sizes are chosen.
CHOOSING = (
    "draw_noise",
    "reparameterize",
    "standard_normal_density",
    "draw_subset",
    "mask_edges",
    "mask_entries",
    "noisy_gcn_dropped",
    "common.csr_product",
    "common.dropout",
    "common.layer",
    "common.mixture",
)
COLUMN = contract.Column("triton", "cpu")


def _popular_features() -> contract.Arguments:
    """A dense layer over features that nearly all of the rows have: hubs of X^T."""
    arguments = test_noisy_gcn.layer("path", h=3, num_columns=3, dropout=0.3, dense=True)()
    return {**arguments, "features": cases.features("dense", 300, 3)}


# Operations with gradients, by their class of tests.
DIFFERENTIABLE = {
    "dropout": (test_dropout.TestDropout, test_dropout.values(9, 2, 300)),
    "reparameterize": (test_reparameterize.TestReparameterize, test_reparameterize.moments(9, 2, 300)),
    "reparameterize, one variance": (
        test_reparameterize.TestReparameterize,
        test_reparameterize.moments(9, 2, 300, 1),
    ),
    "standard_normal_density": (
        test_standard_normal_density.TestStandardNormalDensity,
        test_standard_normal_density.samples(19, 2, 700),
    ),
    "mixture_density": (test_mixture_density.TestMixtureDensity, test_mixture_density.mixture(7, 300, 2, 3)),
    "mixture_density, own variances": (
        test_mixture_density.TestMixtureDensity,
        test_mixture_density.mixture(7, 300, 2, 3, shared=False),
    ),
    "mixture_density, many rows": (test_mixture_density.TestMixtureDensity, test_mixture_density.mixture(300, 3, 1, 1)),
    "component_log_density": (
        test_component_log_density.TestComponentLogDensity,
        test_mixture_density.mixture(7, 300, 2, 3),
    ),
    "gcn": (test_gcn.TestGcn, test_gcn.layer("random", h=140, d=130, dropout=0.3)),
    "noisy_gcn": (test_noisy_gcn.TestNoisyGcn, test_noisy_gcn.layer("random", h=130, c=9, bias=True)),
    "noisy_gcn with dropout": (test_noisy_gcn.TestNoisyGcn, test_noisy_gcn.layer("hub", h=130, dropout=0.3)),
    "noisy_gcn with dropout, hubs in X": (
        test_noisy_gcn.TestNoisyGcn,
        test_noisy_gcn.layer("hub", "dense", h=3, num_columns=300, dropout=0.3),
    ),
    "noisy_gcn with dropout, hubs in X^T": (test_noisy_gcn.TestNoisyGcn, _popular_features),
    "decoder_input": (test_decoder_input.TestDecoderInput, test_decoder_input.decoded(d=70, h=130, dropout=0.3)),
}
# Blocks do not depend on the dtype: float64 where sums are long.
LONG_SUMS = ("mixture_density", "gcn", "noisy_gcn", "noisy_gcn with dropout, hubs in X")
VALUES = [(name, torch.float32) for name in DIFFERENTIABLE] + [(name, torch.float64) for name in LONG_SUMS]


def _noise() -> list[torch.Tensor]:
    return [ops.draw_noise(3, 150, 2, 5), ops.draw_noise(-4, 3, 1, 300, 0.2)]


def _subset() -> list[torch.Tensor]:
    return [ops.draw_subset(5, 1300, chosen) for chosen in (0, 1, 400, 1300)]


def _masked_edges() -> list[torch.Tensor]:
    graph = cases.large_graph()
    masked = ops.mask_edges(*graph.with_self_loops(), graph.num_edges // 3, 4)
    return [masked.rowptr, masked.col, masked.values]


def _masked_entries() -> list[torch.Tensor]:
    features = cases.large_graph().features
    masked = ops.mask_entries(features, features.nnz // 3, 4)
    forms = (masked, masked.row_normalized, masked.transposed.row_normalized)
    return [part.values for form in forms for part in (form, form.transposed)]


DRAWN = {"draw_noise": _noise, "draw_subset": _subset, "mask_edges": _masked_edges, "mask_entries": _masked_entries}

# Rows for several chunks of partial sums, and for several chunks of those.
SUMMED = {rows: 1.0 + torch.arange(rows * 3, dtype=torch.float64).reshape(rows, 3) % 7 for rows in (1, 1025, 2**20 + 1)}


def _take_the_blocks_of_a_gpu(name: str) -> None:
    """Replaces the functions of a module of kernels that choose by device."""
    module = importlib.import_module(f"{KERNELS}.{name}")

    def on_a_gpu(function, *arguments):
        return function(**{**inspect.signature(function).bind(*arguments).arguments, "device": "cuda"})

    found = [
        (name, function)
        for name, function in vars(module).items()
        if inspect.isfunction(function) and "device" in inspect.signature(function).parameters
    ]
    if not found:
        raise RuntimeError(f"{name} has no function that chooses its blocks by device")
    for name, function in found:
        setattr(module, name, functools.partial(on_a_gpu, function))


def _run_cases(path: str) -> None:
    for name in CHOOSING:
        _take_the_blocks_of_a_gpu(name)
    sums = importlib.import_module(f"{KERNELS}.common.sums")
    results = {}
    for name, dtype in VALUES:
        tests, arguments = DIFFERENTIABLE[name]
        results[name, dtype] = tests.outcome(tests.on(COLUMN), contract.converted(arguments(), dtype))
    with use_backend("triton"):
        results.update({name: draw() for name, draw in DRAWN.items()})
    results["sums"] = {rows: sums.sum_rows(values, torch.float64) for rows, values in SUMMED.items()}
    torch.save(results, path)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    if not ahead_of_time.has_triton():
        pytest.skip("Triton is not installed")
    path = tmp_path_factory.mktemp("triton") / "results.pt"
    interpreter.run(__file__, path)
    return torch.load(path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), VALUES)
def test_values_and_gradients(results, name, dtype):
    tests, arguments = DIFFERENTIABLE[name]
    tests.compare(results[name, dtype], contract.converted(arguments(), dtype), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_draws(results, name):
    with use_backend("reference"):
        want = DRAWN[name]()
    for got, expected in zip(results[name], want, strict=True):
        if expected.is_floating_point():
            assert_close(got, expected.double(), terms=1000, name=name)
        else:
            assert_same_bits(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("rows", SUMMED)
def test_sums_of_rows(results, rows):
    assert_same_bits(results["sums"][rows], SUMMED[rows].sum(dim=0))


if __name__ == "__main__":
    _run_cases(sys.argv[1])
