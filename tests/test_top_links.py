"""top_links: the pairs without a link that have the largest scores, exactly, for each node or for the whole graph."""

import importlib
import itertools
import math
import re
import subprocess
import sys

import cases
import numpy as np
import pytest
import torch
from contract import Allocations, columns, converted, refuse, sparse_refusals, tensor_refusals
from hypothesis import given
from hypothesis import strategies as st
from tolerances import assert_close, assert_same_bits

from seegera_fast import SparseMatrix, ops, reference, use_backend
from seegera_fast.ops.top_links import OPERATOR
from seegera_fast.scores import pair_products

COMPILED = columns("top_links", compiled=True)
INTERPRETED = any("triton" in column.id for column in COMPILED)


def run(column, arguments):
    with use_backend(column.backend):
        return ops.top_links(**arguments)


def slow(z, adjacency, k, per_node=True, nodes=None, sides=None):
    """By loops. The sum of the exact products is rounded once to float64, and then to the dtype of z."""
    rows, linked = z.tolist(), adjacency.to_dense() != 0
    count = len(rows)

    def score(i, j):
        products = [a * b for a, b in zip(rows[i], rows[j], strict=True)]
        if not all(map(math.isfinite, products)):
            return float(torch.tensor(math.nan if math.isnan(sum(products)) else sum(products), dtype=z.dtype))
        return float(torch.tensor(math.fsum(products), dtype=torch.float64).to(z.dtype))

    def free(i, j):
        return i != j and not linked[i, j] and (sides is None or sides[i] != sides[j])

    asked = list(range(count)) if nodes is None else nodes.tolist()
    if per_node:
        lists = [[(score(i, j), j) for j in range(count) if free(i, j)] for i in asked]
    else:
        pairs = itertools.combinations(range(count), 2)
        lists = [[(score(i, j), (i, j)) for i, j in pairs if free(i, j) and (i in asked or j in asked)]]
    nothing = -1 if per_node else (-1, -1)
    lists = [
        sorted((entry for entry in entries if entry[0] == entry[0]), key=lambda e: (-e[0], e[1]))[:k]
        for entries in lists
    ]
    lists = [entries + [(-math.inf, nothing)] * (k - len(entries)) for entries in lists]
    scores = torch.tensor([[value for value, _ in entries] for entries in lists], dtype=z.dtype).reshape(-1, k)
    links = torch.tensor([[link for _, link in entries] for entries in lists], dtype=torch.int64)
    return (scores, links.reshape(-1, k)) if per_node else (scores[0], links[0].reshape(k, 2))


def assert_same(found, wanted, name="top_links"):
    """Equal scores, where zeros of both signs are equal, and equal links."""
    assert found[0].dtype == wanted[0].dtype, name
    assert torch.equal(found[0].cpu(), wanted[0]), f"{name}: scores {found[0]}, want {wanted[0]}"
    assert_same_bits(found[1], wanted[1], name=name)


