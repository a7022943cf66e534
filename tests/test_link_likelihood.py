"""link_likelihood: log p(A | Z) over ordered pairs, all of them or all links and drawn non-edges."""

import itertools
import math

import cases
import contract
import numpy as np
import pytest
import slow
import torch
from cases import normal
from contract import columns, converted, refuse, tensor_refusals
from tolerances import assert_close, assert_same_bits, relative_error

from seegera_fast import Graph, SparseMatrix, ops, precision, use_backend
from seegera_fast.backends import interpreted


def links(name="random", d=5, *, samples=2, pos_weight=1.0, self_loops=True, negatives="all", mean=False, scale=0.6):
    def arguments():
        graph = cases.graph(name)
        weight = torch.tensor(pos_weight, dtype=torch.float64) if isinstance(pos_weight, list) else pos_weight
        return {
            "z": scale * normal(graph.num_nodes, samples, d) / d**0.25,
            "adjacency": graph.adjacency,
            "pos_weight": weight,
            "self_loops": self_loops,
            "negatives": negatives,
            "seed": 6,
            "reduction": "mean" if mean else "sum",
        }

    return arguments


CASES = {
    **{name: links(name, pos_weight=2.5) for name in cases.GRAPHS},
    **{f"{name} without loops": links(name, self_loops=False) for name in cases.GRAPHS},
    **{f"{name}, mean": links(name, mean=True) for name in ("one_node", "path")},
    **{f"{name}, mean without loops": links(name, mean=True, self_loops=False) for name in ("one_node", "path", "hub")},
    **{f"{name}, drawn": links(name, negatives=3, pos_weight=2.5) for name in ("no_edges", "path", "hub", "random")},
    **{f"d {d}": links(d=d) for d in cases.WIDTHS},
    **{f"d {d}, drawn": links(d=d, negatives=20) for d in cases.WIDTHS},
    **{f"{j} samples": links(samples=j, mean=True) for j in (1, 5)},
    **{f"{j} samples, drawn": links(samples=j, negatives=9, mean=True, self_loops=False) for j in (1, 5)},
    "more drawn than edges": links("path", negatives=10),
    "weight 0": links(pos_weight=0),
    "weight of an int": links(pos_weight=3),
    "weight of a tensor": links(pos_weight=[2.5]),
    "weight of a tensor, drawn": links(pos_weight=[2.5], negatives=7),
    "no width": links(d=0),
    "far apart": links(scale=1e2),
    "far apart, drawn": links(scale=1e2, negatives=30),
    "scores of 1e4": links("path", 2, scale=150),
    "all zero": links(scale=0.0),
}

REFUSALS = [
    *tensor_refusals("z"),
    *contract.sparse_refusals("adjacency", undirected=True),
    *contract.DATA_SEED_REFUSALS,
    *contract.weight_refusals("pos_weight"),
    refuse("two dimensions", ValueError, r"z: got shape \(17, 10\), want 3 dimensions", z=lambda t: t.flatten(1)),
    refuse("no samples", ValueError, "z's number of samples: got 0, want at least 1", z=lambda t: t[:, :0]),
    refuse(
        "another graph",
        ValueError,
        r"adjacency: got shape \(6, 6\), want \(17, 17\), like z",
        adjacency=lambda _: cases.graph("path").adjacency,
    ),
    refuse(
        "not symmetric",
        ValueError,
        r"adjacency: is not known to be symmetric without a diagonal, want Graph\(matrix\).*",
        adjacency=lambda m: m.with_values(m.values),
    ),
    refuse(
        "with a diagonal",
        ValueError,
        r"adjacency: is not known to be symmetric without a diagonal, want Graph\(matrix\).*",
        adjacency=lambda _: cases.graph("random").propagation,
    ),
    refuse("reduction", ValueError, "reduction: got 'none', want one of 'sum', 'mean'", reduction="none"),
    refuse("no negatives", ValueError, 'negatives: got 0, want "all" or 1 to [0-9]+, the number of .*', negatives=0),
    refuse(
        "too many negatives",
        ValueError,
        'negatives: got 999, want "all" or 1 to [0-9]+, the number of .*',
        negatives=999,
    ),
    refuse("negatives of a word", TypeError, "negatives: got 'some', want \"all\" or an int", negatives="some"),
    refuse("negatives of a fraction", TypeError, 'negatives: got 3.0, want "all" or an int', negatives=3.0),
    refuse("negatives of a bool", TypeError, 'negatives: got True, want "all" or an int', negatives=True),
    refuse(
        "two dtypes",
        TypeError,
        "adjacency: got torch.float64 where z is torch.float32, want one dtype",
        z=lambda t: t.float(),
    ),
    refuse("two devices", ValueError, "adjacency: is on cpu and z on meta, want one device", z=lambda t: t.to("meta")),
]


