"""A model on graphs that it was not built with: any number of nodes, nodes that arrive later, and rows at a time."""

import copy
import json
import os

import numpy as np
import pytest
import scipy.sparse
import torch
from tolerances import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import seegera_fast as sf
from seegera_fast.blocks import EmbeddingRows
from seegera_fast.nn import Encoder

SMALL = {"embedding_dim": 3, "hidden_dim": 4}
FEATURES = 5
VARIANTS = [
    {},
    {"structure_masking_rate": 0.4, "feature_masking_rate": 0.3, "dropout": 0.2, "negatives": 3},
    {"encoder": "mlp", "decoder": "mlp", "likelihood": "gaussian", "noisy_variance": True, "negatives": "edges"},
    {"decoder": "inner_product", "num_importance_samples": 2, "num_mixture_samples": 3, "mixture": "joint"},
    {"likelihood": "mse", "scaling": "sum", "encoder_layers": 1, "decoder_layers": 1, "noise_dim": 0},
    {"feature_embeddings": False, "encoder_layers": 3, "embedding_dim": 6},
    {"feature_side": False},
    {"feature_side": False, "variant": "independent"},
]


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


def answers(model, given, last):
    """What a model says of a graph, None: its own, whose last node is ``last``."""
    found = [model.embed(given, seed=2), model.embed(given, seed=2, rows_at_once=3)]
    found += [model.link_scores([[0, last]], given), *model.link_scores([[last, 1]], given, 5, 3)]
    found += [*model.top_links(2, graph=given), *model.top_links(1, nodes=[last], graph=given, known=given)]
    given = model.graph if given is None else given
    posteriors = model.encode(given.propagation, given.features, 2, 7)
    found += [part for posterior in posteriors if posterior is not None for part in posterior]
    if model.config.feature_side:
        found += [model.reconstruct_features([last, 0], [0, FEATURES - 1], given)]
        found += [*model.top_attributes(2, graph=given), *model.top_attributes(1, [last], given)]
    return found


def assert_all_equal(found, wanted):
    assert len(found) == len(wanted)
    assert all(torch.equal(got, want) for got, want in zip(found, wanted, strict=True))


@pytest.mark.parametrize("nodes", [6, 13])
@pytest.mark.parametrize("fields", VARIANTS, ids=json.dumps)
def test_another_graph_is_as_the_one_that_a_model_was_built_with(fields, nodes):
    model, other = trained(graph(9), **fields), graph(nodes, seed=1)
    fresh = sf.SeeGera(other, model.config)
    fresh.load_state_dict(model.state_dict())
    assert_all_equal(answers(model, other, nodes - 1), answers(fresh, None, nodes - 1))
    for mode in (True, False):
        output, wanted = (made.train(mode)(other, seed=3, warmup=0.5) for made in (model, fresh))
        assert torch.equal(output.loss, wanted.loss)
        for made in (output, wanted):
            made.loss.backward()
        assert_all_equal(*([parameter.grad for parameter in made.parameters()] for made in (model, fresh)))
    assert (model.num_nodes, model.graph.num_nodes) == (9, 9)


def test_a_node_that_the_graph_has_not():
    model, other = trained(graph(9)), graph(4)
    for call in (
        lambda: model.link_scores([[0, 4]], other),
        lambda: model.reconstruct_features([4], [0], other),
        lambda: model.top_attributes(1, [4], other),
        lambda: model.top_links(1, [4], other),
    ):
        with pytest.raises(ValueError, match=r"got numbers from . to 4, want 0 to 3"):
            call()
    with pytest.raises(ValueError, match="k: got 4, want 1 to 3"):
        model.top_links(4, graph=other)
    with pytest.raises(ValueError, match="known: has 9 nodes, want 4, those of graph"):
        model.top_links(1, graph=other, known=model.graph)
    single = sf.Graph(np.zeros((1, 1)), np.ones((1, FEATURES)))
    assert model.embed(single).shape == (1, 3)


# --- models that know their nodes ------------------------------------------------------------------------------------


def refusals(model, other):
    """Every way to give a graph to a model."""
    return {
        "forward": lambda: model(other),
        "embed": lambda: model.embed(other),
        "rows": lambda: model.embed(other, rows_at_once=2),
        "scores": lambda: model.link_scores([[0, 1]], other),
        "draws": lambda: model.link_scores([[0, 1]], other, draws=2),
        "links": lambda: model.top_links(1, graph=other),
        "features": lambda: model.reconstruct_features([0], [0], other),
        "attributes": lambda: model.top_attributes(1, graph=other),
        "capture": lambda: model.capture(torch.optim.Adam(model.parameters()), other),
    }


def assert_refused(model, other, words):
    for call in refusals(model, other).values():
        with pytest.raises(ValueError, match=words):
            call()


