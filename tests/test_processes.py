"""Training in several processes: the same run as in one, and all of them end together."""

import contextlib
import io
import json
import os
import signal
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import ranks
import scipy.sparse
import torch

import seegera_fast as sf
from seegera_fast.batches import source_of
from seegera_fast.distributed import Processes, ProcessLost
from seegera_fast.objective import Output
from seegera_fast.steps import EagerSteps, run_epoch

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
    terms = run_epoch(
        model, EagerSteps(model, optimizer), source, 5, 1, 0.5, lambda done, total: None, Processes.current()
    )
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


def message_of(work):
    """The kind and the message of the error that a call raises."""
    try:
        work()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def differing(rank):
    """What processes are told that were given different things, each in turn; and that they can go on after it."""

    def run(graph=None, given=None, **options):
        graph = make_graph() if graph is None else graph
        fields = {**FIELDS, "epochs": 1, **options}
        return message_of(lambda: sf.tasks.link_prediction(graph, batches=given or batches(), **fields))

    parts = torch.arange(48) % 6
    other = make_graph()
    other.features.values[0] += rank
    found = {
        "seed": run(seed=rank),
        "field": run(learning_rate=0.1 * (1 + rank)),
        "epochs": run(epochs=1 + rank),
        "graph": run(graph=other),
        "parts": run(given=batches(parts=parts.roll(rank))),
        "a number and parts": run(given=batches(parts=6 if rank else parts)),
        "steps": run(given=batches(per_step=2 * (1 + rank))),
        "a field of one": run(dropout=-1.0 if rank else 0.0),
    }
    return found, run()


def test_different_runs_are_refused_before_the_first_step():
    (first, after), (second, _) = ranks.values(ranks.run(differing))
    assert first == second
    assert after is None
    for name, parts in {
        "seed": ["seed (process 0: 0, process 1: 1)", "seed of the weights"],
        "field": ["learning_rate (process 0: 0.1, process 1: 0.2)"],
        "epochs": ["epochs (process 0: 1, process 1: 2)"],
        "graph": ["differs in features (process 0: "],
        "parts": ["differs in parts (process 0: "],
        "a number and parts": ["differs in parts (process 0: ", "process 1: 6)"],
        "steps": ["differs in per_step (process 0: 2, process 1: 4)"],
        "a field of one": ["dropout: got -1"],
    }.items():
        kind, message = first[name]
        assert kind == "ValueError", name
        for part in parts:
            assert part in message, name


def refused(rank):
    def run(given, graph=None):
        fields = {**FIELDS, "epochs": 1}
        return message_of(lambda: sf.tasks.link_prediction(graph or make_graph(), batches=given, **fields))

    class Counted(list):
        def __init__(self, batches, length):
            super().__init__(batches)
            self.length = length

        def __len__(self):
            return self.length

    # As much of PyTorch Geometric's Data as is read.
    whole = SimpleNamespace(n_id=torch.arange(48))
    return [
        # Before the graph is cut, as no graph of 48 nodes can be.
        run(batches(per_step=3, parts=99)),
        run(None),
        run(batches(per_batch=6)),
        run([whole] * (3 if rank else 2)),
        run(whole for _ in range(2)),
        run(type("Endless", (), {"__iter__": lambda loader: iter([whole, whole])})()),
        run(Counted([whole] * 2, 4)),
        run(Counted([whole] * 3, 2)),
        run([7] if rank else [whole]),
        run([whole, whole, whole]),
        run(batches(per_step=4)),
    ]


def test_batches_that_processes_cannot_share_are_refused():
    first, second = ranks.values(ranks.run(refused))
    assert first == second
    steps, whole, few, lengths, iterator, endless, short, long, number, loader, fine = first
    assert steps == (
        "ValueError",
        "per_step: got 3 in a run of 2 processes, want a multiple of 2, so that each takes as many batches of a step",
    )
    assert whole[0] == "ValueError"
    assert "batches: got None in a run of 2 processes, want seegera_fast.Batches" in whole[1]
    assert few == ("ValueError", "batches: got 1 an epoch in a run of 2 processes, want one for each")
    assert "differs in batches (process 0: 2, process 1: 3)" in lengths[1]
    assert iterator[0] == "TypeError"
    assert endless[1] == "batches: got a loader without a length in a run of 2 processes, want one with len()"
    assert short[1] == "batches: got 2 in epoch 1, want 4, the loader's length"
    assert long[1] == "batches: got 3 in epoch 1, want 2, the loader's length"
    assert "has no n_id" in number[1]
    assert loader is None
    assert fine is None


