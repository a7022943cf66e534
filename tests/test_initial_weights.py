"""Initial weights are those of the seed, whatever torch's defaults are and how many threads build models."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from small_model import WIDTHS, graph
from tolerances import assert_same_bits

import seegera_fast as sf
from seegera_fast import tasks


def weights(seed=3, **fields):
    fields = {**WIDTHS, "likelihood": "gaussian", "decoder": "mlp", **fields}
    return sf.SeeGera(graph(), seed=seed, **fields).state_dict()


def assert_same_weights(found, expected):
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert_same_bits(found[name], tensor, name=name)


def test_initial_weights_neither_read_nor_write_the_global_generator(path):
    expected, state = weights(), torch.random.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        assert_same_weights(weights(), expected)
    sf.SeeGera.load(path)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_initial_weights_are_those_of_torchs_generator_with_that_seed():
    """They have been so from the first version on."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        bound = (6 / (graph().num_features + 5 + 5)) ** 0.5
        expected = torch.empty(graph().num_features, 5).uniform_(-bound, bound)
    assert_same_bits(weights()["node_mean.first.weight"], expected.to(graph().dtype), name="first")


def test_initial_weights_do_not_depend_on_torchs_defaults(path):
    expected = weights()
    loaded = sf.SeeGera.load(path).state_dict()
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        found, again = weights(), sf.SeeGera.load(path).state_dict()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert_same_weights(found, expected)
    assert_same_weights(again, loaded)


def in_threads(work, count=8):
    """The results of ``work(number)`` in as many threads, which start together."""
    start = threading.Barrier(count)

    def one(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_models_that_threads_build_have_the_weights_of_their_seeds():
    def build(number):
        # Large enough that the threads build at the same time.
        return [weights(seed, hidden_dim=2000) for seed in range(number, number + 5)]

    expected = [build(number) for number in range(8)]
    for found, wanted in zip(in_threads(build), expected, strict=True):
        for one, other in zip(found, wanted, strict=True):
            assert_same_weights(one, other)


@pytest.mark.parametrize("task", ["link_prediction", "attribute_inference", "node_classification"])
def test_whole_runs_in_threads_have_the_bits_of_one_thread(task, tmp_path):
    base = graph()
    labelled = sf.Graph(base.adjacency, base.features, torch.arange(base.num_nodes) % 3)
    fields = {"epochs": 4, "dropout": 0.2, "structure_masking_rate": 0.2, "evaluate_every": 2, "progress": False}
    if task == "node_classification":
        fields.update(classifier_epochs=3, classifier_dropout=0.1, train=0.4, valid=0.3)

    def run(number, folder):
        checkpoint = sf.Checkpoint(tmp_path / folder / str(number), every=2)
        result = getattr(tasks, task)(labelled, seed=number, checkpoint=checkpoint, **WIDTHS, **fields)
        result.model.save(tmp_path / folder / f"{number}.model")
        return [{key: value for key, value in record.items() if key != "seconds"} for record in result.history]

    for folder in ("one", "many"):
        (tmp_path / folder).mkdir()
    expected = [run(number, "one") for number in range(8)]
    assert in_threads(lambda number: run(number, "many")) == expected
    for number in range(8):
        one, many = ((tmp_path / folder / f"{number}.model").read_bytes() for folder in ("one", "many"))
        assert one == many