def test_the_independent_variant_refuses_other_numbers_of_nodes(tmp_path):
    model, other = trained(graph(9), variant="independent"), graph(10)
    words = r'graph: has 10 nodes, want 9, .* variant "independent" \(v1\) has a weight for each node'
    assert_refused(model, other, words)
    with pytest.raises(ValueError, match=r"features: got shape \(10, 5\), want \(9, 5\)"):
        model.encode(other.propagation, other.features, 1, 0)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match=rf"{words}.* in {tmp_path / 'model'}"):
        sf.SeeGera.load(tmp_path / "model", other)
    # The same number of nodes is all that is known of nodes without names.
    assert torch.equal(sf.SeeGera.load(tmp_path / "model", graph(9, 1)).embed(), model.embed(graph(9, 1)))


@pytest.mark.parametrize("names", [list("abcdefghi"), list(range(9))], ids=["words", "integers"])
def test_names_of_nodes_where_a_model_knows_its_nodes(tmp_path, names):
    built = {
        "independent": (trained(graph(9, nodes=names), variant="independent"), graph),
        "identity": (sf.SeeGera(sf.Graph(graph(9).adjacency, nodes=names), **SMALL), featureless),
    }
    for model, make in built.values():
        model.save(tmp_path / "model")
        for made in (model, sf.SeeGera.load(tmp_path / "model"), copy.deepcopy(model)):
            assert_refused(made, make(9, nodes=names[::-1]), "its nodes have other names than those of the model")
            for alike in (make(9, 1, nodes=names), make(9, 1)):
                made(alike).loss.backward()
        first = (tmp_path / "model").read_bytes()
        sf.SeeGera.load(tmp_path / "model").save(tmp_path / "model")
        assert (tmp_path / "model").read_bytes() == first
    # A correlated model with features takes any nodes.
    model = trained(graph(9, nodes=names))
    model.embed(graph(9, nodes=names[::-1]))
    assert model.node_digest is None


def featureless(count, seed=0, **options):
    return sf.Graph(graph(count, seed).adjacency, **options)


def test_names_are_told_apart():
    digests = {
        made.node_digest
        for made in (
            graph(3, nodes=["1", "2", "3"]),
            graph(3, nodes=[1, 2, 3]),
            graph(3, nodes=["1", "23", "4"]),
            graph(3, nodes=["12", "3", "4"]),
            graph(3, nodes=['1", "2', "3", "4"]),
        )
    }
    assert len(digests) == 5
    assert graph(3).node_digest is None


def test_a_model_without_features_knows_its_nodes_only(tmp_path):
    model = sf.SeeGera(featureless(9), **SMALL)
    model.save(tmp_path / "model")
    words = "graph: has 10 features, want 9, .* trained without features, so that each node is a feature of its own"
    for made in (model, sf.SeeGera.load(tmp_path / "model")):
        assert_refused(made, featureless(10), words)
    with pytest.raises(ValueError, match=words):
        sf.SeeGera.load(tmp_path / "model", featureless(10))
    # A part of the graph has the model's features, whatever the order of its nodes.
    for count in (3, 9):
        named = sf.SeeGera(featureless(9, nodes=list("abcdefghi")), **SMALL)
        assert named.embed(named.graph.subgraph(list(range(9))[::-1][:count])).shape == (count, 3)
    with pytest.raises(ValueError, match=r"has 4 features, want 5, .* the graph was given none, so that each node is"):
        trained(graph(9)).embed(featureless(4))
    with pytest.raises(ValueError, match=r"has 6 features, want 5, those of the model$"):
        trained(graph(9)).embed(graph(4, features=6))


@pytest.mark.parametrize(
    ("field", "text"),
    [("identity_features", "yes"), ("identity_features", ""), ("node_digest", "0" * 63), ("node_digest", "G" * 64)],
)
def test_a_wrong_field_of_the_file_is_refused(tmp_path, field, text):
    path = tmp_path / "model"
    sf.SeeGera(featureless(9, nodes=list("abcdefghi")), **SMALL).save(path)
    content = path.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:length])
    assert field in header["__metadata__"]
    header["__metadata__"][field] = text
    written = json.dumps(header).encode()
    path.write_bytes(len(written).to_bytes(8, "little") + written + content[length:])
    with pytest.raises(ValueError, match=f"{field}: got"):
        sf.SeeGera.load(path)


def test_files_and_copies_with_another_graph(tmp_path):
    model, other = trained(graph(9)), graph(13, 1)
    model.save(tmp_path / "model")
    loaded = sf.SeeGera.load(tmp_path / "model", other)
    assert loaded.graph is other
    assert loaded.num_nodes == 9
    assert torch.equal(loaded.embed(), model.embed(other))
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    copied = copy.deepcopy(loaded)
    assert copied.graph is other
    assert torch.equal(copied(seed=1).loss, model(other, seed=1).loss)
    # The step of a recording is checked before the device is.
    with pytest.raises(ValueError, match="model: is on cpu"):
        model.capture(torch.optim.Adam(model.parameters()), other)


