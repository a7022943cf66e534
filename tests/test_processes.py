"""Training in several processes: the same run as in one, and all of them end together."""

import numpy as np
import pytest
import ranks
import scipy.sparse
import torch

import seegera_fast as sf
from seegera_fast.batches import source_of
from seegera_fast.distributed import Processes
from seegera_fast.steps import run_epoch

FIELDS = {"embedding_dim": 4, "hidden_dim": 6, "negatives": "edges", "progress": False}


def make_graph(nodes=48, columns=7, dtype=torch.float32):
    """Six communities with a few links between them."""
    random = np.random.default_rng(3)
    group = np.arange(nodes) % 6
    chance = np.where(group[:, None] == group[None, :], 0.6, 0.04)
    upper = np.triu(random.random((nodes, nodes)) < chance, 1)
    features = scipy.sparse.csr_matrix(random.random((nodes, columns)) * (random.random((nodes, columns)) < 0.5))
    return sf.Graph((upper | upper.T).astype(np.float32), features, dtype=dtype)


def batches(per_step=2, **options):
    return sf.Batches(**{"parts": 6, "per_batch": 1, "method": "streaming", "per_step": per_step, **options})


def first_gradients(rank, dtype):
    """The gradients of the first step, its losses, and the weights after an epoch."""
    graph = make_graph(dtype=dtype)
    model = sf.SeeGera(graph, embedding_dim=4, hidden_dim=6, negatives="edges", structure_masking_rate=0.3)
    source, found = source_of(graph, batches()), []

    class Recorded(torch.optim.SGD):
        def step(self):
            found.append([parameter.grad.clone() for parameter in model.parameters()])
            super().step()

    optimizer = Recorded(model.parameters(), lr=1e-3)
    terms = run_epoch(model, optimizer, source, 5, 1, 0.5, lambda done, total: None, Processes.current())
    return found[0], terms


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_two_processes_have_the_gradient_of_one(dtype, error):
    alone, losses = first_gradients(0, dtype)
    for gradients, terms in ranks.values(ranks.run(first_gradients, dtype)):
        assert terms == pytest.approx(losses, rel=error)
        for found, expected in zip(gradients, alone, strict=True):
            assert float((found - expected).norm() / expected.norm()) <= error


def trained(rank, checkpoint=None, epochs=6, **options):
    """What a run of link prediction gives."""
    found = sf.tasks.link_prediction(
        make_graph(), epochs=epochs, batches=batches(), checkpoint=checkpoint, **{**FIELDS, **options}
    )
    history = [{name: value for name, value in line.items() if name != "seconds"} for line in found.history]
    return {
        "history": history,
        "best": found.best_epoch,
        "scores": [found.auc, found.ap, found.valid_auc, found.valid_ap, found.mrr],
        "calibration": found.model.calibration,
        "weights": list(found.model.state_dict().values()),
        "fields": found.fields,
    }


def trained_in_parts(rank, folder):
    """A whole run; the same in two parts; and the first part alone, for another number of processes."""
    whole = trained(rank)
    path = f"{folder}/checkpoint.safetensors"
    trained(rank, sf.Checkpoint(path, every=2), epochs=3)
    resumed = trained(rank, sf.Checkpoint(path, every=2, resume=True))
    trained(rank, sf.Checkpoint(f"{folder}/half.safetensors"), epochs=3)
    return whole, resumed


def assert_close_runs(found, expected):
    assert found["fields"] == expected["fields"]
    assert found["best"] == expected["best"]
    assert found["scores"] == pytest.approx(expected["scores"], rel=1e-6)
    assert len(found["history"]) == len(expected["history"])
    for line, other in zip(found["history"], expected["history"], strict=True):
        assert line == pytest.approx(other, rel=1e-5)
    for weight, other in zip(found["weights"], expected["weights"], strict=True):
        assert torch.allclose(weight, other, rtol=1e-4, atol=1e-6)


def assert_same_runs(found, expected):
    for name in ("history", "best", "scores", "calibration", "fields"):
        assert found[name] == expected[name], name
    assert all(map(torch.equal, found["weights"], expected["weights"]))


def test_a_run_of_two_processes_is_that_of_one_and_goes_on_from_a_checkpoint(tmp_path):
    (first, resumed), (second, also) = ranks.values(ranks.run(trained_in_parts, tmp_path))
    for found in (resumed, second, also):
        assert_same_runs(found, first)
    assert_close_runs(first, trained(0))
    # The other process may take over what two have begun.
    assert_close_runs(trained(0, sf.Checkpoint(tmp_path / "half.safetensors", resume=True)), first)
