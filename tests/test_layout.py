"""The layouts of a matrix on the CPU: which one is chosen, which matrices share it, and that both compute the same."""

import cases
import contract
import numpy as np
import pytest
import scipy.sparse
import torch
from cases import normal
from seegera_fast.kernels.cpu.layout import DENSE_SHARE, DENSE_SIZE, layout
from tolerances import assert_close, assert_same_bits

from seegera_fast import Graph, SparseMatrix, ops, reference, use_backend
from seegera_fast.masking import mask_features


def random_matrix(share, rows=170, columns=130):
    present = np.random.default_rng(5).permutation(rows * columns) < share * rows * columns
    return SparseMatrix.from_any(present.reshape(rows, columns) * 1.5)


@pytest.mark.parametrize(("share", "chosen"), [(0.0, "sparse"), (0.2, "sparse"), (0.3, "dense"), (1.0, "dense")])
def test_the_share_of_non_zeros_decides(share, chosen):
    matrix = random_matrix(share)
    assert matrix.layout == "auto"
    assert layout(matrix) == chosen
    assert layout(matrix.transposed) == chosen


def test_exactly_at_the_crossover():
    size = DENSE_SIZE // 64
    values = np.zeros((64, size), dtype=np.float32)
    values.flat[: int(DENSE_SHARE * values.size)] = 1
    assert layout(SparseMatrix.from_any(values)) == "dense"
    values.flat[0] = 0
    assert layout(SparseMatrix.from_any(values)) == "sparse"


def test_a_small_matrix_is_sparse():
    assert layout(SparseMatrix.from_any(np.ones((127, 129)))) == "sparse"
    assert layout(SparseMatrix.from_any(np.ones((128, 128)))) == "dense"


def test_what_is_asked_for_is_done():
    assert layout(random_matrix(1.0).with_layout("sparse")) == "sparse"
    assert layout(random_matrix(0.0).with_layout("dense")) == "dense"
    assert layout(random_matrix(1.0).with_layout("sparse").with_layout("auto")) == "dense"


@pytest.mark.parametrize("forced", ["sparse", "dense"])
@pytest.mark.parametrize("transposed_first", [True, False])
def test_forced_for_all_that_follows(forced, transposed_first):
    chosen = random_matrix(0.1)
    if transposed_first:
        chosen.transposed.row_normalized  # noqa: B018
    matrix = chosen.with_layout(forced)
    assert matrix.layout == forced
    followers = {
        "transposed": matrix.transposed,
        "twice transposed": matrix.transposed.transposed,
        "rows normalised": matrix.row_normalized,
        "columns normalised": matrix.transposed.row_normalized,
        "other values": matrix.with_values(2 * matrix.values),
        "float64": matrix.to(dtype=torch.float64),
        "masked": mask_features(matrix, 0.5, 3),
        "masked, columns normalised": mask_features(matrix, 0.5, 3).transposed.row_normalized,
    }
    assert {name: follower.layout for name, follower in followers.items()} == dict.fromkeys(followers, forced)
    assert chosen.layout == "auto"
    for part in ("rowptr", "col", "values"):
        assert getattr(matrix, part) is getattr(chosen, part)
        assert_same_bits(getattr(matrix.transposed, part), getattr(chosen.transposed, part))


def test_a_symmetric_matrix_stays_symmetric():
    matrix = cases.graph("complete").propagation.with_layout("dense")
    assert matrix.symmetric
    assert matrix.transposed is matrix


@pytest.mark.parametrize("wrong", ["csr", None, 1])
def test_another_layout(wrong):
    error = ValueError if isinstance(wrong, str) else TypeError
    with pytest.raises(error, match=rf"layout: got {wrong!r}, want one of 'auto', 'sparse', 'dense'"):
        random_matrix(0.1).with_layout(wrong)


def test_the_dense_form_is_made_once():
    matrix = random_matrix(0.3)
    assert matrix.dense is matrix.dense
    assert_same_bits(matrix.dense, matrix.to_dense())


def test_a_graph_keeps_the_layout_of_its_features():
    graph = cases.large_graph()
    assert graph.features.layout == "auto"
    forced = graph.with_features(graph.features.with_layout("dense"))
    assert forced.features.layout == "dense"
    assert forced.to(dtype=torch.float32).features.layout == "dense"


# --- the same numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph():
    """Features of which some are zero, dense enough for either layout; more lines than a tile has."""
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 310, (2, 900))
    features = scipy.sparse.random(310, 170, 0.3, random_state=rng, data_rvs=lambda size: rng.normal(size=size))
    return Graph.from_edge_index(np.concatenate([edges, edges[::-1]], axis=1), features, 310, dtype=torch.float64)