def test_processes_of_torchrun_that_are_not_connected_are_refused(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        ValueError, match=r"torchrun has started 2, and they are not connected; call torch\.distributed"
    ):
        sf.tasks.embed(make_graph(), epochs=1, batches=batches(parts=99), **FIELDS)


def ended(rank, folder):
    """How runs end that something happens to in one of the processes."""
    outcomes = {}
    forward = sf.SeeGera.forward

    def with_forward(change, **options):
        """A run whose forward pass in the process 1, in the third epoch, is changed."""
        seen = []

        def changed(model, *arguments, **given):
            seen.append(given["seed"])
            output = forward(model, *arguments, **given)
            # Three steps of an epoch, one batch in each.
            return change(output) if rank == 1 and len(seen) == 8 else output

        sf.SeeGera.forward = changed
        try:
            return trained(rank, **options)["history"]
        finally:
            sf.SeeGera.forward = forward

    def not_finite(output):
        return Output(output.loss * float("nan"), output.samples)

    def fails(output):
        raise MemoryError("no memory")

    def signalled(output):
        os.kill(os.getpid(), signal.SIGTERM)
        return output

    def unsaved(checkpoint, state, course, lock):
        raise MemoryError("no memory for the file")

    outcomes["nan"] = message_of(lambda: with_forward(not_finite))
    outcomes["error"] = message_of(lambda: with_forward(fails))
    outcomes["signal"] = len(with_forward(signalled))
    sf.Checkpoint.save = unsaved
    outcomes["unsaved"] = message_of(lambda: trained(rank, sf.Checkpoint(folder / "c.safetensors", every=1)))
    outcomes["early"] = len(trained(rank, epochs=40, learning_rate=0.3, patience=2)["history"])
    return outcomes


def test_processes_end_together(tmp_path):
    first, second = ranks.values(ranks.run(ended, tmp_path))
    assert first == second
    assert first["nan"][0] == "TrainingFailure"
    assert "epoch 3: loss became NaN" in first["nan"][1]
    assert first["error"] == ("MemoryError", "no memory")
    assert first["signal"] == 3
    assert first["unsaved"] == ("MemoryError", "no memory for the file")
    assert 3 < first["early"] < 40


def embedded(rank, folder):
    """Embeddings whose rows the processes share, in each way of keeping them."""
    graph, found = make_graph(), {}
    for name, options in {
        "gcn": {"num_importance_samples": 2},
        "mlp": {"encoder": "mlp"},
        "deep": {"encoder_layers": 3, "dtype": torch.float64},
    }.items():
        given = graph.to(dtype=options.pop("dtype", torch.float32))
        model = sf.SeeGera(given, embedding_dim=4, hidden_dim=6, noise_dim=2, **options)
        found[name] = (model.embed(shared=True, seed=3), model.embed(shared=True, seed=3, rows_at_once=5))
        if rank == 0:
            assert_rows(found[name], model.embed(seed=3))
    path = folder / "z.npy"
    written = model.embed(shared=True, seed=3, out=path)
    assert (written is None) == (rank > 0)
    shown, steps = [], sf.blocks.Steps
    sf.blocks.Steps = lambda *given, show: shown.append(show) or steps(*given, show=False)
    model.embed(shared=True, progress=True)
    assert shown == [rank == 0]
    sf.blocks.Steps = steps
    few = sf.SeeGera(sf.Graph(torch.ones(2, 2) - torch.eye(2), torch.eye(2)), embedding_dim=2, hidden_dim=2)
    found["few"] = (few.embed(shared=True), few.embed(shared=True, rows_at_once=1))
    errors = [
        message_of(lambda: model.embed(shared=True, rows_at_once=1 + rank)),
        message_of(lambda: model.embed(shared=True, out=folder / "missing" / "z.npy")),
    ]
    return found, errors