class TestLinkLikelihood(
    contract.MultipliedOperation, contract.SummedOperation, contract.SeededOperation, contract.DrawnOperation
):
    operation = "link_likelihood"
    differentiable = ("z",)
    cases = CASES
    smooth = ("random", "random, drawn", "path, mean without loops", "one_node", "weight of a tensor")
    typical = ("random", "random, drawn", "hub, mean without loops")
    conditioned = typical
    drawn = typical
    refusals = REFUSALS

    @staticmethod
    def slow(z, adjacency, pos_weight, self_loops, negatives, seed, reduction):
        """A loop over pairs; drawn pairs by Python integers from the list of non-edges."""
        n = z.shape[0]
        linked = adjacency.to_dense() != 0
        pairs = list(itertools.combinations(range(n), 2))
        apart = [(i, k) for i, k in pairs if not linked[i, k]]
        factor = 1.0
        if negatives != "all":
            factor = len(apart) / negatives
            apart = [apart[r] for r in slow.integers(seed, "negatives", negatives, len(apart))]
        totals = []
        for j in range(z.shape[1]):

            def log_sigmoid(i, k, sign, j=j):
                score = sign * sum(float(a) * float(b) for a, b in zip(z[i, j], z[k, j], strict=True))
                return -math.log1p(math.exp(-score)) if score > 0 else score - math.log1p(math.exp(score))

            total = 2 * float(pos_weight) * sum(log_sigmoid(i, k, 1) for i, k in pairs if linked[i, k])
            total += 2 * factor * sum(log_sigmoid(i, k, -1) for i, k in apart)
            if self_loops:
                total += float(pos_weight) * sum(log_sigmoid(i, i, 1) for i in range(n))
            totals.append(total / max(1, n * n if self_loops else n * (n - 1)) if reduction == "mean" else total)
        return torch.tensor(totals, dtype=torch.float64)

    @staticmethod
    def first_draw(arguments):
        return [arguments["z"][:, 0]]

    @staticmethod
    def terms(arguments):
        n, _, d = arguments["z"].shape
        return n * n + d

    @staticmethod
    def large():
        return {
            "z": 0.3 * normal(700, 2, 40),
            "adjacency": cases.large_graph().adjacency,
            "pos_weight": 2.0,
            "self_loops": True,
            "negatives": "all",
            "seed": 6,
            "reduction": "sum",
        }