def calls(graph, layout, dropout):
    """Operation -> arguments, on masked features in a layout."""
    features = mask_features(graph.features.with_layout(layout), 0.3, 8)
    layer = {"weight": normal(170, 40, seed=1), "noise_weight": normal(5, 40, seed=2), "bias": normal(40, seed=3)}
    drawn = {"seed": 6, "dropout": dropout}
    sampled = {"z_nodes": normal(310, 2, 20), "z_features": normal(170, 2, 20, seed=1)}
    return [
        ("sparse_matmul", {"matrix": features, "dense": normal(170, 3, 21)}),
        ("feature_average", {"features": features, "values": normal(310, 3, 21)}),
        ("feature_average", {"features": features, "values": normal(170, 3, 21), "to": "nodes"}),
        ("noisy_gcn", {"propagation": graph.propagation, "features": features, "num_draws": 3, **layer, **drawn}),
        ("noisy_gcn", {"propagation": None, "features": features, "num_draws": 3, **layer, **drawn}),
        (
            "noisy_gcn",
            {
                "propagation": None,
                "features": features.transposed,
                "num_draws": 2,
                **layer,
                **drawn,
                "weight": normal(310, 40, seed=1),
            },
        ),
        ("decoder_input", {"features": features, "weight": normal(40, 30, seed=2), **sampled, **drawn}),
    ]


DIFFERENTIABLE = ("dense", "values", "weight", "noise_weight", "bias", "z_nodes", "z_features")


def outcome(function, arguments):
    """Output, then gradients."""
    leaves = {name: arguments[name].detach().requires_grad_() for name in DIFFERENTIABLE if name in arguments}
    output = function(**{**arguments, **leaves})
    return [output.detach(), *torch.autograd.grad(output, list(leaves.values()), contract.upstream(output))]


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("call", range(7))
@pytest.mark.parametrize("dtype", cases.DTYPES, ids=str)
def test_both_layouts_give_the_reference(graph, call, layout, dropout, dtype):
    operation, arguments = calls(graph, layout, dropout)[call]
    arguments = contract.converted(arguments, dtype)
    want = outcome(getattr(reference, operation), contract.converted(arguments, torch.float64))
    got = outcome(getattr(ops, operation), arguments)
    for index, (value, expected) in enumerate(zip(got, want, strict=True)):
        assert value.dtype == dtype
        assert_close(value, expected, terms=310 * 4, name=f"{operation}, {layout}, result {index}")


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("call", range(7))
def test_the_dense_layout_has_the_same_bits_with_any_number_of_threads(graph, call, dropout):
    operation, arguments = calls(graph, "dense", dropout)[call]
    arguments = contract.converted(arguments, torch.float32)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first = outcome(getattr(ops, operation), arguments)
        for count in (1, 2, 3, 8):
            torch.set_num_threads(count)
            for value, expected in zip(outcome(getattr(ops, operation), arguments), first, strict=True):
                assert_same_bits(value, expected, name=f"{operation} with {count} threads")
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("backend", contract.columns("sparse_matmul"))
def test_every_backend_takes_either_layout(backend):
    """Only the CPU kernels have the dense layout; the others compute by rows whatever it is."""
    matrix = cases.features("negative", 17, 9).to(device=backend.device, dtype=torch.float32)
    dense = normal(9, 4).to(backend.device, torch.float32)
    with use_backend(backend.backend):
        for layout in ("sparse", "dense"):
            got = ops.sparse_matmul(matrix.with_layout(layout), dense)
            want = reference.sparse_matmul(matrix.to("cpu", torch.float64), dense.cpu().double())
            assert_close(got, want, terms=9, name=layout)


@pytest.mark.parametrize("layout", ["sparse", "dense"])
def test_rows_that_overlap_in_memory(layout):
    """As those of an expanded tensor, and the gradient of a sum, which BLAS can't read."""
    matrix = random_matrix(0.4).with_layout(layout)
    wide = matrix.to(dtype=torch.float64)
    for dense in (
        torch.rand(1, 4).expand(130, 4),
        torch.rand(1, 1).expand(130, 4),
        torch.rand(133).unfold(0, 4, 1),
        torch.rand(130, 1).expand(130, 4),
    ):
        want = reference.sparse_matmul(wide, dense.double())
        assert_close(ops.sparse_matmul(matrix, dense), want, terms=130, name="product")
    dense = torch.rand(130, 4, requires_grad=True)
    ops.sparse_matmul(matrix, dense).sum().backward()
    want = reference.sparse_matmul(wide.transposed, torch.ones(170, 4, dtype=torch.float64))
    assert_close(dense.grad, want, terms=170, name="gradient")