# Numbers whose sums are exact in any order, many of them equal, and what is hard for others.
FILLS = {
    "normal": lambda z: z,
    "whole": lambda z: (2 * z).round(),
    "zeros": torch.zeros_like,
    "equal rows": lambda z: z[:1].expand_as(z),
    "huge": lambda z: 1e38 * z,
    "tiny": lambda z: 1e-22 * z,
    "one NaN": lambda z: z.index_put((torch.tensor(z.shape[0] // 2), torch.tensor(0)), z.new_tensor(math.nan)),
    "infinite": lambda z: z.index_put(
        (torch.tensor([0, z.shape[0] // 2]), torch.tensor([0, z.shape[1] - 1])), z.new_tensor([-math.inf, math.inf])
    ),
}
# Which pairs count, by the number of nodes.
QUESTIONS = {
    "each node": lambda n: {},
    "some nodes": lambda n: {"nodes": torch.tensor([n - 1, 0, n // 2, 0])},
    "no nodes": lambda n: {"nodes": torch.empty(0, dtype=torch.int64)},
    "two sides": lambda n: {"sides": torch.arange(n) % 3 == 1},
    "some nodes of two sides": lambda n: {"nodes": torch.tensor([n - 1, n // 2]), "sides": torch.arange(n) // 2 % 3},
    "the graph": lambda n: {"per_node": False},
    "some nodes together": lambda n: {"per_node": False, "nodes": torch.tensor([n - 1, 0, n // 2, 0])},
    "the graph, two sides": lambda n: {"per_node": False, "sides": torch.arange(n) % 2},
}


def problem(graph="random", width=7, fill="normal", k=3, question="each node", dtype=torch.float32):
    adjacency = cases.graph(graph).adjacency
    count = adjacency.shape[0]
    # float64 tests have the numbers of float32, whose products are exact.
    z = FILLS[fill](cases.normal(count, width, seed=width).float()).to(dtype)
    return {"z": z, "adjacency": adjacency.to(dtype=dtype), "k": k, **QUESTIONS[question](count)}


def on(column, arguments):
    return converted(arguments, arguments["z"].dtype, column.device)


# --- what is right ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("graph", cases.GRAPHS)
@pytest.mark.parametrize("column", columns("top_links"))
def test_graphs(column, graph, question):
    """Also more pairs than there are: a complete graph has none."""
    for k in (1, 3, 20):
        arguments = problem(graph, k=k, question=question)
        assert_same(run(column, on(column, arguments)), slow(**arguments), f"k = {k}")


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("question", ["each node", "the graph"])
@pytest.mark.parametrize("column", columns("top_links"))
def test_numbers(column, question, fill):
    for width in (1, 7):
        arguments = problem(width=width, fill=fill, question=question)
        assert_same(run(column, on(column, arguments)), slow(**arguments), f"width {width}")


@pytest.mark.parametrize("width", [*cases.WIDTHS, 0])
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("column", columns("top_links"))
def test_widths(column, dtype, width):
    arguments = problem(width=width, fill="whole", dtype=dtype)
    assert_same(run(column, on(column, arguments)), slow(**arguments))


@pytest.mark.parametrize("column", columns("top_links"))
def test_two_nodes_and_none(column):
    none = torch.empty(0, dtype=torch.int64)
    for count in (0, 2):
        rowptr = torch.zeros(count + 1, dtype=torch.int64)
        adjacency = SparseMatrix(rowptr, none, torch.empty(0), (count, count), symmetric=True, hollow=True)
        arguments = {"z": torch.ones(count, 3), "adjacency": adjacency, "k": 2}
        for per_node in (True, False):
            given_here = on(column, {**arguments, "per_node": per_node})
            wanted = ([[3.0, -math.inf]] * count, [[1, -1], [0, -1]][:count])
            if not per_node:
                wanted = ([3.0, -math.inf], [[0, 1], [-1, -1]]) if count else ([-math.inf] * 2, [[-1, -1]] * 2)
            found = run(column, given_here)
            assert (found[0].tolist(), found[1].tolist()) == wanted


@pytest.mark.parametrize("column", columns("top_links"))
def test_float64(column):
    """Up to rounding: the last bits of a sum depend on its order."""
    arguments = problem(width=33, dtype=torch.float64)
    arguments["z"] = cases.normal(17, 33, seed=3)
    found, wanted = run(column, on(column, arguments)), slow(**arguments)
    assert_close(found[0], wanted[0], terms=33, name="scores")
    assert_same_bits(found[1], wanted[1])


def ranked(z, adjacency, k):
    """All pairs, scored as the model scores pairs, and sorted."""
    count = z.shape[0]
    pairs = torch.cartesian_prod(torch.arange(count), torch.arange(count))
    scores = pair_products(z, pairs).to(z.dtype).reshape(count, count)
    scores[adjacency.row, adjacency.col] = -math.inf
    scores.fill_diagonal_(-math.inf)
    values, others = scores.sort(dim=1, descending=True, stable=True)
    return values[:, :k], others[:, :k]


@pytest.mark.parametrize("column", COMPILED)
@pytest.mark.parametrize("k", [1, 10, 300])
def test_is_the_order_of_all_pairs(column, k):
    """The scores are those of ``model.link_scores``, bit for bit, on three blocks of rows with a hub."""
    adjacency = cases.large_graph().adjacency.to(dtype=torch.float32)
    z = cases.normal(700, 24, seed=4).float()
    assert_same(run(column, on(column, {"z": z, "adjacency": adjacency, "k": k})), ranked(z, adjacency, k))


def nearly_equal(count=120, width=512):
    """Rows whose scores differ by less than a product in float32 is off."""
    return (1 + 1e-6 * cases.normal(count, width, seed=8)).float() * cases.normal(1, width, seed=9).float()


@pytest.mark.parametrize("column", COMPILED)
def test_scores_that_float32_products_mistake(column):
    z, adjacency = nearly_equal(), SparseMatrix.from_edge_index(torch.tensor([[0], [1]]), 120)
    wanted = ranked(z, adjacency, 5)
    scores = (z @ z.T).fill_diagonal_(-math.inf)
    assert (scores.topk(5).indices != wanted[1]).any(dim=1).double().mean() > 0.5
    assert_same(run(column, on(column, {"z": z, "adjacency": adjacency, "k": 5})), wanted)


@pytest.mark.parametrize("column", COMPILED)
@pytest.mark.parametrize("precision", ["high", "medium"])
def test_faster_products_change_nothing(column, precision):
    z, adjacency = nearly_equal(), SparseMatrix.from_edge_index(torch.tensor([[0], [1]]), 120)
    arguments = on(column, {"z": z, "adjacency": adjacency, "k": 5})
    wanted, before = run(column, arguments), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        found = run(column, arguments)
    finally:
        torch.set_float32_matmul_precision(before)
    for got, want in zip(found, wanted, strict=True):
        assert_same_bits(got, want)


@st.composite
def problems(draw):
    count, width, k = draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 10))
    numbers = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0, math.inf, math.nan, 3e38])
    z = torch.tensor(draw(st.lists(numbers, min_size=count * width, max_size=count * width))).reshape(count, width)
    pairs = draw(st.lists(st.tuples(*[st.integers(0, count - 1)] * 2), max_size=12))
    edges = torch.tensor([pair for pair in pairs if pair[0] != pair[1]], dtype=torch.int64).reshape(-1, 2).T
    question = {"per_node": draw(st.booleans())}
    if draw(st.booleans()):
        question["nodes"] = torch.tensor(draw(st.lists(st.integers(0, count - 1), max_size=4)), dtype=torch.int64)
    if draw(st.booleans()):
        question["sides"] = torch.tensor(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    return {"z": z, "adjacency": SparseMatrix.from_edge_index(edges, count), "k": k, **question}


@given(arguments=problems())
def test_any_problem(arguments):
    wanted = slow(**arguments)
    for column in columns("top_links"):
        # An interpreted kernel takes too long for many examples.
        if "triton" not in column.id:
            assert_same(run(*column.values, arguments), wanted)
    assert_same(reference.top_links(**arguments), wanted)


# --- blocks, chunks, threads, layouts --------------------------------------------------------------------------------


@pytest.mark.skipif("cpu" not in [column.id for column in COMPILED], reason="no CPU kernels here")
@pytest.mark.parametrize("question", QUESTIONS)
def test_many_blocks_and_threads(question):
    """Two groups of blocks. Scores of small whole numbers, so that most pairs have equals."""
    rng = np.random.default_rng(2)
    edges = torch.from_numpy(rng.integers(0, 1301, (2, 9000)))
    adjacency = SparseMatrix.from_edge_index(edges, 1301)
    asked = QUESTIONS[question](1301)
    if "nodes" in asked and asked["nodes"].numel():
        asked["nodes"] = torch.from_numpy(rng.integers(0, 1301, 700))
    if "sides" in asked:
        # Whole blocks of one side, and blocks of both.
        asked["sides"] = asked["sides"].to(torch.int64) * (torch.arange(1301) > 600)
    for width, k in ((3, 10), (3, 700), (40, 5)):
        z = torch.from_numpy(rng.integers(-3, 4, (1301, width))).float()
        arguments = {"z": z, "adjacency": adjacency, "k": k, **asked}
        wanted = reference.top_links(**arguments)
        threads = torch.get_num_threads()
        try:
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                with use_backend("cpu"):
                    assert_same(ops.top_links(**arguments), wanted, f"width {width}, k = {k}, {count} threads")
        finally:
            torch.set_num_threads(threads)


@pytest.mark.skipif(not INTERPRETED, reason="Triton is not interpreted")
@pytest.mark.parametrize("question", QUESTIONS)
def test_small_chunks_and_the_blocks_of_a_gpu(monkeypatch, question):
    """Lists that are full several times in a chunk, and chunks of few rows."""
    module = pytest.importorskip("seegera_fast.kernels.triton.top_links")
    rows = importlib.import_module("seegera_fast.kernels.triton.top_links_rows")
    monkeypatch.setattr(module, "CHUNK", 32)
    monkeypatch.setattr(module, "MOST_CANDIDATES", 1)
    monkeypatch.setattr(module, "UNIT", 16)
    monkeypatch.setattr("seegera_fast.kernels.triton.common.chunks.UNIT", 16)
    sizes = {"BLOCK_ROWS": 32, "BLOCK_COLUMNS": 4, "ENTRIES": 2, "BLOCK_WIDTH": 4}
    monkeypatch.setattr(rows, "block_columns", lambda device: 4)
    monkeypatch.setattr(rows, "row_blocks", lambda *given: sizes)
    monkeypatch.setattr(rows, "mark_blocks", lambda *given: {"BLOCK_ROWS": 16, "BLOCK_LINKS": 2})
    rng = np.random.default_rng(2)
    adjacency = SparseMatrix.from_edge_index(torch.from_numpy(rng.integers(0, 70, (2, 200))), 70)
    z = torch.from_numpy(rng.integers(-3, 4, (70, 5))).float()
    asked = QUESTIONS[question](70)
    if "nodes" in asked and asked["nodes"].numel():
        asked["nodes"] = torch.from_numpy(rng.integers(0, 70, 40))
    arguments = {"z": z, "adjacency": adjacency, "k": 3, **asked}
    with use_backend("triton"):
        found = ops.top_links(**arguments)
    assert_same(found, reference.top_links(**arguments))


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize("column", COMPILED)
def test_layouts(column, layout):
    plain = on(column, problem(question="some nodes of two sides"))
    given_here = {
        name: cases.laid_out(value, layout) if name == "z" else torch.stack([value, value], dim=1)[:, 0]
        for name, value in plain.items()
        if isinstance(value, torch.Tensor)
    }
    for got, want in zip(run(column, {**plain, **given_here}), run(column, plain), strict=True):
        assert_same_bits(got, want)


@pytest.mark.skipif("cpu" not in [column.id for column in COMPILED], reason="no CPU kernels here")
def test_no_matrix_of_all_scores():
    """30,000 nodes would have 3.6 GB of scores."""
    code = (
        "import torch, seegera_fast as sf, resource\n"
        "z = torch.randn(30_000, 2)\n"
        "links = sf.SparseMatrix.from_edge_index(torch.tensor([[0], [1]]), 30_000)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "sf.ops.top_links(z, links, 10)\n"
        "sf.ops.top_links(z, links, 10, per_node=False)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert int(result.stdout) * 1024 < 200e6


@pytest.mark.parametrize("column", [column for column in COMPILED if "triton" in column.id])
def test_no_large_tensor(column, monkeypatch):
    module = importlib.import_module("seegera_fast.kernels.triton.top_links")
    monkeypatch.setattr(module, "CHUNK", 64)
    z = cases.normal(700, 4).float()
    adjacency = SparseMatrix.from_edge_index(torch.tensor([[0], [1]]), 700)
    arguments = on(column, {"z": z, "adjacency": adjacency, "k": 3, "nodes": torch.tensor([3, 5])})
    with Allocations() as seen:
        run(column, arguments)
    assert 0 < seen.largest < 700 * 700


# --- torch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["each node", "the graph", "some nodes of two sides"])
@pytest.mark.parametrize("column", COMPILED)
def test_compiled_and_sound(column, question):
    arguments = on(column, problem(question=question))
    wanted = run(column, arguments)
    torch.compiler.reset()
    compiled = torch.compile(ops.top_links, fullgraph=True, backend="aot_eager")
    with use_backend(column.backend):
        found = compiled(**arguments)
    for got, want in zip(found, wanted, strict=True):
        assert_same_bits(got, want, name="compiled")
    adjacency, sides = arguments["adjacency"], arguments.get("sides")
    overload = OPERATOR._overloads["triton" if column.backend == "triton" else "default"]
    flat = (arguments["z"], adjacency.rowptr, adjacency.col, arguments.get("nodes"), sides, 3)
    torch.library.opcheck(overload, (*flat, arguments.get("per_node", True)))


@pytest.mark.parametrize("column", columns("top_links"))
def test_no_gradient(column):
    arguments = on(column, problem())
    wanted = run(column, arguments)
    tracked = {**arguments, "z": arguments["z"].clone().requires_grad_()}
    with torch.inference_mode():
        inside = run(column, arguments)
    for found in (run(column, tracked), inside):
        for got, want in zip(found, wanted, strict=True):
            assert not got.requires_grad
            assert_same_bits(got, want)


@pytest.mark.parametrize("column", COMPILED)
def test_vmap_is_as_many_calls(column):
    arguments = on(column, problem())
    batch = torch.stack([arguments["z"], -arguments["z"]])
    found = torch.vmap(lambda z: run(column, {**arguments, "z": z}))(batch)
    for row in range(2):
        for got, want in zip(found, run(column, {**arguments, "z": batch[row]}), strict=True):
            assert_same_bits(got[row], want)


# --- refusals --------------------------------------------------------------------------------------------------------

REFUSALS = [
    *tensor_refusals("z"),
    *sparse_refusals("adjacency", undirected=True),
    refuse("z of draws", ValueError, r"z: got shape \(17, 1, 7\), want 2 dimensions", z=lambda z: z[:, None]),
    refuse(
        "a row too many", ValueError, r"adjacency: got shape \(17, 17\), want \(18, 18\), like z", z=torch.ones(18, 2)
    ),
    refuse(
        "not symmetric",
        ValueError,
        r"adjacency: is not known to be symmetric without a diagonal, want Graph\(matrix\).*",
        adjacency=lambda m: SparseMatrix(m.rowptr, m.col, m.values, m.shape),
    ),
    refuse(
        "another dtype",
        TypeError,
        "adjacency: got torch.float64 where z is torch.float32, want one dtype",
        adjacency=lambda m: m.to(dtype=torch.float64),
    ),
    refuse("k of 0", ValueError, r"k: got 0, want 1 to \d+", k=0),
    refuse("k of a fraction", TypeError, "k: got 2.0, want an int", k=2.0),
    refuse("k beyond memory", ValueError, r"k: got \d+, want 1 to \d+", k=2**60),
    refuse("per_node of a number", TypeError, "per_node: got 1, want True or False", per_node=1),
    refuse("nodes of a list", TypeError, "nodes: got list, want a tensor of torch.int64", nodes=[1]),
    refuse(
        "nodes of int32", TypeError, "nodes: got torch.int32, want a tensor of torch.int64", nodes=torch.ones(1).int()
    ),
    refuse("nodes of truth", TypeError, "nodes: got torch.bool, want .*", nodes=torch.ones(17).bool()),
    refuse("one node", ValueError, r"nodes: got shape \(\), want \[any\]", nodes=torch.tensor(1)),
    refuse("a node too far", ValueError, "nodes: got numbers from 3 to 17, want 0 to 16", nodes=torch.tensor([17, 3])),
    refuse("a node below 0", ValueError, "nodes: got numbers from -1 to 3, want 0 to 16", nodes=torch.tensor([-1, 3])),
    refuse(
        "nodes elsewhere", ValueError, "nodes: is on meta, .*", nodes=torch.ones(1, dtype=torch.int64, device="meta")
    ),
    refuse("a side too few", ValueError, r"sides: got shape \(16,\), want \[17\]", sides=torch.ones(16).long()),
    refuse(
        "sides of floats",
        TypeError,
        "sides: got torch.float32, want a tensor of torch.int64 or torch.bool",
        sides=torch.ones(17),
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_refusals(refusal):
    with pytest.raises((TypeError, ValueError)) as caught:
        ops.top_links(**refusal.change(problem()))
    assert type(caught.value) is refusal.error
    assert re.fullmatch(refusal.message, str(caught.value)), str(caught.value)


@pytest.mark.skipif("cpu" not in [column.id for column in COMPILED], reason="no CPU kernels here")
def test_a_node_that_is_not_there_is_refused_by_the_kernel_too():
    """In a compiled program the numbers are not read before."""
    arguments = problem()
    adjacency = arguments["adjacency"]
    with pytest.raises(RuntimeError, match="top_links: got node 17, want 0 to 16"):
        torch.ops.seegera_fast.top_links(
            arguments["z"], adjacency.rowptr, adjacency.col, torch.tensor([17]), None, 3, True
        )