@pytest.fixture(params=columns("link_likelihood"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def graphs_of(n):
    """All simple graphs on n nodes."""
    pairs = list(itertools.combinations(range(n), 2))
    for present in itertools.product([0, 1], repeat=len(pairs)):
        dense = np.zeros((n, n))
        for (i, k), one in zip(pairs, present, strict=True):
            dense[i, k] = dense[k, i] = one
        yield Graph(dense, dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_probabilities_of_all_graphs_sum_to_one(column, n):
    """Ordered pairs count each link twice, so half of the sum is the log probability of a simple graph."""
    z = normal(n, 2, 3).to(column.device)
    logs = [
        ops.link_likelihood(z, graph.adjacency.to(device=column.device), self_loops=False) / 2 for graph in graphs_of(n)
    ]
    total = torch.stack(logs).exp().sum(dim=0)
    assert_close(total, torch.ones(2, dtype=torch.float64), terms=64, name="sum over graphs")


def test_self_loops_add_their_own_terms(column):
    """The pairs (i, i) have target 1: log sigmoid of the squared norms, weighted as links."""
    given = converted(links(pos_weight=2.5)(), torch.float64, column.device)
    with_loops = ops.link_likelihood(**given)
    without = ops.link_likelihood(**{**given, "self_loops": False})
    own = 2.5 * torch.nn.functional.logsigmoid((given["z"] ** 2).sum(dim=2)).sum(dim=0)
    assert_close(with_loops.cpu(), (without + own).cpu(), terms=300, name="self-loops")


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_scores_of_ten_thousand(column, dtype):
    """A link with a score of -1e4 and a non-edge with 1e4 cost 1e4 in each direction, to the digit."""
    graph = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3, dtype=dtype).to(device=column.device)
    z = torch.tensor([[[100.0]], [[-100.0]], [[100.0]]], dtype=dtype, device=column.device, requires_grad=True)
    value = ops.link_likelihood(z, graph.adjacency, pos_weight=2.0, self_loops=False)
    # (0, 1) is a link with score -1e4, (0, 2) a non-edge with 1e4, (1, 2) a non-edge with -1e4.
    assert value.tolist() == [-2 * (2.0 * 1e4 + 1e4)]
    (gradient,) = torch.autograd.grad(value.sum(), z)
    assert gradient.flatten().tolist() == [2 * (2.0 * -100.0 - 100.0), 2 * 2.0 * 100.0, 2 * -100.0]


@pytest.mark.parametrize("negatives", ["all", 1])
def test_infinite_scores_without_weight(column, negatives):
    """The score of a row with itself, and those of links where pos_weight is 0."""
    graph = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3).to(device=column.device)
    z = torch.tensor([1e20, -1e20, 0.0], device=column.device).view(3, 1, 1).requires_grad_()
    value = ops.link_likelihood(z, graph.adjacency, pos_weight=0.0, negatives=negatives, seed=1)
    assert_close(value, torch.tensor([-4 * math.log(2)]).double())
    z = torch.tensor([1e20, 1e-20, 0.0], device=column.device).view(3, 1, 1)
    for self_loops in (True, False):
        value = ops.link_likelihood(z, graph.adjacency, self_loops=self_loops, negatives=negatives, seed=1)
        own = 2 * math.log(2) if self_loops else 0.0
        want = -own - 2 * math.log1p(math.exp(-1)) - 4 * math.log(2)
        assert_close(value, torch.tensor([want]).double(), terms=9)


@pytest.mark.parametrize("name", ["path", "hub", "no_edges"])
def test_drawn_non_edges_are_unbiased(column, name):
    """One drawn pair gives one of as many values as there are non-edges; their plain mean is the sum over all pairs."""
    given = converted(links(name, 3, negatives=1, pos_weight=2.0)(), torch.float64, column.device)
    count = given["adjacency"].non_edges.count
    seed_of = {slow.integers(seed, "negatives", 1, count)[0]: seed for seed in range(12 * count)}
    assert sorted(seed_of) == list(range(count))
    values = torch.stack([ops.link_likelihood(**{**given, "seed": seed}) for seed in seed_of.values()])
    want = ops.link_likelihood(**{**given, "negatives": "all"}).cpu()
    assert_close(values.mean(dim=0), want, terms=400, name="mean over all draws")


def test_many_draws_come_near_the_whole_sum(column):
    """The mean over 100 seeds of 10 pairs is within five standard errors of all pairs."""
    given = converted(links("random", 3, negatives=10)(), torch.float64, column.device)
    values = torch.stack([ops.link_likelihood(**{**given, "seed": seed}) for seed in range(100)])
    error = values.std(dim=0) / 100**0.5
    assert ((values.mean(dim=0) - ops.link_likelihood(**{**given, "negatives": "all"})).abs() < 5 * error).all()


@pytest.mark.parametrize("negatives", ["all", 7])
def test_samples_do_not_see_each_other(column, negatives):
    """The same non-edges for all samples: equal samples have equal values, and each is what it is alone."""
    given = converted(links(samples=1, negatives=negatives)(), torch.float64, column.device)
    alone = ops.link_likelihood(**given).cpu()
    other = normal(17, 1, 5, seed=8).to(column.device)
    together = ops.link_likelihood(**{**given, "z": torch.cat([given["z"], other, given["z"]], dim=1)}).cpu()
    assert_close(together[[0, 2]], alone.repeat(2), terms=300, name="a sample in company")
    assert together[0] == together[2]


@pytest.mark.parametrize("negatives", ["all", 7])
def test_values_of_the_adjacency_are_not_looked_at(column, negatives):
    given = converted(links(negatives=negatives)(), torch.float64, column.device)
    matrix = given["adjacency"]
    for factor in (0, 2):
        parts = (matrix.rowptr, matrix.col, factor * matrix.values)
        other = SparseMatrix(*parts, matrix.shape, symmetric=True, hollow=True)
        assert_same_bits(ops.link_likelihood(**{**given, "adjacency": other}), ops.link_likelihood(**given))


@pytest.mark.parametrize("negatives", ["all", 7])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_weight_of_one_element_is_a_number(column, negatives, shape, dtype):
    """Whatever its shape and type: the result keeps the shape and the type of z."""
    given = converted(links(pos_weight=3.0, negatives=negatives)(), torch.float32, column.device)
    weight = torch.full(shape, 3, dtype=dtype, device=column.device)
    assert_same_bits(ops.link_likelihood(**{**given, "pos_weight": weight}), ops.link_likelihood(**given))


def test_defaults(column):
    given = converted(links()(), torch.float64, column.device)
    assert_same_bits(ops.link_likelihood(given["z"], given["adjacency"]), ops.link_likelihood(**given))


def test_a_complete_graph_has_nothing_to_draw():
    given = links("complete")()
    with pytest.raises(ValueError, match='negatives: got 1, want "all"'):
        ops.link_likelihood(**{**given, "negatives": 1})


@pytest.mark.parametrize("column", columns("link_likelihood", compiled=True))
@pytest.mark.parametrize("negatives", ["all", 4000])
def test_many_nodes_on_any_number_of_threads(column, negatives):
    """More nodes than fit into one group of tiles, three samples: the same bits however the work is shared out."""
    graph = cases.large_graph(1300).to(device=column.device, dtype=torch.float32)
    given = {"pos_weight": 3.0, "self_loops": False, "negatives": negatives, "seed": 5}
    z = (0.5 * normal(1300, 3, 9)).to(column.device, torch.float32)

    def outcome(backend, matrix, z):
        z = z.detach().requires_grad_()
        with use_backend(backend):
            value = ops.link_likelihood(z, matrix, **given)
            (gradient,) = torch.autograd.grad(value, z, contract.upstream(value))
            return value.detach(), gradient, ops.link_likelihood(z.detach(), matrix, **given)

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first = outcome(column.backend, graph.adjacency, z)
        for count in (2, 3, 7) if column.backend == "cpu" else (1,):
            torch.set_num_threads(count)
            for value, before in zip(outcome(column.backend, graph.adjacency, z), first, strict=True):
                assert_same_bits(value, before, name=f"with {count} threads")
    finally:
        torch.set_num_threads(threads)
    want = outcome("reference", graph.adjacency.to("cpu", torch.float64), z.cpu().double())
    for value, expected, name in zip(first, want, ("value", "gradient", "value alone"), strict=True):
        assert_close(value, expected, terms=1300, name=name)


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_certain_links_leave_no_rounding_errors(column, dtype):
    """All nodes linked, with scores of hundreds: nothing is left of them in the value or the gradient.

    Where a link corrects the sum over all pairs, the rounding errors of that sum are left.
    """
    matrix = cases.graph("complete").adjacency.to(device=column.device, dtype=dtype)
    z = (10 + normal(7, 2, 5).abs()).to(column.device, dtype).requires_grad_()
    value = ops.link_likelihood(z, matrix, pos_weight=2.0)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    summed = 0.0 if column.backend in ("cpu", "reference") else relative_error(dtype, terms=7 * 7 + 5)
    scores = torch.einsum("ijd,kjd->ikj", z, z).detach()
    assert (value.abs() <= 1e-100 + summed * scores.sum(dim=(0, 1))).all()
    assert (gradient.abs() <= 1e-100 + summed * 2 * z.detach().sum(dim=0)).all()


# --- Triton: the forms of all pairs, a GPU's sizes, half precision ---------------------------------------------------

TRITON = [column for column in columns("link_likelihood", compiled=True) if "triton" in column.id] or [
    pytest.param(None, id="none", marks=pytest.mark.skip(reason="Triton neither has a GPU nor is interpreted"))
]


@pytest.fixture
def kernels(monkeypatch):
    """A function that forces a form, the sizes of a GPU, small chunks or small hubs, and gives the kernels' module."""
    module = pytest.importorskip("seegera_fast.kernels.triton.link_likelihood")

    def force(*, form="library", gpu_blocks=False, chunk=None, hub=None, tiles=None):
        monkeypatch.setattr(module, "usable_forms", lambda z: [form])
        chunks, fused, pairs = module.link_likelihood_chunks, module.link_likelihood_fused, module.link_likelihood_pairs
        if hub is not None:
            monkeypatch.setattr(pairs, "HUB", hub)
        if chunk is not None:
            monkeypatch.setattr(chunks, "CHUNK", chunk)
            monkeypatch.setattr("seegera_fast.kernels.triton.common.chunks.UNIT", 16)
        if tiles is not None:
            sizes = dict(zip(("BLOCK_ROWS", "BLOCK_COLUMNS", "BLOCK_WIDTH", "BAND"), tiles, strict=True))
            monkeypatch.setattr(chunks, "tile_blocks", lambda *given: sizes)
        for owner, name in (
            (fused, "fused_blocks"),
            (chunks, "chunk_block"),
            (chunks, "tile_blocks"),
            (pairs, "pair_blocks"),
            (pairs, "draw_block"),
            (module.scale, "scale_block"),
        ):
            if gpu_blocks:
                sizes = getattr(owner, name)
                monkeypatch.setattr(owner, name, lambda *given, sizes=sizes: sizes(*given[:-1], "cuda"))
        return module

    return force


# As many as make several blocks of rows. In the interpreter the blocks are as small as a test makes them.
NODES = 100 if interpreted() else 150


def many_links(dtype, d, negatives="all", n=NODES):
    graph = cases.large_graph(n).to(dtype=torch.promote_types(dtype, torch.float32))
    z = (normal(n, 2, d) / d**0.5).to(dtype)
    return {"z": z, "adjacency": graph.adjacency, "pos_weight": 2.5, "negatives": negatives, "seed": 3}


def type_of(form, column):
    """On a GPU tiles are for half precision; the interpreter has no products of bfloat16."""
    return torch.bfloat16 if form == "tiled" and column.device == "cuda" else torch.float32


def moved(arguments, column):
    """Onto the column's device, as they are."""
    return {**arguments, **{name: arguments[name].to(device=column.device) for name in ("z", "adjacency")}}


def check_against_reference(arguments, backend):
    """Values and gradients, with and without a gradient."""
    reference = {**arguments, "z": arguments["z"].double().cpu(), "adjacency": None}
    reference["adjacency"] = arguments["adjacency"].to("cpu", torch.float64)
    found = []
    for name, given in ((backend, arguments), ("reference", reference)):
        z = given["z"].detach().requires_grad_()
        with use_backend(name):
            value = ops.link_likelihood(**{**given, "z": z})
            (gradient,) = torch.autograd.grad(value, z, contract.upstream(value).to(value.dtype))
            found.append((value.detach(), gradient, ops.link_likelihood(**given)))
    n, _, d = arguments["z"].shape
    for name, got, want in zip(("value", "gradient", "value alone"), *found, strict=True):
        assert_close(got, want, terms=n * n + d, name=name)
    return found[0]


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize(
    ("d", "chunk", "dtype"),
    [
        (1, 32, torch.float32),
        (1, 64, torch.float64),
        (33, 32, torch.float64),
        (33, 64, torch.float32),
        (300, 32, torch.float32),
        (300, 64, torch.float64),
        (33, 4096, torch.float32),
        (33, 4096, torch.float64),
    ],
)
def test_chunks_of_the_library(column, kernels, d, chunk, dtype):
    """Several groups, the last one smaller; one group of all nodes."""
    kernels(chunk=chunk)
    check_against_reference(converted(many_links(dtype, d), dtype, column.device), column.backend)


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize(("nodes", "products"), [(20, 2), (151, 15), (599, 155)])
def test_rows_of_products_are_aligned(column, kernels, nodes, products, dtype):
    """Ragged groups of rows make no ragged rows of scores: two products for each group, three for each two."""
    module = kernels(chunk=64)
    given = converted(many_links(dtype, 68, n=nodes), dtype, column.device)
    matrix = given["adjacency"]
    weight = torch.ones(1, dtype=torch.float64, device=column.device)
    seed = torch.ones(1, dtype=torch.int64, device=column.device)
    with contract.Products() as made:
        module.link_likelihood(
            given["z"][:, :1], matrix.rowptr, matrix.col, matrix.col, weight, seed, True, 0, precision.HIGHEST, True
        )
    assert (made.unaligned, made.count) == ([], products)


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("d", [1, 33, 130, 300])
def test_fused_form(column, kernels, d):
    if column.device == "cuda":
        # Wider blocks of float32 do not fit into the registers of a GPU.
        d = min(d, 60)
    kernels(form="fused")
    arguments = converted(many_links(torch.float32, d), torch.float32, column.device)
    fused = check_against_reference(arguments, column.backend)
    kernels()
    for one, other in zip(fused, check_against_reference(arguments, column.backend), strict=True):
        assert_close(one, other.double(), terms=NODES**2 + d, name="fused against library")


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize(
    ("chunk", "tiles"), [(32, (16, 16, 16, 1)), (64, (16, 16, 16, 3)), (4096, (32, 32, 64, 2)), (4096, None)]
)
@pytest.mark.parametrize("d", [1, 130])
def test_tiled_form(column, kernels, d, chunk, tiles):
    """Several groups of several tiles and bands each, the last ones smaller; one group of one tile."""
    n = NODES
    if column.device == "cuda":
        # Tiles have one size there.
        n, chunk, tiles = 1200, max(chunk, 256), None
    kernels(form="tiled", chunk=chunk, tiles=tiles)
    arguments = moved(many_links(type_of("tiled", column), d, n=n), column)
    check_against_reference(arguments, column.backend)


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize(
    ("form", "d"),
    [
        ("fused", 3),
        ("fused", 60),
        ("tiled", 3),
        ("tiled", 130),
        ("library", 3),
        ("library", 130),
        ("drawn", 3),
        ("drawn", 600),
    ],
)
def test_sizes_of_a_gpu(column, kernels, form, d):
    """Tiles of columns of which the last is partly empty; of "drawn" and "library" several blocks of other rows too."""
    kernels(form=form, gpu_blocks=True)
    # Their programs take fewer rows the wider these are: one of 60 numbers.
    n = {3: 40, 60: 20}.get(d, 12)
    given = many_links(type_of(form, column), d, 40 if form == "drawn" else "all", n)
    check_against_reference(moved(given, column), column.backend)


def with_hubs(n, *degrees):
    """A path of n nodes, of which the sixth and those after it have so many links."""
    links = torch.diag(torch.ones(n - 1), 1)
    for hub, degree in enumerate(degrees, start=5):
        others = [k for k in range(n) if not 5 <= k < 5 + len(degrees)]
        links[hub : hub + 2] = 0
        links[:, hub] = 0
        links[hub, others[:degree]] = 1
    return Graph(links.maximum(links.T), dtype=torch.float64)


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("form", ["library", "drawn"])
@pytest.mark.parametrize(
    ("n", "degrees", "d", "hub", "gpu_blocks"),
    [
        (60, (16, 17, 15), 3, 16, False),
        (60, (32, 33, 48, 50), 33, 16, False),
        (60, (32, 33, 48, 50), 3, 1, False),
        (24, (18, 17), 3, 16, True),
        # Three tiles of columns, the last one in part. Each program takes one row.
        (12, (10, 9), 260, 8, True),
    ],
)
def test_hubs(column, kernels, n, degrees, d, hub, gpu_blocks, form, dtype):
    """Neighbours with just and just more than the pairs of one and of several chunks; new memory is NaN.

    A hub of 1: chunks are as long as a row is on average.
    """
    kernels(gpu_blocks=gpu_blocks, hub=hub)
    adjacency = with_hubs(n, *degrees).adjacency
    assert tuple(adjacency.rowptr.diff()[5 : 5 + len(degrees)].tolist()) == degrees
    given = {"z": normal(n, 2, d) / d**0.5, "adjacency": adjacency, "pos_weight": 2.5, "seed": 3}
    given |= {"self_loops": d != 3, "negatives": n if form == "drawn" else "all"}
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        first, again = (
            check_against_reference(converted(given, dtype, column.device), column.backend) for _ in range(2)
        )
    finally:
        torch.use_deterministic_algorithms(False)
    for one, other in zip(first, again, strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("negatives", [40, "all"])
def test_a_hub_is_no_single_program(column, kernels, monkeypatch, negatives):
    """The first launch leaves the gradients of hubs alone, the second one has rows for parts of 16 pairs."""
    module = kernels(hub=16)
    matrix = with_hubs(60, 16, 17, 40).adjacency.to(device=column.device, dtype=torch.float32)
    z = normal(60, 1, 5).float().to(column.device)
    first, second = [], []
    launched = module.link_likelihood_pairs.pair_kernel

    class Watched:
        def __getitem__(self, grid):
            def launch(*arguments, HUBS, CHUNK, **options):
                given = dict(zip(launched.arg_names, arguments, strict=False))
                gradient = given["gradient"]
                if not HUBS:
                    gradient[:, [6, 7]] = 1234.0
                launched[grid](*arguments, HUBS=HUBS, CHUNK=CHUNK, **options)
                assert CHUNK == 16
                first.extend(gradient[0, [5, 6, 7], 0].tolist() if not HUBS else [])
                second.extend([given["starts"].tolist(), len(gradient[0])] if HUBS else [])

            return launch

    monkeypatch.setattr(module.link_likelihood_pairs, "pair_kernel", Watched())
    weight = torch.ones(1, dtype=torch.float64, device=column.device)
    seed = torch.ones(1, dtype=torch.int64, device=column.device)
    drawn = 0 if negatives == "all" else negatives
    module.link_likelihood(
        z, matrix.rowptr, matrix.col, matrix.non_edges.gaps, weight, seed, True, drawn, precision.HIGHEST, True
    )
    assert first[1:] == [1234.0, 1234.0]
    starts, rows = second
    assert sorted(row for row in starts if row in (6, 7)) == [6, 7]
    assert rows == 2 * math.ceil((matrix.nnz + 2 * drawn) / 16)


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("form", ["fused", "tiled", "library", "drawn"])
def test_half_precision(column, kernels, form, dtype):
    """Float32 values, gradients in the type of z. The sum over 600 nodes of a gradient is beyond float16."""
    kernels(form=form, chunk=512)
    given = many_links(dtype, 20, 5000 if form == "drawn" else "all", 600)
    given = {**given, "z": 8 * given["z"], "pos_weight": 1e3, "reduction": "mean"}
    given = {**given, "z": given["z"].to(column.device), "adjacency": given["adjacency"].to(device=column.device)}
    value, gradient, _ = check_against_reference(given, column.backend)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype


@pytest.mark.parametrize("column", TRITON)
def test_half_precision_is_refused_where_it_is_not_written(column):
    given = converted(many_links(torch.float32, 3, n=50), torch.float32)
    with pytest.raises(TypeError, match=r"z: got torch.bfloat16 on cpu, want .* with backend 'cpu'; .* run with 'tri"):
        ops.link_likelihood(**{**given, "z": given["z"].bfloat16()})
    given["z"] = given["z"].to(column.device).half()
    given["adjacency"] = given["adjacency"].to(device=column.device, dtype=torch.float64)
    match = r"adjacency: got torch.float64 where z is torch.float16, want torch.float32"
    with use_backend(column.backend), pytest.raises(TypeError, match=match):
        ops.link_likelihood(**given)


@pytest.mark.parametrize("column", TRITON)
@pytest.mark.parametrize("form", ["fused", "tiled", "library", "drawn"])
def test_memory_is_linear_in_the_nodes(column, kernels, form):
    """No tensor is larger than a chunk, z, the links or the drawn pairs, let alone all scores (490 kB)."""
    module = kernels(form=form, chunk=64)
    given = moved(many_links(type_of(form, column), 5, n=350), column)
    matrix = given["adjacency"]
    weight = torch.ones(1, dtype=torch.float64, device=column.device)
    seed = torch.ones(1, dtype=torch.int64, device=column.device)
    gaps = matrix.non_edges.gaps
    with contract.Allocations() as made:
        negatives = 2000 if form == "drawn" else 0
        module.link_likelihood(
            given["z"], matrix.rowptr, matrix.col, gaps, weight, seed, True, negatives, precision.HIGHEST, True
        )
    assert made.largest <= max(4 * 128 * 128, 4 * 350 * 2 * 5, 8 * matrix.nnz, 16 * negatives) < 1e5


@pytest.mark.parametrize("column", TRITON)
def test_memory_of_hubs_is_linear_in_the_nodes(column, kernels):
    """However many pairs there are: 22,350 here, for whose hubs chunks of 16 would have 2,794 rows of 200 bytes."""
    module = kernels(hub=16, chunk=64)
    links = torch.zeros(400, 400)
    links[:150, :150] = 1
    matrix = Graph(links).adjacency.to(device=column.device)
    z = normal(400, 1, 50).float().to(column.device)
    weight = torch.ones(1, dtype=torch.float64, device=column.device)
    seed = torch.ones(1, dtype=torch.int64, device=column.device)
    with contract.Allocations() as made:
        module.link_likelihood(z, matrix.rowptr, matrix.col, matrix.col, weight, seed, True, 0, precision.HIGHEST, True)
    assert 2 * 200 * math.ceil(matrix.nnz / 64) <= made.largest <= 8 * matrix.nnz < 2e5


@pytest.mark.parametrize("number", [torch.inf, torch.nan])
def test_an_infinite_row_that_counts_nothing(column, number):
    """Of a node that has no pairs, its numbers are not multiplied with a weight of 0."""
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=9)
    z = torch.linspace(-1, 1, 9 * 3).reshape(9, 1, 3)
    z[8] = number
    z = z.to(column.device).requires_grad_()
    adjacency, apart = graph.adjacency.to(device=column.device), 0
    with use_backend(column.backend):
        for seed in range(8):
            value = ops.link_likelihood(z, adjacency, negatives=2, seed=seed, self_loops=False)
            if value.isfinite().all():
                apart += 1
                (gradient,) = torch.autograd.grad(value.sum(), z)
                assert gradient[8].tolist() == [[0, 0, 0]]
                assert gradient.isfinite().all()
    assert apart