# --- nodes that arrive later -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_node_that_arrives_later(layers):
    count = 14
    path = scipy.sparse.diags([1.0, 1.0], [-1, 1], shape=(count, count))
    values = np.random.default_rng(0).random((count + 1, FEATURES))
    known = sf.Graph(path, values[:-1])
    model = trained(known, encoder_layers=layers)
    grown = sf.Graph(scipy.sparse.diags([1.0, 1.0], [-1, 1], shape=(count + 1, count + 1)), values)
    embedding, before = model.embed(grown, seed=2), model.embed(seed=2)
    fresh = sf.SeeGera(grown, model.config)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(embedding, fresh.embed(seed=2))
    # The new node changes the degree of its neighbour, and so what that one's neighbours take from it.
    near = layers + 1
    assert torch.equal(embedding[: count - near], before[: count - near])
    assert not torch.equal(embedding[count - near], before[count - near])


def test_nodes_in_the_order_that_they_came_in():
    """As in docs/answers.md: names are sorted, and a node's number picks its noise."""
    edges = {"from": list("bcdefgh"), "to": list("cdefghi")}
    rows = {"name": list("bcdefghi"), "age": [3.0, 1, 4, 1, 5, 9, 2, 6], "size": [1.0, 2, 3, 4, 5, 6, 7, 8]}
    known = sf.Graph.from_table(edges, rows)
    model = trained(known, likelihood="mse", encoder_layers=1)
    more = {name: [*column, new] for (name, column), new in zip(rows.items(), ["a", 7.0, 9], strict=True)}
    grown = sf.Graph.from_table({"from": [*edges["from"], "a"], "to": [*edges["to"], "i"]}, more)
    number = {name: k for k, name in enumerate(grown.nodes)}
    grown = grown.subgraph([number.pop(name) for name in known.nodes] + list(number.values()))
    assert grown.nodes.tolist() == list("bcdefghia")
    assert torch.equal(model.embed(grown)[:6], model.embed()[:6])


# --- rows at a time --------------------------------------------------------------------------------------------------

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


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def command(run, tmp_path):
    """Runs a command with a model of two people on a graph of four others."""
    (tmp_path / "edges.csv").write_text("from,to\nAnn,Bob\nBob,Eve\nEve,Zoe\n")
    (tmp_path / "people.csv").write_text("name,age,size\nAnn,0.3,1\nBob,0.2,0\nEve,0.4,1\nZoe,0.1,1\n")
    people = {"name": ["x", "y"], "age": [1, 0], "size": [0, 1]}
    model = sf.SeeGera(sf.Graph.from_table({"a": ["x"], "b": ["y"]}, people), **SMALL)
    model.save(tmp_path / "model.safetensors")
    tables = ["--edges", tmp_path / "edges.csv", "--features", tmp_path / "people.csv"]
    return lambda name, *options: run(name, tmp_path / "model.safetensors", *tables, *options)


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_the_command_embeds_another_graph(command, tmp_path, monkeypatch, suffix):
    out = tmp_path / f"e{suffix}"
    status, printed, _ = command("embed", "--out", out)
    assert status == 0
    assert "4 x 3" in printed
    first = out.read_bytes()
    if suffix == ".npy":
        given = sf.Graph.from_table(tmp_path / "edges.csv", tmp_path / "people.csv")
        embedding = sf.SeeGera.load(tmp_path / "model.safetensors").embed(given)
        assert np.array_equal(np.load(out), embedding.numpy())
    else:
        assert first.decode().splitlines()[4].startswith("Zoe,")
    # Where it is large, it is computed some rows at a time.
    os.unlink(out)
    monkeypatch.setattr("seegera_fast.command.embed.LARGE", 10)
    monkeypatch.setattr(Encoder, "forward", None)
    assert command("embed", "--out", out)[0] == 0
    assert out.read_bytes() == first


def test_other_commands_with_another_graph(command, tmp_path):
    assert command("links", "--top", 1, "--draws", 0, "--out", tmp_path / "links.csv")[0] == 0
    assert (tmp_path / "links.csv").read_text().count("\n") == 5
    # The one entry that is 0 is Bob's.
    assert command("complete", "--out", tmp_path / "attributes.csv")[0] == 0
    assert [line.rpartition(",")[0] for line in (tmp_path / "attributes.csv").read_text().splitlines()] == [
        "node,feature",
        "Bob,size",
    ]
    (tmp_path / "people.csv").write_text("name,age,weight\nAnn,0.3,1\nBob,0.2,0\nEve,0.4,1\nZoe,0.1,1\n")
    for name in ("embed", "links", "complete"):
        status, _, refusal = command(name, "--out", tmp_path / "out.csv")
        assert status == 2
        assert "feature 1 is 'weight', want 'size'" in refusal
