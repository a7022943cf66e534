"""Several processes of one run: what they exchange, and how they end together."""

import os
import signal
import time

import pytest
import ranks
import torch

import seegera_fast as sf
from seegera_fast.command.options import Parser
from seegera_fast.command.processes import own_device, require_shared
from seegera_fast.distributed import Processes, ProcessLost, _exchanged_on, connected, rank_of_error
from seegera_fast.support.atomic import Unwritable
from seegera_fast.training import TrainingFailure


def exchanged(rank, size):
    """What each method of Processes gives, in one start of the processes."""
    processes = Processes.current()
    whole = torch.arange(21.0, dtype=torch.float64).reshape(7, 3)
    found = {
        "processes": processes,
        "shares": {count: list(processes.share(count)) for count in (0, 1, 5, 7)},
        "sum": processes.sum([0.1 * (rank + 1), 1.0]),
        "any": (processes.any(rank == 1), processes.any(False)),
        "broadcast": processes.broadcast(lambda: {"from": rank, "tensor": torch.tensor([rank])}),
        "gathered": processes.gather(("value", rank)),
        "rows": list(processes.exchange_rows(whole[list(processes.share(7))], 7, 2)),
        "one row": list(processes.exchange_rows(whole[list(processes.share(1))], 1, 2)),
        "no rows": list(processes.exchange_rows(whole[:0], 0, 2)),
    }
    weights = [torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(3))]
    frozen = torch.nn.Parameter(torch.ones(1), requires_grad=False)
    with processes.adding_gradients([weights[0], frozen, weights[1]]):
        ((rank + 1) * weights[0]).sum().backward()
        if rank == 0:
            weights[1].sum().backward()
    found["gradients"] = [weight.grad for weight in weights]
    assert frozen.grad is None
    return found


