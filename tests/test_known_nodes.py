"""Models that know their nodes, by number or by name, refuse a graph of others."""

import copy
import json

import pytest
import torch
from trained_models import SMALL, graph, trained

import seegera_fast as sf


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