def assert_rows(found, expected):
    for one in found:
        assert one.shape == expected.shape
        assert torch.allclose(one, expected, rtol=1e-5, atol=1e-6)


def test_processes_share_the_rows_of_embeddings(tmp_path):
    outcomes = ranks.values(ranks.run(embedded, tmp_path, size=3))
    first, errors = outcomes[0]
    for found, others in outcomes[1:]:
        assert others == errors
        for name, pair in first.items():
            assert all(map(torch.equal, pair, found[name])), name
    assert np.array_equal(np.load(tmp_path / "z.npy"), first["deep"][0].numpy())
    assert errors[0][1].startswith("process 1 is about to do another run, which differs in rows_at_once (process 0: 1,")
    assert "missing" in errors[1][1]
    assert "can't be written" in errors[1][1]


def command(rank, calls):
    """What the command prints, and its exit status, for several calls."""
    from seegera_fast.command.main import main

    def picture(file, **content):
        file.write(b"picture")

    found = []
    for call in calls:
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            # The picture takes most of the time.
            mock.patch.object(sf.command.written, "save_picture", picture),
        ):
            try:
                status = main(call)
            except SystemExit as end:
                status = end.code
        found.append((status, out.getvalue(), err.getvalue()))
    return found


def test_command_in_two_processes(tmp_path):
    graph = make_graph()
    edges, features = tmp_path / "edges.csv", tmp_path / "features.npz"
    np.savetxt(edges, graph.edges().numpy(), fmt="%d", delimiter=",")
    scipy.sparse.save_npz(features, graph.features.to_scipy())
    own = ["train", "--edges", str(edges), "--features", str(features), "--epochs", "2"]
    own += ["--set", "embedding_dim=4", "--set", "hidden_dim=6", "--set", "negatives=edges"]
    parts = ["--parts", "6", "--partition", "streaming", "--batches-per-step", "2"]
    names = {name: str(tmp_path / name) for name in ("fine", "alone", "bad")}
    calls = [
        [*own, *parts, "--out", names["fine"]],
        [*own, *parts, "--out", names["bad"], "--set", "learning_rate=1e30"],
        [*own, "--out", names["bad"]],
        [*own, *parts, "--out", names["bad"], "--unknown"],
        [*own, *parts, "--out", names["bad"], "--root", "x"],
    ]
    first, second = ranks.values(ranks.run(command, calls, connect=False))
    assert [status for status, *_ in first] == [status for status, *_ in second] == [0, 3, 2, 2, 2]
    assert all((out, err) == ("", "") for _, out, err in second)
    assert "48 nodes" in first[0][2]
    assert "in 2 processes" in first[0][2]
    for (_, _, err), part in zip(
        first[1:], ("epoch 1: ", "batches: got None in a run of 2", "unknown option", "--root goes with"), strict=True
    ):
        assert part in err.splitlines()[-1]
    assert not (tmp_path / "bad").exists()

    assert command(0, [[*own, *parts, "--out", names["alone"]]])[0][0] == 0
    found, expected = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("fine", "alone"))
    for line, other in zip(found["history"], expected["history"], strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-5)
    assert found["scores"]["test"] == pytest.approx(expected["scores"]["test"], rel=1e-5)
    embeddings = [np.load(tmp_path / name / "embedding.npy") for name in ("fine", "alone")]
    assert np.allclose(*embeddings, rtol=1e-3, atol=1e-5)


def killed(rank, path):
    """A run of which one process is killed in the third epoch, after the first checkpoint."""
    forward, seen = sf.SeeGera.forward, []

    def changed(model, *arguments, **given):
        seen.append(given["seed"])
        if rank == 1 and len(seen) == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return forward(model, *arguments, **given)

    sf.SeeGera.forward = changed
    return trained(rank, sf.Checkpoint(path, every=1))


def whole_and_resumed(rank, path):
    return trained(rank), trained(rank, sf.Checkpoint(path, every=1, resume=True))


def test_a_run_goes_on_to_the_same_bits_after_a_process_was_killed(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    first, second = ranks.run(killed, path)
    assert isinstance(first.error, ProcessLost)
    assert second.status == -signal.SIGKILL
    assert path.exists()
    for whole, resumed in ranks.values(ranks.run(whole_and_resumed, path)):
        assert_same_runs(resumed, whole)