@pytest.mark.parametrize("size", [2, 3])
def test_exchanges(size):
    found = ranks.values(ranks.run(exchanged, size, size=size))
    whole = torch.arange(21.0, dtype=torch.float64).reshape(7, 3)
    for rank, got in enumerate(found):
        assert got["processes"] == Processes(rank, size)
        assert got["sum"] == pytest.approx([0.1 * sum(range(1, size + 1)), size], rel=1e-15)
        assert got["any"] == (True, False)
        assert got["broadcast"] == {"from": 0, "tensor": torch.tensor([0])}
        assert got["gathered"] == [("value", other) for other in range(size)]
        assert [number for rows, _ in got["rows"] for number in rows] == list(range(7))
        assert max(len(rows) for rows, _ in got["rows"]) == 2
        assert torch.equal(torch.cat([block for _, block in got["rows"]]), whole)
        assert torch.equal(got["one row"][0][1], whole[:1])
        assert len(got["one row"]) == 1
        assert got["no rows"] == []
        assert torch.equal(got["gradients"][0], torch.full((2, 2), sum(range(1, size + 1))))
        assert torch.equal(got["gradients"][1], torch.ones(3))
    for count in (0, 1, 5, 7):
        assert [number for got in found for number in got["shares"][count]] == list(range(count))
    assert max(len(got["shares"][7]) for got in found) == -(-7 // size)


def test_one_process_exchanges_nothing():
    processes, rows = Processes.current(), torch.ones(3, 2)
    assert processes == Processes(0, 1)
    assert processes.first
    assert processes.share(3) == range(3)
    assert [(number, block.tolist()) for number, block in processes.exchange_rows(rows, 3, 2)] == [
        (range(1), [[1.0, 1.0]]),
        (range(1, 3), [[1.0, 1.0]] * 2),
    ]
    assert processes.sum([1, 0.5]) == [1.0, 0.5]
    assert processes.any(True)
    assert processes.broadcast(lambda: rows) is rows
    processes.require_same({"seed": 1})
    for block in (processes.together(), processes.adding_gradients([])):
        with pytest.raises(ZeroDivisionError), block:
            _ = 1 / 0


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def caught(work):
    try:
        work()
    except Exception as error:
        return type(error), str(error), rank_of_error(error), type(error.__cause__)
    return None


def failing(rank):
    """The errors that a process sees when one of them fails, each way of failing in turn."""
    processes, weight = Processes.current(), torch.nn.Parameter(torch.ones(2))

    def second_fails(error):
        with processes.together():
            if rank == 1:
                raise error

    def both_fail():
        with processes.together():
            raise ValueError(f"of {rank}")

    def step_fails():
        with processes.adding_gradients([weight]):
            if rank == 1:
                raise TrainingFailure(7, "link")
            weight.sum().backward()

    def make():
        raise OSError(28, "No space left on device", "file")

    found = [
        caught(lambda: second_fails(KeyError("name"))),
        caught(lambda: second_fails(Unpicklable(1, 2))),
        caught(both_fail),
        caught(step_fails),
        caught(lambda: processes.broadcast(make)),
        caught(lambda: second_fails(Unwritable("out", OSError(28, "No space left on device")))),
        caught(
            lambda: processes.require_same({"seed": 3, "mask": rank, "only": 0} if rank else {"seed": 3, "mask": 0})
        ),
    ]
    # After all of this they still understand each other.
    return found, processes.sum([rank])


def test_an_error_of_one_process_is_raised_by_all():
    first, second = ranks.values(ranks.run(failing))
    assert first[1] == second[1] == [1.0]
    kinds = [KeyError, RuntimeError, ValueError, TrainingFailure, OSError, Unwritable, ValueError]
    assert [kind for kind, *_ in first[0]] == kinds
    assert [kind for kind, *_ in second[0]] == [KeyError, Unpicklable, *kinds[2:]]
    assert [rank for _, _, rank, _ in first[0]] == [rank for _, _, rank, _ in second[0]] == [1, 1, 0, 1, 0, 1, 0]
    messages = [message for _, message, *_ in first[0]]
    assert messages[1] == "Unpicklable: 1 and 2"
    assert messages[2] == second[0][2][1] == "of 0"
    assert messages[3] == second[0][3][1] == str(TrainingFailure(7, "link"))
    assert messages[4] == second[0][4][1] == "[Errno 28] No space left on device: 'file'"
    assert messages[5] == "out can't be written: No space left on device"
    assert messages[6] == second[0][6][1]
    assert messages[6] == (
        "process 1 is about to do another run, which differs in mask (process 0: 0, process 1: 1), "
        "only (process 0: absent, process 1: 0)"
    )
    assert first[0][0][3] is RuntimeError
    assert second[0][2][3] is ValueError


def vanishing(rank):
    processes = Processes.current()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    processes.sum([1.0])


def test_a_process_that_is_killed_ends_the_others():
    first, second = ranks.run(vanishing)
    assert second.status == -signal.SIGKILL
    assert first.status == 1
    assert isinstance(first.error, ProcessLost)
    assert str(first.error).startswith("another process of the run has ended or does not answer; its own message")


def connected_again(rank, late):
    found = []
    for _ in range(3):
        with connected(torch.device("cpu")) as processes:
            found.append((processes, processes.sum([1.0])))
            if rank == 0 and late == "inside":
                time.sleep(0.5)
        if rank == 0 and late == "between":
            time.sleep(0.5)
    return found


# The first process is later than the others: it writes the files of a run.
@pytest.mark.parametrize("late", ["inside", "between"])
@pytest.mark.parametrize("agent", [True, False])
def test_processes_connect_again(agent, late):
    outcomes = ranks.run(connected_again, late, connect=False, agent=agent)
    for rank, found in enumerate(ranks.values(outcomes)):
        assert found == [(Processes(rank, 2), [2.0])] * 3


def test_number_of_processes_by_the_environment(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert Processes.launched() == Processes()
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert Processes.launched() == Processes()
    monkeypatch.setenv("RANK", "3")
    assert Processes.launched() == Processes(3, 4)
    assert Processes.current() == Processes()


def seeds(rank):
    graph = sf.Graph(torch.ones(4, 4) - torch.eye(4), torch.eye(4))
    model = sf.SeeGera(graph, embedding_dim=2, hidden_dim=2)
    return [model.next_seed(), model.next_seed()]


def test_seeds_of_steps_differ_between_processes():
    first, second = ranks.values(ranks.run(seeds))
    assert first == seeds(0)
    assert not {*first} & {*second}


@pytest.mark.parametrize(
    ("configuration", "device", "found"),
    [
        ("cpu:gloo,cuda:gloo", "cpu", "cpu"),
        ("cpu:gloo,cuda:gloo", "cuda:1", "cpu"),
        ("cpu:gloo,cuda:nccl", "cpu", "cpu"),
        ("cpu:gloo,cuda:nccl", "cuda:1", "cuda:1"),
        ("cuda:nccl", "cpu", "cuda:3"),
        ("cuda:nccl", "cuda:1", "cuda:1"),
    ],
)
def test_where_tensors_are_exchanged(monkeypatch, configuration, device, found):
    monkeypatch.setattr("torch.distributed.get_backend_config", lambda: configuration)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 3)
    assert _exchanged_on(torch.device(device)) == torch.device(found)


def test_each_process_of_the_command_has_its_own_device(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert own_device(torch.device("cpu")) == torch.device("cpu")
    assert own_device(torch.device("cuda")) == torch.device("cuda", 1)
    with pytest.raises(ValueError, match="--device: got cuda:0 for each of several processes, want cuda, so that"):
        own_device(torch.device("cuda:0"))
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="got cuda for process 2 of this machine, and torch sees 2 NVIDIA GPUs"):
        own_device(torch.device("cuda"))


@pytest.mark.parametrize(("rank", "by_torchrun", "said"), [("0", True, True), ("1", True, False), ("1", False, True)])
def test_which_process_says_that_an_option_is_bad(rank, by_torchrun, said, monkeypatch, capsys):
    for name, value in {"RANK": rank, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none" if by_torchrun else ""}.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit, match="2"):
        Parser(prog="seegera-fast").error("bad")
    assert capsys.readouterr().err == ("seegera-fast: error: bad\n" if said else "")


def test_commands_of_one_process_are_refused_in_several(monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    require_shared("train")
    with pytest.raises(ValueError, match="embed runs in one process, got 2 of torchrun"):
        require_shared("embed")
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    require_shared("embed")
