"""A model on graphs that it was not built with: any number of nodes, and nodes that arrive later."""

import copy
import json
import os

import numpy as np
import pytest
import scipy.sparse
import torch
from trained_models import FEATURES, SMALL, assert_all_equal, graph, trained

import seegera_fast as sf
from seegera_fast.nn import Encoder

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
        assert "other features than the model (missing: 'size'; extra: 'weight'), want its 2" in refusal
